"""Engram: inputs, the torch way, and the answers said plainly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import torch

from collectors.case import Case
from collectors.errors import UnavailableError
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.rows import MX_GROUP, e4m3_values, pack_mxfp8, ue8m0_values
from collectors.op.kinds.engram import (
    CLASSES,
    DEEPEST,
    HEADS,
    ORDERS,
    ROW_BYTES,
    ROWS_PER_TOKEN,
    VALUES,
)
from collectors.op.kinds.hyper import STREAMS
from collectors.op.prepared import Agreement, Prepared

TEXT_VARIABLE = "AISIM_V41_TEXT_CLASSES"
"""Environment variable: a JSON file with a list of class numbers of a text's tokens."""
MULTIPLIERS = (93_000_000_000_001, 61_000_000_000_003, 47_000_000_000_005, 29_000_000_000_007)
"""Odd, and below 2^63 over the classes, as those of the model are; newest token first."""
PRIMES = tuple(
    16_000_000 + offset
    for offset in (57, 69, 99, 103, 109, 113, 127, 133, 151, 163, 171, 189,
                   207, 217, 231, 243, 253, 267, 277, 291, 301, 307, 319, 333)
)  # fmt: skip
"""Sizes of the heads' parts, in the place of the model's primes from 16,000,000 up: the time does
not know whether a number is prime."""
EPSILON = 1e-6


def build_hash_torch(case: Case, _: torch.device) -> Prepared:
    """The hash the torch way: an order after the other."""

    def run(classes, starts, primes):
        rows = case.whole("rows")
        mixed = classes[DEEPEST:] * MULTIPLIERS[0]
        found = []
        for order in range(1, ORDERS + 1):
            before = classes[DEEPEST - order : DEEPEST - order + rows]
            mixed = mixed ^ (before * MULTIPLIERS[order])
            part = slice((order - 1) * HEADS, order * HEADS)
            found.append(mixed[:, None] % primes[part] + starts[part])
        return torch.cat(found, 1)

    return _hash(case, run, "torch")


def build_hash_triton(case: Case, device: torch.device) -> Prepared:
    """The hash in one kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import engram_triton

    return _hash(case, lambda *inputs: engram_triton.hashed(*inputs, MULTIPLIERS), "triton")


def build_lookup_torch(case: Case, device: torch.device) -> Prepared:
    """The look-up the torch way: gather, widen, scatter into place."""
    rows = case.whole("rows")

    def run(table, numbers, places):
        out = torch.zeros(rows * ROWS_PER_TOKEN, VALUES, dtype=torch.bfloat16, device=table.device)
        out[places] = _widened(table[numbers]).to(torch.bfloat16)
        return out.view(rows, -1)

    return _lookup(case, device, run, "torch")


def build_lookup_triton(case: Case, device: torch.device) -> Prepared:
    """The look-up in one kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import engram_triton

    rows = case.whole("rows")
    return _lookup(case, device, lambda *inputs: engram_triton.looked_up(*inputs, rows), "triton")


def build_gate_torch(case: Case, _: torch.device) -> Prepared:
    """The gate the torch way."""
    return _gate(case, lambda *inputs: gated(*inputs, torch.float32), "torch")


def build_gate_triton(case: Case, device: torch.device) -> Prepared:
    """The gate in one kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import engram_triton

    return _gate(case, engram_triton.gated, "triton")


def gated(
    streams: torch.Tensor,
    keys: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    number: torch.dtype,
) -> torch.Tensor:
    """Streams with what is remembered; ``keys`` are one a stream, and a value behind them."""
    hidden = streams.shape[2]
    given, keys = streams.to(number), keys.to(number).unflatten(1, (STREAMS + 1, hidden))
    query = _normed(given) * query_weight.to(number)
    key = _normed(keys[:, :STREAMS]) * key_weight.to(number)
    dot = (query * key).sum(2) / hidden**0.5
    gate = torch.sigmoid(dot.sign() * dot.abs().sqrt())
    return (given + gate[..., None] * keys[:, STREAMS:]).to(streams.dtype)


def _normed(values: torch.Tensor) -> torch.Tensor:
    return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + EPSILON)


def _widened(rows: torch.Tensor) -> torch.Tensor:
    """Values of a table's rows, FP32."""
    codes = e4m3_values(rows[:, :VALUES]).unflatten(1, (-1, MX_GROUP))
    return (codes * ue8m0_values(rows[:, VALUES:])[..., None]).flatten(1)


def _hash(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows = case.whole("rows")

    def make(generator: torch.Generator):
        device = generator.device
        classes = torch.randint(CLASSES, (rows + DEEPEST,), generator=generator, device=device)
        primes = torch.tensor(PRIMES, device=device)
        return classes, torch.cumsum(primes, 0) - primes, primes

    def reference(classes, starts, primes):
        known = classes.tolist()
        answer = []
        for row in range(rows):
            mixed, found = 0, []
            for back in range(ORDERS + 1):
                mixed ^= known[row + DEEPEST - back] * MULTIPLIERS[back]
                if back:
                    part = range((back - 1) * HEADS, back * HEADS)
                    found += [mixed % PRIMES[head] + sum(PRIMES[:head]) for head in part]
            answer.append(found)
        return torch.tensor(answer, device=classes.device)

    return Prepared(make=make, run=run, reference=reference, agreement=Agreement(exact=True),
                    kernel_source=kernel_source)  # fmt: skip


def _lookup(case: Case, device: torch.device, run: Callable, kernel_source: str) -> Prepared:
    rows, ranks, size = (case.whole(n) for n in ("rows", "ranks_of_table", "table_rows"))
    locality = case.options["row_locality"]
    drawn = torch.Generator(device=device).manual_seed(size)
    table = torch.empty(size, ROW_BYTES, dtype=torch.uint8, device=device)
    sample = pack_mxfp8(torch.randn(min(size, 4096), VALUES, generator=drawn, device=device))
    for first in range(0, size, len(sample)):
        table[first : first + len(sample)] = sample[: size - first]
    text = _text_rows(rows, size) if locality == "text" else None

    def make(generator: torch.Generator):
        wanted = torch.randperm(rows * ROWS_PER_TOKEN, generator=generator, device=device)
        places = wanted[: max(1, rows * ROWS_PER_TOKEN // ranks)].sort().values
        if text is not None:
            return table, text.to(device)[places], places
        below = max(1, size // 100) if locality == "hot" else size
        numbers = torch.randint(below, (len(places),), generator=generator, device=device)
        return table, numbers, places

    def reference(table, numbers, places):
        out = torch.zeros(rows * ROWS_PER_TOKEN, VALUES, device=device)
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            out[place] = _widened(table[number : number + 1])[0]
        return out.view(rows, -1)

    return Prepared(make=make, run=run, reference=reference, agreement=Agreement(relative=0.004),
                    kernel_source=kernel_source)  # fmt: skip


def _text_rows(rows: int, size: int) -> torch.Tensor:
    """Rows of the table that the user's text asks for, as if all were in it.

    Raises:
        UnavailableError: no text is given, or one too short.
    """
    path = os.environ.get(TEXT_VARIABLE)
    if not path:
        raise UnavailableError(f"row_locality=text needs {TEXT_VARIABLE}: a JSON list of classes")
    try:
        with open(path, encoding="utf-8") as stream:
            classes = [int(one) for one in json.load(stream)]
    except (OSError, ValueError, TypeError) as error:
        raise UnavailableError(f"{TEXT_VARIABLE}: not a JSON list of classes ({error})") from None
    if len(classes) < rows + DEEPEST:
        raise UnavailableError(f"{TEXT_VARIABLE}: {len(classes)} classes, {rows + DEEPEST} needed")
    found = []
    for row in range(rows):
        mixed = 0
        for back in range(ORDERS + 1):
            mixed ^= classes[row + DEEPEST - back] * MULTIPLIERS[back]
            if back:
                part = range((back - 1) * HEADS, back * HEADS)
                found += [(mixed % PRIMES[head] + sum(PRIMES[:head])) % size for head in part]
    return torch.tensor(found)


def _gate(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, hidden = case.whole("rows"), case.whole("hidden")

    def make(generator: torch.Generator):
        device = generator.device

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, device=device).bfloat16()

        return (normal(rows, STREAMS, hidden), normal(rows, (STREAMS + 1) * hidden),
                normal(STREAMS, hidden), normal(STREAMS, hidden))  # fmt: skip

    def reference(*inputs):
        return gated(*inputs, torch.float64)

    return Prepared(make=make, run=run, reference=reference, agreement=Agreement(relative=0.01),
                    kernel_source=kernel_source)  # fmt: skip
