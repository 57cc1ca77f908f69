"""Robust least squares in logarithms, with bounds.

Residuals are log(predicted/measured), so a miss by a factor counts alike at every size; a soft
absolute loss keeps single wild rows from pulling the curve. Nothing is drawn at random: the same
rows give the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import OptimizeResult, least_squares

from aisim_v41.evidence.laws import FloatArray

SOFTNESS = 0.03
"""Residual at which the loss turns from square to absolute."""
_EDGE = 1e-6
"""Distance that a start keeps from its bounds, as a share of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A parameter to fit: where to start, and bounds.

    Several starts are all tried, and the best end is kept.
    """

    start: float | tuple[float, ...]
    low: float
    high: float

    @property
    def starts(self) -> tuple[float, ...]:
        """Every start."""
        return self.start if isinstance(self.start, tuple) else (self.start,)


def fit(
    predict: Callable[[Mapping[str, float]], FloatArray],
    measured: FloatArray,
    free: Mapping[str, Free],
    fixed: Mapping[str, float] | None = None,
    weights: FloatArray | None = None,
) -> dict[str, float]:
    """Parameters that make ``predict`` follow ``measured``.

    Args:
        predict: times of all rows for given parameters [s].
        measured: times of the rows [s].
        free: parameters to find, each as a share of its range.
        fixed: parameters that stay.
        weights: of the rows; default 1.

    >>> rows = np.array([1.0, 10.0, 100.0])
    >>> line = lambda p: p["fixed"] + p["each"] * rows
    >>> found = fit(line, 2.0 + 3.0 * rows, {"fixed": Free(start=1, low=0, high=9),
    ...                                      "each": Free(start=1, low=0, high=9)})
    >>> round(found["fixed"], 4), round(found["each"], 4)
    (2.0, 3.0)
    """
    names = sorted(free)
    low = np.array([free[name].low for name in names])
    width = np.array([free[name].high for name in names]) - low
    target = np.log(measured)
    scale = np.ones_like(target) if weights is None else np.sqrt(weights)

    def values(shares: FloatArray) -> dict[str, float]:
        inside = low + width * shares
        return dict(fixed or {}) | {name: float(v) for name, v in zip(names, inside, strict=True)}

    def residual(shares: FloatArray) -> FloatArray:
        return np.asarray(scale * (np.log(predict(values(shares))) - target))

    ends: list[OptimizeResult] = []
    for start in product(*(free[name].starts for name in names)):
        shares = np.clip((np.array(start) - low) / width, _EDGE, 1 - _EDGE)
        ends.append(
            least_squares(
                residual, shares, bounds=(0.0, 1.0), loss="soft_l1", f_scale=SOFTNESS, x_scale="jac"
            )
        )
    return values(min(ends, key=lambda end: float(end.cost)).x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far predictions lie from measurements, as shares of the measurement."""

    median: float
    p90: float
    bias: float
    rows: int


def errors(predicted: FloatArray, measured: FloatArray) -> Errors:
    """Median and 90th percentile of abs(predicted/measured − 1), and its signed median."""
    off = predicted / measured - 1
    return Errors(
        median=float(np.median(np.abs(off))),
        p90=float(np.quantile(np.abs(off), 0.9)),
        bias=float(np.median(off)),
        rows=len(off),
    )
