"""Pages of KV: how many rows lie in one, and the bytes that it takes once its stride is rounded.

A row layout (`aisim_v41.model.cache_rows`) says how wide a row is; an engine stores rows in pages
whose stride is rounded up to what its kernels can address (runtime-semantics §6.1, §3; page
strides of vLLM: ``kv_page_alignment`` in vllm/models/deepseek_v41/attention.py @02ee13be, where
index pages carry the same alignment; SGLang pads the pages of main and window rows alone).
"""

from __future__ import annotations

from dataclasses import dataclass

from aisim_v41.memory.terms import round_up
from aisim_v41.model.cache_rows import CacheRows
from aisim_v41.model.description import Model
from aisim_v41.model.formats import FP32
from aisim_v41.plan.policy import RuntimePolicy


@dataclass(frozen=True, slots=True)
class Alignment:
    """What the stride of a page is rounded up to [B], by kind of row."""

    main: int = 1
    window: int = 1
    index: int = 1


_PACKED = 576
"""TMA stride of the DeepSeek-V4 record."""
_V41 = 512
"""TMA stride of the V4.1 FP8 record."""
_NVFP4 = 256
"""TMA stride of the NVFP4 record."""

ALIGNMENT: dict[str, Alignment] = {
    "sglang_v4": Alignment(_PACKED, _PACKED),
    "sglang_v41": Alignment(_NVFP4, _V41),
    "sglang_v41_fp8": Alignment(_V41, _V41),
    "vllm_fp8": Alignment(_V41, _V41, _V41),
    "vllm_fp8_index_fp8": Alignment(_V41, _V41, _V41),
    "vllm_nvfp4": Alignment(_V41, _V41, _V41),
    "vllm_packed": Alignment(_PACKED, _PACKED, _PACKED),
    "vllm_packed_index_fp4": Alignment(_PACKED, _PACKED, _PACKED),
}
"""By layout; the others are stored without padding, as far as is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPages:
    """Pages of one layer that owns global KV."""

    layer: int
    ratio: int
    span_tokens: int
    """Tokens that one page covers."""
    rows: int
    """Entries of one page."""
    main_bytes: int
    """One page of entries [B], stride rounded."""
    index_bytes: int
    """One page of index keys [B], stride rounded."""
    row_bytes: int
    """One entry with its key, without rounding [B]."""

    @property
    def page_bytes(self) -> int:
        """Entries and keys of one page [B]."""
        return self.main_bytes + self.index_bytes

    def pages(self, tokens: int) -> int:
        """Pages that hold ``tokens`` tokens of one sequence."""
        return -(-tokens // self.span_tokens)


def owner_pages(model: Model, rows: CacheRows, policy: RuntimePolicy) -> tuple[OwnerPages, ...]:
    """Pages of every KV owner under the engine's page rule."""
    align = ALIGNMENT.get(rows.name, Alignment())
    found = []
    for owner in model.kv_owners:
        count = policy.page_tokens
        if policy.page_counts == "tokens":
            count = max(1, count // owner.ratio)
        found.append(
            OwnerPages(
                layer=owner.index,
                ratio=owner.ratio,
                span_tokens=count * owner.ratio,
                rows=count,
                main_bytes=_stride(count, rows.main_bytes, align.main),
                index_bytes=_stride(count, rows.index_bytes, align.index),
                row_bytes=rows.entry_bytes,
            )
        )
    return tuple(found)


def window_page_bytes(rows: CacheRows, policy: RuntimePolicy) -> int:
    """One page of window rows of one layer [B], stride rounded."""
    align = ALIGNMENT.get(rows.name, Alignment())
    return _stride(policy.window_page_rows, rows.window_bytes, align.window)


def _stride(rows: int, row_bytes: int, alignment: int) -> int:
    """Bytes of a page [B]; a page of one row means that rows are not paged, nor rounded."""
    return row_bytes if rows == 1 else round_up(rows * row_bytes, alignment)


def ring_bytes(model: Model, policy: RuntimePolicy) -> tuple[int, ...]:
    """State of unfinished groups of one request [B]: FP32 value and score, one ring an owner.

    Owners of ratio 1 need none. Source: model-facts §4.4 (reference: as many rows as the ratio,
    24,576 B for three owners), runtime-semantics §6.2.
    """
    row = 2 * FP32.element_bytes(1, model.attention.head_dim)
    return tuple(
        max(policy.pair_ring_rows, owner.ratio) * row
        for owner in model.kv_owners
        if owner.ratio > 1
    )
