"""What whole forwards say of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aisim_v41.estimators.fpm.domain import VERDICTS, Domain
from aisim_v41.forwards.records import StepRecord
from aisim_v41.units import MILLISECOND

Source = Literal["measured", "interpolated", "extrapolated"]
SOURCES: Final = ("measured", "interpolated", "extrapolated")


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
        measured: records of exactly this step, whose median is then the answer.
        readings: of a step of which only sums are known, what its extreme readings would take.
    """

    latency_s: float
    band_s: tuple[float, float]
    source: Source
    domain: Domain
    physical_s: float
    local: float
    online: float
    measured: tuple[StepRecord, ...] = ()
    readings: tuple[Prediction, ...] = ()

    @property
    def all_outside(self) -> bool:
        """Whether the step, or every reading of its sums, lies outside what was measured."""
        return all(one.domain.verdict == "outside" for one in self.readings or (self,))

    @property
    def latency_ms(self) -> float:
        """Expected time [ms]."""
        return self.latency_s / MILLISECOND

    @property
    def band_ms(self) -> tuple[float, float]:
        """The interval [ms]."""
        return self.band_s[0] / MILLISECOND, self.band_s[1] / MILLISECOND


def between(readings: Sequence[Prediction]) -> Prediction:
    """One answer for a step that may be any of these readings: their middle, and all their bands.

    The middle is no likelier than the ends: `Prediction.readings` holds them.
    """
    times = [reading.latency_s for reading in readings]
    middle = 0.5 * (min(times) + max(times))
    alone = [reading.physical_s for reading in readings]
    worst = max(readings, key=lambda reading: VERDICTS.index(reading.domain.verdict))
    text = (
        f"sums leave the step open: {min(times) / MILLISECOND:.3f} to "
        f"{max(times) / MILLISECOND:.3f} ms"
    )
    return Prediction(
        latency_s=middle,
        band_s=(min(r.band_s[0] for r in readings), max(r.band_s[1] for r in readings)),
        source="extrapolated" if worst.domain.verdict != "inside" else "interpolated",
        domain=Domain(worst.domain.verdict, worst.domain.axis or "sums",
                      "; ".join(filter(None, (text, worst.domain.text)))),
        physical_s=0.5 * (min(alone) + max(alone)),
        local=1.0,
        online=1.0,
        readings=tuple(readings),
    )  # fmt: skip


def in_turn(forwards: Sequence[tuple[int, Prediction]]) -> Prediction:
    """One answer for forwards that run one after another: their sum.

    Args:
        forwards: how often each runs, and what is said of it. They err alike, so bands add up.
    """

    def total(seconds: Callable[[Prediction], float]) -> float:
        return sum(times * seconds(one) for times, one in forwards)

    said = [one for _, one in forwards]
    physical = total(lambda one: one.physical_s)
    offline = total(lambda one: one.physical_s * one.local)
    return Prediction(
        latency_s=total(lambda one: one.latency_s),
        band_s=(total(lambda one: one.band_s[0]), total(lambda one: one.band_s[1])),
        source=max((one.source for one in said), key=SOURCES.index),
        domain=max((one.domain for one in said), key=lambda one: VERDICTS.index(one.verdict)),
        physical_s=physical,
        local=offline / physical if physical else 1.0,
        online=total(lambda one: one.physical_s * one.local * one.online) / offline
        if offline
        else 1.0,
    )
