"""What OP's time of a plan rests on, kernel by kernel, and what to measure to better it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aisim_v41.estimators.compiled import Floats
from aisim_v41.estimators.op.builds import compiled_build
from aisim_v41.estimators.op.cases import PER_ROW
from aisim_v41.estimators.op.compiled import CompiledOp
from aisim_v41.estimators.op.estimator import op_forwards
from aisim_v41.estimators.op.evidence import Kernel
from aisim_v41.estimators.op.laws import Feature
from aisim_v41.hardware import Hardware
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "operator", "law", "kind", "evidence", "time_ms", "share", "calls", "rows", "rows_fitted",
    "error_median", "error_p90", "collector_case", "sources", "note",
)  # fmt: skip


class _Key(NamedTuple):
    """Kernels that one row of the table sums up."""

    operator: str
    law: str
    evidence: str
    case: str


def coverage(plan: Plan, hardware: Hardware) -> pd.DataFrame:
    """What OP's time of a plan rests on.

    Args:
        plan: what is run, and how.
        hardware: from `load_hardware`.

    Returns:
        One row for every kernel of an operator with its own size, longest time first: operator,
        law, kind; evidence (a `Tag`); time_ms of all its calls, their share of all kernels' time,
        calls, rows of one call; rows_fitted, error_median, error_p90 of the evidence;
        collector_case, what to measure so that the row becomes a measured one (empty where it
        is); sources; note, with the size that lies beyond those measured.

    Raises:
        UnsupportedPlanError: the mapping does not fit the model or the GPU.
        MissingProfileError: nothing is known about kernels of this GPU or its family.
    """
    import pandas as pd

    build = compiled_build(plan.model, hardware, plan.running, plan.policy)
    times: dict[_Key, float] = defaultdict(float)
    calls: dict[_Key, float] = defaultdict(float)
    kernels: dict[_Key, tuple[Kernel, float]] = {}
    for forward in op_forwards(build, ledger(plan)):
        compiled = forward.compiled
        for kernel in forward.kernels:
            case = (
                "" if kernel.tag == "measured" else collector_case(compiled, kernel, forward.counts)
            )
            key = _Key(kernel.task.name, kernel.law.key, kernel.tag, case)
            times[key] += forward.times * kernel.seconds
            calls[key] += forward.times * float(compiled.calls[compiled.place_of(kernel.task)])
            kernels.setdefault(key, (kernel, _rows(compiled, kernel, forward.counts)))
    total = sum(times.values())
    rows = []
    for key in sorted(times, key=lambda key: -times[key]):
        kernel, of_rows = kernels[key]
        law, curve = kernel.law, kernel.evidence.curve
        own = kernel.evidence.collected
        known = kernel.tag in ("measured", "interpolated", "portable")
        near = (own or curve) if known else None
        rows.append(
            {
                "operator": key.operator,
                "law": key.law,
                "kind": str(law.kind),
                "evidence": key.evidence,
                "time_ms": times[key] / MILLISECOND,
                "share": times[key] / total if total else 0.0,
                "calls": calls[key],
                "rows": of_rows,
                "rows_fitted": law.rows_fitted,
                "error_median": min((near or law).error_median, kernel.error_p90),
                "error_p90": kernel.error_p90,
                "collector_case": key.case,
                "sources": own.source if own and known else "; ".join(law.sources),
                "note": "; ".join(part for part in (kernel.reason, law.note) if part),
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def collector_case(compiled: CompiledOp, kernel: Kernel, counts: Floats) -> str:
    """What to measure so that a kernel's time is a measured one: operator, options and sizes.

    A size is what this plan asks for; a table serves a range when it holds its ends and every
    power of two between. Empty for a kernel that no step of this plan runs.
    """
    case = kernel.evidence.case
    if case is None:
        return ""

    def of(feature: Feature) -> float:
        if isinstance(feature, Mapping):
            return float(compiled.vector(feature) @ counts)
        return float(feature)

    rows = of(kernel.evidence.binding.features["rows"])
    varying = {
        axis: of(feature) / (rows if axis in PER_ROW and rows else 1.0)
        for axis, feature in case.axes.items()
    }
    if not rows or not all(varying.values()):
        return ""
    fields: dict[str, object] = {**case.options, **case.sizes, **varying}
    if "touched" in kernel.evidence.binding.features:
        fields["touched"] = of(kernel.evidence.binding.features["touched"])
    shown = " ".join(f"{key}={_plain(value)}" for key, value in fields.items())
    return f"{case.operator} {shown} execution={compiled.device_execution}"


def _plain(value: object) -> object:
    """A number without a fraction that says nothing."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 1)
    return value


def _rows(compiled: CompiledOp, kernel: Kernel, counts: Floats) -> float:
    """Rows of one call."""
    return float(np.asarray(compiled.vector({kernel.task.rows: 1}) @ counts))
