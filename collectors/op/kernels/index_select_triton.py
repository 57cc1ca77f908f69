"""Selection in triton: the least kept score by its digits, then the kept positions in order.

Scores become whole numbers of the same order; each pass counts one digit of 16 among those that
share the digits found before. Positions are written in order, so that nothing is sorted. Long rows
of small calls are cut: each part's best first, then the best of those.
"""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.attention_triton import processors_of

SCORES = 1024
"""Scores that a pass looks at at once."""
PART_SCORES = 8192
"""Least scores of a part; a whole number of blocks."""
PARTS_MOST = 32


@triton.jit
def _ordered(
    bits, names, item, items, count, newest,
    GROUP: tl.constexpr, BITS: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Groups and the order of their best scores, -1 where there is none; ``newest`` is first.

    A group is GROUP scores that follow each other; ``names`` lists those to look at if LISTED.
    """
    name = item
    if LISTED:
        name = tl.load(names + item, mask=item < items, other=-1)
    position = name[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (item < items)[:, None] & (position >= 0) & (position < count)
    raw = tl.load(bits + position, mask=there, other=0).to(tl.int32)
    if BITS == 16:
        raw = raw << 16
    signed = raw ^ ((raw >> 31) & 0x7FFFFFFF)
    order = (signed.to(tl.int64) + 0x80000000) >> (32 - BITS)
    best = tl.max(tl.where(there, order, -1), axis=1)
    if GROUP > 1:
        best = tl.where((best >= 0) & (name == newest), (1 << BITS) - 1, best)
    return name, best


@triton.jit
def _select(
    bits, names, chosen, items, count, newest, wanted, most, first,
    GROUP: tl.constexpr, BITS: tl.constexpr, ITEMS: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Write the ``wanted`` best of ``items`` groups, counted from ``first``, then -1 up to most."""
    rest = wanted
    prefix = (count * 0).to(tl.int64)
    digits = tl.arange(0, 16)
    for step in range(BITS // 4):
        shift = BITS - 4 - 4 * step
        counted = tl.zeros([16], tl.int32)
        for start in range(0, items, ITEMS):
            item = start + tl.arange(0, ITEMS)
            _, order = _ordered(bits, names, item, items, count, newest, GROUP, BITS, LISTED)
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
        name, order = _ordered(bits, names, item, items, count, newest, GROUP, BITS, LISTED)
        tie = (order == prefix).to(tl.int32)
        among = ties + tl.cumsum(tie, axis=0) - tie
        keep = ((order > prefix) | ((tie == 1) & (among < rest))).to(tl.int32)
        place = taken + tl.cumsum(keep, axis=0) - keep
        tl.store(chosen + place, name + first, mask=keep == 1)
        taken += tl.sum(keep, axis=0)
        ties += tl.sum(tie, axis=0)
    for start in range(0, most, ITEMS):
        place = start + tl.arange(0, ITEMS)
        nothing = tl.full([ITEMS], -1, tl.int32)
        tl.store(chosen + place, nothing, mask=(place >= wanted) & (place < most))


@triton.jit
def select_kernel(
    bits, counts, chosen, width, most, part,
    GROUP: tl.constexpr, BITS: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """The best groups of one part of a row; parts of ``part`` scores follow each other."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * part
    seen = tl.load(counts + row)
    count = tl.minimum(tl.maximum(seen - start, 0), part)
    items = (count + GROUP - 1) // GROUP
    first = start // GROUP
    newest = (seen - 1) // GROUP - first
    out = chosen + (row * tl.num_programs(1) + tl.program_id(1)) * most
    here = bits + row * width + start
    _select(
        here, chosen, out, items, count, newest, tl.minimum(most, items), most, first,
        GROUP, BITS, ITEMS, False,
    )  # fmt: skip


@triton.jit
def join_kernel(
    bits, counts, names, chosen, width, most, listed,
    GROUP: tl.constexpr, BITS: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """The best groups of a row among the ``listed`` best of its parts."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(counts + row)
    groups = (count + GROUP - 1) // GROUP
    _select(
        bits + row * width, names + row * listed, chosen + row * most, listed, count, groups - 1,
        tl.minimum(most, groups), most, 0, GROUP, BITS, ITEMS, True,
    )  # fmt: skip


def select(
    scores: torch.Tensor, counts: torch.Tensor, most: int, *, group: int = 1
) -> torch.Tensor:
    """The ``most`` best groups of ``group`` scores of each row, in order, then -1: [rows, most].

    The newest group that a row sees is among them where ``group`` is more than 1.
    """
    rows, width = scores.shape
    narrow = scores.dtype == torch.bfloat16
    bits = scores.view(torch.int16 if narrow else torch.int32)
    constants = {"GROUP": group, "BITS": 16 if narrow else 32, "ITEMS": SCORES // group}
    parts = _parts(rows, width, most * group, scores.device)
    part = -(-width // (parts * group)) * group
    chosen = torch.empty(rows, parts * most, dtype=torch.int32, device=scores.device)
    select_kernel[(rows, parts)](bits, counts, chosen, width, most, part, **constants, num_warps=8)
    if parts == 1:
        return chosen
    best = torch.empty(rows, most, dtype=torch.int32, device=scores.device)
    join_kernel[(rows,)](
        bits, counts, chosen, best, width, most, parts * most, **constants, num_warps=8
    )
    return best


def _parts(rows: int, width: int, kept: int, device: torch.device) -> int:
    """As many as bring programs to one a multiprocessor, each much longer than what it keeps."""
    longest = max(PART_SCORES, 4 * kept)
    return max(1, min(PARTS_MOST, width // longest, processors_of(device) // rows))
