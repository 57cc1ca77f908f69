"""Compressor of a KV owner: from hidden rows to global entries and index keys.

Ratio 2 pools pairs with a learned gate; ratio 1 stores one entry a token and has no gate. The
index key is made from the latent before rotation. Source: model-facts §4.2, §4.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import Family, Operator
from aisim_v41.ops.projections import projection
from aisim_v41.ops.rank import BF16_BYTES, Rank
from aisim_v41.plan.counts import Count

ROLES = ("attn.compressor.wkv", "attn.compressor.wgate")


def compress_project(weights: Mapping[str, Tensor]) -> Operator:
    """Latent and, at ratio 2, pooling gate of every token: [hidden -> head_dim] each, BF16."""
    return projection(
        "compress_project", *(weights[role] for role in ROLES if role in weights),
        reads="normed", writes="compressor_rows", family=Family.COMPRESSOR,
        rows=Count.COMPRESSED_ROWS, active=Count.COMPRESS_ACTIVE, source="model-facts §4.2",
    )  # fmt: skip


def compress_pool(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Softmax pooling of a pair per channel, and RMSNorm: one latent an entry."""
    width = rank.model.attention.head_dim
    rows = sum(weights[role].rows for role in ROLES if role in weights)
    return Operator(
        name="compress_pool",
        family=Family.ELEMENTWISE,
        weights=weights["attn.compressor.norm"].bytes * Count.COMPRESS_ACTIVE,
        inputs={"compressor_rows": rows * BF16_BYTES * Count.COMPRESSED_ROWS},
        outputs={"entry_latent": width * BF16_BYTES * Count.ENTRIES_WRITTEN},
        launches=1 * Count.COMPRESS_ACTIVE,
        axes=(Count.COMPRESSED_ROWS, Count.ENTRIES_WRITTEN),
        source="model-facts §4.4",
    )


def main_store(rank: Rank) -> Operator:
    """Rotation, quantisation and store of the main entry."""
    width = rank.model.attention.head_dim
    return Operator(
        name="main_store",
        family=Family.ELEMENTWISE,
        kv_writes=rank.rows.main.bytes * Count.ENTRIES_WRITTEN,
        inputs={"entry_latent": width * BF16_BYTES * Count.ENTRIES_WRITTEN},
        launches=1 * Count.COMPRESS_ACTIVE,
        axes=(Count.COMPRESSED_ROWS, Count.ENTRIES_WRITTEN),
        source="runtime-semantics §5.2; row bytes §6.1",
    )


def index_key(weights: Mapping[str, Tensor]) -> Operator:
    """``indexer.wk``: [head_dim -> index_head_dim] of every finished entry, BF16."""
    return projection(
        "index_key", weights["attn.indexer.wk"], reads="entry_latent", writes="index_key_flat",
        family=Family.COMPRESSOR, rows=Count.ENTRIES_WRITTEN, active=Count.COMPRESS_ACTIVE,
        source="model-facts §4.2",
    )  # fmt: skip


def index_key_store(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Norm, rotation, packing and store of the index key."""
    width = weights["attn.indexer.wk"].rows
    return Operator(
        name="index_key_store",
        family=Family.ELEMENTWISE,
        weights=weights["attn.indexer.k_norm"].bytes * Count.COMPRESS_ACTIVE,
        kv_writes=rank.rows.index.bytes * Count.ENTRIES_WRITTEN,
        inputs={"index_key_flat": width * BF16_BYTES * Count.ENTRIES_WRITTEN},
        launches=1 * Count.COMPRESS_ACTIVE,
        axes=(Count.ENTRIES_WRITTEN,),
        source="runtime-semantics §5.2; row bytes §6.1",
    )
