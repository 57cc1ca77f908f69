"""Left-out whole forwards: a model of them beside plain predictors made without the same group.

A group is what is left out together: a process run, or a part of a table whose runs are not known.
Every method answers a group from the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError
from aisim_v41.validation.plain import (
    Predictor,
    Step,
    constant_per_phase,
    linear_on_totals,
    phase_of,
)

Floats = npt.NDArray[np.float64]
ALL = "all"
PHASES = ("prefill", "decode", "mixed", ALL)
RIVALS: dict[str, Callable[[Sequence[Step], Sequence[float]], Predictor]] = {
    "constant per phase": constant_per_phase,
    "linear on totals": linear_on_totals,
}
"""What is made from the same measurements, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Measured forwards, and what was predicted of each without its group.

    Args:
        steps: that ran.
        measured_s: their times [s].
        groups: what each was left out with.
        predicted_s: of the model, without the group [s].
        low_s, high_s: its band [s]; None if it has none.

    Raises:
        InvalidInputError: the columns are not of one length, a time is not above 0, or there is
            one group only.
    """

    steps: Sequence[Step]
    measured_s: Sequence[float]
    groups: Sequence[str]
    predicted_s: Sequence[float]
    low_s: Sequence[float] | None = None
    high_s: Sequence[float] | None = None

    def __post_init__(self) -> None:
        columns = {
            name: column
            for name in ("measured_s", "groups", "predicted_s", "low_s", "high_s")
            if (column := getattr(self, name)) is not None
        }
        for name, column in columns.items():
            if len(column) != len(self.steps):
                raise InvalidInputError(
                    f"LeftOut.{name}: {len(column)} values for {len(self.steps)} steps"
                )
        for name in ("measured_s", "predicted_s"):
            if not all(np.isfinite(value) and value > 0 for value in columns[name]):
                raise InvalidInputError(f"LeftOut.{name}: every time must be above 0 s")
        if len(set(self.groups)) < 2:
            raise InvalidInputError(
                f"LeftOut.groups = {sorted(set(self.groups))}: at least two groups are needed, "
                "one to leave out and one to learn from"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodError:
    """Relative errors of one method in one phase.

    Attributes:
        method: "fpm", or one of `RIVALS`.
        phase: of the steps; "all".
        cases: how many.
        mean, median, p90: of abs(predicted / measured - 1).
        bias: median of predicted / measured - 1.
        inside: share of measurements inside the band; None without one.
    """

    method: str
    phase: str
    cases: int
    mean: float
    median: float
    p90: float
    bias: float
    inside: float | None


def left_out_errors(found: LeftOut, method: str = "fpm") -> tuple[MethodError, ...]:
    """Errors by method and phase: the model first, then the plain predictors.

    Args:
        found: measured and predicted forwards.
        method: name of the model.

    Raises:
        InvalidInputError: as for `LeftOut`.
    """
    measured = np.asarray(found.measured_s, np.float64)
    inside = None
    if found.low_s is not None and found.high_s is not None:
        inside = (np.asarray(found.low_s) <= measured) & (measured <= np.asarray(found.high_s))
    predicted = {method: np.asarray(found.predicted_s, np.float64)}
    predicted |= {name: _without_group(found, rival) for name, rival in RIVALS.items()}
    phases = np.array([phase_of(step) for step in found.steps])
    return tuple(
        row
        for name, values in predicted.items()
        for row in _by_phase(
            name, values / measured - 1, phases, inside if name == method else None
        )
    )


def _without_group(
    found: LeftOut, rival: Callable[[Sequence[Step], Sequence[float]], Predictor]
) -> Floats:
    """What a plain predictor made from the other groups says of every step [s]."""
    told = np.empty(len(found.steps))
    for group in sorted(set(found.groups)):
        others = [place for place, name in enumerate(found.groups) if name != group]
        predict = rival(
            [found.steps[place] for place in others], [found.measured_s[place] for place in others]
        )
        for place, name in enumerate(found.groups):
            if name == group:
                told[place] = predict(found.steps[place])
    return told


def _by_phase(
    method: str, off: Floats, phases: npt.NDArray[np.str_], inside: npt.NDArray[np.bool_] | None
) -> Iterator[MethodError]:
    for phase in PHASES:
        of_phase = np.flatnonzero((phases == phase) | (phase == ALL))
        if not len(of_phase):
            continue
        absolute = np.abs(off[of_phase])
        yield MethodError(
            method=method,
            phase=phase,
            cases=len(of_phase),
            mean=float(absolute.mean()),
            median=float(np.median(absolute)),
            p90=float(np.quantile(absolute, 0.9)),
            bias=float(np.median(off[of_phase])),
            inside=None if inside is None else float(inside[of_phase].mean()),
        )


def errors_text(errors: Sequence[MethodError]) -> str:
    """The table, one line a phase and method."""
    lines = [
        f"{'phase':<9}{'method':<20}{'cases':>6}{'mean':>8}{'median':>8}{'p90':>8}{'bias':>8}"
        f"{'in band':>9}"
    ]
    for phase in PHASES:
        for row in errors:
            if row.phase == phase:
                inside = "" if row.inside is None else f"{row.inside:.0%}"
                lines.append(
                    f"{phase:<9}{row.method:<20}{row.cases:>6}{row.mean:>8.1%}{row.median:>8.1%}"
                    f"{row.p90:>8.1%}{row.bias:>+8.1%}{inside:>9}"
                )
    return "\n".join(lines)
