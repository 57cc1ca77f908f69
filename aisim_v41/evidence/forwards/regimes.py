"""Two machines under one name: rows of one identity that no physics can bring together.

Steps at the same coordinates that take 784 ms in one session and 149 ms in another are not noise.
Rows whose times, relative to what operators predict, fall into two heaps with a wide gap between
them, at coordinates that both heaps have, are two regimes if a heap holds whole runs, or labels, or
a large share of all rows. A few wild rows inside a run are outliers and no regime.
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
    heaps = _split(np.arange(len(ratio)), ratio, features, np.asarray(runs))
    names = _names(heaps, labels)
    return tuple(
        Regime(name, tuple(map(int, heap)), float(seconds[heap].min()), float(seconds[heap].max()))
        for name, heap in zip(names, heaps, strict=True)
    )


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
