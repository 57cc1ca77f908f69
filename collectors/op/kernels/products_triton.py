"""8-bit products and the conversion before them, as triton kernels."""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.triton_formats import e4m3_codes, ue8m0_codes, ue8m0_inverses

GROUP = 32
_QUANTISED_GROUPS = 32
"""Groups that one program converts: 1,024 values."""
_TILE_ROWS, _TILE_OUTPUTS, _TILE_INPUTS = 64, 128, 128


@triton.jit
def quantise_kernel(source, codes, scales, total, GROUPS: tl.constexpr, GROUP: tl.constexpr):
    """Codes and scales of ``GROUPS`` groups."""
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    place = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (group < total)[:, None]
    values = tl.load(source + place, mask=there, other=0.0).to(tl.float32)
    scale = ue8m0_codes(tl.max(tl.abs(values), axis=1), 8, 0x600000)
    tl.store(scales + group, scale.to(tl.uint8), mask=group < total)
    code = e4m3_codes(values * ue8m0_inverses(scale)[:, None])
    tl.store(codes + place, code.to(tl.uint8), mask=there)


@triton.jit
def product_kernel(
    values, value_scales, weights, weight_scales, out, rows, outputs, inputs, width,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """A tile of one group's result; ``width`` is the activations' row, all groups together."""
    group = tl.program_id(2)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    in_group = output < outputs
    weight_row = (group * outputs + output).to(tl.int64)
    value_row = tl.minimum(row, rows - 1).to(tl.int64)
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    scale_width = tl.cdiv(inputs, BLOCK)
    for first in range(0, inputs, INPUTS):
        place = first + tl.arange(0, INPUTS)
        scale_place = first // 32 + tl.arange(0, INPUTS // 32)
        here, scaled = place < inputs, scale_place < inputs // 32
        left = tl.load(
            values + value_row[:, None] * width + group * inputs + place[None, :],
            mask=here[None, :], other=0,
        )  # fmt: skip
        left_scale = tl.load(
            value_scales + (value_row[:, None] * width + group * inputs) // 32
            + scale_place[None, :], mask=scaled[None, :], other=127,
        )  # fmt: skip
        right = tl.load(
            weights + weight_row[None, :] * inputs + place[:, None],
            mask=here[:, None] & in_group[None, :], other=0,
        )  # fmt: skip
        right_scale = tl.load(
            weight_scales + (weight_row[:, None] // BLOCK) * scale_width
            + (scale_place[None, :] * 32) // BLOCK,
            mask=in_group[:, None] & scaled[None, :], other=127,
        )  # fmt: skip
        total = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e4m3", total)
    target = out + row.to(tl.int64)[:, None] * (outputs * tl.num_programs(2))
    tl.store(
        target + (group * outputs + output)[None, :], total.to(tl.bfloat16),
        mask=(row < rows)[:, None] & in_group[None, :],
    )  # fmt: skip


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 codes and UE8M0 scales of groups of 32."""
    rows, width = values.shape
    codes = torch.empty(rows, width, dtype=torch.uint8, device=values.device)
    scales = torch.empty(rows, width // GROUP, dtype=torch.uint8, device=values.device)
    total = scales.numel()
    grid = (triton.cdiv(total, _QUANTISED_GROUPS),)
    quantise_kernel[grid](values, codes, scales, total, GROUPS=_QUANTISED_GROUPS, GROUP=GROUP)
    return codes, scales


def product(
    values: torch.Tensor,
    value_scales: torch.Tensor,
    weights: torch.Tensor,
    weight_scales: torch.Tensor,
    block: int,
    groups: int,
) -> torch.Tensor:
    """Products side by side: [rows, groups x inputs] and [outputs, inputs] to [rows, outputs]."""
    rows, width = values.shape
    outputs, inputs = weights.shape[0] // groups, weights.shape[1]
    out = torch.empty(rows, outputs * groups, dtype=torch.bfloat16, device=values.device)
    tall = 16 if rows <= 16 else _TILE_ROWS
    grid = (triton.cdiv(outputs, _TILE_OUTPUTS), triton.cdiv(rows, tall), groups)
    product_kernel[grid](
        values, value_scales, weights, weight_scales, out, rows, outputs, inputs, width,
        BLOCK=block, ROWS=tall, OUTPUTS=_TILE_OUTPUTS, INPUTS=_TILE_INPUTS, num_warps=8,
    )  # fmt: skip
    return out
