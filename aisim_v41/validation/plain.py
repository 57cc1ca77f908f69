"""Plain predictors of whole forwards, which a model of them has to beat.

Two are made from the same measurements: one number a phase, and linear interpolation on the totals
of a step (how many requests, tokens to compute, tokens already there), the usual way to read a
table of forwards. Both know nothing of what a step computes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.plan.request import Request

Step = Sequence[Request]
Phase = Literal["prefill", "decode", "mixed"]
Floats = npt.NDArray[np.float64]
Predictor = Callable[[Step], float]
"""Seconds of a step."""

_FLAT: Final = 1e-9
"""Share of the widest direction below which points do not spread."""


class StepSums(NamedTuple):
    """Totals of a step.

    Attributes:
        prefill_requests, decode_requests: how many; verify steps count as decodes.
        new_tokens: rows that prefills compute.
        prefill_kv, decode_kv: tokens computed before the step.
    """

    prefill_requests: int
    new_tokens: int
    prefill_kv: int
    decode_requests: int
    decode_kv: int


def sums_of(step: Step) -> StepSums:
    """Totals of a step.

    >>> sums_of([Request(new_tokens=64, prefix_tokens=128, count=2)])
    StepSums(prefill_requests=2, new_tokens=128, prefill_kv=256, decode_requests=0, decode_kv=0)
    """
    prefills = [request for request in step if request.kind == "prefill" and request.new_tokens]
    decodes = [request for request in step if request.kind != "prefill" and request.new_tokens]
    return StepSums(
        prefill_requests=sum(request.count for request in prefills),
        new_tokens=sum(request.count * request.new_tokens for request in prefills),
        prefill_kv=sum(request.count * request.prefix_tokens for request in prefills),
        decode_requests=sum(request.count for request in decodes),
        decode_kv=sum(request.count * request.prefix_tokens for request in decodes),
    )


def phase_of(step: Step) -> Phase:
    """Which kinds of request a step holds."""
    sums = sums_of(step)
    if sums.prefill_requests and sums.decode_requests:
        return "mixed"
    return "prefill" if sums.prefill_requests else "decode"


def constant_per_phase(steps: Sequence[Step], seconds: Sequence[float]) -> Predictor:
    """The median of each phase; of everything, for a phase without a measurement."""
    by_phase: dict[Phase, list[float]] = defaultdict(list)
    for step, value in zip(steps, seconds, strict=True):
        by_phase[phase_of(step)].append(value)
    known = {phase: median(values) for phase, values in by_phase.items()}
    everything = median(seconds)
    return lambda step: known.get(phase_of(step), everything)


def linear_on_totals(
    steps: Sequence[Step], seconds: Sequence[float], *, logarithms: bool = False
) -> Predictor:
    """Linear between the measured totals of each phase; beyond them the nearest one.

    Args:
        steps: measured.
        seconds: of each.
        logarithms: interpolate log(time) along log(1 + total), along which power laws are straight.
    """
    by_phase: dict[Phase, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        by_phase[phase_of(step)].append(place)
    sums = np.array([sums_of(step) for step in steps], np.float64)
    values = np.asarray(seconds, np.float64)
    if logarithms:
        sums, values = np.log1p(sums), np.log(values)
    known = {phase: _Surface(sums[places], values[places]) for phase, places in by_phase.items()}
    elsewhere = constant_per_phase(steps, seconds)

    def predict(step: Step) -> float:
        surface = known.get(phase_of(step))
        if surface is None:
            return elsewhere(step)
        asked = np.array(sums_of(step), np.float64)
        return float(np.exp(surface(np.log1p(asked)))) if logarithms else surface(asked)

    return predict


class _Surface:
    """Values at scattered points, linear on simplices between them."""

    def __init__(self, points: Floats, values: Floats) -> None:
        distinct, members = np.unique(points, axis=0, return_inverse=True)
        members = members.reshape(-1)
        self._values = np.array(
            [np.median(values[members == place]) for place in range(len(distinct))]
        )
        self._origin = distinct.min(axis=0)
        self._width = np.where(np.ptp(distinct, axis=0) > 0, np.ptp(distinct, axis=0), np.inf)
        unit = self._unit(distinct)
        centred = unit - unit.mean(axis=0)
        _, spread, directions = np.linalg.svd(centred, full_matrices=False)
        self._directions = directions[spread > _FLAT * max(float(spread.max(initial=0.0)), _FLAT)]
        self._points = unit @ self._directions.T
        self._simplices = self._interpolator()

    def _unit(self, points: Floats) -> Floats:
        return np.asarray((points - self._origin) / self._width)

    def _interpolator(self) -> Callable[[Floats], Floats] | None:
        """None where the points span no volume: then the nearest one answers."""
        number, axes = self._points.shape
        if axes == 0 or number <= axes:
            return None
        if axes == 1:
            order = np.argsort(self._points[:, 0])
            return lambda at: np.interp(
                at[:, 0], self._points[order, 0], self._values[order], left=np.nan, right=np.nan
            )
        from scipy.interpolate import LinearNDInterpolator

        return LinearNDInterpolator(self._points, self._values)

    def __call__(self, point: Floats) -> float:
        at = self._unit(point[None, :]) @ self._directions.T
        if self._simplices is not None:
            inside = float(np.asarray(self._simplices(at)).reshape(-1)[0])
            if not np.isnan(inside):
                return inside
        return float(self._values[np.argmin(((self._points - at) ** 2).sum(axis=1))])
