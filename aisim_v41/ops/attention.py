"""Attention of one layer: query and KV projections, sparse attention, output projections.

Source: model-facts §4.2 (reference inference code, technical report §2.3); fusions in
runtime-semantics §5.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.layers import LayerKind
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import ZERO, Family, Form, Operator
from aisim_v41.ops.projections import activation_bytes, projection
from aisim_v41.ops.rank import BF16_BYTES, FP8_BYTES, Rank
from aisim_v41.plan.counts import Count, LinearForm
from aisim_v41.units import FLOP_PER_MAC


def query_down(weights: Mapping[str, Tensor]) -> Operator:
    """``wq_a``: [hidden -> q_rank], replicated on every rank."""
    return projection(
        "q_down", weights["attn.wq_a"], reads="quantised", writes="q_latent",
        source="model-facts §4.2, wq_a",
    )  # fmt: skip


def query_norm(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """RMSNorm of the query latent and its conversion to FP8; done once for all heads."""
    width = rank.model.attention.q_rank
    return Operator(
        name="q_norm",
        family=Family.ELEMENTWISE,
        weights=weights["attn.q_norm"].bytes * Count.ACTIVE,
        inputs={"q_latent": width * BF16_BYTES * Count.QUERY_ROWS},
        outputs={"q_latent_quantised": width * FP8_BYTES * Count.QUERY_ROWS},
        source="model-facts §4.2: only the latent is normalised",
    )


def query_up(weights: Mapping[str, Tensor]) -> Operator:
    """``wq_b``: [q_rank -> heads x head_dim], split by head."""
    return projection(
        "q_up", weights["attn.wq_b"], reads="q_latent_quantised", writes="q_flat",
        source="model-facts §4.2, wq_b",
    )  # fmt: skip


def query_rotate(rank: Rank) -> Operator:
    """Rotary embedding of the last dimensions of every head, into the padded form of the kernel."""
    head = rank.model.attention.head_dim * BF16_BYTES
    return Operator(
        name="q_rope",
        family=Family.ELEMENTWISE,
        inputs={"q_flat": rank.own_heads * head * Count.QUERY_ROWS},
        outputs={"q": rank.heads * head * Count.QUERY_ROWS},
        source="model-facts §4.2",
    )


def kv_down(weights: Mapping[str, Tensor]) -> Operator:
    """``wkv``: [hidden -> head_dim], the one latent that is key and value of every head.

    Runs on every row whose window KV the layer stores, also where queries are cut.
    """
    return projection(
        "kv_down", weights["attn.wkv"], reads="quantised", writes="kv_latent",
        rows=Count.KV_ROWS, active=Count.KV_ACTIVE, source="model-facts §4.2, wkv",
    )  # fmt: skip


def kv_store(rank: Rank, weights: Mapping[str, Tensor], *, kept: bool = True) -> Operator:
    """Norm, rotation, quantisation and store of the window row of each token.

    Rows that are not ``kept`` in a cache (drafted ones) are handed to this layer's attention alone.
    """
    latent = rank.model.attention.head_dim * BF16_BYTES * Count.STORED_ROWS
    packed = rank.rows.window.bytes * Count.STORED_ROWS
    return Operator(
        name="kv_store",
        family=Family.ELEMENTWISE,
        weights=weights["attn.kv_norm"].bytes * Count.STORED_ACTIVE,
        kv_writes=packed if kept else ZERO,
        inputs={"kv_latent": latent},
        outputs={} if kept else {"kv_packed": packed},
        launches=1 * Count.STORED_ACTIVE,
        axes=(Count.STORED_ROWS,),
        source="runtime-semantics §5.2; row bytes §6.1",
    )


def sparse_attention(
    rank: Rank, weights: Mapping[str, Tensor], kind: LayerKind, *, kept: bool = True
) -> Operator:
    """One softmax over the window and the selected global entries.

    q: [query_rows, heads_local, head_dim]; one latent [head_dim] per cache row is key and value,
    so QKᵀ and PV are 2 x heads_local x head_dim multiply-accumulates a pair. Rows are dequantised
    to BF16. Distinct rows are those that the last query alone must read: queries of a prefill may
    share the rest through any cache. Only the owner's read of rows older than the step counts as
    unavoidable; later layers of its group may find them cached (docs/assumptions.md,
    "Distinct rows"). Rows whose window KV is not ``kept`` arrive as a tensor of their own.

    Source: report §2.3; model-facts §4.2; row bytes runtime-semantics §6.1.
    """
    attention = rank.model.attention
    per_pair = FLOP_PER_MAC * 2 * rank.heads * attention.head_dim
    pairs: Form = LinearForm({Count.WINDOW_PAIRS: 1})
    window, main = rank.rows.window.bytes, rank.rows.main.bytes
    reads = window * Count.WINDOW_ROWS_CACHED
    distinct = window * Count.WINDOW_ROWS
    axes: tuple[Count, ...] = (Count.QUERY_ROWS, Count.WINDOW_PAIRS)
    if kind is not LayerKind.WINDOW_ONLY:
        pairs = pairs + Count.SELECTED_ENTRIES
        distinct = distinct + main * Count.SELECTED_ROWS
        axes = (*axes, Count.SELECTED_ENTRIES)
        if kind is LayerKind.FULL:
            reads = reads + main * Count.SELECTED_ROWS_CACHED
    q_bytes = rank.heads * attention.head_dim * BF16_BYTES * Count.QUERY_ROWS
    return Operator(
        name="sparse_attention",
        family=Family.ATTENTION,
        flops={Arithmetic.BF16: per_pair * pairs},
        weights=weights["attn.attn_sink"].bytes * Count.ACTIVE,
        kv_reads=reads,
        kv_rereads=distinct + -1 * reads,
        inputs={"q": q_bytes} | ({} if kept else {"kv_packed": window * Count.KV_ROWS}),
        outputs={"heads_out": q_bytes},
        axes=axes,
        source="report §2.3; model-facts §4.2",
    )


def inverse_rotate(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Inverse rotation of the output's last dimensions, and conversion for ``wo_a``."""
    width = rank.own_heads * rank.model.attention.head_dim * Count.QUERY_ROWS
    return Operator(
        name="inverse_rope",
        family=Family.ELEMENTWISE,
        inputs={"heads_out": width * BF16_BYTES},
        outputs={"heads_rotated": width * activation_bytes(weights["attn.wo_a"])},
        source="model-facts §4.2",
    )


def output_down(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """``wo_a``: block diagonal, each group of heads [heads_group x head_dim -> o_rank].

    BF16 where the runtime widened it at load (policy field ``wo_a``), else FP8. The latent leaves
    in the precision in which ``wo_b`` reads it.
    """
    return projection(
        "o_down", weights["attn.wo_a"], reads="heads_rotated", writes="o_latent",
        inputs_per_row=rank.own_heads * rank.model.attention.head_dim,
        output_bytes=activation_bytes(weights["attn.wo_b"]),
        source="model-facts §4.2, wo_a; §12.4 for its precision",
    )  # fmt: skip


def output_up(weights: Mapping[str, Tensor]) -> Operator:
    """``wo_b``: [groups x o_rank -> hidden], split by input; partial sums need an all-reduce."""
    return projection(
        "o_up", weights["attn.wo_b"], reads="o_latent", writes="sublayer",
        source="model-facts §4.2, wo_b",
    )  # fmt: skip
