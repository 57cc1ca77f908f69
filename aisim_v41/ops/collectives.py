"""Collectives inside a layer: sums of the ranks after attention and experts, or rows that are sent
to the ranks of their experts and back.

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


def dispatch_rows(rank: Rank) -> Operator:
    """A rank's rows to the ranks of their experts, as these read them; once to each rank."""
    row = rank.model.hidden * rank.expert_input_bytes
    own = row / rank.tp * Count.QUERY_ROWS
    return Operator(
        name="dispatch_rows",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_TO_ALL,
        payload=own,
        group=rank.parallel.ep,
        scatter=rank.scatter,
        row_share=1 / rank.tp,
        inputs={"quantised": own},
        outputs={"dispatched": row * rank.rows_reaching * Count.REPLICA_ROWS},
        launches=1 * Count.REPLICA_ACTIVE,
        source="runtime-semantics §4.3: rows scattered over attention TP first",
    )


def combine_rows(rank: Rank) -> Operator:
    """Sums of a rank's experts back to the ranks of the rows, in BF16; one a row and rank."""
    row = rank.model.hidden * BF16_BYTES
    own = row / rank.tp * Count.QUERY_ROWS
    return Operator(
        name="combine_rows",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_TO_ALL,
        payload=own,
        group=rank.parallel.ep,
        scatter=rank.scatter,
        row_share=1 / rank.tp,
        inputs={"routed": row * rank.rows_reaching * Count.REPLICA_ROWS},
        outputs={"sublayer": own},
        launches=1 * Count.REPLICA_ACTIVE,
        source="runtime-semantics §4.3",
    )


def gather_expert_rows(rank: Rank) -> Operator | None:
    """The scattered rows of a tensor-parallel group on each of its ranks again; None on one."""
    if rank.tp == 1:
        return None
    row = rank.model.hidden * BF16_BYTES * Count.QUERY_ROWS
    return Operator(
        name="gather_expert_rows",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_GATHER,
        payload=row,
        group=rank.tp,
        inputs={"sublayer": 1 / rank.tp * row},
        outputs={"sublayer_summed": row},
        source="runtime-semantics §4.3: gathered after",
    )
