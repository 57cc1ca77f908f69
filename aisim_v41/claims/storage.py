"""Claims on bytes at rest: the checkpoint by part, persistent KV, snapshots of windows.

Source of the figures: vLLM recipe (memory table), LMSYS blog, technical report §3.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.claims.kv import V4_FLASH
from aisim_v41.errors import InvalidInputError
from aisim_v41.model.cache_rows import global_kv_bytes_per_token, packed_row
from aisim_v41.model.earlier_attention import CompressedAttention
from aisim_v41.model.tensor import Tensor, TensorGroup
from aisim_v41.model.tensors import all_tensors
from aisim_v41.units import GB, GIB

EXPERTS = (TensorGroup.ROUTED_EXPERTS, TensorGroup.DRAFT_EXPERTS)
SNAPSHOTS_A_TURN = 2
"""Ends of prompt and of output (claim stor-02)."""


def values_gib(context: Context, keep: Callable[[Tensor], bool]) -> float:
    """Bytes of values without scales of some tensors [GiB]."""
    return sum(t.element_bytes for t in all_tensors(context.model) if keep(t)) / GIB


def persistent_ratio(context: Context) -> float:
    """Global KV against V4-Flash's global and window KV, which are about equal."""
    ours = global_kv_bytes_per_token(context.model, context.rows("trained"))
    return float(ours / (2 * context.earlier(V4_FLASH).kv_bytes_per_token))


def v4_break_even_tokens(context: Context) -> float:
    """New tokens a turn at which V4-Flash's two window snapshots equal its new global KV."""
    flash = context.earlier(V4_FLASH)
    attention = flash.attention
    if not isinstance(attention, CompressedAttention):
        raise InvalidInputError(f"{V4_FLASH} has no compressed attention")
    row = packed_row(attention.head_dim, attention.rope_dim).bytes
    snapshot = flash.layers * attention.window * row
    return float(SNAPSHOTS_A_TURN * snapshot / flash.kv_bytes_per_token)


def encoder_window_bytes(context: Context) -> int:
    """Window KV [B] of the encoder layers of one sequence."""
    return context.boundary * context.window * context.rows("trained").window_bytes


FORMULAS: Mapping[str, Formula] = {
    "stor-01": persistent_ratio,
    "stor-02": v4_break_even_tokens,
    "stor-05": encoder_window_bytes,
    "stor-07": lambda c: c.inventory.total.bytes / GB,
    "stor-08": lambda c: values_gib(c, lambda tensor: tensor.group in EXPERTS),
    "stor-09": lambda c: values_gib(c, lambda tensor: tensor.group is TensorGroup.ENGRAM_TABLE),
    "stor-10": lambda c: values_gib(c, lambda t: t.format == c.model.formats.linear),
    "stor-11": lambda c: values_gib(
        c, lambda t: t.format in (c.model.formats.plain, c.model.formats.wide)
    ),
    "stor-12": lambda c: c.inventory.total.scale_bytes / GIB,
}
