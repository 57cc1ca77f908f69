"""Index scores in triton: a program has a block of keys, widened once for a few rows."""

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

KEYS = 128
"""Keys of a block."""
ROWS_MOST = 8
"""Rows that share a block's widened keys."""


@triton.jit
def _halves(rows, start, there, NUMBER: tl.constexpr):
    """Even and odd values of MXFP4 rows of 128, [rows, 64] each."""
    byte = tl.arange(0, 64)[None, :]
    codes = tl.load(rows + start + byte, mask=there, other=0)
    scales = ue8m0_values(tl.load(rows + start + 64 + byte // 16, mask=there, other=0))
    low = e2m1_values(codes & 15).to(tl.float32) * scales
    high = e2m1_values(codes >> 4).to(tl.float32) * scales
    return low.to(NUMBER), high.to(NUMBER)


@triton.jit
def score_kernel(
    queries, weights, keys, key_scales, counts, blocks, scores, request_rows, request_keys,
    width, block_width,
    FP4: tl.constexpr, CANDIDATES: tl.constexpr, KEY_BYTES: tl.constexpr,
    QUERY_BYTES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, HEADS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Scores of ``ROWS`` rows of a request for one block of their positions."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    start = tl.program_id(1) * KEYS
    most = tl.load(counts + first + ROWS - 1)
    if start < most:
        position = start + tl.arange(0, KEYS)
        there = position < most
        key = position
        if CANDIDATES:
            block = tl.load(blocks + first * block_width + position // 8, mask=there, other=0)
            key = block * 8 + position % 8
        at = (first // request_rows) * request_keys + key
        head = tl.arange(0, HEADS)
        if FP4:
            low, high = _halves(keys, at[:, None] * KEY_BYTES, there[:, None], NUMBER)
        else:
            column = tl.arange(0, 128)
            codes = tl.load(
                keys + at[:, None] * KEY_BYTES + column[None, :], mask=there[:, None], other=0
            )
            low = e4m3_values(codes).to(NUMBER)
            scale = tl.load(key_scales + at * (KEY_BYTES // 4) + 32, mask=there, other=0.0)
        for row in range(ROWS):
            query = (first + row) * HEADS + head
            if FP4:
                query_low, query_high = _halves(
                    queries, query[:, None] * QUERY_BYTES, head[:, None] >= 0, NUMBER
                )
                products = tl.dot(low, tl.trans(query_low))
                products += tl.dot(high, tl.trans(query_high))
            else:
                narrow = tl.load(queries + query[:, None] * QUERY_BYTES + column[None, :])
                products = tl.dot(low, tl.trans(e4m3_values(narrow).to(NUMBER)))
            weight = tl.load(weights + query).to(tl.float32)
            score = tl.sum(tl.maximum(products, 0.0) * weight[None, :], axis=1)
            if not FP4:
                score = score * scale
            seen = tl.load(counts + first + row)
            out = scores + (first + row) * width + position
            tl.store(out, score.to(scores.dtype.element_ty), mask=position < seen)


def score(
    queries: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, counts: torch.Tensor,
    blocks: torch.Tensor, scores: torch.Tensor, *, key_format: str, candidates: bool,
    request_rows: int, request_keys: int,
) -> None:  # fmt: skip
    """Fill ``scores``, [rows, width], where a row sees a position.

    Args:
        queries: [rows, heads, bytes].
        keys: [requests x request_keys, bytes].
        blocks: [rows, blocks] of 8 keys that candidates are in.
    """
    rows, heads, query_bytes = queries.shape
    together = 1
    while not candidates and together < ROWS_MOST and request_rows % (2 * together) == 0:
        together *= 2
    width = scores.shape[1]
    narrow = key_format == "fp4"
    score_kernel[(rows // together, -(-width // KEYS))](
        queries, weights, keys, keys if narrow else keys.view(torch.float32), counts, blocks,
        scores, request_rows, request_keys, width, blocks.shape[1],
        FP4=narrow, CANDIDATES=candidates, KEY_BYTES=keys.shape[1], QUERY_BYTES=query_bytes,
        ROWS=together, KEYS=KEYS, HEADS=heads, NUMBER=operand_type(), num_warps=8, num_stages=1,
    )  # fmt: skip
