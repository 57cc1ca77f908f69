"""Whether a step lies where forwards were measured: inside, at the edge, or outside, and why.

A table answers for more than its box where physics says that nothing changes on the way: below an
axis, or up to `EDGE_FACTOR` above it, a step is *edge* while its kernels differ from the nearest
row's by a small share of its time. Everything else beyond is *outside*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.fpm.features import RANGES
from aisim_v41.evidence.forwards.samples import Floats

Verdict = Literal["inside", "edge", "outside"]

EDGE_FACTOR: Final = 3.0
"""How far beyond the largest measured value an axis may be at the edge."""
EDGE_SHARE: Final = 0.05
"""Change of the kernels' time, as a share of the step's, up to which a step is at the edge."""
EXTRAPOLATED: Final = 0.1
"""Standard deviation of log(time) for each factor of e beyond the measured range: kernels of other
sizes reach another share of their peak (errors of extrapolated laws: docs/calibration.md)."""
OTHER_PHASE: Final = 2.0
"""Factors of e that a phase counts as which was never measured."""
OTHER_KIND: Final = 1e6
"""Distance, squared, of steps of which only one prefills: neither is near the other."""
PHASES: Final = ("decode", "prefill")
VERDICTS: Final[tuple[Verdict, ...]] = ("inside", "edge", "outside")
Codes = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Domain:
    """The verdict on one step.

    Attributes:
        verdict: "inside", "edge" or "outside".
        axis: what decides, one of `RANGES`, "phase", "mixture" or "neighbours"; "" inside.
        text: the reason for a reader; "" inside.
        beyond: how far outside the measured range, as the logarithm of the factor; 0 within.
    """

    verdict: Verdict
    axis: str = ""
    text: str = ""
    beyond: float = 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of log(time) that lying outside adds."""
        return EXTRAPOLATED * self.beyond


INSIDE: Final = Domain("inside")


class MeasuredDomain:
    """Where a table has rows.

    Args:
        features: of its rows [rows, axes].
        ranges: of its rows [rows, raw axes].
        kernels_s: kernels of its rows by the fit [rows].
        seconds: those rows by the physical part of the fit [rows].
    """

    def __init__(
        self, features: Floats, ranges: Floats, kernels_s: Floats, seconds: Floats
    ) -> None:
        self.features, self.kernels_s, self.seconds = features, kernels_s, seconds
        share = features[:, -1]
        self.mixed = bool(np.any((share > 0) & (share < 1)))
        size = ranges.shape[1]
        self.low, self.high = np.full((2, size), np.inf), np.full((2, size), -np.inf)
        """[phases, raw axes]; an axis of a phase that was not measured has no range."""
        for phase, here in enumerate((share < 1, share > 0)):
            if here.any():
                self.low[phase] = ranges[here].min(axis=0)
                self.high[phase] = ranges[here].max(axis=0)

    def holds(self, prefill: float, ranges: Floats) -> bool:
        """Whether a step of one phase is inside, seen at its box alone.

        Args:
            prefill: share of rows that belong to prefills.
            ranges: [raw axes].
        """
        if 0.0 < prefill < 1.0:
            return False
        phase = int(prefill > 0)
        return not ((ranges > self.high[phase]) | (ranges < self.low[phase])).any()

    def codes(self, features: Floats, ranges: Floats, kernels_s: Floats, seconds: Floats) -> Codes:
        """Verdicts on steps as places in `VERDICTS` [steps].

        Args:
            features: [steps, axes].
            ranges: [steps, raw axes].
            kernels_s: their kernels by the fit [steps].
            seconds: their time by the fit [steps].
        """
        low, high, missing, mixes = self._box(features[:, -1])
        over = (ranges / np.maximum(high, 1.0)).max(axis=1)
        beyond = np.any((ranges > high) | (ranges < low), axis=1)
        codes = np.where(missing, 2, np.where(mixes & (not self.mixed), 1, 0))
        steps = np.flatnonzero(beyond & ~missing)
        if len(steps):
            change = self._change(features[steps], kernels_s[steps], seconds[steps])
            codes[steps] = np.where((over[steps] <= EDGE_FACTOR) & (change <= EDGE_SHARE), 1, 2)
        return codes

    def verdict(self, features: Floats, ranges: Floats, kernels_s: float, seconds: float) -> Domain:
        """The verdict on one step, with its reason."""
        one = features[None, :], ranges[None, :], np.array([kernels_s]), np.array([seconds])
        verdict = VERDICTS[int(self.codes(*one)[0])]
        if verdict == "inside":
            return INSIDE
        low, high, (missing,), (mixes,) = self._box(features[None, -1])
        if missing:
            phase = PHASES[int(np.flatnonzero(np.isinf(self.low[:, 0]))[0])]
            return Domain(verdict, "phase", f"no {phase} step was measured", OTHER_PHASE)
        outside = (ranges > high[0]) | (ranges < low[0])
        if mixes and not outside.any():
            return Domain(verdict, "mixture", "steps that mix prefill and decode were not measured")
        over = ranges / np.maximum(high[0], 1.0)
        under = low[0] / np.maximum(ranges, 1.0)
        far = np.maximum(over, under)
        axis = int(np.argmax(over)) if over.max() > 1.0 else int(np.argmax(outside))
        change = float(self._change(one[0], one[2], one[3])[0])
        return Domain(
            verdict,
            RANGES[axis],
            f"{RANGES[axis]} = {ranges[axis]:,.0f}, measured {low[0, axis]:,.0f} to "
            f"{high[0, axis]:,.0f}; {change:.1%} of its time from the nearest",
            max(0.0, float(np.log(far.max()))) if verdict == "outside" else 0.0,
        )

    def _box(self, share: Floats) -> tuple[Floats, Floats, Bools, Bools]:
        """Ranges of the phases in steps [steps, raw axes], whether one of them was never measured,
        and whether they mix."""
        decodes, prefills = share < 1, share > 0
        has = np.stack([decodes, prefills], axis=1)[:, :, None]
        low = np.where(has, self.low, np.inf).min(axis=1)
        high = np.where(has, self.high, -np.inf).max(axis=1)
        missing = np.any(has[:, :, 0] & np.isinf(self.low[:, 0]), axis=1)
        return low, high, missing, decodes & prefills

    def _change(self, features: Floats, kernels_s: Floats, seconds: Floats) -> Floats:
        """How far steps are from the nearest row, as a share of each step's time [steps].

        Kernels that grow count whole, even where a host hides them: they may come to light. Kernels
        that shrink count as far as the time does.
        """
        apart = (
            np.square(features).sum(axis=1)[:, None]
            - 2.0 * features @ self.features.T
            + np.square(self.features).sum(axis=1)
        )
        apart += OTHER_KIND * ((features[:, -1] > 0)[:, None] != (self.features[:, -1] > 0))
        nearest = apart.argmin(axis=1)
        grown = kernels_s - self.kernels_s[nearest]
        changed = np.maximum(grown, np.abs(seconds - self.seconds[nearest]))
        found: Floats = changed / np.maximum(seconds, np.finfo(float).tiny)
        return found
