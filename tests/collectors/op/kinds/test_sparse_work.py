"""Least work of compressor, indexer, attention and stores is that of the library's operators."""

from __future__ import annotations

from functools import cache

import pytest
from ops.graphs import amount, built, counts

from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from collectors.case import Case
from collectors.op.kind import Work
from collectors.op.kinds.registry import kind_of

FULL_2, FULL_1, REINDEX = 2, 20, 24
READ = (Traffic.WEIGHTS, Traffic.KV_READ, Traffic.KV_REREAD, Traffic.ACTIVATION_READ)
WRITTEN = (Traffic.KV_WRITE, Traffic.ACTIVATION_WRITE)
HEADS = 64

DECODE = (Request(new_tokens=1, prefix_tokens=8191, kind="decode", count=32),)
LONG = (Request(new_tokens=1, prefix_tokens=131_071, kind="decode", count=4),)
CHUNK = (Request(new_tokens=1024, prefix_tokens=8192),)


def library(fusion: str, step: tuple, layer: int, *names: str, layout: str = "trained") -> Work:
    """Work of an operator, or of operators fused into one, in a layer."""
    runtime = policy("paper", fusion=fusion, kv_layout=layout)
    found = counts(runtime, *step)
    (task,) = [t for t in built(runtime).by_layer[layer] if t.replaces == names]

    def moved(kinds) -> float:
        return float(sum(amount(task.traffic[kind], found) for kind in kinds))

    flops = {str(kind): float(amount(form, found)) for kind, form in task.flops.items()}
    return Work(flops, moved(READ), moved(WRITTEN))


@cache
def ours(text: str) -> Work:
    case = Case.from_text(text)
    kind = kind_of(case)
    return kind.work(kind.complete(case))


def same(mine: Work, theirs: Work) -> None:
    assert mine.flops == pytest.approx(theirs.flops)
    assert mine.read_bytes == pytest.approx(theirs.read_bytes)
    assert mine.written_bytes == pytest.approx(theirs.written_bytes)


@pytest.mark.parametrize(
    ("step", "layer", "sizes"),
    [
        (DECODE, FULL_2, "rows=32 keys_per_row=640"),
        (DECODE, 0, "rows=32 keys_per_row=128"),
        (LONG, FULL_1, "rows=4 keys_per_row=640"),
        (CHUNK, FULL_2, "rows=1024 keys_per_row=640"),
        ((Request(new_tokens=6, prefix_tokens=8192, kind="verify", count=8),), FULL_1,
         "rows=48 keys_per_row=640 rows_per_request=6"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("layout", "rows"), [("trained", "bytes288"), ("vllm_fp8", "bytes528"),
                         ("sglang_v4", "bytes584"), ("trtllm_plain", "bytes512"),
                         ("atom_bf16", "bytes1024")]
)  # fmt: skip
def test_attention(step: tuple, layer: int, sizes: str, layout: str, rows: str):
    theirs = library("elementary", step, layer, "sparse_attention", layout=layout)
    same(ours(f"sparse_attention heads={HEADS} {sizes} layout={rows}"), theirs)


@pytest.mark.parametrize(
    ("step", "layer", "sizes"),
    [
        (DECODE, FULL_2, "rows=32 positions_per_row=4096"),
        (DECODE, FULL_1, "rows=32 positions_per_row=8192"),
        (LONG, REINDEX, "rows=4 positions_per_row=16384 form=candidates"),
        # rows of a chunk see 8,193 to 9,216 entries: 8,704.5 on average
        (CHUNK, FULL_1, "rows=1024 positions_per_row=8704.5"),
    ],
)
def test_scores(step: tuple, layer: int, sizes: str):
    same(ours(f"index_score {sizes}"), library("elementary", step, layer, "index_score"))


def test_keys_of_eight_bits_are_read_as_such():
    narrow = ours("index_score rows=4 positions_per_row=1000")
    wide = ours("index_score rows=4 positions_per_row=1000 key_format=fp8")
    assert wide.read_bytes - narrow.read_bytes == 4 * (1000 * (132 - 68) + 32 * (128 - 68))
    assert wide.flops == {"fp8": narrow.flops["fp4"]}


@pytest.mark.parametrize(
    ("step", "sizes"),
    [(DECODE, "rows=32 positions_per_row=8192"), (CHUNK, "rows=1024 positions_per_row=8704.5")],
)
def test_selection(step: tuple, sizes: str):
    same(ours(f"index_select {sizes}"), library("elementary", step, FULL_1, "index_select"))
    both = library("sglang_decode", step, FULL_1, "index_select", "candidate_pool")
    same(ours(f"index_select_pool {sizes}"), both)


@pytest.mark.parametrize(("layer", "ratio"), [(FULL_2, 2), (FULL_1, 1)])
@pytest.mark.parametrize(("layout", "rows"), [("trained", 288), ("vllm_fp8", 528)])
def test_compressor_and_main_rows(layer: int, ratio: int, layout: str, rows: int):
    of = f"rows=1024 ratio={ratio}"
    pool = library("elementary", CHUNK, layer, "compress_pool", layout=layout)
    same(ours(f"compress_pool {of}"), pool)
    store = library("elementary", CHUNK, layer, "main_store", layout=layout)
    same(ours(f"main_store {of} layout=bytes{rows}"), store)
    both = library("single_pass", CHUNK, layer, "compress_pool", "main_store", layout=layout)
    same(ours(f"compress_store {of} layout=bytes{rows}"), both)


@pytest.mark.parametrize(
    ("layout", "row", "key"),
    [("trained", "bytes528", "fp4"), ("vllm_packed", "bytes584", "fp8")],
)
def test_stores(layout: str, row: str, key: str):
    window = library("elementary", DECODE, FULL_2, "kv_store", layout=layout)
    same(ours(f"kv_store rows=32 layout={row}"), window)
    keys = library("elementary", CHUNK, FULL_2, "index_key_store", layout=layout)
    same(ours(f"index_key_store rows=512 key_format={key}"), keys)
