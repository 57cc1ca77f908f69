"""Grouped MXFP4 products over rows sorted by expert, and the router's choice, in triton.

A *visit* is a row at one of its experts. Visits are sorted by expert and cut into blocks of one
expert each; there are never more blocks than ``visits / ROWS + experts``, so that a graph can
capture them.
"""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.triton_formats import e4m3_codes, ue8m0_codes, ue8m0_inverses

SWIGLU_LIMIT = 10.0
ROUTED_SCALE = 1.5
_TILE_INPUTS = 128


@triton.jit
def gate_up_kernel(
    codes, scales, sorted_visits, block_expert, block_first, block_end, weights, weight_scales,
    inner, inner_scales, hidden, width, limit, VISITS: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """SwiGLU of a tile of visits, quantised in groups of 32."""
    block = tl.program_id(1)
    expert = tl.load(block_expert + block).to(tl.int64)
    place = tl.load(block_first + block) + tl.arange(0, ROWS)
    there = place < tl.load(block_end + block)
    visit = tl.load(sorted_visits + place, mask=there, other=0).to(tl.int64)
    row = visit // VISITS
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    valid = output < width
    gate = tl.zeros((ROWS, OUTPUTS), tl.float32)
    up = tl.zeros((ROWS, OUTPUTS), tl.float32)
    gate_row = expert * 2 * width + output
    for first in range(0, hidden, INPUTS):
        at = first + tl.arange(0, INPUTS)
        packed = first // 2 + tl.arange(0, INPUTS // 2)
        group = first // 32 + tl.arange(0, INPUTS // 32)
        inside, grouped = at < hidden, group < hidden // 32
        left = tl.load(codes + row[:, None] * hidden + at[None, :],
                       mask=there[:, None] & inside[None, :], other=0)  # fmt: skip
        left_scale = tl.load(scales + row[:, None] * (hidden // 32) + group[None, :],
                             mask=there[:, None] & grouped[None, :], other=127)  # fmt: skip
        halves = valid[None, :] & (packed < hidden // 2)[:, None]
        by_group = valid[:, None] & grouped[None, :]
        right = tl.load(weights + gate_row[None, :] * (hidden // 2) + packed[:, None],
                        mask=halves, other=0)  # fmt: skip
        right_scale = tl.load(weight_scales + gate_row[:, None] * (hidden // 32) + group[None, :],
                              mask=by_group, other=127)  # fmt: skip
        gate = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e2m1", gate)
        right = tl.load(weights + (gate_row + width)[None, :] * (hidden // 2) + packed[:, None],
                        mask=halves, other=0)  # fmt: skip
        right_scale = tl.load(
            weight_scales + (gate_row + width)[:, None] * (hidden // 32) + group[None, :],
            mask=by_group, other=127,
        )  # fmt: skip
        up = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e2m1", up)
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    value = gate / (1.0 + tl.exp(-gate)) * up
    apart = tl.reshape(value, (ROWS, OUTPUTS // 32, 32))
    scale = ue8m0_codes(tl.max(tl.abs(apart), axis=2), 8, 0x600000)
    code = e4m3_codes(apart * ue8m0_inverses(scale)[:, :, None])
    tl.store(inner + place.to(tl.int64)[:, None] * width + output[None, :],
             tl.reshape(code, (ROWS, OUTPUTS)).to(tl.uint8),
             mask=there[:, None] & valid[None, :])  # fmt: skip
    part = tl.program_id(0) * (OUTPUTS // 32) + tl.arange(0, OUTPUTS // 32)
    tl.store(inner_scales + place.to(tl.int64)[:, None] * (width // 32) + part[None, :],
             scale.to(tl.uint8), mask=there[:, None] & (part < width // 32)[None, :])  # fmt: skip


@triton.jit
def down_kernel(
    inner, inner_scales, sorted_visits, block_expert, block_first, block_end, weights,
    weight_scales, shares, out, hidden, width,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """The second product of a tile of visits, times each visit's share, to the visit's place."""
    block = tl.program_id(1)
    expert = tl.load(block_expert + block).to(tl.int64)
    place = tl.load(block_first + block) + tl.arange(0, ROWS)
    there = place < tl.load(block_end + block)
    visit = tl.load(sorted_visits + place, mask=there, other=0).to(tl.int64)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    valid = output < hidden
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    line = place.to(tl.int64)
    weight_row = expert * hidden + output
    for first in range(0, width, INPUTS):
        at = first + tl.arange(0, INPUTS)
        packed = first // 2 + tl.arange(0, INPUTS // 2)
        group = first // 32 + tl.arange(0, INPUTS // 32)
        inside, grouped = at < width, group < width // 32
        left = tl.load(inner + line[:, None] * width + at[None, :],
                       mask=there[:, None] & inside[None, :], other=0)  # fmt: skip
        left_scale = tl.load(inner_scales + line[:, None] * (width // 32) + group[None, :],
                             mask=there[:, None] & grouped[None, :], other=127)  # fmt: skip
        right = tl.load(weights + weight_row[None, :] * (width // 2) + packed[:, None],
                        mask=valid[None, :] & (packed < width // 2)[:, None], other=0)  # fmt: skip
        right_scale = tl.load(weight_scales + weight_row[:, None] * (width // 32) + group[None, :],
                              mask=valid[:, None] & grouped[None, :], other=127)  # fmt: skip
        total = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e2m1", total)
    total *= tl.load(shares + visit, mask=there, other=0.0)[:, None]
    tl.store(out + visit[:, None] * hidden + output[None, :], total.to(tl.bfloat16),
             mask=there[:, None] & valid[None, :])  # fmt: skip


@triton.jit
def select_kernel(
    logits, bias, experts, shares, routed, chosen, scale, ROUTED: tl.constexpr, CHOSEN: tl.constexpr
):
    """The best of a row's biased scores, one after the other."""
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, ROUTED)
    there = expert < routed
    logit = tl.load(logits + row * routed + expert, mask=there, other=0.0)
    soft = tl.where(logit > 20.0, logit, tl.log(1.0 + tl.exp(tl.minimum(logit, 20.0))))
    score = tl.sqrt(soft)
    rank = tl.where(there, score + tl.load(bias + expert, mask=there, other=0.0), -1e30)
    place = tl.arange(0, CHOSEN)
    found = tl.zeros((CHOSEN,), tl.int32)
    worth = tl.zeros((CHOSEN,), tl.float32)
    for turn in range(chosen):
        best = tl.argmax(rank, axis=0)
        found = tl.where(place == turn, best, found)
        worth = tl.where(place == turn, tl.sum(tl.where(expert == best, score, 0.0)), worth)
        rank = tl.where(expert == best, -1e30, rank)
    tl.store(experts + row * chosen + place, found.to(tl.int64), mask=place < chosen)
    tl.store(shares + row * chosen + place, worth / tl.sum(worth) * scale, mask=place < chosen)


def routed_experts(
    codes: torch.Tensor,
    scales: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    up: torch.Tensor,
    up_scales: torch.Tensor,
    down: torch.Tensor,
    down_scales: torch.Tensor,
) -> torch.Tensor:
    """Rows [rows, hidden] through the experts that each visits."""
    (rows, hidden), visits = codes.shape, chosen.shape[1]
    experts, width = len(up), down.shape[2] * 2
    tall = _rows_of_block(rows * visits / experts)
    order, expert, first, end = blocks(chosen, experts, tall)
    inner = torch.empty(rows * visits, width, dtype=torch.uint8, device=codes.device)
    inner_scales = torch.empty(rows * visits, width // 32, dtype=torch.uint8, device=codes.device)
    out = torch.empty(rows, visits, hidden, dtype=torch.bfloat16, device=codes.device)
    gate_up_kernel[(triton.cdiv(width, 64), len(expert))](
        codes, scales, order, expert, first, end, up, up_scales, inner, inner_scales, hidden,
        width, SWIGLU_LIMIT, VISITS=visits, ROWS=tall, OUTPUTS=64, INPUTS=_TILE_INPUTS,
        num_warps=4,
    )  # fmt: skip
    down_kernel[(triton.cdiv(hidden, 128), len(expert))](
        inner, inner_scales, order, expert, first, end, down, down_scales, shares, out, hidden,
        width, ROWS=tall, OUTPUTS=128, INPUTS=_TILE_INPUTS, num_warps=4,
    )  # fmt: skip
    return out.float().sum(1).to(torch.bfloat16)


def blocks(
    chosen: torch.Tensor, experts: int, tall: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Visits sorted by expert; of each block its expert, first place and end; empty ones are 0."""
    flat = chosen.flatten()
    order = torch.argsort(flat, stable=True).int()
    counts = torch.zeros(experts, dtype=torch.int32, device=flat.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    ends = torch.cumsum(counts, 0)
    needed = torch.cumsum((counts + tall - 1) // tall, 0)
    most = triton.cdiv(len(flat), tall) + min(experts, len(flat))
    number = torch.arange(most, device=flat.device)
    expert = torch.searchsorted(needed, number, right=True).clamp(max=experts - 1)
    before = torch.where(expert > 0, needed[expert - 1], 0)
    first = (ends - counts)[expert] + (number - before) * tall
    end = torch.where(number < needed[-1], torch.minimum(ends[expert], first + tall), 0)
    return order, expert.int(), first.int(), end.int()


def select(
    logits: torch.Tensor, bias: torch.Tensor, chosen: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts [rows, chosen] and their weights."""
    rows, routed = logits.shape
    experts = torch.empty(rows, chosen, dtype=torch.int64, device=logits.device)
    shares = torch.empty(rows, chosen, dtype=torch.float32, device=logits.device)
    select_kernel[(rows,)](
        logits, bias, experts, shares, routed, chosen, ROUTED_SCALE,
        ROUTED=triton.next_power_of_2(routed), CHOSEN=triton.next_power_of_2(chosen),
    )  # fmt: skip
    return experts, shares


def _rows_of_block(visits_each: float) -> int:
    """Rows of a block: a power of two near the visits of an expert, 16 to 128."""
    return min(128, max(16, triton.next_power_of_2(int(visits_each))))
