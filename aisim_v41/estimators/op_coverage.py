"""What OP's time of a plan rests on, kernel by kernel, and what to measure to better it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aisim_v41.estimators.compiled import Floats
from aisim_v41.estimators.op import op_forwards
from aisim_v41.estimators.op_builds import compiled_build
from aisim_v41.estimators.op_compiled import CompiledOp
from aisim_v41.estimators.op_evidence import Kernel
from aisim_v41.evidence.laws import LawKind
from aisim_v41.hardware import Hardware
from aisim_v41.model.sharding import padded
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "operator", "law", "kind", "evidence", "time_ms", "share", "calls", "rows", "rows_fitted",
    "error_median", "error_p90", "collector_case", "sources", "note",
)  # fmt: skip
NARROW_PRODUCT = "fp8_block32"
"""Operands of 8 bits that the model itself has; tables hold blocks of 128."""


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
        near = curve if kernel.tag in ("measured", "interpolated") else None
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
                "sources": "; ".join(law.sources),
                "note": "; ".join(part for part in (kernel.reason, law.note) if part),
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def collector_case(compiled: CompiledOp, kernel: Kernel, counts: Floats) -> str:
    """What to measure so that a kernel's time is a measured one: operator, identity and sizes.

    A size is what this plan asks for; a table serves a range when it holds its ends and every
    power of two between.
    """
    law, features = kernel.law, kernel.evidence.binding.features
    model = compiled.model

    def of(name: str) -> float:
        feature = features[name]
        if isinstance(feature, Mapping):
            return float(compiled.vector(feature) @ counts)
        return float(feature)

    rows = of("rows")
    sizes: dict[str, object] = {"rows": rows}
    name = str(law.kind)
    if law.kind is LawKind.PRODUCT:
        name = "gemm"
        dtype = "bf16" if kernel.evidence.binding.key == "product.bf16" else NARROW_PRODUCT
        sizes = {"dtype": dtype, "outputs": of("outputs"), "inputs": of("inputs")} | sizes
    elif law.kind is LawKind.EXPERTS:
        name = "routed_experts"
        width, groups = model.experts.width, compiled.parallel.ep
        sizes = {
            "dtype": kernel.evidence.binding.key.partition(".")[2], "hidden": model.hidden,
            "expert_width": width, "tensor_parallel": compiled.parallel.expert_slices,
            **({"expert_parallel": groups} if groups > 1 else {}),
            "experts_routed": of("routed") * groups, "experts_per_token": of("top_k") * groups,
        } | sizes | {"touched": of("touched")}  # fmt: skip
    elif law.kind is LawKind.ATTENTION:
        name = "sparse_attention"
        sizes |= {"keys_per_row": of("pairs") / rows if rows else 0.0}
        held = padded(model, compiled.parallel, compiled.policy.sharding)
        sizes |= {"heads": held.attention.heads // compiled.parallel.tp}
    elif law.kind in (LawKind.SCORES, LawKind.SELECT):
        name = "index_score" if law.kind is LawKind.SCORES else "index_select"
        sizes |= {"positions_per_row": of("positions") / rows if rows else 0.0}
    elif law.kind is LawKind.HYPER:
        name = f"mhc_{law.key.partition('.')[2]}"
        sizes |= {"hidden": model.hidden}
    elif law.kind is LawKind.COLLECTIVE:
        name = law.key.partition(".")[0]
        library = law.key.partition(".")[2].partition("@")[0]
        sizes = {"library": library, "ranks": of("ranks"), "message_bytes": of("message_bytes")}
    else:
        name = kernel.task.name
    shown = " ".join(f"{key}={_plain(value)}" for key, value in sizes.items())
    return f"{name} {shown} execution=graph"


def _plain(value: object) -> object:
    """A number without a fraction that says nothing."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 1)
    return value


def _rows(compiled: CompiledOp, kernel: Kernel, counts: Floats) -> float:
    """Rows of one call."""
    return float(np.asarray(compiled.vector({kernel.task.rows: 1}) @ counts))
