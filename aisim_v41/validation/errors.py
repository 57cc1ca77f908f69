"""How far OP is from public measurements, case by case: the error table.

Only cases whose conditions are stated well enough (`usable` zero_shot) count, each read as the
source states it with the engine's preset. Nothing here was used to fit anything: laws come from
operator tables of other runs (docs/calibration.md). Medians go per source first, since some sources
supply many rows of one kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from aisim_v41.estimators.op_compiled import CompiledOp, compiled_op
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.load import load_model
from aisim_v41.plan.compatibility import check_requests
from aisim_v41.plan.plan import forward_passes
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.bound import reported_tasks
from aisim_v41.validation.cases import load_cases
from aisim_v41.validation.conversion import Conversion, Way
from aisim_v41.validation.convert import convert

if TYPE_CHECKING:
    import pandas as pd

MODEL = "deepseek-v4.1-flash"
USABLE = "zero_shot"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseError:
    """One case: measured, predicted, and the relative error."""

    case: str
    source: str
    kind: str
    gpu: str
    quantity: str
    measured_ms: float
    predicted_ms: float
    reads: str
    """Which reading of the source; more than one where it leaves a condition open."""

    @property
    def relative(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_ms / self.measured_ms - 1.0


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The error table."""

    errors: tuple[CaseError, ...]

    def by(self, key: Callable[[CaseError], str]) -> dict[str, list[CaseError]]:
        """Cases by a key, in order of first occurrence."""
        found: dict[str, list[CaseError]] = defaultdict(list)
        for error in self.errors:
            found[key(error)].append(error)
        return dict(found)

    def median_absolute(self, errors: Iterable[CaseError] | None = None) -> float:
        """Median over sources of each source's median absolute error."""
        sources: dict[str, list[float]] = defaultdict(list)
        for error in self.errors if errors is None else errors:
            sources[error.source].append(abs(error.relative))
        return median(median(values) for values in sources.values())

    def to_frame(self) -> pd.DataFrame:
        """One row a case: case, source, kind, gpu, quantity, measured_ms, predicted_ms, error."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "case": e.case, "source": e.source, "kind": e.kind, "gpu": e.gpu,
                    "quantity": e.quantity, "reads": e.reads, "measured_ms": e.measured_ms,
                    "predicted_ms": e.predicted_ms, "error": e.relative,
                }
                for e in self.errors
            ]
        )  # fmt: skip

    def to_text(self) -> str:
        """Errors by GPU and kind, medians per source first."""
        lines = [
            f"OP against {len(self.errors)} zero-shot readings: median absolute error "
            f"{self.median_absolute():.0%} (median per source first)",
            "",
            f"{'gpu and kind':<34}{'cases':>6}{'sources':>9}{'median |error|':>16}{'bias':>8}",
        ]
        for name, errors in sorted(self.by(lambda e: f"{e.gpu}, {e.kind}").items()):
            bias = median(e.relative for e in errors)
            lines.append(
                f"{name:<34}{len(errors):>6}{len({e.source for e in errors}):>9}"
                f"{self.median_absolute(errors):>16.0%}{bias:>+8.0%}"
            )
        return "\n".join(lines)


def run_error_table(model: Model | None = None) -> ErrorReport:
    """Predict every zero-shot case with OP."""
    loaded = require_step_model(load_model(MODEL) if model is None else model)
    found: list[CaseError] = []
    for case in load_cases():
        if case.usable != USABLE:
            continue
        conversion = convert(case)
        if not isinstance(conversion, Conversion):
            continue
        for way in conversion.claims[0].ways:
            found.append(
                CaseError(
                    case=case.name,
                    source=case.source,
                    kind=case.kind,
                    gpu=case.gpu,
                    quantity=case.quantity,
                    measured_ms=conversion.measured_ms,
                    predicted_ms=_predict(loaded, conversion, way) / MILLISECOND,
                    reads=way.name,
                )
            )
    return ErrorReport(tuple(found))


def _predict(model: Model, conversion: Conversion, way: Way) -> float:
    """Seconds of one reading, of the whole step or of a group's kernels."""
    machine, group = conversion.machine, conversion.group
    compiled = compiled_op(model, machine.packaged, machine.parallel, way.preset)
    if group is None:
        return sum(part.times * compiled(part.requests) for part in way.parts)
    total = 0.0
    for part in way.parts:
        for forward in forward_passes(part.requests, way.preset):
            columns = check_requests(model, way.preset, forward.requests)
            counts = compiled.program.count(columns, one_step=True).totals
            seconds = _seconds_by_task(compiled, counts)
            for task in reported_tasks(compiled, group):
                total += part.times * forward.times * seconds[id(task)]
    return total / len(group.layers) if group.each else total


def _seconds_by_task(compiled: CompiledOp, counts: object) -> dict[int, float]:
    found = compiled.task_seconds(counts)  # type: ignore[arg-type]
    return {id(t): float(s) for t, s in zip(compiled.tasks, found, strict=True)}
