"""Claims on KV: bytes of rows, per token and per sequence, cache reads, and earlier generations.

Source of the figures: technical report §2.4.4, Fig. 1; fact sheet §5; engines' layouts
(runtime-semantics §6.1). Rows are built from number formats, reads come from the operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from aisim_v41.claims.context import SHORT_CONTEXT, Context, Formula, decode
from aisim_v41.claims.work import CACHE_READS, paper, work
from aisim_v41.errors import InvalidInputError
from aisim_v41.model.cache_rows import (
    CacheRows,
    draft_window_bytes,
    fp8_key,
    global_kv_bytes,
    global_kv_bytes_per_token,
    pair_state_bytes,
    window_bytes,
)
from aisim_v41.model.earlier_attention import CompressedAttention
from aisim_v41.model.formats import RowFormat
from aisim_v41.plan.counts import Count
from aisim_v41.plan.request import Request
from aisim_v41.units import GB, MIB

V1, V32, V4_FLASH, V4_PRO = "deepseek-v1", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro"
LONG_CONTEXT = 1 << 17
"""128K, at which an engine's own accounting is published [tokens]."""
E2M1_MAX, E4M3_MAX = 6, 448
"""Largest finite values of the two formats (OCP microscaling formats, 8-bit floating point)."""


def _slope(layout: str) -> Formula:
    """Global KV per token [B/token] of a layout."""
    return lambda context: global_kv_bytes_per_token(context.model, context.rows(layout))


_NO_ROW = RowFormat("left out", ())


def _slope_without(left_out: Literal["main", "index"]) -> Formula:
    """The slope [B/token] as trained, without main rows or without index keys."""

    def value(context: Context) -> Fraction:
        rows = context.rows("trained")
        kept = replace(rows, main=_NO_ROW) if left_out == "main" else replace(rows, index=_NO_ROW)
        return global_kv_bytes_per_token(context.model, kept)

    return value


def _row(kind: str, layout: str) -> Formula:
    """Bytes [B] of one row of a layout."""

    def value(context: Context) -> int:
        known: int = getattr(context.rows(layout), f"{kind}_bytes")
        return known

    return value


def _global(layout: str, tokens: int | None = None) -> Callable[[Context], int]:
    """Global KV [B] of one sequence, at full context by default."""
    return lambda c: global_kv_bytes(
        c.model, c.rows(layout), c.max_context if tokens is None else tokens
    )


def _window(layout: str) -> Callable[[Context], int]:
    """Window KV [B] of a sequence that is longer than the window."""
    return lambda context: window_bytes(context.model, context.rows(layout), context.max_context)


def engine_sequence_bytes(context: Context) -> int:
    """Window, pair state and global KV [B] at 131,072 tokens in SGLang's DeepSeek-V4 layout."""
    held = _global("sglang_v4", LONG_CONTEXT)(context) + pair_state_bytes(context.model)
    return held + _window("sglang_v4")(context)


def with_window_payload(context: Context) -> float:
    """Global KV as trained and windows without their scales, at full context [MiB]."""
    return (_global("trained")(context) + _window("trtllm_plain")(context)) / MIB


def entries_at_full_context(context: Context) -> int:
    """Global entries of one sequence, from what a prefill of full length writes."""
    counted = context.ledger(Request(new_tokens=context.max_context), policy=paper(context))
    return sum(counted.total(Count.ENTRIES_WRITTEN, x.index) for x in context.model.kv_owners)


def draft_rows(context: Context) -> int:
    """Window rows that the draft blocks keep for one sequence."""
    rows = context.rows("trained")
    return draft_window_bytes(context.model, rows, context.max_context) // rows.window_bytes


def selected_rows_read(context: Context) -> int:
    """Global entries that one decode token reads, over all layers."""
    counted = context.ledger(decode(context.max_context), policy=paper(context))
    return sum(counted.total(Count.SELECTED_ROWS, layer.index) for layer in context.model.layers)


def selected_bytes_read(layout: str) -> Formula:
    """The same [B]: what sparse attention reads at full context beyond the windows."""

    def value(context: Context) -> float:
        policy = paper(context, kv_layout=layout)
        step = work(context, policy, decode(context.max_context))
        reads = step.traffic(CACHE_READS, "sparse_attention")
        return reads - _window(layout)(context)

    return value


def index_bytes_read(tokens: int | None = None, *, scoring: str = "candidates") -> Formula:
    """Index keys [B] that one decode token reads, at full context by default."""

    def value(context: Context) -> float:
        length = context.max_context if tokens is None else tokens
        policy = paper(context, reindex_scoring=scoring)
        return work(context, policy, decode(length)).traffic(CACHE_READS, "index_score")

    return value


def _earlier_slope(name: str) -> Callable[[Context], Fraction]:
    return lambda context: context.earlier(name).kv_bytes_per_token


def v4_part(*, overlapping: bool) -> Formula:
    """V4-Flash's bytes per token of its selecting layers, or of the others."""

    def value(context: Context) -> Fraction:
        flash = context.earlier(V4_FLASH)
        attention = flash.attention
        if not isinstance(attention, CompressedAttention):
            raise InvalidInputError(f"{V4_FLASH} has no compressed attention")
        smallest = min(ratio for ratio in attention.ratios if ratio)
        kept = tuple(r for r in attention.ratios if r and (r == smallest) is overlapping)
        return replace(attention, ratios=kept).kv_bytes_per_token(len(kept))

    return value


def _trained(context: Context) -> Fraction:
    return global_kv_bytes_per_token(context.model, context.rows("trained"))


def _fp8_key_slope(context: Context) -> Fraction:
    """SGLang's row with an FP8 index key [B/token]."""
    packed = context.rows("sglang_v4")
    wide: CacheRows = replace(packed, index=fp8_key(context.indexer.head_dim))
    return global_kv_bytes_per_token(context.model, wide)


def largest_value(context: Context) -> int:
    """Largest value of a main row: the largest scale times the largest element."""
    part = context.rows("trained").main.parts[0]
    largest = {4: E2M1_MAX, 8: E4M3_MAX}
    return largest[part.bits] * largest[part.scale_bits]


FORMULAS: Mapping[str, Formula] = {
    "kv-01": _slope("trained"),
    "kv-02": lambda c: _earlier_slope(V4_FLASH)(c) / _trained(c),
    "kv-03": lambda c: _earlier_slope(V1)(c) / _trained(c),
    "kv-04": _earlier_slope(V1),
    "kv-05": _earlier_slope(V32),
    "kv-06": _earlier_slope(V4_FLASH),
    "kv-07": _row("main", "trained"),
    "kv-08": _row("index", "trained"),
    "kv-09": lambda c: c.rows("trained").main_bytes / c.rows("sglang_v4").main_bytes,
    "kv-10": largest_value,
    "kv-11": lambda c: math.sqrt(c.model.attention.head_dim),
    "kv-12": _row("window", "trained"),
    "kv-13": lambda c: _global("trained")(c) / GB,
    "kv-14": _slope("sglang_v4"),
    "kv-main-v4": _row("main", "sglang_v4"),
    "kv-main-fp8": _row("main", "trtllm_plain"),
    "kv-main-fp8-scaled": _row("main", "vllm_fp8"),
    "kv-main-bf16": _row("main", "atom_bf16"),
    "kv-window-v4": _row("window", "sglang_v4"),
    "kv-window-fp8": _row("window", "trtllm_plain"),
    "kv-window-bf16": _row("window", "atom_bf16"),
    "kv-index-fp8": _row("index", "vllm_packed"),
    "kv-slope-main": _slope_without("index"),
    "kv-slope-index": _slope_without("main"),
    "kv-slope-v4-row": _slope("sglang_v4"),
    "kv-slope-v4-row-fp8-key": _fp8_key_slope,
    "kv-slope-vllm-fp8": _slope("vllm_fp8"),
    "kv-slope-atom-bf16": _slope("atom_bf16"),
    "kv-slope-atom-packed": _slope("atom_packed"),
    "kv-slope-1600": _slope("trained"),
    "kv-1m-trained": _global("trained"),
    "kv-1m-mib": lambda c: _global("trained")(c) / MIB,
    "kv-1m-v4-row": _global("sglang_v4"),
    "kv-1m-entries": entries_at_full_context,
    "kv-1m-with-window": with_window_payload,
    "kv-window-trained-40": _window("trained"),
    "kv-window-v4-40": _window("sglang_v4"),
    "kv-window-payload-40": _window("trtllm_plain"),
    "kv-window-draft": draft_rows,
    "kv-pair-state": lambda c: pair_state_bytes(c.model),
    "kv-128k-v4-row": _global("sglang_v4", LONG_CONTEXT),
    "kv-128k-sequence": engine_sequence_bytes,
    "kv-read-rows": selected_rows_read,
    "kv-read-main": selected_bytes_read("trained"),
    "kv-read-main-v4": selected_bytes_read("sglang_v4"),
    "kv-read-index-4k": index_bytes_read(SHORT_CONTEXT),
    "kv-read-index-128k": index_bytes_read(LONG_CONTEXT),
    "kv-read-index-1m": index_bytes_read(),
    "kv-read-index-1m-dense": index_bytes_read(scoring="dense"),
    "gen-v32-layer": lambda c: _earlier_slope(V32)(c) / c.earlier(V32).layers,
    "gen-v4-selecting": v4_part(overlapping=True),
    "gen-v4-dense": v4_part(overlapping=False),
    "gen-v4-pro": _earlier_slope(V4_PRO),
    "gen-v41-over-v4": lambda c: _trained(c) / _earlier_slope(V4_FLASH)(c),
    "gen-v41-over-v4-like": lambda c: (
        global_kv_bytes_per_token(c.model, c.rows("sglang_v4")) / _earlier_slope(V4_FLASH)(c)
    ),
}
