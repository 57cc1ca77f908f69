"""DSpark drafter: what its blocks do not share with a backbone layer.

A draft block is a window-only layer with experts of its own; its operators are those of the
backbone, with the draft's dimensions. Here are the ends: taps of the target and their projection
into the rings, sampling, and the Markov chain that turns the logits of all positions into one token
after another. Source: model-facts §8 (reference inference code), runtime-semantics §9; what is
assumed of sampling: docs/assumptions.md, "Speculation".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.ends import output_head
from aisim_v41.ops.operator import Collective, Family, Operator, reread
from aisim_v41.ops.projections import projection
from aisim_v41.ops.rank import BF16_BYTES, FP8_BYTES, FP32_BYTES, Rank
from aisim_v41.plan.counts import Count, LinearForm
from aisim_v41.units import FLOP_PER_MAC

TOKEN_BYTES = 4
WINNER_BYTES = FP32_BYTES + TOKEN_BYTES
"""What a rank says of its slice of the vocabulary: the best score and whose it is."""


def sample_target(outside: Mapping[str, Tensor]) -> Operator:
    """Sampling of the rows that reached the target's head, and acceptance of drafted ones.

    One pass over a rank's slice of the logits.
    """
    logits = outside["head"].rows * BF16_BYTES * Count.LOGIT_ROWS
    return Operator(
        name="sample_target",
        family=Family.ENDS,
        flops={Arithmetic.FP32: FLOP_PER_MAC * outside["head"].rows * Count.LOGIT_ROWS},
        inputs={"logits": logits},
        outputs={"tokens": TOKEN_BYTES * Count.LOGIT_ROWS},
        axes=(Count.LOGIT_ROWS,),
        launches=1 * Count.HEAD_ACTIVE,
        source="model-facts §8; runtime-semantics §9",
    )


def tap(rank: Rank) -> Operator:
    """Mean of the streams at the input of one tapped layer, in the precision of ``main_proj``.

    One for each tap of the drafter (``dspark_target_layer_ids``).
    """
    hyper, hidden = rank.model.hyper, rank.model.hidden
    return Operator(
        name="tap",
        family=Family.ELEMENTWISE,
        flops={Arithmetic.FP32: FLOP_PER_MAC * hyper.streams * hidden * Count.QUERY_ROWS},
        inputs={"streams": hyper.streams * hidden * BF16_BYTES * Count.QUERY_ROWS},
        outputs={"quantised": hidden * FP8_BYTES * Count.QUERY_ROWS},
        source="model-facts §8: mean over the 4 streams of the input of layers 37, 38, 39",
    )


def main_projection(weights: Mapping[str, Tensor]) -> Operator:
    """``main_proj``: [taps x hidden -> hidden], FP8, replicated."""
    return projection(
        "main_proj", weights["main_proj"], reads="quantised", writes="main_rows",
        source="model-facts §8: 78,643,200 multiply-accumulates a context row",
    )  # fmt: skip


def main_norm(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """RMSNorm of the projected taps, and their conversion for every block's ``wkv``."""
    hidden = rank.model.hidden
    return Operator(
        name="main_norm",
        family=Family.ELEMENTWISE,
        weights=weights["main_norm"].bytes * Count.ACTIVE,
        inputs={"main_rows": hidden * BF16_BYTES * Count.QUERY_ROWS},
        outputs={"quantised": hidden * FP8_BYTES * Count.QUERY_ROWS},
        source="model-facts §8",
    )


def shared_head(outside: Mapping[str, Tensor]) -> Operator:
    """The target's head on drafted rows, whose weights the target has just read."""
    return reread(output_head(outside, Count.QUERY_ROWS, Count.ACTIVE))


def markov_embedding(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Embedding of the token before: one row of ``markov_head.embed`` a request."""
    table = weights["markov_head.embed"]
    row = table.columns * BF16_BYTES * Count.QUERY_ROWS
    return Operator(
        name="markov_embedding",
        family=Family.ENDS,
        inputs={"markov_table": table.rows / rank.model.vocab * row},
        outputs={"markov_in": row},
        source="model-facts §8: embed previous id (256)",
    )


def all_reduce_markov(rank: Rank, weights: Mapping[str, Tensor]) -> Operator | None:
    """Sum of the ranks' partial embeddings where the vocabulary is split."""
    if rank.tp == 1 or rank.policy.sharding.embedding != "split":
        return None
    return Operator(
        name="all_reduce_markov",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_REDUCE,
        payload=weights["markov_head.embed"].columns * BF16_BYTES * Count.QUERY_ROWS,
        group=rank.tp,
        source="as for the input embedding, runtime-semantics §4.3",
    )


def markov_head(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """``markov_head.head``: [markov rank -> vocabulary], BF16, split by vocabulary.

    Runs once a position; only the first run reads weights that no cache can hold.
    """
    product = projection(
        "markov_head", weights["markov_head.head"], reads="markov_in", writes="markov_logits",
        family=Family.ENDS,
        source="model-facts §8: 33,095,680 multiply-accumulates a position",
    )  # fmt: skip
    stored = weights["markov_head.head"].bytes
    first = stored / rank.policy.draft_tokens
    return replace(
        product,
        weights=first * Count.ACTIVE,
        weights_rereads=(stored - first) * Count.ACTIVE,
    )


def sample_draft(outside: Mapping[str, Tensor]) -> Operator:
    """Logits of one position plus its Markov logits, and the best of a rank's slice."""
    rows = outside["head"].rows
    logits: LinearForm = rows * BF16_BYTES * Count.QUERY_ROWS
    return Operator(
        name="sample_draft",
        family=Family.ENDS,
        flops={Arithmetic.FP32: FLOP_PER_MAC * rows * Count.QUERY_ROWS},
        inputs={"logits": logits, "markov_logits": logits},
        outputs={"winners": WINNER_BYTES * Count.QUERY_ROWS},
        source="model-facts §8: added to the logits, then sample",
    )


def gather_winners(rank: Rank) -> Operator | None:
    """The best of every slice, gathered on every rank: the next position embeds it."""
    if rank.tp == 1:
        return None
    return Operator(
        name="gather_winners",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_GATHER,
        payload=WINNER_BYTES * rank.tp * Count.QUERY_ROWS,
        group=rank.tp,
        source="docs/assumptions.md, Speculation: slices are sampled where they are",
    )


def confidence(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """``confidence_head.proj``: [hidden + markov rank -> 1] of every drafted row, in FP32."""
    tensor = weights["confidence_head.proj"]
    return Operator(
        name="confidence",
        family=Family.ENDS,
        flops={Arithmetic.FP32: FLOP_PER_MAC * tensor.rows * tensor.columns * Count.QUERY_ROWS},
        weights=tensor.bytes * Count.ACTIVE,
        inputs={
            "mixed": rank.model.hidden * BF16_BYTES * Count.QUERY_ROWS,
            "markov_in": (tensor.columns - rank.model.hidden) * BF16_BYTES * Count.QUERY_ROWS,
        },
        outputs={"confidences": tensor.rows * FP32_BYTES * Count.QUERY_ROWS},
        source="model-facts §8: [5376 -> 1] on (collapsed hidden, Markov embedding), FP32",
    )
