"""Two machines under one name: rows of one identity that no physics can bring together.

Steps at the same coordinates that take 784 ms in one session and 149 ms in another are not noise.
Rows whose times, relative to what operators predict, fall into two heaps with a wide gap between
them, at coordinates that both heaps have, are two regimes if a heap holds whole runs, or labels, or
a large share of all rows. A few wild rows inside a run are outliers and no regime.

Where operators miss by more in one place than in another, heaps may overlap though runs do not: so
runs are first compared with each other, at the steps that both measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aisim_v41.evidence.forwards.samples import Floats, Places

GAP: Final = 0.45
"""Smallest gap [log] between heaps: a factor of 1.57."""
LEAST_ROWS: Final = 3
"""Rows that a heap has at least."""
PURE: Final = 0.9
"""Share of a run's rows in one heap from which on the run belongs to it."""
LARGE_SHARE: Final = 0.25
"""Share of all rows from which on a heap that mixes with another inside runs is a regime too."""
MOST_RUNS: Final = 100
"""Runs up to which each is compared with each."""
NEAR: Final = 0.3
"""Distance of features below which two steps have the same coordinates."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Rows that belong together.

    Attributes:
        name: label of the source where its rows share one, else "fast", "slow" or a number.
        rows: their numbers.
        low_s, high_s: range of their times [s].
    """

    name: str
    rows: tuple[int, ...]
    low_s: float
    high_s: float


def find_regimes(
    ratio: Floats, seconds: Floats, features: Floats, runs: Sequence[str], labels: Sequence[str]
) -> tuple[Regime, ...]:
    """The regimes of rows, fastest first; one if they belong together.

    Args:
        ratio: log(measured / predicted by operators) [rows].
        seconds: measured [rows].
        features: [rows, axes].
        runs, labels: process run and the source's label of each row.
    """
    named = np.asarray(runs)
    heaps = [
        heap
        for rows in _of_runs(ratio, features, named)
        for heap in _split(rows, ratio, features, named)
    ]
    heaps.sort(key=lambda heap: float(np.median(ratio[heap])) if len(heap) else 0.0)
    names = _names(heaps, labels)
    return tuple(
        Regime(name, tuple(map(int, heap)), float(seconds[heap].min()), float(seconds[heap].max()))
        for name, heap in zip(names, heaps, strict=True)
    )


def _of_runs(ratio: Floats, features: Floats, runs: np.ndarray) -> list[Places]:
    """Rows of runs that differ by `GAP` or more at nearly all steps that both have; usually one."""
    names, run = np.unique(runs, return_inverse=True)
    if not 1 < len(names) <= MOST_RUNS:
        return [np.arange(len(ratio))]
    _, site = np.unique(np.round(features, 6), axis=0, return_inverse=True)
    shape = len(names), int(site.max()) + 1
    place = run * shape[1] + site.ravel()
    number = np.bincount(place, minlength=shape[0] * shape[1])
    total = np.bincount(place, ratio, minlength=shape[0] * shape[1])
    means = np.where(number > 0, total / np.maximum(number, 1), np.nan).reshape(shape)
    groups = np.arange(len(names))
    related = [_related(one, other) for one in means for other in means]
    relation = np.array(related).reshape(len(names), len(names))
    for one, other in zip(*np.nonzero(relation > 0), strict=True):
        groups[groups == groups[other]] = groups[one]
    for one in np.unique(groups):
        for other in np.unique(groups):
            if one != other and not np.any(relation[groups == one][:, groups == other] < 0):
                groups[groups == other] = one  # nothing says that they differ
    return [np.flatnonzero(groups[run] == group) for group in np.unique(groups)]


def _related(one: Floats, other: Floats) -> int:
    """1 for runs that agree, -1 for runs that are apart, 0 for too few steps in common."""
    apart = one - other
    apart = apart[np.isfinite(apart)]
    if len(apart) < LEAST_ROWS:
        return 0
    beyond = float(np.mean(np.sign(np.median(apart)) * apart > GAP))
    return -1 if beyond >= PURE else 1


def _split(rows: Places, ratio: Floats, features: Floats, runs: np.ndarray) -> list[Places]:
    """Heaps of rows, lowest ratio first."""
    order = rows[np.argsort(ratio[rows], kind="stable")]
    gaps = np.diff(ratio[order])
    for place in np.argsort(-gaps, kind="stable"):
        if gaps[place] < GAP:
            break
        low, high = order[: place + 1], order[place + 1 :]
        if _are_two(low, high, features, runs):
            return [*_split(low, ratio, features, runs), *_split(high, ratio, features, runs)]
    return [order]


def _are_two(low: Places, high: Places, features: Floats, runs: np.ndarray) -> bool:
    if min(len(low), len(high)) < LEAST_ROWS or not _meet(features[low], features[high]):
        return False
    both = len(low) + len(high)
    if min(len(low), len(high)) >= LARGE_SHARE * both:
        return True
    small, large = sorted((low, high), key=len)
    inside = sum(
        int((runs[small] == run).sum())
        for run in np.unique(runs[small])
        if (runs[small] == run).sum()
        >= PURE * ((runs[small] == run).sum() + (runs[large] == run).sum())
    )
    return inside >= PURE * len(small)


def _meet(one: Floats, other: Floats) -> bool:
    """Whether two heaps have coordinates in common: at least two steps of the smaller."""
    small, large = (one, other) if len(one) <= len(other) else (other, one)
    nearest = np.array([np.sqrt(np.square(large - step).sum(axis=1)).min() for step in small])
    return int((nearest < NEAR).sum()) >= 2


def _names(heaps: list[Places], labels: Sequence[str]) -> list[str]:
    names: list[str] = []
    plain = ["fast", "slow"] if len(heaps) == 2 else [str(n + 1) for n in range(len(heaps))]
    for number, heap in enumerate(heaps):
        own = {labels[row] for row in heap}
        label = own.pop() if len(own) == 1 else ""
        unique = label and not any(
            label in {labels[row] for row in other} for other in heaps if other is not heap
        )
        names.append(label if unique else (plain[number] if len(heaps) > 1 else "all"))
    return names
