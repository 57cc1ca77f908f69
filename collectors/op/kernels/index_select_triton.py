"""Selection in triton: a program a row finds the least kept score by its digits, then packs.

Scores become whole numbers of the same order; each pass counts one digit of 16 among those that
share the digits found before. Positions are written in order, so that nothing is sorted.
"""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

SCORES = 1024
"""Scores that a pass looks at at once."""


@triton.jit
def _ordered(bits, item, count, GROUP: tl.constexpr, BITS: tl.constexpr):
    """Order of the best score of each group; -1 behind the end; the newest of groups is first."""
    position = item[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = position < count
    raw = tl.load(bits + position, mask=there, other=0).to(tl.int32)
    if BITS == 16:
        raw = raw << 16
    signed = raw ^ ((raw >> 31) & 0x7FFFFFFF)
    order = (signed.to(tl.int64) + 0x80000000) >> (32 - BITS)
    best = tl.max(tl.where(there, order, -1), axis=1)
    if GROUP > 1:
        best = tl.where(item == (count - 1) // GROUP, (1 << BITS) - 1, best)
    return best


@triton.jit
def _select(
    bits, chosen, count, most, GROUP: tl.constexpr, BITS: tl.constexpr, ITEMS: tl.constexpr
):
    """Write the items of the ``most`` best groups, then -1."""
    items = (count + GROUP - 1) // GROUP
    wanted = tl.minimum(most, items)
    rest = wanted
    prefix = (count * 0).to(tl.int64)
    digits = tl.arange(0, 16)
    for step in range(BITS // 4):
        shift = BITS - 4 - 4 * step
        counted = tl.zeros([16], tl.int32)
        for start in range(0, items, ITEMS):
            order = _ordered(bits, start + tl.arange(0, ITEMS), count, GROUP, BITS)
            same = (order >= 0) & ((order >> (shift + 4)) == prefix)
            digit = ((order >> shift) & 15).to(tl.int32)
            hits = (digit[:, None] == digits[None, :]) & same[:, None]
            counted += tl.sum(hits.to(tl.int32), axis=0)
        above = tl.sum(counted, axis=0) - tl.cumsum(counted, axis=0)
        here = (above < rest) & (above + counted >= rest)
        prefix = prefix * 16 + tl.sum(tl.where(here, digits, 0), axis=0)
        rest -= tl.sum(tl.where(here, above, 0), axis=0)
    taken = count * 0
    ties = count * 0
    for start in range(0, items, ITEMS):
        item = start + tl.arange(0, ITEMS)
        order = _ordered(bits, item, count, GROUP, BITS)
        tie = (order == prefix).to(tl.int32)
        among = ties + tl.cumsum(tie, axis=0) - tie
        keep = ((order > prefix) | ((tie == 1) & (among < rest))).to(tl.int32)
        place = taken + tl.cumsum(keep, axis=0) - keep
        tl.store(chosen + place, item, mask=keep == 1)
        taken += tl.sum(keep, axis=0)
        ties += tl.sum(tie, axis=0)
    for start in range(0, most, ITEMS):
        place = start + tl.arange(0, ITEMS)
        nothing = tl.full([ITEMS], -1, tl.int32)
        tl.store(chosen + place, nothing, mask=(place >= wanted) & (place < most))


@triton.jit
def select_kernel(
    bits, counts, chosen, blocks, width, top_k, top_blocks,
    BITS: tl.constexpr, POOL: tl.constexpr, SCORES: tl.constexpr,
):  # fmt: skip
    """The best positions of a row, and the best blocks of 8 of them."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(counts + row)
    _select(bits + row * width, chosen + row * top_k, count, top_k, 1, BITS, SCORES)
    if POOL:
        _select(
            bits + row * width, blocks + row * top_blocks, count, top_blocks, 8, BITS, SCORES // 8
        )


def select(
    scores: torch.Tensor, counts: torch.Tensor, top_k: int, top_blocks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions [rows, top_k] and, where ``top_blocks`` is not 0, blocks [rows, top_blocks].

    Both are in order and end in -1 where there are fewer.
    """
    rows, width = scores.shape
    chosen = torch.empty(rows, top_k, dtype=torch.int32, device=scores.device)
    blocks = torch.empty(rows, max(top_blocks, 1), dtype=torch.int32, device=scores.device)
    narrow = scores.dtype == torch.bfloat16
    select_kernel[(rows,)](
        scores.view(torch.int16 if narrow else torch.int32), counts, chosen, blocks,
        width, top_k, top_blocks,
        BITS=16 if narrow else 32, POOL=top_blocks > 0, SCORES=SCORES, num_warps=8,
    )  # fmt: skip
    return chosen, blocks
