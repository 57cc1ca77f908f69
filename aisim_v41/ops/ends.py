"""Before the first layer and after the last: embedding, streams, head.

Source: model-facts §4.7; collectives runtime-semantics §4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.hyper import collapse
from aisim_v41.ops.operator import Collective, Family, Operator
from aisim_v41.ops.projections import projection
from aisim_v41.ops.rank import BF16_BYTES, Rank
from aisim_v41.plan.counts import Count


def embedding(
    rank: Rank,
    weights: Mapping[str, Tensor],
    rows: Count = Count.TOKENS,
    active: Count = Count.KV_ACTIVE,
) -> Operator:
    """One row of the table a token; a rank finds 1/tp of them in its slice of the vocabulary."""
    share = weights["embed"].rows / rank.model.vocab
    row = rank.model.hidden * BF16_BYTES * rows
    return Operator(
        name="embedding",
        family=Family.ENDS,
        inputs={"embedding_rows": share * row},
        outputs={"embedded": row},
        launches=1 * active,
        axes=(rows,),
        source="model-facts §2, embed",
    )


def all_reduce_embedding(
    rank: Rank, rows: Count = Count.TOKENS, active: Count = Count.KV_ACTIVE
) -> Operator | None:
    """Sum of the ranks' partial embeddings where the vocabulary is split."""
    if rank.tp == 1 or rank.policy.sharding.embedding != "split":
        return None
    return Operator(
        name="all_reduce_embedding",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_REDUCE,
        payload=rank.model.hidden * BF16_BYTES * rows,
        group=rank.tp,
        launches=1 * active,
        axes=(rows,),
        source="runtime-semantics §4.3",
    )


def stream_copy(
    rank: Rank, rows: Count = Count.TOKENS, active: Count = Count.KV_ACTIVE
) -> Operator:
    """The embedding copied into every residual stream."""
    row = rank.model.hidden * BF16_BYTES * rows
    return Operator(
        name="stream_copy",
        family=Family.ELEMENTWISE,
        inputs={"embedded": row},
        outputs={"streams": rank.model.hyper.streams * row},
        launches=1 * active,
        axes=(rows,),
        source="model-facts §4.1",
    )


def head_collapse(rank: Rank, rows: Count = Count.LOGIT_ROWS) -> Operator:
    """Streams of the rows that reach the head, collapsed once more."""
    return collapse(rank, rows, "head_collapse")


def final_norm(
    rank: Rank,
    weights: Mapping[str, Tensor],
    rows: Count = Count.LOGIT_ROWS,
    active: Count = Count.HEAD_ACTIVE,
) -> Operator:
    """RMSNorm before the head."""
    row = rank.model.hidden * BF16_BYTES * rows
    return Operator(
        name="final_norm",
        family=Family.ELEMENTWISE,
        weights=weights["norm"].bytes * active,
        inputs={"mixed": row},
        outputs={"head_in": row},
        axes=(rows,),
        launches=1 * active,
        source="model-facts §4.7",
    )


def output_head(
    weights: Mapping[str, Tensor],
    rows: Count = Count.LOGIT_ROWS,
    active: Count = Count.HEAD_ACTIVE,
) -> Operator:
    """``head``: [hidden -> vocabulary], BF16, split by vocabulary."""
    return projection(
        "output_head", weights["head"], reads="head_in", writes="logits", family=Family.ENDS,
        rows=rows, active=active, source="model-facts §4.7",
    )  # fmt: skip


def gather_logits(rank: Rank) -> Operator | None:
    """Logits of all vocabulary slices, gathered for sampling."""
    if rank.vocabulary_ranks == 1:
        return None
    return Operator(
        name="gather_logits",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_GATHER,
        payload=rank.model.vocab * BF16_BYTES * Count.LOGIT_ROWS,
        group=rank.vocabulary_ranks,
        axes=(Count.LOGIT_ROWS,),
        launches=1 * Count.HEAD_ACTIVE,
        source="runtime-semantics §4.3",
    )
