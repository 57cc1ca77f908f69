"""Parameters and weight bytes that one token really uses.

Which parts count is a convention; the report's 16e9 in decode is reached only with the output
head and without the embedding and Engram (docs/assumptions.md, "Active parameters"). So the
groups are an argument, and the default is the one that reproduces the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from aisim_v41.model.description import Model
from aisim_v41.model.layers import Layer
from aisim_v41.model.tensor import BACKBONE_GROUPS, Tensor, TensorGroup, bytes_by_group
from aisim_v41.model.tensors import all_tensors, layer_tensors

DECODE_GROUPS = BACKBONE_GROUPS - {TensorGroup.EMBEDDING}
"""The report's count: every backbone weight, the head, no table look-ups."""
PREFILL_GROUPS = BACKBONE_GROUPS - {TensorGroup.EMBEDDING, TensorGroup.HEAD} | {
    TensorGroup.ENGRAM_PROJECTION
}
"""The report's count of the encoder half, with its Engram projections."""
_TOUCHED_IN_DECODE = BACKBONE_GROUPS | {TensorGroup.ENGRAM_PROJECTION, TensorGroup.ENGRAM_TABLE}


def decode_active_parameters(
    model: Model, *, groups: frozenset[TensorGroup] = DECODE_GROUPS
) -> int:
    """Parameters used by one token in decode: all layers, chosen experts only.

    Source: report §2.1 (16e9); 15,815,934,064 for the official model.
    """
    return _parameters(_touched(model, all_tensors(model)), groups)


def prefill_active_parameters(
    model: Model,
    *,
    groups: frozenset[TensorGroup] = PREFILL_GROUPS,
    boundary: Literal["keys_only", "full"] = "keys_only",
) -> int:
    """Parameters used by a prompt token whose late layers are skipped.

    Every layer before the last KV owner runs; the owner itself makes its entries and index keys
    only (``keys_only``), or runs as a whole (``full``, as engines do that cut after it). A model
    without global KV has no boundary and runs all layers.

    Source: report §2.1 (8e9); 7,895,563,064 and 8,278,273,454 for the official model.
    """
    last = model.boundary
    used: list[Tensor] = []
    for layer in model.layers:
        if last is None or layer.index < last or (layer.index == last and boundary == "full"):
            used.extend(layer_tensors(model, layer).values())
        elif layer.index == last:
            used.extend(_key_makers(model, layer))
    return _parameters(_touched(model, used), groups)


def decode_weight_bytes(model: Model) -> dict[TensorGroup, int]:
    """Weight bytes [B] that one decode step reads at batch 1 on one device, by group.

    Chosen experts, one embedding row and the looked-up table rows; every other weight once.
    Draft and vision do not run. Sum for the official model: 13,035,097,920.
    """
    used = (t for t in all_tensors(model) if t.group in _TOUCHED_IN_DECODE)
    return bytes_by_group(_touched(model, used))


def _key_makers(model: Model, layer: Layer) -> list[Tensor]:
    """Compressor and index-key weights of a KV owner: what later layers depend on."""
    tensors: Mapping[str, Tensor] = layer_tensors(model, layer)
    keys = ("attn.indexer.wk", "attn.indexer.k_norm")
    return [
        tensor
        for role, tensor in tensors.items()
        if tensor.group is TensorGroup.COMPRESSOR or role in keys
    ]


def _touched(model: Model, tensors: Iterable[Tensor]) -> Iterable[Tensor]:
    """The part of each tensor that one token reads."""
    for tensor in tensors:
        if tensor.group is TensorGroup.ROUTED_EXPERTS:
            yield replace(tensor, copies=model.experts.top_k)
        elif tensor.group is TensorGroup.EMBEDDING:
            yield replace(tensor, rows=1)
        elif tensor.group is TensorGroup.ENGRAM_TABLE and model.engram is not None:
            yield replace(tensor, rows=model.engram.rows_per_token)
        else:
            yield tensor


def _parameters(tensors: Iterable[Tensor], groups: frozenset[TensorGroup]) -> int:
    return sum(tensor.parameters for tensor in tensors if tensor.group in groups)
