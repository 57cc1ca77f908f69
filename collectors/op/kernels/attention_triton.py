"""Sparse attention in triton: gathered rows, one pass with a running maximum, split over keys.

A program has one row, a block of heads and every ``SPLITS``-th block of keys. Where there are
splits, a second kernel adds their parts.
"""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.triton_formats import (
    e2m1_values,
    e4m3_values,
    operand_type,
    ue8m0_values,
)

KEYS = 32
"""Keys of a block."""
SPLITS_MOST = 16
PROCESSORS_ELSEWHERE = 8
"""Taken for the multiprocessors of what is no GPU."""


@triton.jit
def _row_values(
    pool, pool16, slots, ROW_BYTES: tl.constexpr, FORMAT: tl.constexpr, NUMBER: tl.constexpr
):
    """Cached rows widened, [keys, 512]; ``pool16`` is the same memory as BF16 numbers."""
    start = slots.to(tl.int64)[:, None] * ROW_BYTES
    if FORMAT == "nvfp4":
        byte = tl.arange(0, 256)[None, :]
        codes = tl.load(pool + start + byte)
        scales = e4m3_values(tl.load(pool + start + 256 + byte // 8))
        low = (e2m1_values(codes & 15) * scales).to(NUMBER)
        high = (e2m1_values(codes >> 4) * scales).to(NUMBER)
        values = tl.interleave(low, high)
    else:
        column = tl.arange(0, 512)[None, :]
        if FORMAT == "bf16":
            values = tl.load(pool16 + start // 2 + column).to(NUMBER)
        elif FORMAT == "fp8":
            values = e4m3_values(tl.load(pool + start + column)).to(NUMBER)
        elif FORMAT == "mxfp8":
            scales = ue8m0_values(tl.load(pool + start + 512 + column // 32))
            codes = e4m3_values(tl.load(pool + start + column))
            values = (codes.to(tl.float32) * scales).to(NUMBER)
        else:
            plain = column < 448
            scales = ue8m0_values(tl.load(pool + start + 576 + column // 64, mask=plain, other=0))
            codes = e4m3_values(tl.load(pool + start + column, mask=plain, other=0))
            rotated = tl.load(pool16 + start // 2 + column - 224, mask=column >= 448, other=0.0)
            widened = (codes.to(tl.float32) * scales).to(NUMBER)
            values = tl.where(plain, widened, rotated.to(NUMBER))
    return values


@triton.jit
def _attended(
    query, pool, pool16, index, start, count, best, total, summed, scale,
    ROW_BYTES: tl.constexpr, FORMAT: tl.constexpr, KEYS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """One more block of keys: maximum, sum and weighted rows so far."""
    key = start + tl.arange(0, KEYS)
    there = key < count
    slots = tl.load(index + key, mask=there, other=0)
    values = _row_values(pool, pool16, slots, ROW_BYTES, FORMAT, NUMBER)
    logits = tl.where(there[None, :], tl.dot(query, tl.trans(values)) * scale, float("-inf"))
    higher = tl.maximum(best, tl.max(logits, axis=1))
    kept = tl.exp(best - higher)
    shares = tl.exp(logits - higher[:, None])
    summed = summed * kept[:, None] + tl.dot(shares.to(NUMBER), values)
    return higher, total * kept + tl.sum(shares, axis=1), summed


@triton.jit
def attend_kernel(
    queries, window, window16, main, main16, window_index, main_index, window_count, main_count,
    sink, out, bests, totals, sums, window_width, main_width, heads, scale,
    WINDOW_BYTES: tl.constexpr, WINDOW_FORMAT: tl.constexpr,
    MAIN_BYTES: tl.constexpr, MAIN_FORMAT: tl.constexpr,
    HEADS: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Attention of one row and block of heads to its window and then its selected entries."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(2)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, 512)[None, :]
    mine = (head < heads)[:, None]
    place = (row * heads + head)[:, None] * 512 + column
    query = tl.load(queries + place, mask=mine, other=0.0).to(NUMBER)
    best = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    summed = tl.zeros([HEADS, 512], tl.float32)
    count = tl.load(window_count + row)
    for start in range(split * KEYS, count, SPLITS * KEYS):
        best, total, summed = _attended(
            query, window, window16, window_index + row * window_width, start, count,
            best, total, summed, scale, WINDOW_BYTES, WINDOW_FORMAT, KEYS, NUMBER,
        )  # fmt: skip
    count = tl.load(main_count + row)
    for start in range(split * KEYS, count, SPLITS * KEYS):
        best, total, summed = _attended(
            query, main, main16, main_index + row * main_width, start, count,
            best, total, summed, scale, MAIN_BYTES, MAIN_FORMAT, KEYS, NUMBER,
        )  # fmt: skip
    if SPLITS == 1:
        sunk = tl.exp(tl.load(sink + head, mask=head < heads, other=0.0) - best)
        answer = summed / (total + sunk)[:, None]
        tl.store(out + place, answer.to(tl.bfloat16), mask=mine)
    else:
        part = (row * heads + head) * SPLITS + split
        tl.store(bests + part, best, mask=head < heads)
        tl.store(totals + part, total, mask=head < heads)
        tl.store(sums + part[:, None] * 512 + column, summed, mask=mine)


@triton.jit
def combine_kernel(sink, out, bests, totals, sums, heads, SPLITS: tl.constexpr):
    """The answer of one row and head from the parts of its splits."""
    at = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    column = tl.arange(0, 512)
    best = tl.load(bests + at * SPLITS + split)
    highest = tl.max(best, axis=0)
    share = tl.exp(best - highest)
    total = tl.sum(share * tl.load(totals + at * SPLITS + split), axis=0)
    total += tl.exp(tl.load(sink + at % heads) - highest)
    parts = tl.load(sums + (at * SPLITS + split)[:, None] * 512 + column[None, :])
    answer = tl.sum(parts * share[:, None], axis=0) / total
    tl.store(out + at * 512 + column, answer.to(tl.bfloat16))


def attend(
    queries: torch.Tensor, window: torch.Tensor, main: torch.Tensor, window_index: torch.Tensor,
    main_index: torch.Tensor, window_count: torch.Tensor, main_count: torch.Tensor,
    sink: torch.Tensor, *, window_format: str, main_format: str, scale: float,
) -> torch.Tensor:  # fmt: skip
    """Answers [rows, heads, 512] of queries of that shape.

    Args:
        window, main: cached rows as bytes.
        window_index, main_index: rows of them for each query, as many as the counts say.
        sink: a logit of nothing, for each head.
    """
    rows, heads, _ = queries.shape
    block = 16 if heads <= 16 else 32
    blocks = -(-heads // block)
    longest = max(window_index.shape[1], main_index.shape[1])
    splits = _splits(rows * blocks, -(-longest // KEYS), queries.device)
    out = torch.empty_like(queries)
    bests, totals = torch.empty(
        2, rows * heads * splits if splits > 1 else 1, dtype=torch.float32, device=queries.device
    )
    sums = queries.new_empty(bests.numel(), queries.shape[2], dtype=torch.float32)
    attend_kernel[(rows, blocks, splits)](
        queries, window, window.view(torch.bfloat16), main, main.view(torch.bfloat16),
        window_index, main_index, window_count, main_count, sink, out, bests, totals, sums,
        window_index.shape[1], main_index.shape[1], heads, scale,
        WINDOW_BYTES=window.shape[1], WINDOW_FORMAT=window_format,
        MAIN_BYTES=main.shape[1], MAIN_FORMAT=main_format,
        HEADS=block, KEYS=KEYS, SPLITS=splits, NUMBER=operand_type(), num_warps=8, num_stages=1,
    )  # fmt: skip
    if splits > 1:
        combine_kernel[(rows * heads,)](sink, out, bests, totals, sums, heads, SPLITS=splits)
    return out


def _splits(programs: int, blocks: int, device: torch.device) -> int:
    """Powers of two that bring programs to one a multiprocessor, with a block of keys each."""
    splits = 1
    while splits < SPLITS_MOST and 2 * splits <= min(blocks, processors_of(device) // programs):
        splits *= 2
    return splits


def processors_of(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    if device.type != "cuda":
        return PROCESSORS_ELSEWHERE
    return torch.cuda.get_device_properties(device).multi_processor_count
