"""Every validation case of class memory or capacity: computed and compared, or named with a reason.

A case is settled as its source states it; where the source leaves a choice open, the setting says
which was taken. Tolerances: 1 % for counts of tensors and buffers, what rounding in the source and
a choice that it does not state allow for pools.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from aisim_v41 import resources
from aisim_v41.hardware import load_hardware
from aisim_v41.memory import Kind, capacity, kv_pool
from aisim_v41.memory.pool import KvPool
from aisim_v41.memory.workspace import LargestStep, workspace_terms
from aisim_v41.model.description import Model
from aisim_v41.model.inventory import inventory
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import all_tensors
from aisim_v41.plan.policy import policy
from aisim_v41.units import GIB

CASES = {
    case["case"]: case
    for case in map(
        json.loads,
        resources.find("profiles", "deepseek-v4.1-flash/validation_cases", ".jsonl")
        .read_text()
        .splitlines(),
    )
    if case["class"] in ("memory", "capacity")
}
MILLION = 1 << 20
LOGGED: dict[str, Any] = {"speculation": "dspark", "wo_a": "bf16"}
"""vLLM's start-up logs: expert slices padded to 128, wo_a widened, draft and vision loaded."""
HOST = {"engram_residency": "host_sharded"}
SM12X = {"page_tokens": 64, "page_counts": "entries", "window_page_rows": 64,
         "kv_layout": "vllm_packed", "speculation": "dspark"}  # fmt: skip

# --- how each item is computed -------------------------------------------------------------------


def weights(model: Model, tp: int, dp: int = 1, ep: int = 1, **more: Any) -> float:
    chosen = policy("vllm", **{**LOGGED, **HOST, **more})
    gpu = load_hardware("b300")
    return capacity(model, gpu, Parallel(tp=tp, dp=dp, ep=ep), chosen).weights_bytes / GIB


def tables(model: Model, tp: int, dp: int = 1) -> float:
    report = capacity(model, load_hardware("b300"), Parallel(tp=tp, dp=dp), policy("vllm"))
    return report.bytes_of(Kind.ENGRAM) / GIB


def experts(model: Model, tp: int, ep: int) -> float:
    chosen = policy("vllm", **HOST)
    report = capacity(model, load_hardware("b300"), Parallel(tp=tp, ep=ep), chosen)
    names = ("routed experts", "padding of expert slices")
    return sum(t.bytes for t in report.terms if t.name in names) / GIB


def scores(model: Model, tp: int, chunk: int) -> float:
    step = LargestStep(rows=chunk, max_length=MILLION, requests=1)
    found = workspace_terms(
        model, load_hardware("h100"), Parallel(tp=tp), policy("vllm", chunk_tokens=chunk), step
    )
    return next(t.bytes for t in found if t.name == "index scores") / GIB


def checkpoint(model: Model, part: str) -> float:
    """Values by kind of number, scales apart, as the recipe lists them."""
    held = inventory(model)
    engram = sum(t.element_bytes for t in all_tensors(model) if t.group is TensorGroup.ENGRAM_TABLE)
    parts = {
        "routed_and_draft_experts": held.by_dtype["I8"] / 2,
        "engram_values": engram,
        "attention_dense_routers": held.by_dtype["F8_E4M3"] - engram,
        "embedding_head_norms": 2 * held.by_dtype["BF16"] + 4 * held.by_dtype["F32"],
        "block_scales": held.total.scale_bytes,
    }
    return (sum(parts.values()) if part == "total" else parts[part]) / GIB


def pinned(model: Model) -> float:
    chosen = policy("vllm", engram_host_pages="power_of_two", **HOST)
    return capacity(model, load_hardware("b300"), Parallel(tp=8, ep=8), chosen).host.bytes / GIB


def mi300x(model: Model) -> float:
    chosen = policy(
        "vllm", chunk_tokens=4096, kv_layout="vllm_packed", vision_weights=False,
        speculation="dspark", **HOST,
    )  # fmt: skip
    return capacity(model, load_hardware("mi300x"), Parallel(tp=2), chosen).kv_bytes / GIB


def printed(model: Model, gib: float, length: int, **overrides: Any) -> int:
    pool = kv_pool(model, policy("vllm", **overrides))
    return int(pool.concurrency(int(gib * GIB), length) * length)


def sglang(model: Model, **overrides: Any) -> KvPool:
    return kv_pool(
        model, policy("sglang", kv_layout="sglang_v4", speculation="dspark", **overrides)
    )


def gb200_pool(model: Model) -> KvPool:
    # 64 tails a request; six verify rows
    return sglang(model, chunk_tokens=4096, prefix_tails=64)


def spark_tokens(model: Model, gib: float) -> int:
    # running requests are not stated: 8, as the other stacks on four of these machines run
    return sglang(model, chunk_tokens=2048).tokens_for(int(gib * GIB), 8)


class Check(NamedTuple):
    compute: Callable[[Model], float]
    tolerance: float


COMPUTED: dict[str, Check] = {
    "any-engram-per-rank-tp4": Check(lambda m: tables(m, 4) / 2, 0.001),
    "any-engram-per-rank-tp2": Check(lambda m: tables(m, 2) / 2, 0.001),
    "mi355-tp2-engram-pair": Check(lambda m: tables(m, 2, 2), 0.001),
    **{
        f"any-checkpoint-{part}": Check(lambda m, part=part: checkpoint(m, part), 0.02)
        for part in (
            "routed_and_draft_experts", "engram_values", "attention_dense_routers",
            "embedding_head_norms", "block_scales", "total",
        )
    },
    "h200-tp8-weights": Check(lambda m: weights(m, 8), 0.01),
    "gb10-tp4-weights": Check(lambda m: weights(m, 4), 0.01),
    "mi300x-tp4-weights": Check(lambda m: weights(m, 4), 0.01),
    "gb200-tp2-weights": Check(lambda m: weights(m, 2), 0.01),
    "gb10-tp8-weights-resident": Check(lambda m: weights(m, 8, engram_residency="hbm"), 0.01),
    "b200-dep2-weights": Check(lambda m: weights(m, 1, 2, 2), 0.01),
    "rtx5090-experts-tp8": Check(lambda m: experts(m, 8, 1), 0.002),
    "rtx5090-experts-ep8": Check(lambda m: experts(m, 8, 8), 0.002),
    "any-indexer-logits-16384x1M": Check(lambda m: scores(m, 4, 16384), 0.0),
    "h100-indexer-logits-8192x1M": Check(lambda m: scores(m, 8, 8192), 0.0),
    "rtx5090-engram-host": Check(pinned, 0.001),
    "mi300x-tp2-kv-pool-negative": Check(mi300x, 0.06),
    "gb200-sglang-full-tokens": Check(
        lambda m: gb200_pool(m).tokens_for(int(51.82 * GIB), 16), 0.01
    ),
    "gb200-sglang-swa-slots": Check(lambda m: gb200_pool(m).window.rows(0, 16), 0.025),
    "gb300-station-kv-tokens": Check(
        lambda m: printed(
            m, 9.36, MILLION, kv_layout="vllm_fp8_index_fp8", speculation="dspark"
        ),
        0.015,
    ),
    "gb10-tp8-kv-tokens-300k": Check(lambda m: printed(m, 17.18, 300_000, **SM12X), 0.015),
    "gb10-sglang-kv-tokens-7.2": Check(lambda m: spark_tokens(m, 7.2), 0.02),
    "gb10-sglang-kv-tokens-9.0": Check(lambda m: spark_tokens(m, 9.0), 0.02),
    "gb10-sglang-kv-tokens-10.9": Check(lambda m: spark_tokens(m, 10.9), 0.02),
}  # fmt: skip

FLOORS: dict[str, Callable[[Model], float]] = {
    # weights alone, no draft; the measured figures hold about 6 GiB of runtime memory besides
    "mi355-tp2dp2-weights-nontorch-hbm": lambda m: weights(
        m, 2, 2, engram_residency="hbm", speculation="off"
    ),
    "mi355-tp2dp2-weights-nontorch-host": lambda m: weights(m, 2, 2, speculation="off"),
}

NOT_REPRODUCED: dict[str, tuple[Callable[[Model], float], float, str]] = {
    "gb10-tp4-kv-tokens-300k": (
        lambda m: printed(m, 5.15, 300_000, **SM12X), 944_087,
        "day-0 build: 5.2 KB a token and nothing fixed; its grouping of pages is not published",
    ),
    "gb10-tp4-kv-tokens-1m": (
        lambda m: printed(m, 5.21, MILLION, **SM12X), 1_402_502,
        "the same build, another boot",
    ),
}  # fmt: skip

NOT_COMPUTED = {
    "gb200-tp4-weights": "66.56 GiB lie below the tensors of a rank; unexplained by the source",
    "h200-tp8-weights-doc": "a document that conflicts with the log of the same set-up",
    "gb10-mia-tp4-weights": "approximate, a build with adapters of its own",
    "gb10-mia-tp3-weights": "TP 3 with heads padded from 64 to 96: does not divide the model",
    "gb10-tp4-graphs": "graph memory is an allowance here; this case is its source",
    "ascend-activation-2048": "another engine with buffers of its own",
    "h200-tp8-kv-pool": "memory fraction not stated",
    "gb10-tp8-kv-pool": "memory fraction not stated",
    "gb10-tp4-kv-pool": "memory fraction not stated",
    "gb300-station-kv-tokens-offload90": "pool size not printed",
    "gb300-station-kv-tokens-offload70": "pool size not printed",
    "rtx4090-seqs3-kv-tokens": "pool size not printed",
    "rtx4090-seqs4-kv-tokens": "pool size not printed",
    "rtxpro6000-alloc-kv-tokens": "pool size not printed",
    "ascend-092-kv-tokens": "pool size not printed",
    "ascend-094-kv-tokens": "pool size not printed",
    "b200-tp8-blocks-kv-tokens": "blocks, not tokens; block size not stated",
    "a100-tp8-full-windows": "pool size not printed",
}

# --- the comparison -------------------------------------------------------------------------------


def test_every_case_has_its_place() -> None:
    places = [*COMPUTED, *FLOORS, *NOT_REPRODUCED, *NOT_COMPUTED]
    assert len(places) == len(set(places)) == len(CASES) == 50
    assert set(places) == set(CASES)


def test_cases_that_are_not_computed_are_not_usable() -> None:
    assert {CASES[name]["usable"] for name in NOT_COMPUTED} == {"no"}


@pytest.mark.parametrize("name", COMPUTED)
def test_case(model: Model, name: str) -> None:
    check, measured = COMPUTED[name], CASES[name]["measured"]
    assert check.compute(model) == pytest.approx(measured, rel=check.tolerance, abs=1e-9)


@pytest.mark.parametrize("name", FLOORS)
def test_floor(model: Model, name: str) -> None:
    ours, measured = FLOORS[name](model), CASES[name]["measured"]
    assert 0.92 * measured < ours < measured


@pytest.mark.parametrize("name", NOT_REPRODUCED)
def test_what_is_not_reproduced_stays_in_sight(model: Model, name: str) -> None:
    compute, ours, _reason = NOT_REPRODUCED[name]
    assert compute(model) == ours
    assert abs(ours / CASES[name]["measured"] - 1) > 0.05
