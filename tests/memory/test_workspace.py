"""Buffers of the largest step."""

from __future__ import annotations

from typing import Any

import pytest

from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.memory.terms import Term
from aisim_v41.memory.workspace import (
    LargestStep,
    graph_terms,
    reserve_terms,
    workspace_terms,
)
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import policy
from aisim_v41.units import GIB, MIB

MILLION = 1 << 20


def buffers(
    model: Model,
    gpu: str | Hardware = "h200",
    *,
    name: str = "vllm",
    tp: int = 8,
    length: int = MILLION,
    **overrides: Any,
) -> dict[str, Term]:
    chosen = policy(name, **overrides)
    hardware = load_hardware(gpu) if isinstance(gpu, str) else gpu
    step = LargestStep(rows=chosen.chunk_tokens, max_length=length, requests=chosen.max_requests)
    found = workspace_terms(model, hardware, Parallel(tp=tp), chosen, step)
    return {term.name: term for term in found}


@pytest.mark.parametrize(("chunk", "gib"), [(4096, 8), (8192, 16), (16384, 32)])
def test_index_scores(model: Model, chunk: int, gib: int) -> None:
    # batched tokens x max length x 2 B (P0454, P0467)
    term = buffers(model, chunk_tokens=chunk)["index scores"]
    assert term.bytes == gib * GIB
    assert term.formula == f"{chunk} rows x {MILLION} keys x 2 B"


def test_index_scores_in_blocks(model: Model) -> None:
    # SGLang keeps tiles under 2 GiB (runtime-semantics §5.2)
    assert buffers(model, name="sglang")["index scores"].bytes == 2 * GIB
    small = buffers(model, name="sglang", length=4096)["index scores"]
    assert small.bytes == 16384 * 4096 * 2


def test_scores_of_an_unfused_indexer(model: Model) -> None:
    """Deployment question 19: 14 B x chunk x prefix: 15 GB at 1024 x 1M, 60 GB at 4096 x 1M.

    Buffers of one step alone: with 24 GiB free the larger chunk does not fit, in blocks it does.
    """
    small = buffers(model, chunk_tokens=1024, index_score_bytes=14)["index scores"].bytes
    large = buffers(model, chunk_tokens=4096, index_score_bytes=14)["index scores"].bytes
    assert small == pytest.approx(15e9, rel=0.003)
    assert large == pytest.approx(60e9, rel=0.003)
    assert small < 24 * GIB < large
    tiled = buffers(model, chunk_tokens=4096, index_score_bytes=14, index_workspace="tiled")
    assert sum(term.bytes for term in tiled.values()) < 24 * GIB


def test_gathered_keys_and_rows_share_a_buffer_but_on_rocm(model: Model) -> None:
    # 40 x 2**20 x 68 B = 2.66 GiB of keys; 4 x (2**20 + 128 + 4096) x 512 x 2 B = 4.02 GiB of rows
    shared = buffers(model, chunk_tokens=4096)
    assert shared["gathered keys or rows"].bytes == 4 * (MILLION + 128 + 4096) * 512 * 2
    rocm = buffers(model, "mi300x", chunk_tokens=4096)
    assert rocm["gathered keys"].bytes == 2 * 40 * MILLION * 68
    assert rocm["gathered rows"].bytes == shared["gathered keys or rows"].bytes
    assert "gathered keys or rows" not in buffers(model, name="sglang")


def test_sglang_gathers_the_keys_of_a_context(model: Model) -> None:
    # Layer 20 sees one key a token: 2**20 x 68 B = 68 MiB (runtime-semantics §5.2)
    term = buffers(model, name="sglang")["gathered keys"]
    assert term.bytes == MILLION * 68 == 68 * MIB
    fp8 = buffers(model, name="sglang", kv_layout="vllm_fp8_index_fp8")["gathered keys"]
    assert fp8.bytes == MILLION * 132
    assert "gathered keys" not in buffers(model, name="sglang", gather_workspace="none")


def test_experts_are_widened_where_products_are_emulated(model: Model) -> None:
    """384 experts x 35,389,440 values / 2 ranks in BF16: 12.66 GiB at TP 2."""
    term = buffers(model, "mi300x", tp=2)["experts of one layer in BF16"]
    assert term.bytes == 384 * 35_389_440 // 2 * 2
    assert term.estimate
    assert term.bytes / GIB == pytest.approx(12.66, abs=0.005)
    for gpu in ("h200", "mi355x", "a100", "gb300"):  # units, or kernels that widen in registers
        assert "experts of one layer in BF16" not in buffers(model, gpu, tp=2)
    told = buffers(model, "h200", tp=2, expert_arithmetic="bf16")["experts of one layer in BF16"]
    assert not told.estimate


def test_rows_of_a_step_against_a_profiled_peak(model: Model) -> None:
    """Deployment question 26: profiling saw an activation peak of 3.21 GiB at 8192 tokens."""
    found = buffers(model, chunk_tokens=8192)
    ours = found["rows of one layer"].bytes + found["logits"].bytes
    assert 1.5 * GIB < ours < 3.21 * GIB


def test_buffers_grow_with_the_step(model: Model) -> None:
    for name in ("index scores", "rows of one layer", "gathered keys or rows"):
        sizes = [buffers(model, chunk_tokens=n)[name].bytes for n in (1024, 2048, 8192)]
        assert sizes == sorted(sizes)
    for name in ("index scores", "gathered keys or rows"):
        sizes = [buffers(model, length=n)[name].bytes for n in (1, 4096, MILLION)]
        assert sizes == sorted(sizes)


def test_verify_rows_have_logits(model: Model) -> None:
    plain = buffers(model)["logits"].bytes
    assert buffers(model, speculation="dspark")["logits"].bytes == 6 * plain
    assert plain == 256 * 129_280 * 4


def test_allowances_are_marked_as_such(model: Model) -> None:
    assert [t.name for t in reserve_terms(Parallel(), policy("paper"))] == [
        "context, libraries, allocator slack"
    ]
    several = reserve_terms(Parallel(tp=2), policy("paper", collective_mib=3))
    assert several[1].bytes == 3 * MIB
    assert all(t.estimate for t in (*several, *graph_terms(policy("paper"))))
    assert graph_terms(policy("paper", decode_execution="eager")) == ()


def test_experts_hold_the_rows_of_all_ranks(model: Model, gb300: Hardware) -> None:
    """8,192 rows: streams 2 x 4 x 5120 of the rank's own, and 6 copies of what its experts see."""
    step = LargestStep(rows=8192, max_length=1000, requests=1)

    def bytes_of(name: str, parallel: Parallel) -> int:
        terms = workspace_terms(model, gb300, parallel, policy("paper"), step)
        return next(term.bytes for term in terms if term.name == name)

    def rows(own: int, attention: int, seen: int, width: int) -> int:
        copies = 6 * (2 * 5120 + 3 * width)
        return 2 * (own * 40_960 + max(own * attention, seen * copies))

    whole, four = 2 * 64 * 512, 2304 // 4
    assert bytes_of("rows of one layer", Parallel(dp=4)) == rows(8192, whole, 4 * 8192, four)
    assert bytes_of("rows of one layer", Parallel(dp=4, ep=4)) == rows(8192, whole, 8192, 2304)
    assert bytes_of("rows of one layer", Parallel(cp=4)) == rows(2048, whole, 8192, four)
    assert bytes_of("index scores", Parallel(cp=4)) == 2048 * 1000 * 2
    assert bytes_of("index scores", Parallel(dp=4)) == 8192 * 1000 * 2
