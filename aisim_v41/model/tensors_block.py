"""Stored tensors of one transformer block: the part that backbone and draft blocks share.

Source: safetensors headers of revision fb2764a5 as listed in two public inventories
(docs/assumptions.md, "Weights"); names are the stored ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from aisim_v41.model.description import (
    Attention,
    Engram,
    Experts,
    HyperConnections,
    Indexer,
    StoredFormats,
)
from aisim_v41.model.formats import Format
from aisim_v41.model.tensor import Split, Tensor, TensorGroup

Shape = tuple[str, TensorGroup, int, int, Format, Split, int]
"""Role, group, rows, columns, format, split, copies: a tensor before it has a place."""

_CACHED_SHAPES = 512
"""Distinct layer forms kept; a model has a handful."""


def placed(shape: Shape, prefix: str) -> Tensor:
    """The tensor of one ``shape`` under a stored prefix such as ``layers.7.``."""
    role, group, rows, columns, stored_format, split, copies = shape
    name = role
    if group is TensorGroup.ROUTED_EXPERTS:
        name = role.replace("experts.", "experts.*.", 1)
    return Tensor(
        name=prefix + name,
        role=role,
        group=group,
        rows=rows,
        columns=columns,
        format=stored_format,
        split=split,
        copies=copies,
    )


@lru_cache(maxsize=_CACHED_SHAPES)
def block_shapes(
    *,
    hidden: int,
    attention: Attention,
    experts: Experts,
    hyper: HyperConnections,
    formats: StoredFormats,
    image_router_bias: bool,
) -> tuple[Shape, ...]:
    """Tensors of any block: attention, MoE, hyper-connections and norms.

    Args:
        hidden: Width of the residual stream.
        attention: Attention shapes.
        experts: Expert counts and width of this kind of block.
        hyper: Residual streams.
        formats: How each kind of matrix is stored.
        image_router_bias: Whether the router keeps a second selection bias for image tokens.
    """
    return (
        *_attention(hidden, attention, formats),
        *_experts(hidden, experts, formats),
        *_router(hidden, experts, formats, image_router_bias),
        *_hyper_connections(hidden, hyper, formats),
        *_norms(hidden, attention, formats),
    )


def _attention(hidden: int, attention: Attention, formats: StoredFormats) -> Iterator[Shape]:
    group, linear = TensorGroup.ATTENTION, formats.dense
    query_width = attention.heads * attention.head_dim
    latent_width = attention.o_groups * attention.o_rank
    replicated, by_head, by_input = Split.REPLICATED, Split.OUTPUT_ROWS, Split.INPUT_COLUMNS
    yield "attn.wq_a", group, attention.q_rank, hidden, linear, replicated, 1
    yield "attn.wq_b", group, query_width, attention.q_rank, linear, by_head, 1
    yield "attn.wkv", group, attention.head_dim, hidden, linear, replicated, 1
    # Block diagonal: each of o_groups groups maps its own heads to o_rank outputs.
    group_width = query_width // attention.o_groups
    yield "attn.wo_a", group, latent_width, group_width, formats.output_down, by_head, 1
    yield "attn.wo_b", group, hidden, latent_width, linear, by_input, 1
    yield "attn.attn_sink", group, attention.heads, 1, formats.wide, by_head, 1


def _experts(hidden: int, experts: Experts, formats: StoredFormats) -> Iterator[Shape]:
    routed, width, stored = TensorGroup.ROUTED_EXPERTS, experts.width, formats.routed
    rows, columns = Split.EXPERT_ROWS, Split.EXPERT_COLUMNS
    yield "ffn.experts.w1", routed, width, hidden, stored, rows, experts.routed
    yield "ffn.experts.w2", routed, hidden, width, stored, columns, experts.routed
    yield "ffn.experts.w3", routed, width, hidden, stored, rows, experts.routed
    if experts.shared:
        shared, width = TensorGroup.SHARED_EXPERTS, experts.shared * experts.width
        rows, columns = Split.SHARED_EXPERT_ROWS, Split.SHARED_EXPERT_COLUMNS
        yield "ffn.shared_experts.w1", shared, width, hidden, formats.dense, rows, 1
        yield "ffn.shared_experts.w2", shared, hidden, width, formats.dense, columns, 1
        yield "ffn.shared_experts.w3", shared, width, hidden, formats.dense, rows, 1


def _router(
    hidden: int, experts: Experts, formats: StoredFormats, image_bias: bool
) -> Iterator[Shape]:
    group, replicated = TensorGroup.ROUTER, Split.REPLICATED
    yield "ffn.gate", group, experts.routed, hidden, formats.plain, replicated, 1
    yield "ffn.gate.bias", group, 1, experts.routed, formats.wide, replicated, 1
    if image_bias:
        yield "ffn.gate.bias_vl", group, 1, experts.routed, formats.wide, replicated, 1


def _hyper_connections(
    hidden: int, hyper: HyperConnections, formats: StoredFormats
) -> Iterator[Shape]:
    group, replicated, wide = TensorGroup.HYPER_CONNECTIONS, Split.REPLICATED, formats.wide
    streams_width = hyper.streams * hidden
    for site in ("attn", "ffn"):
        yield f"hc_{site}_fn", group, hyper.coefficients, streams_width, wide, replicated, 1
        yield f"hc_{site}_base", group, 1, hyper.coefficients, wide, replicated, 1
        yield f"hc_{site}_scale", group, 1, hyper.coefficient_kinds, wide, replicated, 1


def _norms(hidden: int, attention: Attention, formats: StoredFormats) -> Iterator[Shape]:
    widths = {
        "attn.q_norm": attention.q_rank,
        "attn.kv_norm": attention.head_dim,
        "attn_norm": hidden,
        "ffn_norm": hidden,
    }
    for role, width in widths.items():
        yield role, TensorGroup.NORM, 1, width, formats.plain, Split.REPLICATED, 1


@lru_cache(maxsize=_CACHED_SHAPES)
def compressor_shapes(
    *, hidden: int, head_dim: int, ratio: int, formats: StoredFormats
) -> tuple[Shape, ...]:
    """Compressor of a layer that owns global KV; ratio 1 pools nothing and has no gate."""
    group, plain, replicated = TensorGroup.COMPRESSOR, formats.plain, Split.REPLICATED
    gate: tuple[Shape, ...] = (
        (("attn.compressor.wgate", group, head_dim, hidden, plain, replicated, 1),)
        if ratio > 1
        else ()
    )
    return (
        ("attn.compressor.wkv", group, head_dim, hidden, plain, replicated, 1),
        *gate,
        ("attn.compressor.norm", group, 1, head_dim, plain, replicated, 1),
    )


@lru_cache(maxsize=_CACHED_SHAPES)
def indexer_shapes(
    *,
    hidden: int,
    attention: Attention,
    indexer: Indexer,
    owns_keys: bool,
    formats: StoredFormats,
) -> tuple[Shape, ...]:
    """Indexer of a layer that scores; ``owns_keys`` where it also makes the index keys."""
    group, plain, replicated = TensorGroup.INDEXER, formats.plain, Split.REPLICATED
    by_head, query_width = Split.INDEXER_HEADS, indexer.heads * indexer.head_dim
    keys: tuple[Shape, ...] = (
        (
            ("attn.indexer.wk", group, indexer.head_dim, attention.head_dim, plain, replicated, 1),
            ("attn.indexer.k_norm", group, 1, indexer.head_dim, plain, replicated, 1),
        )
        if owns_keys
        else ()
    )
    return (
        ("attn.indexer.wq_b", group, query_width, attention.q_rank, formats.dense, by_head, 1),
        ("attn.indexer.weights_proj", group, indexer.heads, hidden, plain, by_head, 1),
        *keys,
    )


@lru_cache(maxsize=_CACHED_SHAPES)
def engram_shapes(
    *, hidden: int, streams: int, engram: Engram, module: int, formats: StoredFormats
) -> tuple[Shape, ...]:
    """Table, projection and gates of one Engram module: a key per stream and one value."""
    group, replicated = TensorGroup.ENGRAM_PROJECTION, Split.REPLICATED
    rows, table = engram.rows[module], TensorGroup.ENGRAM_TABLE
    outputs = (streams + 1) * hidden
    return (
        ("engram.embed", table, rows, engram.head_dim, formats.engram_rows, Split.TABLE_ROWS, 1),
        ("engram.wkv", group, outputs, engram.width, formats.dense, replicated, 1),
        ("engram.q_weight", group, streams, hidden, formats.plain, replicated, 1),
        ("engram.k_weight", group, streams, hidden, formats.plain, replicated, 1),
    )
