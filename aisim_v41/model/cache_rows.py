"""Bytes of one cached row in the layouts of the engines, and KV bytes of whole sequences.

Layouts are built from number formats and the model's widths; no row size is typed in. A row
layout is a choice of an engine build, not of the model (docs/assumptions.md, "Cache rows").
Source: runtime-semantics §6.1; model-facts §5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from aisim_v41.errors import InvalidInputError, MissingProfileError, nearest
from aisim_v41.model.description import Model
from aisim_v41.model.formats import BF16, FP8, FP32, RowFormat, RowPart
from aisim_v41.model.precision import Precision

E2M1_BITS = 4
E4M3_BITS = 8
E4M3_SCALE_BITS = 8
UE8M0_BITS = 8
NVFP4_GROUP = 16
"""Values that share an E4M3 scale in main rows."""
MX_GROUP = 32
"""Values that share a UE8M0 scale in window rows and index keys."""
PACKED_GROUP = 64
"""Values that share a UE8M0 scale in the DeepSeek-V4 row."""
PACKED_ALIGNMENT_BYTES = 8
"""The DeepSeek-V4 row is padded to it (583 -> 584 bytes)."""


def nvfp4_row(values: int) -> RowFormat:
    """E2M1 values with an E4M3 scale per 16: the trained form of main rows."""
    return RowFormat("nvfp4", (RowPart(values, E2M1_BITS, E4M3_SCALE_BITS, NVFP4_GROUP),))


def mxfp8_row(values: int) -> RowFormat:
    """E4M3 values with a UE8M0 scale per 32: the trained form of window rows."""
    return RowFormat("mxfp8", (RowPart(values, E4M3_BITS, UE8M0_BITS, MX_GROUP),))


def mxfp4_row(values: int) -> RowFormat:
    """E2M1 values with a UE8M0 scale per 32: the trained form of index keys."""
    return RowFormat("mxfp4", (RowPart(values, E2M1_BITS, UE8M0_BITS, MX_GROUP),))


def packed_row(values: int, rope: int) -> RowFormat:
    """DeepSeek-V4's row: E4M3 with a UE8M0 scale per 64, rotated values in BF16, padding."""
    parts = (
        RowPart(values - rope, E4M3_BITS, UE8M0_BITS, PACKED_GROUP),
        RowPart(rope, BF16.element_bits),
    )
    return RowFormat("v4_packed", parts, -sum(p.bytes for p in parts) % PACKED_ALIGNMENT_BYTES)


def plain_fp8_row(values: int) -> RowFormat:
    """E4M3 values without stored scales."""
    return RowFormat("fp8", (RowPart(values, FP8.element_bits),))


def bf16_row(values: int) -> RowFormat:
    """BF16 values."""
    return RowFormat("bf16", (RowPart(values, BF16.element_bits),))


def fp8_key(values: int) -> RowFormat:
    """E4M3 index key with one FP32 scale."""
    return RowFormat("fp8_fp32_scale", (RowPart(values, E4M3_BITS, FP32.element_bits, values),))


_NO_KEY = RowFormat("none", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRows:
    """The three kinds of cached row of one engine layout."""

    name: str
    main: RowFormat
    """One global entry of a KV owner."""
    window: RowFormat
    """One token of one layer's sliding window."""
    index: RowFormat
    """One index key of a KV owner."""

    @property
    def main_bytes(self) -> int:
        """Bytes [B] of a global entry without its index key."""
        return self.main.bytes

    @property
    def window_bytes(self) -> int:
        """Bytes [B] of one window row of one layer."""
        return self.window.bytes

    @property
    def index_bytes(self) -> int:
        """Bytes [B] of an index key."""
        return self.index.bytes

    @property
    def entry_bytes(self) -> int:
        """Bytes [B] that one more global entry takes: main row and index key."""
        return self.main.bytes + self.index.bytes


_Head = Callable[[int, int], RowFormat]
_Key = Callable[[int], RowFormat]


def _rotated_inside(row: Callable[[int], RowFormat]) -> _Head:
    """A row that treats rotated and other values alike."""
    return lambda values, _rope: row(values)


_NVFP4 = _rotated_inside(nvfp4_row)
_MXFP8 = _rotated_inside(mxfp8_row)
_FP8 = _rotated_inside(plain_fp8_row)
_BF16 = _rotated_inside(bf16_row)

_LAYOUTS: dict[str, tuple[_Head, _Head, _Key]] = {
    "trained": (_NVFP4, _MXFP8, mxfp4_row),
    "sglang_v4": (packed_row, packed_row, mxfp4_row),
    "sglang_v41": (_NVFP4, _MXFP8, mxfp4_row),
    "sglang_v41_fp8": (_MXFP8, _MXFP8, mxfp4_row),
    "trtllm_plain": (_FP8, _FP8, mxfp4_row),
    "trtllm_csa2": (_NVFP4, _MXFP8, mxfp4_row),
    "vllm_fp8": (_MXFP8, _MXFP8, mxfp4_row),
    "vllm_fp8_index_fp8": (_MXFP8, _MXFP8, fp8_key),
    "vllm_nvfp4": (_NVFP4, _MXFP8, mxfp4_row),
    "vllm_packed": (packed_row, packed_row, fp8_key),
    "vllm_packed_index_fp4": (packed_row, packed_row, mxfp4_row),
    "atom_bf16": (_BF16, _BF16, bf16_row),
    "atom_packed": (_NVFP4, _MXFP8, fp8_key),
}
"""Main, window and index row per layout. ``trtllm_plain`` is SGLang's TRT-LLM attention backend;
the window pool of ``trtllm_csa2`` is not published and taken as the trained form."""

CACHE_LAYOUTS: tuple[str, ...] = tuple(_LAYOUTS)


def cache_rows(model: Model, layout: str) -> CacheRows:
    """Rows of a named layout at this model's widths; roles that a policy set have their own.

    Raises:
        MissingProfileError: no layout has that name.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> rows = cache_rows(load_model("deepseek-v4.1-flash"), "sglang_v4")
        >>> rows.main_bytes, rows.window_bytes, rows.index_bytes
        (584, 584, 68)
    """
    if layout not in _LAYOUTS:
        raise MissingProfileError(
            f"no cache layout named {layout!r}; {nearest(str(layout), _LAYOUTS)}"
        )
    main, window, index = _LAYOUTS[layout]
    values, rope = model.attention.head_dim, model.attention.rope_dim
    keys = 0 if model.indexer is None else model.indexer.head_dim
    given = model.formats.roles
    return CacheRows(
        name=layout,
        main=main(values, rope) if given.main_kv is None else given.main_kv.row(values),
        window=window(values, rope) if given.window_kv is None else given.window_kv.row(values),
        index=_key_row(keys, index, given.index_key),
    )


def _key_row(values: int, of_layout: _Key, given: Precision | None) -> RowFormat:
    if not values:
        return _NO_KEY
    return of_layout(values) if given is None else given.row(values)


def global_kv_bytes_per_token(model: Model, rows: CacheRows) -> Fraction:
    """Slope [B/token] of global KV: every owner adds an entry per ``ratio`` tokens.

    Source: report Fig. 1(b); 890 in the trained layout.
    """
    return sum(
        (Fraction(rows.entry_bytes, owner.ratio) for owner in model.kv_owners), start=Fraction(0)
    )


def global_kv_bytes(model: Model, rows: CacheRows, tokens: int) -> int:
    """Global KV [B] of one sequence after ``tokens`` tokens; unfinished groups store nothing."""
    count = _whole(tokens)
    return sum(rows.entry_bytes * (count // owner.ratio) for owner in model.kv_owners)


def window_bytes(model: Model, rows: CacheRows, tokens: int) -> int:
    """Sliding-window KV [B] of the backbone for one sequence of ``tokens`` tokens."""
    live = min(_whole(tokens), model.attention.window)
    return len(model.layers) * live * rows.window_bytes


def draft_window_bytes(model: Model, rows: CacheRows, tokens: int) -> int:
    """The same [B] for the draft blocks, each of which keeps a window of its own."""
    blocks = 0 if model.draft is None else model.draft.blocks
    return blocks * min(_whole(tokens), model.attention.window) * rows.window_bytes


def pair_state_bytes(model: Model) -> int:
    """State [B] of unfinished groups for one sequence, as the reference allocates it.

    Per owner that pools: value and score rows of one group in FP32 (model-facts §4.4).
    """
    row = FP32.element_bytes(1, model.attention.head_dim)
    return sum(2 * owner.ratio * row for owner in model.kv_owners if owner.ratio > 1)


def _whole(tokens: int) -> int:
    try:
        count = tokens.__index__()
    except AttributeError:
        count = -1
    if isinstance(tokens, bool) or count < 0:
        raise InvalidInputError(f"tokens = {tokens!r}: must be a whole number of at least 0")
    return count
