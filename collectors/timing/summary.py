"""Samples, summed up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from collectors.errors import InputError


class Summary(NamedTuple):
    """Of samples, in their unit."""

    n: int
    median: float
    p10: float
    p90: float
    least: float

    @property
    def spread(self) -> float:
        """(p90 - p10) / median; 0 where the median is 0."""
        return (self.p90 - self.p10) / self.median if self.median > 0 else 0.0


def summed_up(samples: Sequence[float]) -> Summary:
    """Median, tenth and ninetieth percentile (linear between samples), least.

    Raises:
        InputError: no samples, or one that is no time.

    >>> summed_up([5.0, 1.0, 2.0, 3.0, 4.0])
    Summary(n=5, median=3.0, p10=1.4, p90=4.6, least=1.0)
    """
    if not samples or not all(math.isfinite(one) and one >= 0 for one in samples):
        raise InputError(f"{len(samples)} samples, which must be times of 0 or more")
    ordered = sorted(samples)
    return Summary(
        n=len(ordered),
        median=_quantile(ordered, 0.5),
        p10=_quantile(ordered, 0.1),
        p90=_quantile(ordered, 0.9),
        least=ordered[0],
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
