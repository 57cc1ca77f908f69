"""Operators of a step on a roofline: work a byte, and the rate that they reach."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.estimators.result import Estimate
from aisim_v41.ops.operator import NOT_FROM_HBM
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd


def roofline_points(estimate: Estimate) -> pd.DataFrame:
    """One row an operator, all its layers together, the longest first.

    Returns:
        Columns operator, family, flop, bytes (of the GPU's memory), ms (all calls alone),
        flop_per_byte and flop_per_s; the last two are nan without such work.
    """
    import pandas as pd

    table = pd.DataFrame(
        [
            {
                "operator": row.operator,
                "family": row.family,
                "flop": row.flop,
                "bytes": sum(
                    moved for kind, moved in row.bytes_by_kind.items() if kind not in NOT_FROM_HBM
                ),
                "ms": row.seconds / MILLISECOND,
            }
            for row in estimate.rows
        ],
        columns=["operator", "family", "flop", "bytes", "ms"],
    )
    table = table.groupby(["operator", "family"], sort=False, as_index=False).sum()
    works = (table["flop"] > 0) & (table["bytes"] > 0) & (table["ms"] > 0)
    some = table.where(works)
    table["flop_per_byte"] = some["flop"] / some["bytes"]
    table["flop_per_s"] = some["flop"] / (some["ms"] * MILLISECOND)
    return table.sort_values("ms", ascending=False, ignore_index=True)


def roofs(estimate: Estimate) -> dict[str, float]:
    """Dense peaks [FLOP/s] of the units that the step's operators use, the highest first.

    Number formats that share a peak share a name.
    """
    used: set[Arithmetic] = set()
    for forward in estimate.breakdown.forwards:
        for task in forward.compiled.tasks:
            used |= set(task.flops)
    named: dict[float, set[str]] = defaultdict(set)
    for one in used:
        rate, units = estimate.hardware.peak(one)
        named[rate].add(str(units))
    return {", ".join(sorted(named[rate])): rate for rate in sorted(named, reverse=True)}
