"""One pool of equal blocks for every kind of KV: what vLLM does with caches of unlike pages.

Layers are put into groups whose pages lie side by side in one block; a block is as large as the
largest group needs, and every group draws whole blocks from the same pool. Small pages therefore
cost a whole block, and a request holds blocks for its window whatever its length.

Source: ``group_and_unify_kv_cache_specs``, ``_approximate_gcd``, ``_get_packed_kv_cache_layout``
and ``get_max_concurrency_for_kv_cache_config`` in vllm/v1/core/kv_cache_utils.py (0.27.1), as
quoted in public texts; two start-up lines of V4.1 agree within 1 % (tests/memory/test_blocks.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from aisim_v41.memory.pages import OwnerPages
from aisim_v41.memory.window import WindowRule


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBlocks:
    """Blocks of one size and who draws them.

    Attributes:
        stride_bytes: One block [B].
        spans: Tokens that a block of each owner group covers [tokens].
        window_groups: Groups of window layers.
        window_pages: Blocks of one window group that a running request holds.
        admitted_pages: The same when a request is admitted: its window and a whole chunk.
        window_page_rows: Window rows in a block [rows].
        state_groups: Groups of rings for unfinished groups, one block each a request.
    """

    stride_bytes: int
    spans: tuple[int, ...]
    window_groups: int
    window_pages: int
    admitted_pages: int
    window_page_rows: int
    state_groups: int

    def token_blocks(self, tokens: int) -> int:
        """Blocks of the owner groups for ``tokens`` tokens of one sequence."""
        return sum(-(-tokens // span) for span in self.spans)

    @property
    def request_blocks(self) -> int:
        """Blocks that a running request holds whatever its length."""
        return self.window_groups * self.window_pages + self.state_groups

    def admitted_blocks(self, length: int) -> int:
        """Blocks that the engine counts for one request of ``length`` tokens when it admits it."""
        window = min(-(-length // self.window_page_rows), self.admitted_pages)
        return self.token_blocks(length) + self.window_groups * window + self.state_groups

    @property
    def bytes_per_token(self) -> Fraction:
        """Slope of the owner groups [B/token]."""
        return sum((Fraction(self.stride_bytes, span) for span in self.spans), Fraction(0))


def shared_blocks(
    *,
    owners: tuple[OwnerPages, ...],
    window: WindowRule,
    window_page_bytes: int,
    window_page_rows: int,
    window_layers: int,
    ring_bytes: tuple[int, ...],
    chunk_tokens: int,
) -> SharedBlocks:
    """Group the layers of one model as the engine does.

    Args:
        owners: Pages of the KV owners; those that span as many tokens form a group.
        window: How far a window reaches.
        window_page_bytes: One page of window rows of one layer [B].
        window_page_rows: Its rows [rows].
        window_layers: Layers with windows, counted draft blocks included.
        ring_bytes: Ring of each owner that pools [B].
        chunk_tokens: Largest chunk, for admission [tokens].
    """
    groups: dict[int, list[OwnerPages]] = {}
    for owner in owners:
        groups.setdefault(owner.span_tokens, []).append(owner)
    counts = [len(group) for group in groups.values()]
    layers = _layers_per_group([*counts, window_layers, len(ring_bytes)], min(counts, default=1))
    sizes = [sum(owner.page_bytes for owner in group) for group in groups.values()]
    sizes.append(min(layers, window_layers) * window_page_bytes)
    sizes.append(min(layers, len(ring_bytes)) * max(ring_bytes, default=0))
    reach = window.live_rows - 1
    return SharedBlocks(
        stride_bytes=max(sizes),
        spans=tuple(groups),
        window_groups=-(-window_layers // layers),
        window_pages=-(-reach // window_page_rows) + 1,
        admitted_pages=-(-(reach + chunk_tokens) // window_page_rows) + 1,
        window_page_rows=window_page_rows,
        state_groups=-(-len(ring_bytes) // layers),
    )


def _layers_per_group(counts: list[int], least: int) -> int:
    """Group size, from ``least``, for which rounding the counts up to it pads fewest layers."""
    wanted = [count for count in counts if count]
    sizes = range(least, max(wanted, default=least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in wanted), -size))
