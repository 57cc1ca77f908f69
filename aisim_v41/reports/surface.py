"""Latency over two sizes of a step, and where it bends and jumps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError, SchemaError, nearest

if TYPE_CHECKING:
    import pandas as pd

BEND = 0.5
"""Growth from which a size costs: doubling it takes the time times the square root of 2."""
JUMP = 1.2
"""Growth that no work explains: the time grows faster than the size."""
LEAST_RISE = 1.1
"""Time over the neighbour's from which a growth is a jump: between near sizes rounding decides."""
COLUMNS = ("along", "at", "kind", "before", "after", "growth")


def grid(frame: pd.DataFrame, x: str, y: str, z: str = "latency_ms") -> pd.DataFrame:
    """The frame as a grid: one row a value of ``y``, one column a value of ``x``, both rising.

    A point without a value is nan.

    Args:
        frame: such as of `CompiledStep.sweep`, or of `aisim_v41.sweep` where all else is one value.
        x, y, z: columns with numbers.

    Raises:
        InvalidInputError: a column that is not there or holds no numbers.
        SchemaError: several rows at one place, that is, something else varies too.
    """
    names = (x, y, z)
    if not hasattr(frame, "columns"):
        raise InvalidInputError(f"a surface takes a pandas frame, not {type(frame).__name__}")
    for name in names:
        if name not in frame.columns:
            raise InvalidInputError(f"no column {name!r}; {nearest(str(name), map(str, frame))}")
        if frame[name].dtype.kind not in "iuf":
            raise InvalidInputError(f"column {name!r} holds no numbers")
    if len(set(names)) != 3:
        raise InvalidInputError(f"x = {x!r}, y = {y!r}, z = {z!r}: must be three columns")
    frame = frame[np.isfinite(frame[x]) & np.isfinite(frame[y])]
    twice = frame.duplicated([x, y])
    if twice.any():
        first = frame[twice].iloc[0]
        other = [n for n in map(str, frame) if n not in names and frame[n].nunique() > 1]
        raise SchemaError(
            f"{x} = {first[x]:g}, {y} = {first[y]:g} occurs more than once; keep one value of "
            f"{', '.join(other) or 'what tells them apart'}"
        )
    return frame.pivot(index=y, columns=x, values=z).sort_index(axis=0).sort_index(axis=1)


def knees(frame: pd.DataFrame, x: str, y: str, z: str = "latency_ms") -> pd.DataFrame:
    """Where time begins to grow with ``x``, and where it jumps, for each ``y``.

    The growth between neighbours is the change of log z over that of log x: 0 where x is free, 1
    where time is proportional to it. A "bend" lies before the first interval from which on every
    growth is at least `BEND`, a "jump" in each interval whose growth is above `JUMP` and whose rise
    is at least `LEAST_RISE`; jumps are no part of bends. A curve that costs from its first point on
    has no bend.

    Args:
        frame, x, y, z: as for `grid`.

    Returns:
        Columns along (the name of x), at (the value of y), kind ("bend" or "jump"), before and
        after (neighbouring values of x), growth.

    Raises:
        InvalidInputError, SchemaError: as for `grid`.
    """
    import pandas as pd

    table = grid(frame, x, y, z)
    places = table.columns.to_numpy(np.float64)
    rows = [
        {"along": x, "at": at, **found}
        for at, values in zip(table.index, table.to_numpy(np.float64), strict=True)
        for found in _of_curve(places, values)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_curve(x: npt.NDArray[np.float64], z: npt.NDArray[np.float64]) -> Iterable[dict[str, Any]]:
    known = (x > 0) & np.isfinite(z) & (z > 0)
    x, z = x[known], z[known]
    growth = np.diff(np.log(z)) / np.diff(np.log(x))
    jumps = (growth > JUMP) & (z[1:] >= LEAST_RISE * z[:-1])
    steady = np.flatnonzero(~jumps)
    cheap = [place for place in steady if growth[place] < BEND]
    if cheap and cheap[-1] != steady[-1]:
        first = int(steady[np.searchsorted(steady, cheap[-1]) + 1])
        yield _knee("bend", x, growth, first)
    for place in np.flatnonzero(jumps):
        yield _knee("jump", x, growth, int(place))


def _knee(
    kind: str, x: npt.NDArray[np.float64], growth: npt.NDArray[np.float64], place: int
) -> dict[str, Any]:
    return {
        "kind": kind, "before": float(x[place]), "after": float(x[place + 1]),
        "growth": float(growth[place]),
    }  # fmt: skip
