"""Index scores: inputs, the torch way, and the answer row by row in FP64."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from collectors.case import Case
from collectors.op.kernels.attention import chosen_entries
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.rows import KEY_CODECS, e4m3_bytes, e4m3_values, random_rows
from collectors.op.kinds.indexer import CANDIDATE_BLOCK, keys_of
from collectors.op.kinds.layouts import INDEX_HEADS, KEY
from collectors.op.kinds.spread import ramp_of, requests_of
from collectors.op.prepared import Prepared

SCALE = KEY**-0.5 * INDEX_HEADS**-0.5
"""Part of the weights of heads."""
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

_PRODUCTS = 1 << 25
"""Products that the torch way holds at once: 128 MiB of FP32."""


class ScoreInputs(NamedTuple):
    """One set of inputs.

    Attributes:
        queries: [rows, heads, bytes], as keys are; an 8-bit one has its scale in the weight.
        weights: of heads, [rows, heads], BF16.
        keys: of all requests, as many for each, [keys, bytes].
        counts: positions that a row sees, [rows], INT32.
        blocks: of 8 keys of its request that a row's candidates are, [rows, blocks], INT32.
        scores: zeros, [rows, most positions]; those of positions not seen stay as they are.
    """

    queries: torch.Tensor
    weights: torch.Tensor
    keys: torch.Tensor
    counts: torch.Tensor
    blocks: torch.Tensor
    scores: torch.Tensor


def build_torch(case: Case, device: torch.device) -> Prepared:
    """The torch way: keys are widened in memory; products of all heads, then their sum."""
    requests, keys_each = requests_of(case), keys_of(case)
    dense = case.options["form"] == "dense"
    codec, widen = KEY_CODECS[case.options["key_format"]], _query_values(case)

    def summed(queries, weights, keys):
        products = (queries.flatten(1, 2) @ keys.transpose(1, 2)).float()
        return (products.unflatten(1, (-1, INDEX_HEADS)).relu_() * weights[..., None]).sum(2)

    def run(queries, weights, keys, counts, blocks, scores):
        each = requests.rows if dense else 1
        wide = widen(queries).bfloat16().unflatten(0, (-1, each))
        shares = weights.float().unflatten(0, (-1, each))
        width = scores.shape[1]
        groups = max(1, _PRODUCTS // (width * INDEX_HEADS * each))
        rows = max(1, _PRODUCTS // (width * INDEX_HEADS))
        parts = []
        for at in range(0, len(wide), groups):
            end = min(at + groups, len(wide))
            if dense:
                near = keys.unflatten(0, (-1, keys_each))[at:end]
            else:
                near = keys[_positions(at, end, width, blocks, requests.rows, keys_each)]
            near = codec.unpack(near).bfloat16()
            parts += [
                summed(wide[at:end, row : row + rows], shares[at:end, row : row + rows], near)
                for row in range(0, each, rows)
            ]
        found = torch.cat([part.flatten(0, 1) for part in parts]).to(scores.dtype)
        seen = torch.arange(width, device=counts.device) < counts[:, None]
        return torch.where(seen, found, scores)

    return _prepared(case, run, "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """One kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import index_score_triton

    requests, keys_each = requests_of(case), keys_of(case)

    def run(queries, weights, keys, counts, blocks, scores):
        index_score_triton.score(
            queries, weights, keys, counts, blocks, scores,
            key_format=case.options["key_format"], candidates=case.options["form"] != "dense",
            request_rows=requests.rows, request_keys=keys_each,
        )  # fmt: skip
        return scores

    return _prepared(case, run, "triton")


def _prepared(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, requests, keys_each = case.whole("rows"), requests_of(case), keys_of(case)
    dense, keys_format = case.options["form"] == "dense", case.options["key_format"]
    codec, widen = KEY_CODECS[keys_format], _query_values(case)

    def make(generator: torch.Generator) -> ScoreInputs:
        device = generator.device
        queries = torch.randn(rows, INDEX_HEADS, KEY, generator=generator, device=device)
        pack = codec.pack if keys_format == "fp4" else e4m3_bytes
        weights = torch.randn(rows, INDEX_HEADS, generator=generator, device=device) * SCALE
        counts = counts_of(case, device)
        width = int(counts.max())
        blocks = torch.zeros(rows, 1, dtype=torch.int32, device=device)
        if not dense:
            picked = -(-width // CANDIDATE_BLOCK)
            blocks = chosen_entries(
                rows, picked, keys_each // CANDIDATE_BLOCK, "scattered", generator
            ).int()
        form = DTYPES[case.options["score_format"]]
        return ScoreInputs(
            queries=pack(queries),
            weights=weights.bfloat16(),
            keys=random_rows(codec, requests.count * keys_each, KEY, generator),
            counts=counts,
            blocks=blocks,
            scores=torch.zeros(rows, width, dtype=form, device=device),
        )

    def reference(queries, weights, keys, counts, blocks, scores):
        answer, visible = torch.zeros_like(scores, dtype=torch.float32), counts.tolist()
        for request in range(requests.count):
            values = codec.unpack(keys[request * keys_each : (request + 1) * keys_each]).double()
            for row in range(request * requests.rows, (request + 1) * requests.rows):
                seen = visible[row]
                near = torch.arange(seen, device=keys.device)
                if not dense:
                    near = blocks[row, near // CANDIDATE_BLOCK] * CANDIDATE_BLOCK
                    near = near + torch.arange(seen, device=keys.device) % CANDIDATE_BLOCK
                products = widen(queries[row]).double() @ values[near].T
                answer[row, :seen] = weights[row].double() @ products.clamp(min=0)
        return answer

    return Prepared(make=make, run=run, reference=reference, kernel_source=kernel_source)


def counts_of(case: Case, device: torch.device) -> torch.Tensor:
    """Positions that each row sees."""
    requests = requests_of(case)
    ramp = ramp_of(case, requests)
    counts = [ramp.count(row) for row in range(requests.rows)]
    return torch.tensor(counts, dtype=torch.int32, device=device).repeat(requests.count)


def _positions(
    first: int, end: int, width: int, blocks: torch.Tensor, request_rows: int, keys_each: int
) -> torch.Tensor:
    """Keys of the candidates of some rows, [rows, width]."""
    near = torch.arange(width, device=blocks.device)
    inside = blocks[first:end, near // CANDIDATE_BLOCK].long() * CANDIDATE_BLOCK
    request = torch.arange(first, end, device=blocks.device) // request_rows
    return request[:, None] * keys_each + inside + near % CANDIDATE_BLOCK


def _query_values(case: Case) -> Callable[[torch.Tensor], torch.Tensor]:
    """An 8-bit query's scale is in the weights of its heads."""
    fp4 = case.options["key_format"] == "fp4"
    return KEY_CODECS["fp4"].unpack if fp4 else e4m3_values
