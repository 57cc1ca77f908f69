"""Indexer of a FULL or REINDEX layer: index queries, scores, and the selection of entries.

Score of an entry = Σ over heads of w_h·relu(q_h·k): index_heads x index_head_dim
multiply-accumulates a query and key. FULL layers score everything visible; REINDEX layers score the
candidate pool, or everything where the engine masks afterwards (policy ``reindex_scoring``).
Source: model-facts §4.2-§4.3; runtime-semantics §7; docs/assumptions.md, "Index scoring".
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.model.layers import CandidateRole, LayerKind
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import Collective, Family, Operator
from aisim_v41.ops.projections import projection
from aisim_v41.ops.rank import BF16_BYTES, FP32_BYTES, Rank
from aisim_v41.plan.counts import Count
from aisim_v41.units import FLOP_PER_MAC

SCORE_BYTES = 2
"""One kept score (runtime-semantics §6.3: batched tokens x length x 2 B)."""
POSITION_BYTES = 4


def index_query(weights: Mapping[str, Tensor]) -> Operator:
    """``indexer.wq_b``: [q_rank -> index_heads x index_head_dim], from the shared query latent."""
    return projection(
        "index_query", weights["attn.indexer.wq_b"], reads="q_latent_quantised",
        writes="index_query_flat", family=Family.INDEXER, rows=Count.INDEX_ROWS,
        active=Count.INDEX_ACTIVE, source="model-facts §4.2",
    )  # fmt: skip


def index_query_rotate(weights: Mapping[str, Tensor]) -> Operator:
    """Rotation and packing of the index queries."""
    width = weights["attn.indexer.wq_b"].rows
    return Operator(
        name="index_query_rope",
        family=Family.ELEMENTWISE,
        inputs={"index_query_flat": width * BF16_BYTES * Count.INDEX_ROWS},
        outputs={"index_query_packed": width * (17 / 32) * Count.INDEX_ROWS},
        launches=1 * Count.INDEX_ACTIVE,
        axes=(Count.INDEX_ROWS,),
        source="model-facts §4.2: MXFP4, 4 bits and a scale byte per 32",
    )


def index_weights(weights: Mapping[str, Tensor]) -> Operator:
    """``indexer.weights_proj``: [hidden -> index_heads], BF16."""
    return projection(
        "index_weights", weights["attn.indexer.weights_proj"], reads="normed",
        writes="index_head_weights", family=Family.INDEXER, rows=Count.INDEX_ROWS,
        active=Count.INDEX_ACTIVE, source="model-facts §4.2",
    )  # fmt: skip


def index_score(rank: Rank, weights: Mapping[str, Tensor], kind: LayerKind) -> Operator:
    """Scores of every query against the keys it may select from.

    The owner's read of keys older than the step is unavoidable; a REINDEX layer reads a subset of
    the same keys, which a cache may hold.
    """
    query_values = weights["attn.indexer.wq_b"].rows
    heads = weights["attn.indexer.weights_proj"].rows
    key = rank.rows.index.bytes
    reads = key * (Count.INDEX_KEYS_CACHED if kind is LayerKind.FULL else Count.INDEX_KEYS) * 1
    owner = kind is LayerKind.FULL
    return Operator(
        name="index_score",
        family=Family.INDEXER,
        flops={rank.index_arithmetic: FLOP_PER_MAC * query_values * Count.SCORED_POSITIONS},
        kv_reads=reads if owner else 0 * Count.INDEX_KEYS,
        kv_rereads=key * Count.INDEX_KEYS + -1 * reads if owner else reads,
        inputs={
            "index_query_packed": query_values * (17 / 32) * Count.INDEX_ROWS,
            "index_head_weights": heads * BF16_BYTES * Count.INDEX_ROWS,
        },
        outputs={"scores": SCORE_BYTES * Count.SCORED_POSITIONS},
        launches=1 * Count.INDEX_ACTIVE,
        axes=(Count.INDEX_ROWS, Count.SCORED_POSITIONS),
        source="model-facts §4.2: 4,096 multiply-accumulates a visible entry",
    )


def all_reduce_scores(rank: Rank) -> Operator | None:
    """Sum of partial scores where the reference splits index heads over ranks."""
    if rank.tp == 1 or rank.policy.sharding.indexer != "split":
        return None
    return Operator(
        name="all_reduce_scores",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_REDUCE,
        payload=FP32_BYTES * Count.SCORED_POSITIONS,
        group=rank.tp,
        launches=1 * Count.INDEX_ACTIVE,
        axes=(Count.SCORED_POSITIONS,),
        source="model-facts §9",
    )


def index_select(rank: Rank) -> Operator:
    """Top-k of the scores."""
    indexer = rank.model.indexer
    assert indexer is not None
    return Operator(
        name="index_select",
        family=Family.INDEXER,
        inputs={"scores": SCORE_BYTES * Count.SCORED_POSITIONS},
        outputs={"selection": POSITION_BYTES * indexer.top_k * Count.INDEX_ROWS},
        launches=1 * Count.INDEX_ACTIVE,
        axes=(Count.INDEX_ROWS, Count.SCORED_POSITIONS),
        source="model-facts §4.2",
    )


def candidate_pool(rank: Rank, role: CandidateRole) -> Operator | None:
    """Maxima of blocks of scores and the best blocks, for layers that score only those.

    The candidate source makes it from its own scores, once for every query. A kernel that selects
    at the same time reads the scores once. Comparisons are not counted as FLOP.
    """
    indexer = rank.model.indexer
    assert indexer is not None
    if role is not CandidateRole.SOURCE:
        return None
    return Operator(
        name="candidate_pool",
        family=Family.INDEXER,
        inputs={"scores": SCORE_BYTES * Count.SCORED_POSITIONS},
        outputs={"candidates": POSITION_BYTES * indexer.candidate_blocks * Count.INDEX_ROWS},
        launches=1 * Count.INDEX_ACTIVE,
        axes=(Count.INDEX_ROWS, Count.SCORED_POSITIONS),
        source="model-facts §4.3; runtime-semantics §5.2",
    )
