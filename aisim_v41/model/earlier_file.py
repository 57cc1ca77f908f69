"""The file edge of ``generation.yaml``: figures of an earlier generation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aisim_v41.errors import SchemaError
from aisim_v41.model.config_errors import describe
from aisim_v41.model.description import Experts, HyperConnections
from aisim_v41.model.earlier import EarlierModel, Published
from aisim_v41.model.earlier_attention import (
    CompressedAttention,
    EarlierAttention,
    EarlierIndexer,
    GroupedAttention,
    LatentAttention,
)
from aisim_v41.reading import read_mapping

Count = Annotated[int, Field(ge=0, le=1 << 24)]
Size = Annotated[int, Field(ge=1, le=1 << 24)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Indexer(_Record):
    heads: Size
    head_dim: Size
    top_k: Size


class _Grouped(_Record):
    kind: Literal["grouped"]
    heads: Size
    kv_heads: Size
    head_dim: Size


class _Latent(_Record):
    kind: Literal["latent"]
    heads: Size
    head_dim: Size
    rope_dim: Size
    q_rank: Size
    kv_rank: Size
    indexer: _Indexer


class _Compressed(_Record):
    kind: Literal["compressed"]
    heads: Size
    head_dim: Size
    rope_dim: Size
    q_rank: Size
    o_rank: Size
    o_groups: Size
    window: Size
    first_ratios: list[Count]
    """Ratios of the leading layers."""
    alternating_ratios: list[Size]
    """Ratios that the other layers take in turn."""
    indexer: _Indexer


class _Experts(_Record):
    routed: Size
    top_k: Size
    shared: Count
    width: Size
    hash_layers: Count


class _Hyper(_Record):
    streams: Size
    sinkhorn_iterations: Count


class _Published(_Record):
    total_parameters: int | None
    active_parameters: int | None
    kv_bytes_per_token: int | None
    source: str
    confidence: Literal["A", "B", "C"]


class _Generation(_Record):
    name: str
    source: str
    confidence: Literal["A", "B", "C"]
    note: str
    hidden_size: Size
    vocab_size: Size
    layers: Annotated[int, Field(ge=1, le=512)]
    dense_layers: Count
    dense_width: Count
    attention: Annotated[_Grouped | _Latent | _Compressed, Field(discriminator="kind")]
    experts: _Experts | None
    hyper_connections: _Hyper | None
    published: _Published


def read_generation(path: Path) -> EarlierModel:
    """The earlier generation that a ``generation.yaml`` describes.

    Raises:
        SchemaError: names field, value, and what would be right.
    """
    try:
        file = _Generation.model_validate(read_mapping(path))
    except ValidationError as error:
        raise SchemaError(f"{path}: {describe(error)}") from None
    experts, hyper = file.experts, file.hyper_connections
    return EarlierModel(
        name=file.name,
        source=file.source,
        confidence=file.confidence,
        note=file.note,
        hidden=file.hidden_size,
        vocab=file.vocab_size,
        layers=file.layers,
        dense_layers=file.dense_layers,
        dense_width=file.dense_width,
        attention=_attention(file.attention, file.layers),
        experts=None if experts is None else _experts(experts),
        hash_layers=0 if experts is None else experts.hash_layers,
        hyper=None if hyper is None else HyperConnections(**hyper.model_dump()),
        published=Published(**file.published.model_dump()),
    )


def _experts(experts: _Experts) -> Experts:
    return Experts(
        routed=experts.routed, top_k=experts.top_k, shared=experts.shared, width=experts.width
    )


def _attention(attention: _Grouped | _Latent | _Compressed, layers: int) -> EarlierAttention:
    if isinstance(attention, _Grouped):
        return GroupedAttention(
            heads=attention.heads, kv_heads=attention.kv_heads, head_dim=attention.head_dim
        )
    indexer = EarlierIndexer(**attention.indexer.model_dump())
    if isinstance(attention, _Latent):
        return LatentAttention(
            heads=attention.heads,
            head_dim=attention.head_dim,
            rope_dim=attention.rope_dim,
            q_rank=attention.q_rank,
            kv_rank=attention.kv_rank,
            indexer=indexer,
        )
    first, turns = attention.first_ratios, attention.alternating_ratios
    rest = layers - len(first)
    return CompressedAttention(
        heads=attention.heads,
        head_dim=attention.head_dim,
        rope_dim=attention.rope_dim,
        q_rank=attention.q_rank,
        o_rank=attention.o_rank,
        o_groups=attention.o_groups,
        window=attention.window,
        ratios=(*first, *(turns[index % len(turns)] for index in range(rest))),
        indexer=indexer,
    )
