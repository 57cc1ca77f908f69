"""Which points of a sweep no other beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from aisim_v41.errors import InvalidInputError, nearest

if TYPE_CHECKING:
    import pandas as pd


def pareto(
    frame: pd.DataFrame, *, low: Sequence[str] | str = (), high: Sequence[str] | str = ()
) -> pd.DataFrame:
    """Rows of which no other is as good in everything and better in something.

    Args:
        frame: such as `SweepData.frame`; rows without a value in a named column are left out.
        low: columns of which less is better, such as ``latency_ms``.
        high: columns of which more is better, such as ``tokens_per_s_per_gpu``.

    Returns:
        Those rows, best in the first named column first. Of equal rows all are kept.

    Raises:
        InvalidInputError: no column is named, or one that is not there or holds no numbers.
    """
    lows = [low] if isinstance(low, str) else list(low)
    highs = [high] if isinstance(high, str) else list(high)
    names = [*lows, *highs]
    if not names:
        raise InvalidInputError("pareto: name at least one column in low or high")
    for name in names:
        if name not in frame.columns:
            raise InvalidInputError(f"pareto: no column {name!r}; {nearest(name, frame.columns)}")
        if frame[name].dtype.kind not in "iuf":
            raise InvalidInputError(f"pareto: column {name!r} holds no numbers")
    signs = np.repeat([1.0, -1.0], [len(lows), len(highs)])
    known = frame[frame[names].notna().all(axis=1)]
    costs = known[names].to_numpy(np.float64) * signs
    order = np.lexsort(costs.T[::-1])
    kept: list[int] = []
    front = np.empty((0, len(names)))
    for place in order.tolist():
        cost = costs[place]
        beaten = ((front <= cost).all(axis=1) & (front < cost).any(axis=1)).any()
        if not beaten:
            kept.append(place)
            front = np.vstack([front, cost])
    return known.iloc[kept]
