"""Mixture of experts of one layer: router, routed experts, shared expert.

Source: model-facts §4.5. Every rank runs a slice of every expert under tensor parallelism; under
expert parallelism it runs those of its group, and the operators here are those of the mean rank.
What is taken as true of routing: docs/assumptions.md, "Experts" and "Expert parallelism".
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import Family, Operator, on_share
from aisim_v41.ops.projections import activation_bytes, projection, stored_arithmetic
from aisim_v41.ops.rank import BF16_BYTES, FP32_BYTES, Rank
from aisim_v41.plan.counts import Count
from aisim_v41.units import FLOP_PER_MAC

ROUTED = ("ffn.experts.w1", "ffn.experts.w2", "ffn.experts.w3")
SHARED = ("ffn.shared_experts.w1", "ffn.shared_experts.w2", "ffn.shared_experts.w3")


def router_gate(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """``gate``: [hidden -> experts], BF16 weights; rows that are sent later are routed first."""
    rows, active = _routed_where(rank)
    gate = projection(
        "router_gate", weights["ffn.gate"], reads="normed", writes="router_logits",
        family=Family.EXPERTS, rows=rows, active=active, source="model-facts §4.5",
    )  # fmt: skip
    return of_rank(rank, gate)


def router_select(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Scores, bias-corrected top-k and renormalised weights (text rows: the text bias)."""
    experts = rank.model.experts
    rows, active = _routed_where(rank)
    select = Operator(
        name="router_select",
        family=Family.ELEMENTWISE,
        weights=weights["ffn.gate.bias"].bytes * active,
        inputs={"router_logits": experts.routed * BF16_BYTES * rows},
        outputs={"routing": experts.top_k * 2 * FP32_BYTES * rows},
        axes=(rows,),
        launches=1 * active,
        source="model-facts §4.5",
    )
    return of_rank(rank, select)


def _routed_where(rank: Rank) -> tuple[Count, Count]:
    """Rows that a rank routes, and whether there are any."""
    if rank.exchanges:
        return Count.QUERY_ROWS, Count.ACTIVE
    return Count.REPLICA_ROWS, Count.REPLICA_ACTIVE


def of_rank(rank: Rank, operator: Operator) -> Operator:
    """The operator on the rows that a rank sends: scattered over its tensor-parallel group."""
    return on_share(operator, 1 / rank.tp) if rank.exchanges and rank.tp > 1 else operator


def routed_experts(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Gate, up, activation and down of the chosen experts, weighted and summed.

    Work: top_k experts a row. Weights: each *distinct* expert once, as many as a bound or an
    expectation counts. Slices padded for the kernel are padded here too. Of expert groups, the mean
    one: 1/ep of both, and the rows that have an expert in it; without an exchange it still writes
    its part of every row's sum.
    """
    matrices = [weights[role] for role in ROUTED]
    chosen = rank.expert_arithmetic
    hidden = rank.model.hidden
    work = sum(FLOP_PER_MAC * m.rows * m.columns for m in matrices)
    per_row: float = work * rank.model.experts.top_k
    one_expert = sum(m.bytes / m.copies for m in matrices)
    groups, read = rank.parallel.ep, rank.rows_reaching
    written = read if rank.exchanges else 1.0
    if groups > 1:
        per_row, one_expert = per_row / groups, one_expert / groups
    return Operator(
        name="routed_experts",
        family=Family.EXPERTS,
        flops={chosen: per_row * Count.REPLICA_ROWS},
        weights=one_expert * rank.distinct_experts,
        inputs={
            "quantised": hidden * rank.expert_input_bytes * read * Count.REPLICA_ROWS,
            "routing": rank.model.experts.top_k * 2 * FP32_BYTES * read * Count.REPLICA_ROWS,
        },
        outputs={"routed": hidden * BF16_BYTES * written * Count.REPLICA_ROWS},
        axes=(Count.REPLICA_ROWS, rank.distinct_experts),
        launches=1 * Count.REPLICA_ACTIVE,
        source="model-facts §4.5; slice padding runtime-semantics §4.1",
    )


def shared_expert(rank: Rank, weights: Mapping[str, Tensor]) -> Operator | None:
    """The expert that every row runs; added to the routed sum by the same kernel."""
    if rank.model.experts.shared == 0:
        return None
    matrices = [weights[role] for role in SHARED]
    per_row = sum(FLOP_PER_MAC * m.rows * m.columns * m.copies for m in matrices)
    hidden = rank.model.hidden
    shared = Operator(
        name="shared_expert",
        family=Family.EXPERTS,
        flops={stored_arithmetic(matrices[0]): per_row * Count.QUERY_ROWS},
        weights=sum(m.bytes for m in matrices) * Count.ACTIVE,
        inputs={"quantised": hidden * activation_bytes(matrices[0]) * Count.QUERY_ROWS},
        outputs={"sublayer": hidden * BF16_BYTES * Count.QUERY_ROWS},
        products=(
            (matrices[0].rows + matrices[2].rows, matrices[0].columns),
            (matrices[1].rows, matrices[1].columns),
        ),
        source="model-facts §4.5",
    )
    return of_rank(rank, shared)
