"""The critical path of one forward, found in its timeline: what ends when the next begins."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from aisim_v41.estimators.timeline import Stretch

RELATIVE = 1e-9
"""Difference of two times, as a share of the forward, below which they are one moment."""


def critical_path(
    stretches: Sequence[Stretch], start_s: float, end_s: float
) -> tuple[Stretch, ...]:
    """Stretches without a gap between the start of a forward and its end, in order.

    A task begins when the last that it waits for ends, so from the end backwards there is always
    one that ends where another begins; of several, not the one
    that waits itself, and rather the one in the same lane, which it follows.

    Args:
        stretches: of one run of a forward.
        start_s, end_s: of the forward [s].
    """
    same = RELATIVE * (end_s - start_s)
    by_end = sorted(stretches, key=lambda one: one.end_s)
    ends = [one.end_s for one in by_end]
    path: list[Stretch] = []
    clock, lane = end_s, 0
    while clock - start_s > same:
        place = bisect_left(ends, clock - same)
        here = [one for one in by_end[place:] if one.end_s <= clock + same]
        here = [one for one in here if one.start_s < clock - same] or here
        if not here:
            break
        last = max(here, key=lambda one: (not _waits(one), one.lane == lane, _length_s(one)))
        path.append(last)
        clock, lane = last.start_s, last.lane
    return tuple(reversed(path))


def _waits(one: Stretch) -> bool:
    """Whether it only waits for another that ends with it."""
    return one.task is None and one.operator.startswith("waiting")


def _length_s(one: Stretch) -> float:
    return one.end_s - one.start_s
