"""Estimators side by side, operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aisim_v41.errors import MissingProfileError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.estimators.entry import ESTIMATORS
from aisim_v41.hardware import Hardware
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.words import plan_text
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

SECONDS_SHOWN = 1e-12


def compare(plan: Plan, hardware: Hardware) -> pd.DataFrame:
    """The estimators side by side, operator by operator; the last row is the whole step.

    Operators run at the same time in part, so a column's rows may add up to more than its last.
    Rows are the kernels of the build that OP prices, each beside its own floor.

    Args:
        plan: what is run, and how.
        hardware: from `load_hardware`.

    Returns:
        Columns operator, family, calls, and for each method its time ``<method>_ms`` of all calls
        alone; ``op_over_sol`` and ``source``, the evidence behind OP in any layer. Whole forwards
        (``fpm_ms``) have a time in the last row alone, where this identity was measured. Its
        ``attrs["about"]`` says of what it is.

    Raises:
        UnsupportedPlanError: the mapping does not fit the model or the GPU.
        MissingProfileError: nothing is known about kernels of this GPU or its family.
    """
    import pandas as pd

    answers = {method: ESTIMATORS[method].estimate(plan, hardware) for method in ("sol", "op")}
    whole_ms = {f"{method}_ms": answer.latency_ms for method, answer in answers.items()}
    whole_ms["fpm_ms"] = _measured_ms(plan, hardware)
    rows = pd.DataFrame(
        [
            {
                "operator": row.operator, "family": row.family, "calls": row.calls,
                "sol_ms": row.floor_s / MILLISECOND, "op_ms": row.seconds / MILLISECOND,
                "source": row.source,
            }
            for row in answers["op"].rows
        ],
        columns=["operator", "family", "calls", "sol_ms", "op_ms", "source"],
    )  # fmt: skip
    found = rows.groupby(["operator", "family"], sort=False)
    table = found.agg({"calls": "sum", "sol_ms": "sum", "op_ms": "sum", "source": _sources})
    table = table.reset_index()
    whole = {
        "operator": "whole step", "family": "",
        "calls": int(table["calls"].sum()), "source": "",
        **whole_ms,
    }  # fmt: skip
    table = pd.concat([table.sort_values("op_ms", ascending=False), pd.DataFrame([whole])])
    table["op_over_sol"] = table["op_ms"] / table["sol_ms"].clip(lower=SECONDS_SHOWN)
    order = ["operator", "family", "calls", *whole_ms, "op_over_sol", "source"]
    table = table[order].reset_index(drop=True)
    table.attrs["about"] = plan_text(plan, hardware.name)
    return table


def _measured_ms(plan: Plan, hardware: Hardware) -> float:
    """Time by whole forwards [ms]; nan where none of this identity and size was measured."""
    try:
        return ESTIMATORS["fpm"].estimate(plan, hardware).latency_ms
    except (MissingProfileError, UnsupportedPlanError, OutOfRangeError):
        return float("nan")


def _sources(found: pd.Series) -> str:
    """Kinds of evidence of an operator's layers, each once."""
    return " + ".join(sorted({kind for source in found for kind in source.split(" + ")}))
