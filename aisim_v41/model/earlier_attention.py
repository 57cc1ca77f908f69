"""Attention of the generations before V4.1: shapes of the weights and bytes of the cache.

Source: model-facts §5 and §10 (configurations of ai-dynamo/aiconfigurator at 095f58a5); the
compressor and indexer weights of V4 follow its public reference code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from aisim_v41.model.cache_rows import bf16_row, fp8_key, mxfp4_row, packed_row
from aisim_v41.model.formats import BF16, FP8, FP32, RowFormat, RowPart

Matrix = tuple[str, int, int, int]
"""Part of the model, rows, columns, copies."""

LATENT_SCALE_GROUP = 128
"""Values of V3.2's latent that share an FP32 scale."""
OVERLAP_RATIO = 4
"""V4's compressor pools over two neighbouring groups at this ratio, which doubles its weights."""


class EarlierAttention(Protocol):
    """What the comparison needs to know of an attention."""

    def weights(self, hidden: int, layers: int) -> Iterator[Matrix]:
        """Weight matrices of all layers."""

    def kv_bytes_per_token(self, layers: int) -> Fraction:
        """Bytes [B/token] that stay in the cache for as long as the sequence lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierIndexer:
    """Lightning indexer with keys of its own."""

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Grouped queries with separate keys and values in BF16 (V1)."""

    heads: int
    kv_heads: int
    head_dim: int

    def weights(self, hidden: int, layers: int) -> Iterator[Matrix]:
        """Queries, keys, values, output."""
        yield "attention", self.heads * self.head_dim, hidden, 2 * layers
        yield "attention", self.kv_heads * self.head_dim, hidden, 2 * layers

    def kv_bytes_per_token(self, layers: int) -> Fraction:
        """A key and a value per KV head and layer."""
        return Fraction(layers * 2 * self.kv_heads * bf16_row(self.head_dim).bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention with an indexer in every layer (V3.2)."""

    heads: int
    head_dim: int
    """Width of a head without the rotated part, and of a value head."""
    rope_dim: int
    q_rank: int
    kv_rank: int
    indexer: EarlierIndexer

    def weights(self, hidden: int, layers: int) -> Iterator[Matrix]:
        """Low-rank queries and keys/values, output, indexer."""
        index = self.indexer
        yield "attention", self.q_rank, hidden, layers
        yield "attention", self.heads * (self.head_dim + self.rope_dim), self.q_rank, layers
        yield "attention", self.kv_rank + self.rope_dim, hidden, layers
        yield "attention", 2 * self.heads * self.head_dim, self.kv_rank, layers
        yield "attention", hidden, self.heads * self.head_dim, layers
        yield "norms", 1, self.q_rank + self.kv_rank, layers
        yield "indexer", index.heads * index.head_dim, self.q_rank, layers
        yield "indexer", index.head_dim, hidden, layers
        yield "indexer", index.heads, hidden, layers
        yield "indexer", 2, index.head_dim, layers  # key layer norm: weight and bias

    def kv_bytes_per_token(self, layers: int) -> Fraction:
        """FP8 latent with FP32 scales, rotated part in BF16, FP8 index key."""
        latent = RowPart(self.kv_rank, FP8.element_bits, FP32.element_bits, LATENT_SCALE_GROUP)
        row = RowFormat("mla_fp8", (latent, RowPart(self.rope_dim, BF16.element_bits)))
        return Fraction(layers * (row.bytes + fp8_key(self.indexer.head_dim).bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Compressed sparse attention in which every compressed layer owns its entries (V4)."""

    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    o_rank: int
    o_groups: int
    window: int
    ratios: tuple[int, ...]
    """Tokens per entry of each layer; 0 is window only."""
    indexer: EarlierIndexer
    """Runs at the layers of the overlapping ratio."""

    def weights(self, hidden: int, layers: int) -> Iterator[Matrix]:
        """Projections, sinks, compressors with positional bias, indexers with their own."""
        width = self.heads * self.head_dim
        yield "attention", self.q_rank, hidden, layers
        yield "attention", width, self.q_rank, layers
        yield "attention", self.head_dim, hidden, layers
        yield "attention", self.o_groups * self.o_rank, width // self.o_groups, layers
        yield "attention", hidden, self.o_groups * self.o_rank, layers
        yield "attention", 1, self.heads, layers
        yield "norms", 1, self.q_rank + self.head_dim, layers
        for ratio in self.ratios:
            if ratio:
                yield from _compressor("compressor", hidden, self.head_dim, ratio)
            if ratio == OVERLAP_RATIO:
                index = self.indexer
                yield "indexer", index.heads * index.head_dim, self.q_rank, 1
                yield "indexer", index.heads, hidden, 1
                yield from _compressor("indexer", hidden, index.head_dim, ratio)

    def kv_bytes_per_token(self, layers: int) -> Fraction:
        """An entry per ``ratio`` tokens, with an index key where the layer selects."""
        row = packed_row(self.head_dim, self.rope_dim).bytes
        key = mxfp4_row(self.indexer.head_dim).bytes
        return sum(
            (
                Fraction(row + (key if ratio == OVERLAP_RATIO else 0), ratio)
                for ratio in self.ratios
                if ratio
            ),
            start=Fraction(0),
        )


def _compressor(part: str, hidden: int, width: int, ratio: int) -> Iterator[Matrix]:
    outputs = 2 * width if ratio == OVERLAP_RATIO else width
    yield part, outputs, hidden, 2  # values and gate scores
    yield part, ratio, outputs, 1  # positional bias
    yield part, 1, width, 1  # norm
