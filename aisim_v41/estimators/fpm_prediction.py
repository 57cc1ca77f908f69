"""What whole forwards say of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aisim_v41.estimators.fpm_domain import Domain
from aisim_v41.forwards.records import StepRecord
from aisim_v41.units import MILLISECOND

Source = Literal["measured", "interpolated", "extrapolated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The time of one step.

    Attributes:
        latency_s: expected time [s].
        band_s: interval that should hold a measurement in a new run [s].
        source: "measured" at a step that was, else "interpolated" or "extrapolated".
        domain: where the step lies among the measured ones.
        physical_s: what floor, host and kernels alone give [s].
        local: factor of the local correction on it.
        online: factor of the correction from observations.
        measured: records of exactly this step.
    """

    latency_s: float
    band_s: tuple[float, float]
    source: Source
    domain: Domain
    physical_s: float
    local: float
    online: float
    measured: tuple[StepRecord, ...] = ()

    @property
    def latency_ms(self) -> float:
        """Expected time [ms]."""
        return self.latency_s / MILLISECOND

    @property
    def band_ms(self) -> tuple[float, float]:
        """The interval [ms]."""
        return self.band_s[0] / MILLISECOND, self.band_s[1] / MILLISECOND
