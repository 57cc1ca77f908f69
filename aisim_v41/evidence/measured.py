"""Measured rows of one kernel along the rows of a step, its other sizes fixed.

What an operator of the model asks of a table is a line through its grid: the matrix or the number
of GPUs is given, the rows vary. `MeasuredCurve` is that line: measured rows come back exactly,
points between them follow the law times the interpolated ratio, and beyond the ends the ratio of
the last row is held, which is the law again (docs/calibration.md, "Interpolation").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aisim_v41.errors import MissingProfileError
from aisim_v41.evidence.calibration import CalibratedLaw
from aisim_v41.evidence.interpolate import (
    BoolArray,
    MeasuredGrid,
    collective_grid,
    product_grid,
    product_versions,
)
from aisim_v41.evidence.laws import FloatArray
from aisim_v41.hardware import Hardware
from aisim_v41.resources import kept_for_roots

LEAST_ERROR = 0.03
"""90 % error of a measured row at least: two runs of one kernel, clock and temperature."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCurve:
    """Times of one kernel along one axis of a grid.

    Attributes:
        grid: the rows and their law.
        axis: size that varies.
        fixed: the others.
        nodes: sizes along the axis where every corner was measured, rising; two at least.
        ratio: logarithm of measured (or interpolated in the other sizes) over the law, there.
        exact: whether the node itself was measured, and no fewer rows took longer by more than
            `LEAST_ERROR`: a step of more rows is never faster, so theirs is the time then.
        error_median, error_p90: of rows left out of the grid and predicted from neighbours.
    """

    grid: MeasuredGrid
    axis: str
    fixed: tuple[tuple[str, float], ...]
    nodes: FloatArray
    ratio: FloatArray
    exact: BoolArray
    error_median: float
    error_p90: float

    def seconds(self, at: FloatArray) -> FloatArray:
        """Time at points along the axis [s]; the ratio is held beyond the ends."""
        points = np.asarray(at, np.float64)
        clipped = np.clip(points, self.nodes[0], self.nodes[-1])
        ratio = np.interp(np.log(clipped), np.log(self.nodes), self.ratio)
        sizes = {name: np.asarray(value) for name, value in self.fixed}
        return self.grid.predict(sizes | {self.axis: points}) * np.exp(ratio)

    def inside(self, at: float) -> bool:
        """Whether a point lies within the measured rows."""
        return bool(self.nodes[0] <= at <= self.nodes[-1])

    def measured(self, at: float) -> bool:
        """Whether a point is a measured row, and its time that of a step (`exact`)."""
        return bool(np.any((self.nodes == at) & self.exact))


def curve_of(grid: MeasuredGrid, axis: str, **fixed: float) -> MeasuredCurve:
    """The line through a grid at fixed other sizes.

    Raises:
        MissingProfileError: fewer than two measured points on it.
    """
    nodes = grid.nodes[grid.axes.index(axis)]
    found = grid.at(**fixed, **{axis: nodes})
    inside = found.inside
    if inside.sum() < 2:
        raise MissingProfileError(
            f"{grid.identity['operator']} of {grid.identity['engine']}: no two measured rows "
            f"enclose {', '.join(f'{name} = {value:g}' for name, value in fixed.items())}"
        )
    sizes = {name: np.asarray(value) for name, value in fixed.items()}
    law = grid.predict(sizes | {axis: nodes[inside]})
    seconds = found.seconds[inside]
    longest = np.maximum.accumulate(seconds)
    missed = np.abs(grid.left_out_errors)
    return MeasuredCurve(
        grid=grid,
        axis=axis,
        fixed=tuple(fixed.items()),
        nodes=nodes[inside],
        ratio=np.log(seconds / law),
        exact=found.exact[inside] & (seconds >= (1.0 - LEAST_ERROR) * longest),
        error_median=float(np.median(missed)) if len(missed) else LEAST_ERROR,
        error_p90=max(LEAST_ERROR, float(np.quantile(missed, 0.9)) if len(missed) else 0.0),
    )


@kept_for_roots(maxsize=256)
def product_curve(
    hardware: Hardware, engine: str, dtype: str, outputs: int, inputs: int, law: CalibratedLaw
) -> MeasuredCurve:
    """Products of one matrix along rows: the newest version whose matrices enclose it.

    Raises:
        MissingProfileError: no version does.
    """
    last: MissingProfileError | None = None
    for version in product_versions(hardware.name, engine, dtype):
        grid = product_grid(hardware, engine, dtype, law, version)
        try:
            return curve_of(grid, "rows", outputs=float(outputs), inputs=float(inputs))
        except MissingProfileError as error:
            last = error
    raise last or MissingProfileError(f"{hardware.name}: no {dtype} products of {engine}")


@kept_for_roots(maxsize=64)
def collective_curve(
    hardware: Hardware, operator: str, engine: str, ranks: int, law: CalibratedLaw
) -> MeasuredCurve:
    """A collective on so many GPUs along the size of its message.

    Raises:
        MissingProfileError: never measured there.
    """
    return curve_of(
        collective_grid(hardware, operator, engine, ranks, law), "message_bytes", ranks=float(ranks)
    )
