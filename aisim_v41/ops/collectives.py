"""Collectives inside a layer under tensor parallelism: one after attention, one after the experts.

Source: runtime-semantics §4.3.
"""

from __future__ import annotations

from typing import Literal

from aisim_v41.ops.operator import Collective, Family, Operator
from aisim_v41.ops.rank import BF16_BYTES, Rank
from aisim_v41.plan.counts import Count


def all_reduce_rows(rank: Rank, after: Literal["attention", "experts"]) -> Operator | None:
    """Sum of the ranks' partial hidden rows; None on one rank."""
    if rank.tp == 1:
        return None
    row = rank.model.hidden * BF16_BYTES * Count.QUERY_ROWS
    return Operator(
        name=f"all_reduce_{after}",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_REDUCE,
        payload=row,
        group=rank.tp,
        inputs={"sublayer": row},
        outputs={"sublayer_summed": row},
        source="runtime-semantics §4.3",
    )
