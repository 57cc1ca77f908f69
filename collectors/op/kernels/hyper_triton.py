"""A site of the residual streams in one sweep, as a triton kernel, and its coefficients."""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kinds.hyper import COEFFICIENTS, STREAMS, Parts

_BLOCK = 128
_DOT_ROWS = 16
_NARROW = 32
"""Columns of the product: the coefficients, and zeros up to a power of two."""
NORM_EPSILON = 1e-20
EPSILON = 1e-6
ROUNDS = 20


@triton.jit
def site_kernel(
    streams, output, expand, mix, collapse, matrix, weight, out, raw, squares, row_out, rows,
    hidden, epsilon,
    EXPANDS: tl.constexpr, MEASURES: tl.constexpr, COLLAPSES: tl.constexpr, NORMS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STREAMS: tl.constexpr, COEFFICIENTS: tl.constexpr,
    NARROW: tl.constexpr,
):  # fmt: skip
    """What the constants ask for, of a tile of rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    narrow = tl.arange(0, NARROW)
    total = tl.zeros((ROWS, NARROW), tl.float32)
    square = tl.zeros((ROWS,), tl.float32)
    size = tl.zeros((ROWS,), tl.float32)
    for first in range(0, hidden, BLOCK):
        at = first + tl.arange(0, BLOCK)
        valid = there[:, None] & (at < hidden)[None, :]
        gathered = tl.zeros((ROWS, BLOCK), tl.float32)
        if EXPANDS:
            given = tl.load(output + row[:, None] * hidden + at[None, :], mask=valid, other=0.0)
            given = given.to(tl.float32)
        for stream in tl.static_range(STREAMS):
            place = (row[:, None] * STREAMS + stream) * hidden + at[None, :]
            if EXPANDS:
                value = tl.load(expand + row * STREAMS + stream, mask=there, other=0.0)[:, None]
                value = value * given
                for other in tl.static_range(STREAMS):
                    before = (row[:, None] * STREAMS + other) * hidden + at[None, :]
                    share = tl.load(mix + (row * STREAMS + other) * STREAMS + stream,
                                    mask=there, other=0.0)  # fmt: skip
                    value += share[:, None] * tl.load(streams + before, mask=valid, other=0.0).to(
                        tl.float32
                    )
                value = value.to(tl.bfloat16)
                tl.store(out + place, value, mask=valid)
                value = value.to(tl.float32)
            else:
                value = tl.load(streams + place, mask=valid, other=0.0).to(tl.float32)
            if MEASURES:
                column = stream * hidden + at
                tile = tl.load(
                    matrix + narrow[None, :] * (STREAMS * hidden) + column[:, None],
                    mask=(narrow < COEFFICIENTS)[None, :] & (at < hidden)[:, None], other=0.0,
                )  # fmt: skip
                total = tl.dot(value, tile, total)
                square += tl.sum(value * value, axis=1)
            if COLLAPSES:
                share = tl.load(collapse + row * STREAMS + stream, mask=there, other=0.0)
                gathered += share[:, None] * value
        if COLLAPSES:
            tl.store(row_out + row[:, None] * hidden + at[None, :], gathered.to(tl.bfloat16),
                     mask=valid)  # fmt: skip
            if NORMS:
                size += tl.sum(gathered * gathered, axis=1)
    if MEASURES:
        tl.store(raw + row[:, None] * COEFFICIENTS + narrow[None, :], total,
                 mask=there[:, None] & (narrow < COEFFICIENTS)[None, :])  # fmt: skip
        tl.store(squares + row, square, mask=there)
    if NORMS:
        factor = 1.0 / tl.sqrt(size / hidden + epsilon)
        tl.debug_barrier()
        for first in range(0, hidden, BLOCK):
            at = first + tl.arange(0, BLOCK)
            valid = there[:, None] & (at < hidden)[None, :]
            place = row_out + row[:, None] * hidden + at[None, :]
            value = tl.load(place, mask=valid, other=0.0).to(tl.float32) * factor[:, None]
            value *= tl.load(weight + at, mask=at < hidden, other=0.0).to(tl.float32)[None, :]
            tl.store(place, value.to(tl.bfloat16), mask=valid)


@triton.jit
def coefficients_kernel(
    raw, squares, scale, base, out, width, norm_epsilon, epsilon, rounds,
    STREAMS: tl.constexpr,
):  # fmt: skip
    """Coefficients of a row from its projections."""
    row = tl.program_id(0).to(tl.int64)
    count: tl.constexpr = STREAMS * (STREAMS + 2)
    root = 1.0 / tl.sqrt(tl.load(squares + row) / width + norm_epsilon)
    one = tl.arange(0, STREAMS)
    pair = one[:, None] * STREAMS + one[None, :]
    raw += row * count
    out += row * count
    pre = tl.load(raw + one) * root * tl.load(scale) + tl.load(base + one)
    tl.store(out + one, 1.0 / (1.0 + tl.exp(-pre)) + epsilon)
    post = tl.load(raw + STREAMS + one) * root * tl.load(scale + 1)
    post += tl.load(base + STREAMS + one)
    tl.store(out + STREAMS + one, 2.0 / (1.0 + tl.exp(-post)))
    mix = tl.load(raw + 2 * STREAMS + pair) * root * tl.load(scale + 2)
    mix += tl.load(base + 2 * STREAMS + pair)
    mix = tl.exp(mix - tl.max(mix, axis=1)[:, None])
    mix = mix / tl.sum(mix, axis=1)[:, None] + epsilon
    mix = mix / (tl.sum(mix, axis=0)[None, :] + epsilon)
    for _ in range(1, rounds):
        mix = mix / (tl.sum(mix, axis=1)[:, None] + epsilon)
        mix = mix / (tl.sum(mix, axis=0)[None, :] + epsilon)
    tl.store(out + 2 * STREAMS + pair, mix)


def site(
    streams: torch.Tensor,
    output: torch.Tensor,
    expand: torch.Tensor,
    mix: torch.Tensor,
    collapse: torch.Tensor,
    matrix: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    weight: torch.Tensor,
    parts: Parts,
) -> tuple[torch.Tensor, ...]:
    """A site; arguments and answer are those of `collectors.op.kernels.hyper.site`."""
    rows, _, hidden = streams.shape
    device = streams.device
    out = torch.empty_like(streams) if parts.expands else streams
    row_out = torch.empty(rows, hidden, dtype=streams.dtype, device=device)
    raw = torch.empty(rows, COEFFICIENTS, dtype=torch.float32, device=device)
    squares = torch.empty(rows, dtype=torch.float32, device=device)
    tall = _DOT_ROWS if parts.measures else 1 if rows <= 256 else 4
    site_kernel[(triton.cdiv(rows, tall),)](
        streams, output, expand, mix, collapse, matrix, weight, out, raw, squares, row_out, rows,
        hidden, NORM_EPSILON, EXPANDS=parts.expands, MEASURES=parts.measures,
        COLLAPSES=parts.collapses, NORMS=parts.norms, ROWS=tall,
        BLOCK=_BLOCK if parts.measures else 1024, STREAMS=STREAMS, COEFFICIENTS=COEFFICIENTS,
        NARROW=_NARROW, num_warps=4,
    )  # fmt: skip
    found: list[torch.Tensor] = [out] if parts.expands else []
    if parts.measures:
        coefficients = torch.empty_like(raw)
        coefficients_kernel[(rows,)](
            raw, squares, scale, base, coefficients, STREAMS * hidden, NORM_EPSILON, EPSILON,
            ROUNDS, STREAMS=STREAMS, num_warps=1,
        )  # fmt: skip
        found.append(coefficients)
    if parts.collapses:
        found.append(row_out)
    return tuple(found)
