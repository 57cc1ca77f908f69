"""Estimators side by side, operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aisim_v41.estimators.entry import ESTIMATORS
from aisim_v41.hardware import Hardware
from aisim_v41.plan.plan import Plan

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

    Raises:
        UnsupportedPlanError: the mapping does not fit the model or the GPU.
        MissingProfileError: nothing is known about kernels of this GPU or its family.
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
