"""Estimators side by side, and what is known about each operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aisim_v41.estimators.entry import ESTIMATORS
from aisim_v41.estimators.op_compiled import CompiledOp, compiled_op
from aisim_v41.hardware import Hardware
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

SECONDS_SHOWN = 1e-12


def compare(plan: Plan, hardware: Hardware) -> pd.DataFrame:
    """The estimators side by side, operator by operator; the last row is the whole step.

    Operators run at the same time in part, so a column's rows may add up to more than its last.

    Args:
        plan: what is run, and how.
        hardware: from `load_hardware`.

    Returns:
        Columns operator, family, calls, and for each method its time ``<method>_ms`` of all calls
        alone; ``op_over_sol`` and ``source``, the evidence behind OP.
    """
    import pandas as pd

    answers = {method: one.estimate(plan, hardware) for method, one in ESTIMATORS.items()}
    frames = []
    for method, answer in answers.items():
        rows = answer.to_frame().groupby(["operator", "family"], sort=False)
        frames.append(rows["time_ms"].sum().rename(f"{method}_ms"))
    table = pd.concat(frames, axis=1).reset_index()
    calls = answers["op"].to_frame().groupby(["operator", "family"], sort=False)
    known = calls.agg(calls=("calls", "sum"), source=("source", "first")).reset_index()
    table = table.merge(known, on=["operator", "family"])
    whole = {
        "operator": "whole step", "family": "",
        "calls": int(table["calls"].sum()), "source": "",
        **{f"{method}_ms": answer.latency_ms for method, answer in answers.items()},
    }  # fmt: skip
    table = pd.concat([table.sort_values("op_ms", ascending=False), pd.DataFrame([whole])])
    table["op_over_sol"] = table["op_ms"] / table["sol_ms"].clip(lower=SECONDS_SHOWN)
    order = ["operator", "family", "calls", *(f"{m}_ms" for m in answers), "op_over_sol", "source"]
    return table[order].reset_index(drop=True)


def coverage(plan: Plan, hardware: Hardware) -> pd.DataFrame:
    """What each operator's time rests on.

    Returns:
        One row a law: key, kind, origin (calibrated, sibling, default), share of the step's kernel
        time, rows it was fitted to, its median and 90th-percentile error, operators, sources, note.
    """
    import pandas as pd

    from aisim_v41.plan.ledger import ledger

    compiled: CompiledOp = compiled_op(plan.model, hardware, plan.parallel, plan.policy)
    found: dict[str, dict[str, object]] = {}
    total = 0.0
    for forward, counts in ledger(plan).passes:
        for group in compiled.groups:
            seconds = group.seconds(counts.totals) * compiled.calls[group.task_of]
            for binding, law, spent in zip(group.bindings, group.laws, seconds, strict=True):
                time = forward.times * float(spent)
                total += time
                row = found.setdefault(
                    law.key,
                    {
                        "law": law.key, "kind": str(law.kind), "origin": law.origin, "time_ms": 0.0,
                        "rows_fitted": law.rows_fitted, "error_median": law.error_median,
                        "error_p90": law.error_p90, "operators": set(),
                        "sources": "; ".join(law.sources), "note": law.note,
                    },
                )  # fmt: skip
                row["time_ms"] = float(row["time_ms"]) + time / MILLISECOND  # type: ignore[arg-type]
                row["operators"].add(binding.task.name)  # type: ignore[attr-defined]
    rows = [{**row, "operators": ", ".join(sorted(row["operators"]))} for row in found.values()]  # type: ignore[call-overload]
    table = pd.DataFrame(rows).sort_values("time_ms", ascending=False)
    table.insert(4, "share", table["time_ms"] / (total / MILLISECOND) if total else 0.0)
    return table.reset_index(drop=True)
