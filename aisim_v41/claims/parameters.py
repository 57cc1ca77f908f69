"""Claims on parameters: published sizes, active parameters, shares, and other counts beside ours.

Source of the figures: technical report §2.1, §2.4, §4.2.1; vLLM recipe; fact sheet §2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.errors import InvalidInputError
from aisim_v41.model.active import (
    DECODE_GROUPS,
    decode_active_parameters,
    decode_weight_bytes,
    prefill_active_parameters,
)
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules, StoredAs, weights_per_rank
from aisim_v41.model.tensor import Tensor, TensorGroup
from aisim_v41.model.tensors import all_tensors, draft_tensors, layer_tensors
from aisim_v41.units import BILLION

_G = TensorGroup
DRAFT_GROUPS = (_G.DRAFT_EXPERTS, _G.DRAFT, _G.DRAFT_HEADS)
PRO = "deepseek-v4-pro"
WIDE_DTYPES = ("BF16", "F32")


def parameters(context: Context, *groups: TensorGroup) -> int:
    """Parameters of some groups."""
    return sum(context.inventory.by_group[group].parameters for group in groups)


def dense_fp8(context: Context) -> int:
    """FP8 values outside the Engram tables."""
    return context.inventory.by_dtype["F8_E4M3"] - parameters(context, _G.ENGRAM_TABLE)


def wide(context: Context) -> int:
    """BF16 and FP32 values."""
    return sum(context.inventory.by_dtype[dtype] for dtype in WIDE_DTYPES)


def boundary_key_parameters(context: Context) -> int:
    """Compressor and index-key weights of the last KV owner."""
    model = context.model
    keys = ("attn.indexer.wk", "attn.indexer.k_norm")
    tensors = layer_tensors(model, model.layers[context.boundary])
    return sum(
        tensor.parameters
        for role, tensor in tensors.items()
        if tensor.group is _G.COMPRESSOR or role in keys
    )


_VECTORS = (
    "attn.q_norm", "attn.kv_norm", "attn_norm", "ffn_norm", "norm", "attn.attn_sink",
    "ffn.gate.bias", "ffn.gate.bias_vl", "hc_attn_base", "hc_ffn_base", "hc_attn_scale",
    "hc_ffn_scale", "attn.compressor.norm", "attn.indexer.k_norm",
)  # fmt: skip
"""Norms, sinks, gate biases, mHC bases and scales: what a count of matrices leaves out."""


def backbone_vectors(context: Context) -> int:
    """Parameters of the backbone that are not in a matrix."""
    outside = {*DRAFT_GROUPS, _G.VISION}
    return sum(
        tensor.parameters
        for tensor in all_tensors(context.model)
        if tensor.role in _VECTORS and tensor.group not in outside
    )


def _expert(context: Context) -> Iterable[Tensor]:
    """The three matrices of a routed expert of the first layer, with their copies."""
    tensors = layer_tensors(context.model, context.model.layers[0])
    return [tensors[f"ffn.experts.{name}"] for name in ("w1", "w2", "w3")]


def expert_parameters(context: Context) -> int:
    """Parameters of one routed expert."""
    return sum(tensor.parameters // tensor.copies for tensor in _expert(context))


def expert_bytes(context: Context) -> int:
    """Bytes [B] of one routed expert, scales included."""
    return sum(tensor.bytes // tensor.copies for tensor in _expert(context))


def draft_part(*prefixes: str) -> Formula:
    """Parameters of the draft blocks whose roles start so, heads and routed experts apart."""

    def count(context: Context) -> int:
        return sum(
            tensor.parameters
            for block in draft_tensors(context.model)
            for role, tensor in block.items()
            if tensor.group is _G.DRAFT and role.startswith(prefixes)
        )

    return count


def weight_bytes(*groups: TensorGroup) -> Formula:
    """Weight bytes [B] that one decode token reads, of some groups or of all."""

    def count(context: Context) -> int:
        touched = decode_weight_bytes(context.model)
        return sum(size for group, size in touched.items() if not groups or group in groups)

    return count


def widened_output_bytes(context: Context) -> int:
    """What ``wo_a`` in BF16 adds to the weights of one device [B]."""
    stored, widened = (
        weights_per_rank(context.model, Parallel(), ShardingRules(wo_a=form))[_G.ATTENTION]
        for form in (StoredAs.CHECKPOINT, StoredAs.BF16)
    )
    return widened - stored


def _printed(figure: int | None) -> int:
    """A figure of a model card that must be there."""
    if figure is None:
        raise InvalidInputError(f"the card of {PRO} gives no such figure")
    return figure


def _decode_active(*, without: frozenset[TensorGroup], also: frozenset[TensorGroup]) -> Formula:
    return lambda c: decode_active_parameters(c.model, groups=DECODE_GROUPS - without | also)


_NONE: frozenset[TensorGroup] = frozenset()
_HEAD, _ROUTED = frozenset({_G.HEAD}), frozenset({_G.ROUTED_EXPERTS})

FORMULAS: Mapping[str, Formula] = {
    "par-01": lambda c: c.inventory.backbone.parameters / BILLION,
    "par-02": lambda c: parameters(c, _G.ENGRAM_TABLE) / BILLION,
    "par-03": lambda c: decode_active_parameters(c.model) / BILLION,
    "par-04": lambda c: prefill_active_parameters(c.model) / BILLION,
    "par-05": lambda c: prefill_active_parameters(c.model) / decode_active_parameters(c.model),
    "par-06": lambda c: (
        c.inventory.backbone.parameters / _printed(c.earlier(PRO).published.total_parameters)
    ),
    "par-07": lambda c: (
        decode_active_parameters(c.model) / _printed(c.earlier(PRO).published.active_parameters)
    ),
    "par-08": lambda c: c.inventory.total.parameters / BILLION,
    "par-09": lambda c: parameters(c, _G.ROUTED_EXPERTS, _G.DRAFT_EXPERTS) / BILLION,
    "par-10": lambda c: dense_fp8(c) / BILLION,
    "par-11": lambda c: wide(c) / BILLION,
    "par-12": lambda c: c.inventory.total.scale_bytes / BILLION,
    "par-13": lambda c: parameters(c, *DRAFT_GROUPS) / BILLION,
    "par-14": lambda c: (wide(c) - parameters(c, _G.EMBEDDING, _G.HEAD)) / BILLION,
    "par-769": lambda c: c.inventory.total.parameters / BILLION,
    "gitm-total": lambda c: c.inventory.total.parameters,
    "gitm-backbone": lambda c: c.inventory.backbone.parameters,
    "gitm-omission": backbone_vectors,
    "act-decode": lambda c: decode_active_parameters(c.model),
    "act-decode-no-head": _decode_active(without=_HEAD, also=_NONE),
    "act-decode-engram": _decode_active(without=_NONE, also=frozenset({_G.ENGRAM_PROJECTION})),
    "act-decode-routed": lambda c: decode_active_parameters(c.model, groups=_ROUTED),
    "act-decode-rest": _decode_active(without=_HEAD | _ROUTED, also=_NONE),
    "act-prefill": lambda c: prefill_active_parameters(c.model),
    "act-prefill-encoder": lambda c: (
        prefill_active_parameters(c.model) - boundary_key_parameters(c)
    ),
    "act-prefill-keys": boundary_key_parameters,
    "act-prefill-full": lambda c: prefill_active_parameters(c.model, boundary="full"),
    "par-backbone-no-ends": lambda c: (
        c.inventory.backbone.parameters - parameters(c, _G.EMBEDDING, _G.HEAD)
    ),
    "par-engram-whole": lambda c: parameters(c, _G.ENGRAM_TABLE, _G.ENGRAM_PROJECTION),
    "par-expert": expert_parameters,
    "par-expert-bytes": expert_bytes,
    "par-draft": lambda c: parameters(c, *DRAFT_GROUPS),
    "par-draft-attention": draft_part("attn.w", "attn.attn_sink"),
    "par-draft-shared": draft_part("ffn.shared_experts"),
    "par-draft-router": draft_part("ffn.gate"),
    "par-draft-mhc": draft_part("hc_"),
    "par-draft-norms": draft_part("attn.q_norm", "attn.kv_norm", "attn_norm", "ffn_norm"),
    "dwb-routed": weight_bytes(_G.ROUTED_EXPERTS),
    "dwb-attention": weight_bytes(_G.ATTENTION),
    "dwb-shared": weight_bytes(_G.SHARED_EXPERTS),
    "dwb-head": weight_bytes(_G.HEAD),
    "dwb-engram": weight_bytes(_G.ENGRAM_PROJECTION),
    "dwb-router": weight_bytes(_G.ROUTER),
    "dwb-mhc": weight_bytes(_G.HYPER_CONNECTIONS),
    "dwb-indexer": weight_bytes(_G.INDEXER),
    "dwb-compressor": weight_bytes(_G.COMPRESSOR),
    "dwb-norm": weight_bytes(_G.NORM),
    "dwb-embedding": weight_bytes(_G.EMBEDDING),
    "dwb-engram-rows": weight_bytes(_G.ENGRAM_TABLE),
    "dwb-total": weight_bytes(),
    "dwb-wo-a-bf16": widened_output_bytes,
}
