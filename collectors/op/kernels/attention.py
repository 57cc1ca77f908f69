"""Sparse attention: inputs, the torch way, and the answer row by row in FP64."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from collectors.case import Case
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.rows import CODECS, random_rows
from collectors.op.kinds.attention import entries_of, window_rows
from collectors.op.kinds.layouts import LATENT, MAIN, WINDOW, WINDOW_BESIDE
from collectors.op.kinds.spread import requests_of, whole_parts
from collectors.op.prepared import Prepared

SCALE = LATENT**-0.5

_GATHERED_VALUES = 1 << 25
"""Values that the torch way widens at once: 128 MiB of FP32."""


class AttentionInputs(NamedTuple):
    """One set of inputs.

    Attributes:
        queries: [rows, heads, 512], BF16.
        window, main: cached rows, [rows of the cache, bytes].
        window_index, main_index: places in them that a row attends to, [rows, most], INT32.
        window_count, main_count: how many of those count, [rows], INT32.
        sink: logit of nothing, [heads], FP32.
    """

    queries: torch.Tensor
    window: torch.Tensor
    main: torch.Tensor
    window_index: torch.Tensor
    main_index: torch.Tensor
    window_count: torch.Tensor
    main_count: torch.Tensor
    sink: torch.Tensor


def build_torch(case: Case, device: torch.device) -> Prepared:
    """The torch way: rows are gathered and widened in memory, in parts of the call."""
    layout = case.options["layout"]
    window_codec, main_codec = CODECS[WINDOW_BESIDE[layout]], CODECS[MAIN[layout]]

    def part(queries, window, main, window_index, main_index, window_count, main_count, sink):
        keys = torch.cat(
            (
                window_codec.unpack(window[window_index.long()]),
                main_codec.unpack(main[main_index.long()]),
            ),
            1,
        ).to(queries.dtype)
        there = torch.cat((_below(window_index, window_count), _below(main_index, main_count)), 1)
        logits = (queries @ keys.transpose(1, 2)).float() * SCALE
        logits = logits.masked_fill(~there[:, None, :], -torch.inf)
        sunk = sink.expand(len(queries), -1)[..., None]
        shares = torch.softmax(torch.cat((logits, sunk), -1), -1)[..., :-1]
        return shares.to(queries.dtype) @ keys

    def run(queries, window, main, *by_row_and_sink):
        *by_row, sink = by_row_and_sink
        width = by_row[0].shape[1] + by_row[1].shape[1]
        rows = max(1, _GATHERED_VALUES // (width * LATENT))
        parts = [
            part(queries[at : at + rows], window, main, *(t[at : at + rows] for t in by_row), sink)
            for at in range(0, len(queries), rows)
        ]
        return torch.cat(parts)

    return _prepared(case, run, "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """A kernel that gathers and widens on chip, and one that adds splits.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import attention_triton

    layout = case.options["layout"]

    def run(*inputs):
        return attention_triton.attend(
            *inputs, window_format=WINDOW_BESIDE[layout], main_format=MAIN[layout], scale=SCALE
        )

    return _prepared(case, run, "triton")


def _prepared(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, heads, layout = case.whole("rows"), case.whole("heads"), case.options["layout"]
    requests, entries = requests_of(case), entries_of(case)
    keys = whole_parts(float(case.size("keys_per_row")), rows)
    window_keys = [min(count, WINDOW) for count in keys]
    main_keys = [count - WINDOW if count > WINDOW else 0 for count in keys]
    formats = WINDOW_BESIDE[layout], MAIN[layout]

    def make(generator: torch.Generator) -> AttentionInputs:
        device = generator.device
        whole = torch.arange(rows, device=device)
        request, inside = whole // requests.rows, whole % requests.rows
        seen = max(window_keys)
        first = request * (seen + requests.rows - 1) + inside
        window_index = first[:, None] + torch.arange(seen, device=device)
        main_index = request[:, None] * entries + chosen_entries(
            rows, max(*main_keys, 1), entries, case.options["row_locality"], generator
        )
        queries = torch.randn(rows, heads, LATENT, generator=generator, device=device)
        return AttentionInputs(
            queries=queries.bfloat16(),
            window=random_rows(CODECS[formats[0]], window_rows(case), LATENT, generator),
            main=random_rows(CODECS[formats[1]], requests.count * entries, LATENT, generator),
            window_index=window_index.int(),
            main_index=main_index.int(),
            window_count=torch.tensor(window_keys, dtype=torch.int32, device=device),
            main_count=torch.tensor(main_keys, dtype=torch.int32, device=device),
            sink=torch.randn(heads, generator=generator, device=device),
        )

    def reference(queries, window, main, window_index, main_index, window_count, main_count, sink):
        answer = torch.empty_like(queries, dtype=torch.float32)
        counts = zip(window_count.tolist(), main_count.tolist(), strict=True)
        for row, (near, far) in enumerate(counts):
            values = torch.cat(
                (
                    CODECS[formats[0]].unpack(window[window_index[row, :near].long()]),
                    CODECS[formats[1]].unpack(main[main_index[row, :far].long()]),
                )
            ).double()
            weights = torch.exp(queries[row].double() @ values.T * SCALE)
            nothing = torch.exp(sink.double())
            answer[row] = weights @ values / (weights.sum(1) + nothing)[:, None]
        return answer

    return Prepared(make=make, run=run, reference=reference, kernel_source=kernel_source)


def chosen_entries(
    rows: int, count: int, entries: int, locality: str, generator: torch.Generator
) -> torch.Tensor:
    """Entries that rows select, [rows, count], in order: one of each of ``count`` equal parts of
    a request's entries (scattered), or the last ones (contiguous)."""
    device = generator.device
    step = torch.arange(count, device=device)
    if locality == "contiguous":
        return (entries - count + step).expand(rows, count)
    inside = torch.rand(rows, count, generator=generator, device=device, dtype=torch.float64)
    ends = (step + 1) * entries // count
    starts = step * entries // count
    return starts + (inside * (ends - starts)).long()


def _below(index: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.arange(index.shape[1], device=index.device) < count[:, None]
