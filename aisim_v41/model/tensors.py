"""The stored tensors of a whole checkpoint, and the only place that knows them.

Every weight shape and byte count of the library comes from here: inventory, sharding, memory,
and the weight bytes of operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aisim_v41.model.description import Model
from aisim_v41.model.layers import Layer
from aisim_v41.model.tensor import Split, Tensor, TensorGroup
from aisim_v41.model.tensors_block import (
    Shape,
    block_shapes,
    compressor_shapes,
    engram_shapes,
    indexer_shapes,
    placed,
)
from aisim_v41.model.tensors_draft import draft_tensors
from aisim_v41.model.tensors_vision import vision_tensors


def layer_tensors(model: Model, layer: Layer) -> Mapping[str, Tensor]:
    """Tensors of one backbone layer by role, in stored order.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> model = load_model("deepseek-v4.1-flash")
        >>> layer_tensors(model, model.layers[7])["attn.wq_b"].bytes
        41984000
    """
    prefix = f"layers.{layer.index}."
    return {shape[0]: placed(shape, prefix) for shape in _layer_shapes(model, layer)}


def _layer_shapes(model: Model, layer: Layer) -> Iterator[Shape]:
    yield from block_shapes(
        hidden=model.hidden,
        attention=model.attention,
        experts=model.experts,
        hyper=model.hyper,
        formats=model.formats,
        image_router_bias=model.vision is not None,
    )
    if layer.owns_kv:
        yield from compressor_shapes(
            hidden=model.hidden,
            head_dim=model.attention.head_dim,
            ratio=layer.ratio,
            formats=model.formats,
        )
    if layer.runs_indexer and model.indexer is not None:
        yield from indexer_shapes(
            hidden=model.hidden,
            attention=model.attention,
            indexer=model.indexer,
            owns_keys=layer.owns_kv,
            formats=model.formats,
        )
    if layer.engram_module is not None and model.engram is not None:
        yield from engram_shapes(
            hidden=model.hidden,
            streams=model.hyper.streams,
            engram=model.engram,
            module=layer.engram_module,
            formats=model.formats,
        )


def global_tensors(model: Model) -> Mapping[str, Tensor]:
    """Embedding, final norm and output head, by role."""
    plain, vocab, hidden = model.formats.plain, model.vocab, model.hidden
    shapes: tuple[Shape, ...] = (
        ("embed", TensorGroup.EMBEDDING, vocab, hidden, plain, Split.EMBEDDING, 1),
        ("norm", TensorGroup.NORM, 1, hidden, plain, Split.REPLICATED, 1),
        ("head", TensorGroup.HEAD, vocab, hidden, model.formats.head, Split.VOCABULARY, 1),
    )
    return {shape[0]: placed(shape, "") for shape in shapes}


def all_tensors(model: Model) -> Iterator[Tensor]:
    """Every stored tensor: globals, backbone layers, draft blocks, vision."""
    yield from global_tensors(model).values()
    for layer in model.layers:
        yield from layer_tensors(model, layer).values()
    for block in draft_tensors(model):
        yield from block.values()
    yield from vision_tensors(model).values()


__all__ = [
    "all_tensors",
    "draft_tensors",
    "global_tensors",
    "layer_tensors",
    "vision_tensors",
]
