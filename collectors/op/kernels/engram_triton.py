"""Engram's hash, look-up and gate as triton kernels."""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from collectors.op.kernels.triton_formats import e4m3_values, ue8m0_values
from collectors.op.kinds.engram import DEEPEST, HEADS, ORDERS, ROW_BYTES, ROWS_PER_TOKEN, VALUES
from collectors.op.kinds.hyper import STREAMS

EPSILON = 1e-6
_BLOCK = 512


@triton.jit
def hash_kernel(
    classes, starts, primes, multipliers, out, rows,
    HEADS: tl.constexpr, ORDERS: tl.constexpr, DEEPEST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Row numbers of a tile of tokens."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    head = tl.arange(0, HEADS)
    mixed = tl.load(classes + row + DEEPEST, mask=there, other=0) * tl.load(multipliers)
    for order in tl.static_range(1, ORDERS + 1):
        before = tl.load(classes + row + DEEPEST - order, mask=there, other=0)
        mixed = mixed ^ (before * tl.load(multipliers + order))
        column = (order - 1) * HEADS + head
        number = mixed[:, None] % tl.load(primes + column)[None, :]
        number += tl.load(starts + column)[None, :]
        tl.store(out + row.to(tl.int64)[:, None] * (HEADS * ORDERS) + column[None, :], number,
                 mask=there[:, None])  # fmt: skip


@triton.jit
def lookup_kernel(
    table, numbers, places, out, ROW_BYTES: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr
):
    """One row of the table to its place."""
    entry = tl.program_id(0)
    row = tl.load(numbers + entry).to(tl.int64) * ROW_BYTES
    place = tl.load(places + entry).to(tl.int64) * (GROUPS * GROUP)
    group = tl.arange(0, GROUPS)
    at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    codes = e4m3_values(tl.load(table + row + at)).to(tl.float32)
    scale = ue8m0_values(tl.load(table + row + GROUPS * GROUP + group))
    tl.store(out + place + at, (codes * scale[:, None]).to(tl.bfloat16))


@triton.jit
def gate_kernel(
    streams, keys, query_weight, key_weight, out, hidden, root, epsilon,
    STREAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One stream of one token: its gate in a first sweep, the addition in a second."""
    program = tl.program_id(0).to(tl.int64)
    row, stream = program // STREAMS, program % STREAMS
    mine = streams + program * hidden
    key = keys + (row * (STREAMS + 1) + stream) * hidden
    value = keys + (row * (STREAMS + 1) + STREAMS) * hidden
    own = tl.zeros((BLOCK,), tl.float32)
    other = tl.zeros((BLOCK,), tl.float32)
    both = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, hidden, BLOCK):
        at = first + tl.arange(0, BLOCK)
        there = at < hidden
        left = tl.load(mine + at, mask=there, other=0.0).to(tl.float32)
        right = tl.load(key + at, mask=there, other=0.0).to(tl.float32)
        weight = tl.load(query_weight + stream * hidden + at, mask=there, other=0.0).to(tl.float32)
        weight *= tl.load(key_weight + stream * hidden + at, mask=there, other=0.0).to(tl.float32)
        own += left * left
        other += right * right
        both += left * right * weight
    norms = tl.sqrt((tl.sum(own) / hidden + epsilon) * (tl.sum(other) / hidden + epsilon))
    dot = tl.sum(both) / norms / root
    signed = tl.where(dot < 0, -1.0, 1.0) * tl.sqrt(tl.abs(dot))
    gate = 1.0 / (1.0 + tl.exp(-signed))
    for first in range(0, hidden, BLOCK):
        at = first + tl.arange(0, BLOCK)
        there = at < hidden
        left = tl.load(mine + at, mask=there, other=0.0).to(tl.float32)
        right = tl.load(value + at, mask=there, other=0.0).to(tl.float32)
        tl.store(out + program * hidden + at, (left + gate * right).to(tl.bfloat16), mask=there)


_MULTIPLIERS: dict[torch.device, torch.Tensor] = {}
"""Made once a device: a graph cannot capture a copy from the host."""


def hashed(
    classes: torch.Tensor,
    starts: torch.Tensor,
    primes: torch.Tensor,
    multipliers: tuple[int, ...],
) -> torch.Tensor:
    """Row numbers [rows, rows per token]."""
    device, rows = classes.device, len(classes) - DEEPEST
    if device not in _MULTIPLIERS:
        _MULTIPLIERS[device] = torch.tensor(multipliers, device=device)
    out = torch.empty(rows, ROWS_PER_TOKEN, dtype=torch.int64, device=device)
    hash_kernel[(triton.cdiv(rows, 64),)](
        classes, starts, primes, _MULTIPLIERS[device], out, rows, HEADS=HEADS, ORDERS=ORDERS,
        DEEPEST=DEEPEST, ROWS=64,
    )  # fmt: skip
    return out


def looked_up(
    table: torch.Tensor, numbers: torch.Tensor, places: torch.Tensor, rows: int
) -> torch.Tensor:
    """Values [rows, rows per token x values]; zeros where no row is held."""
    out = torch.zeros(rows, ROWS_PER_TOKEN * VALUES, dtype=torch.bfloat16, device=table.device)
    lookup_kernel[(len(numbers),)](
        table, numbers, places, out, ROW_BYTES=ROW_BYTES, GROUPS=VALUES // 32, GROUP=32,
        num_warps=1,
    )  # fmt: skip
    return out


def gated(
    streams: torch.Tensor,
    keys: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
) -> torch.Tensor:
    """Streams with what is remembered."""
    rows, _, hidden = streams.shape
    out = torch.empty_like(streams)
    gate_kernel[(rows * STREAMS,)](
        streams, keys, query_weight, key_weight, out, hidden, hidden**0.5, EPSILON,
        STREAMS=STREAMS, BLOCK=_BLOCK,
    )  # fmt: skip
    return out
