"""Robust least squares in logarithms: Levenberg-Marquardt with bounds, by numpy alone.

Residuals are log(predicted/measured), so a miss by a factor counts alike at every size; a soft
absolute loss keeps single wild rows from pulling the curve. Nothing is drawn at random: the same
rows give the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from aisim_v41.evidence.laws import FloatArray

SOFTNESS = 0.03
"""Residual at which the loss turns from square to absolute."""
STEP = 1e-6
LONGEST = 1.0
"""Of a step along any parameter, in units of its logistic variable: a longer one can throw a
parameter against its bound, where nothing pulls it back."""
MOST_STEPS = 200
ENOUGH = 1e-10
_START_DAMPING = 1e-2
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
        free: parameters to find; inside their bounds by a logistic change of variable.
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

    def values(at: FloatArray) -> dict[str, float]:
        inside = low + width / (1 + np.exp(-np.clip(at, -60, 60)))
        return dict(fixed or {}) | {name: float(v) for name, v in zip(names, inside, strict=True)}

    def residual(at: FloatArray) -> FloatArray:
        return np.asarray(np.log(predict(values(at))) - target)

    ends = []
    for start in product(*(free[name].starts for name in names)):
        share = np.clip((np.array(start) - low) / width, _EDGE, 1 - _EDGE)
        ends.append(_minimise(residual, np.log(share / (1 - share)), scale))
    return values(min(ends, key=lambda end: _loss(residual(end), scale)))


def _minimise(
    residual: Callable[[FloatArray], FloatArray], point: FloatArray, scale: FloatArray
) -> FloatArray:
    damping, current = _START_DAMPING, residual(point)
    best = _loss(current, scale)
    for _ in range(MOST_STEPS):
        soft = scale / (1 + (current / SOFTNESS) ** 2) ** 0.25
        jacobian = np.stack(
            [(residual(point + step) - current) / STEP for step in STEP * np.eye(len(point))],
            axis=1,
        )
        slope, pull = jacobian * soft[:, None], current * soft
        square, gradient = slope.T @ slope, slope.T @ pull
        moved = False
        while damping < 1e12:
            damped = square + damping * np.diag(np.diag(square) + 1e-12)
            step = np.linalg.solve(damped, gradient)
            trial = point - step * min(1.0, LONGEST / max(float(np.abs(step).max()), ENOUGH))
            after = residual(trial)
            loss = _loss(after, scale)
            if loss < best:
                moved = True
                break
            damping *= 4
        if not moved:
            break
        gained = (best - loss) / max(best, 1e-300)
        point, current, best, damping = trial, after, loss, damping / 8
        if gained < ENOUGH:
            break
    return point


def _loss(residuals: FloatArray, scale: FloatArray) -> float:
    """Soft absolute loss, weighted."""
    soft = np.sqrt(1 + (residuals / SOFTNESS) ** 2) - 1
    return float((scale**2 * soft).sum())


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
