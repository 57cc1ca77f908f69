"""Kernels that only pass over rows, in triton: a program a row, or a head of a row."""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.triton_formats import (
    e2m1_codes,
    e4m3_codes,
    ue8m0_codes,
    ue8m0_inverses,
)

ROTATED = 64
GROUP = 32
LIMIT = 10.0
EPSILON = 1e-20


@triton.jit
def row_kernel(
    source, other, out, scales, width, limit, epsilon,
    KIND: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A row: norm, activation, sum or copy, quantised where the pass is."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, WIDTH // GROUP)
    at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = at < width
    if KIND == "swiglu":
        gate = tl.load(source + row * 2 * width + at, mask=there, other=0.0).to(tl.float32)
        up = tl.load(source + row * 2 * width + width + at, mask=there, other=0.0).to(tl.float32)
        gate = tl.minimum(gate, limit)
        value = gate / (1.0 + tl.exp(-gate)) * tl.minimum(tl.maximum(up, -limit), limit)
    else:
        value = tl.load(source + row * width + at, mask=there, other=0.0).to(tl.float32)
    if KIND == "norm" or KIND == "norm_quantise":
        square = tl.sum(tl.sum(value * value, axis=1), axis=0)
        value = value * (1.0 / tl.sqrt(square / width + epsilon))
        value *= tl.load(other + at, mask=there, other=0.0).to(tl.float32)
    if KIND == "add":
        value += tl.load(other + row * width + at, mask=there, other=0.0).to(tl.float32)
    if KIND == "norm_quantise" or KIND == "swiglu":
        scale = ue8m0_codes(tl.max(tl.abs(value), axis=1), 8, 0x600000)
        code = e4m3_codes(value * ue8m0_inverses(scale)[:, None])
        tl.store(out + row * width + at, code.to(tl.uint8), mask=there)
        tl.store(scales + row * (width // GROUP) + group, scale.to(tl.uint8),
                 mask=group < width // GROUP)  # fmt: skip
    elif KIND == "spread":
        for stream in tl.static_range(4):
            tl.store(out + (row * 4 + stream) * width + at, value.to(tl.bfloat16), mask=there)
    else:
        tl.store(out + row * width + at, value.to(tl.bfloat16), mask=there)


@triton.jit
def head_kernel(
    source, cosine, sine, out, heads, sign,
    WIDTH: tl.constexpr, PAIRS: tl.constexpr, TURNED: tl.constexpr, FP4: tl.constexpr,
    ROW_BYTES: tl.constexpr,
):  # fmt: skip
    """A head: its last pairs turn by the row's angles; stored in BF16 or as MXFP4."""
    head = tl.program_id(0).to(tl.int64)
    row = head // heads
    group = tl.arange(0, WIDTH // 32)[:, None]
    pair = group * 16 + tl.arange(0, 16)[None, :]
    there = pair < PAIRS
    even = tl.load(source + head * 2 * PAIRS + 2 * pair, mask=there, other=0.0).to(tl.float32)
    odd = tl.load(source + head * 2 * PAIRS + 2 * pair + 1, mask=there, other=0.0).to(tl.float32)
    turn = pair - (PAIRS - TURNED)
    turns = there & (turn >= 0)
    real = tl.load(cosine + row * TURNED + turn, mask=turns, other=1.0)
    imaginary = sign * tl.load(sine + row * TURNED + turn, mask=turns, other=0.0)
    turned = even * real - odd * imaginary
    odd = even * imaginary + odd * real
    if FP4:
        largest = tl.maximum(tl.max(tl.abs(turned), axis=1), tl.max(tl.abs(odd), axis=1))[:, None]
        scale = ue8m0_codes(largest, 2, 0x400000)
        inverse = ue8m0_inverses(scale)
        code = e2m1_codes(turned * inverse) | (e2m1_codes(odd * inverse) << 4)
        tl.store(out + head * ROW_BYTES + pair, code.to(tl.uint8), mask=there)
        tl.store(out + head * ROW_BYTES + PAIRS + group, scale.to(tl.uint8),
                 mask=group < PAIRS // 16)  # fmt: skip
    else:
        tl.store(out + head * 2 * PAIRS + 2 * pair, turned.to(tl.bfloat16), mask=there)
        tl.store(out + head * 2 * PAIRS + 2 * pair + 1, odd.to(tl.bfloat16), mask=there)


def passed(computes: str, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The result of a pass, as it is stored."""
    source, device = inputs[0], inputs[0].device
    if source.dim() == 3:
        return _of_heads(computes, *inputs)
    rows, width = source.shape
    width = width // 2 if computes == "swiglu" else width
    coded = computes in ("norm_quantise", "swiglu")
    shape = (rows, 4, width) if computes == "spread" else (rows, width)
    out = torch.empty(shape, dtype=torch.uint8 if coded else torch.bfloat16, device=device)
    scales = torch.empty(rows, width // GROUP, dtype=torch.uint8, device=device)
    padded = max(triton.next_power_of_2(width), GROUP)
    row_kernel[(rows,)](
        source, inputs[1] if len(inputs) > 1 else source, out, scales, width, LIMIT, EPSILON,
        KIND=computes, WIDTH=padded, GROUP=GROUP, num_warps=8 if padded > 2048 else 4,
    )  # fmt: skip
    return (out, scales) if coded else out


def _of_heads(
    computes: str, source: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
) -> torch.Tensor:
    rows, heads, width = source.shape
    fp4 = computes == "index_rope"
    row_bytes = width // 2 + width // 32
    shape = (rows, heads, row_bytes if fp4 else width)
    out = torch.empty(shape, dtype=torch.uint8 if fp4 else source.dtype, device=source.device)
    head_kernel[(rows * heads,)](
        source, cosine, sine, out, heads, -1.0 if computes == "inverse_rope" else 1.0,
        WIDTH=triton.next_power_of_2(width), PAIRS=width // 2, TURNED=ROTATED // 2, FP4=fp4,
        ROW_BYTES=row_bytes, num_warps=1,
    )  # fmt: skip
    return out
