"""How far the library is from public measurements, case by case: the error table.

Every case whose conditions are stated well enough (`usable` zero_shot) is predicted as the source
states it, with the engine's preset. Nothing in OP was fitted to a whole step, prompt or token.
Some cases stand apart (`Standing`): those that leave the decoder replay open, those whose own
kernel rows a law was made from, and eager forwards, which the host decides. Medians go per source
first: some sources supply many rows of one kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.load import load_model
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.cases import Case, load_cases, load_ratios
from aisim_v41.validation.conversion import Conversion, Way
from aisim_v41.validation.convert import convert
from aisim_v41.validation.prediction import Prediction, module_seconds, predict
from aisim_v41.validation.ratios import ratio
from aisim_v41.validation.readings import is_rate
from aisim_v41.validation.sizes import counted

if TYPE_CHECKING:
    import pandas as pd

MODEL = "deepseek-v4.1-flash"
USABLE = "zero_shot"
DATA_CENTRE = frozenset(
    {"a100", "a800", "b200", "b300", "gb200", "gb300", "h100", "h200", "mi300x", "mi355x"}
)
"""GPUs that servers are built from; the others are workstation and consumer cards."""
HEADLINE_KINDS = frozenset({"step", "prefill", "ratio"})
"""Classes of the headline: forwards of the model, and ratios of them."""


class Standing(StrEnum):
    """What a case can say."""

    COUNTED = "counted"
    """Zero-shot: in the error table, in the headline and in the share inside the bands."""
    OPEN = "decoder replay not stated"
    """Both readings are predicted; neither is an error of the library."""
    SEEN = "kernel rows used"
    """A law of this GPU was made from this very measurement."""
    HOST = "eager forward"
    """The host decides: a test of its cost a call, not of kernels."""
    MODULES = "sum of measured modules"
    """The same forward, as the sum of V4.1's modules where they were timed eagerly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseError:
    """One reading of one case: measured, predicted, and the relative error.

    Attributes:
        case, source, kind, gpu, quantity, execution, assumptions: of the case; ``kind`` is its
            class.
        unit: of the three values: "ms", "x" (a ratio), "GiB" or "tokens".
        measured, predicted: values; a rate is turned into the time of one step or prompt.
        low, high: the 90 % band; None for counts, which have none.
        reads: how the source is read where it leaves something open.
        decoder_replay: the reading, where it is open; None where it is stated or plays no part.
        standing: whether it counts.
        twin: case with the same measurement in another form.
    """

    case: str
    source: str
    kind: str
    gpu: str
    quantity: str
    execution: str
    unit: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None
    reads: str = "as stated"
    decoder_replay: bool | None = None
    standing: Standing = Standing.COUNTED
    twin: str | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def relative(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0

    @property
    def contained(self) -> bool | None:
        """Whether the band holds the measurement; None without a band."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def in_headline(self) -> bool:
        """Whether the target of steps, prefills and ratios on data-centre GPUs is about it."""
        return (
            self.standing is Standing.COUNTED
            and self.gpu in DATA_CENTRE
            and self.kind in HEADLINE_KINDS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of a set of cases; each figure but ``cases`` is taken per source first.

    Attributes:
        sources, cases: how many.
        median_absolute: median over sources of the median |error| of each.
        p90_absolute: 90th percentile over sources of the same.
        p90_cases: 90th percentile of |error| over all cases, whatever their source.
        bias: median over sources of the median error.
        contained: mean over sources of the share inside the band; None without bands.
    """

    sources: int
    cases: int
    median_absolute: float
    p90_absolute: float
    p90_cases: float
    bias: float
    contained: float | None


def summary(errors: Iterable[CaseError]) -> Summary:
    """Summary of some errors.

    Raises:
        ValueError: there are none.
    """
    found = tuple(errors)
    if not found:
        raise ValueError("summary: no errors to summarise; select other cases")
    sources: dict[str, list[CaseError]] = defaultdict(list)
    for error in found:
        sources[error.source].append(error)
    absolute = [median(abs(e.relative) for e in group) for group in sources.values()]
    shares = [
        fmean(inside)
        for group in sources.values()
        if (inside := [e.contained for e in group if e.contained is not None])
    ]
    return Summary(
        sources=len(sources),
        cases=len(found),
        median_absolute=median(absolute),
        p90_absolute=float(np.percentile(absolute, 90)),
        p90_cases=float(np.percentile([abs(e.relative) for e in found], 90)),
        bias=median(median(e.relative for e in group) for group in sources.values()),
        contained=fmean(shares) if shares else None,
    )


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The error table."""

    errors: tuple[CaseError, ...]

    def of(self, standing: Standing) -> tuple[CaseError, ...]:
        """Errors of one standing."""
        return tuple(error for error in self.errors if error.standing is standing)

    @property
    def headline(self) -> Summary:
        """Steps, prefills and ratios on data-centre GPUs.

        Raises:
            ValueError: the report has none.
        """
        return summary(error for error in self.errors if error.in_headline)

    @property
    def bands(self) -> Summary:
        """Counted cases with a band; a measurement that two cases hold counts once.

        Raises:
            ValueError: the report has none.
        """
        counted = [e for e in self.of(Standing.COUNTED) if e.contained is not None]
        named = {error.case for error in counted}
        return summary(error for error in counted if error.twin not in named)

    def by(self, key: Callable[[CaseError], str]) -> dict[str, list[CaseError]]:
        """Counted errors by a key, in order of first occurrence."""
        found: dict[str, list[CaseError]] = defaultdict(list)
        for error in self.of(Standing.COUNTED):
            found[key(error)].append(error)
        return dict(found)

    def select(self, source: str) -> ErrorReport:
        """The part of one source, or of all whose name starts so."""
        return ErrorReport(tuple(e for e in self.errors if e.source.startswith(source)))

    def to_frame(self) -> pd.DataFrame:
        """One row a reading: the fields of `CaseError` with ``error`` and ``contained``."""
        import pandas as pd

        table = pd.DataFrame([row(error) for error in self.errors])
        table.attrs["about"] = (
            "Public measurements whose conditions are stated, predicted from kernels alone (op, "
            "nothing fitted to a step); docs/validation.md"
        )
        return table

    def to_text(self) -> str:
        """The report, short: headline, classes, sources, and what stands apart."""
        from aisim_v41.validation.error_text import report_text

        return report_text(self)


def row(error: CaseError) -> dict[str, Any]:
    """One reading as plain values, by the names of the columns of `ErrorReport.to_frame`."""
    return {
        "case": error.case, "source": error.source, "class": error.kind, "gpu": error.gpu,
        "quantity": error.quantity, "execution": error.execution, "reads": error.reads,
        "standing": str(error.standing), "unit": error.unit, "measured": error.measured,
        "predicted": error.predicted, "low": error.low, "high": error.high,
        "error": error.relative, "contained": error.contained,
        "assumptions": "; ".join(error.assumptions),
    }  # fmt: skip


def run_error_table(
    model: Model | None = None, *, source: str = "", cases: Iterable[Case] | None = None
) -> ErrorReport:
    """Predict every zero-shot case.

    Args:
        model: DeepSeek-V4.1-Flash by default.
        source: only sources whose name starts so.
        cases: the packaged ones and the published ratios by default.

    Raises:
        UnsupportedPlanError: the model has no step model.
    """
    loaded = require_step_model(load_model(MODEL) if model is None else model)
    every = (*load_cases(), *load_ratios()) if cases is None else tuple(cases)
    by_name = {case.name: case for case in every}
    found: list[CaseError] = []
    for case in every:
        if not (case.usable == USABLE or is_eager(case)) or not case.source.startswith(source):
            continue
        if case.workload.kind == "ratio":
            found += _of_ratio(loaded, case, by_name)
        elif case.workload.kind in ("memory", "capacity"):
            found += _of_size(loaded, case)
        else:
            found += _of_time(loaded, case)
    return ErrorReport(tuple(found))


def is_eager(case: Case) -> bool:
    """Whether it is an eager forward that only a host term can meet."""
    return (
        case.usable == "floor_only"
        and case.execution == "eager"
        and case.kind in HEADLINE_KINDS
        and "queue" not in case.includes
    )


def _of_time(model: Model, case: Case) -> Iterator[CaseError]:
    """A step, prompt, token or group of kernels: one reading, or two where replay is open."""
    conversion = convert(case, certain=False)
    if not isinstance(conversion, Conversion):
        return
    ways = _ways(conversion)
    for way in ways:
        told = predict(model, conversion, way)
        standing = _standing(case, told)
        if len(ways) > 1 and standing is Standing.COUNTED:
            standing = Standing.OPEN
        yield _time_error(
            case, told, MILLISECOND, "ms", _central_ms(conversion),
            reads=way.name,
            decoder_replay=way.decoder_replay if len(ways) > 1 else None,
            standing=standing,
            assumptions=(*case.assumptions, *conversion.assumptions),
        )  # fmt: skip
        summed_s = module_seconds(model, conversion, way) if standing is Standing.HOST else None
        if summed_s is not None:
            yield CaseError(
                case=case.name, source=case.source, kind=case.kind, gpu=case.gpu,
                quantity=case.quantity, execution=case.execution, unit="ms",
                measured=_central_ms(conversion), predicted=summed_s / MILLISECOND,
                reads=f"{way.name}, measured modules", standing=Standing.MODULES,
                twin=case.twin, assumptions=case.assumptions,
            )  # fmt: skip


def _standing(case: Case, told: Prediction) -> Standing:
    if case.name in told.used_cases:
        return Standing.SEEN
    return Standing.COUNTED if case.usable == USABLE else Standing.HOST


def _ways(conversion: Conversion) -> tuple[Way, ...]:
    """The reading as taken, and its like under the other decoder replay where that is open.

    What else a source leaves open (context, chunk) is taken as the case says.
    """
    ways = conversion.claims[0].ways
    others = [way for way in ways if way.decoder_replay is not ways[0].decoder_replay]
    return (ways[0], *others[:1])


def _central_ms(conversion: Conversion) -> float:
    """The measured value as a time [ms]; a bound takes the end of its interval instead."""
    case = conversion.case
    assert case.measured is not None
    if case.bounds is None:
        return conversion.measured_ms
    if is_rate(case.quantity):
        return conversion.measured_ms * max(case.measured, *case.bounds) / case.measured
    return conversion.measured_ms * case.measured / min(case.measured, *case.bounds)


def _of_ratio(model: Model, case: Case, by_name: dict[str, Case]) -> Iterator[CaseError]:
    """A ratio of two cases, each side predicted as it is taken."""
    assert case.measured is not None
    sides = [_side(model, by_name[name]) for name in case.workload.of if name in by_name]
    if len(sides) != len(case.workload.of) or None in sides:
        return
    first, second = (side for side in sides if side is not None)
    told = ratio(first, second)
    yield _time_error(case, told, 1.0, "x", case.measured, standing=_standing(case, told))


def _side(model: Model, case: Case) -> Prediction | None:
    """One side of a ratio; its own value is not needed, and may not be printed.

    Several prompts that were sent together are asked as a rate, so that they share steps.
    """
    together = case.workload.kind == "chunks" and (case.workload.requests or 1) > 1
    quantity = "tok_per_s" if together else case.quantity
    conversion = convert(replace(case, measured=case.measured or 1.0, quantity=quantity))
    if not isinstance(conversion, Conversion):
        return None
    return predict(model, conversion, conversion.claims[0].ways[0], by_size=True)


def _of_size(model: Model, case: Case) -> Iterator[CaseError]:
    """Memory or a capacity: a count, without a band."""
    size = counted(model, case)
    if size is None or case.measured is None:
        return
    yield CaseError(
        case=case.name, source=case.source, kind=case.kind, gpu=case.gpu, quantity=case.quantity,
        execution=case.execution, unit="GiB" if case.quantity == "gib" else case.quantity,
        measured=case.measured, predicted=size.value, twin=case.twin,
        assumptions=(*case.assumptions, *size.assumptions),
    )  # fmt: skip


def _time_error(
    case: Case, told: Prediction, unit_s: float, unit: str, measured: float, **known: Any
) -> CaseError:
    return CaseError(
        case=case.name, source=case.source, kind=case.kind, gpu=case.gpu, quantity=case.quantity,
        execution=case.execution, unit=unit, measured=measured, predicted=told.value_s / unit_s,
        low=told.low_s / unit_s, high=told.high_s / unit_s, twin=case.twin,
        **{"assumptions": case.assumptions, **known},
    )  # fmt: skip
