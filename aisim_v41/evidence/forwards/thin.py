"""Many rows made few: repeats of a step become one, and distant steps stand for near ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from aisim_v41.evidence.forwards.flags import FIRST_RATIO, FIRST_SPREADS, NORMAL
from aisim_v41.evidence.forwards.samples import NO_ORDER, Floats, Places, Samples

REPEATS: Final = 3
"""Rows of one step in one run from which on they say how wide they are."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Rows of one step in one run as one row.

    Attributes:
        samples: the merged rows.
        members: rows behind each.
        wild: rows that lie far from the median of theirs, and how far [log].
    """

    samples: Samples
    members: tuple[Places, ...]
    wild: dict[int, float]

    def at(self, rows: Places) -> Merged:
        """A choice of merged rows."""
        return Merged(self.samples.at(rows), tuple(self.members[row] for row in rows), self.wild)


def merged(samples: Samples) -> Merged:
    """Rows of one step in one run as their median.

    The order of a merged row is the mean of its rows'. Three or more rows say themselves how wide
    they are: then they are the repeats; otherwise the repeats behind them are.
    """
    _, first, pair, size = np.unique(
        np.stack([samples.site, samples.run], axis=1),
        axis=0, return_index=True, return_inverse=True, return_counts=True,
    )  # fmt: skip
    by_pair = np.argsort(pair, kind="stable")
    ends = np.cumsum(size)
    members = tuple(by_pair[end - n : end] for end, n in zip(ends, size, strict=True))
    seconds, spread = samples.seconds[first], samples.spread[first]
    order, repeats = samples.order[first], np.bincount(pair, samples.repeats).astype(np.float64)
    wild: dict[int, float] = {}
    for place in np.flatnonzero(size > 1):
        rows = members[place]
        logs = np.log(samples.seconds[rows])
        middle = float(np.median(logs))
        seconds[place] = np.exp(middle)
        known = samples.order[rows][samples.order[rows] != NO_ORDER]
        order[place] = known.mean() if len(known) else NO_ORDER
        if len(rows) >= REPEATS:
            spread[place] = NORMAL * np.median(np.abs(logs - middle))
            repeats[place] = len(rows)
            limit = max(FIRST_RATIO, FIRST_SPREADS * float(spread[place]))
            wild |= {
                int(row): float(log - middle)
                for row, log in zip(rows, logs, strict=True)
                if abs(log - middle) > limit
            }
    return Merged(
        Samples(
            terms=samples.terms.at(first),
            features=samples.features[first], seconds=seconds, site=samples.site[first],
            run=samples.run[first], order=order, repeats=repeats, spread=spread,
        ),
        members,
        wild,
    )  # fmt: skip


def spread_out(features: Floats, number: int) -> Places:
    """Rows that lie farthest apart, each chosen as the one farthest from those before it.

    >>> spread_out(np.array([[0.0], [0.1], [1.0], [2.0]]), 3).tolist()
    [0, 2, 3]
    """
    chosen = np.zeros(number, np.intp)
    distance = np.square(features - features[0]).sum(axis=1)
    for place in range(1, number):
        chosen[place] = int(np.argmax(distance))
        apart = np.square(features - features[chosen[place]]).sum(axis=1)
        distance = np.minimum(distance, apart)
    found: Places = np.sort(chosen)
    return found
