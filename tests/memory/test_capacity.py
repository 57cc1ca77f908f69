"""The report: budgets that add up, verdicts, remedies, refusals."""

from __future__ import annotations

import json
import math
import time
from dataclasses import FrozenInstanceError, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from model import changes  # tests/model

import aisim_v41 as aisim
from aisim_v41.errors import (
    AisimError,
    CapacityError,
    InvalidInputError,
    OutOfRangeError,
    UnsupportedPlanError,
)
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.memory import CapacityReport, Kind, capacity
from aisim_v41.memory.terms import size, total
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model, model_from_config
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import policy, preset_names
from aisim_v41.units import GIB

GPUS = ("gb200", "gb300", "b200", "b300", "h200", "h100", "mi300x", "mi355x", "gb10", "a100",
        "rtx_pro_6000", "rtx_4090", "rtx_5090")  # fmt: skip
MILLION = 1 << 20


def ask(
    model: Model, gpu: str = "gb300", tp: int = 4, name: str = "sglang", **more: Any
) -> CapacityReport:
    arguments = {k: more.pop(k) for k in ("max_length", "requests") if k in more}
    return capacity(model, load_hardware(gpu), Parallel(tp=tp), policy(name, **more), **arguments)


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_and_preset_has_an_answer(model: Model, gpu: str, name: str) -> None:
    for tp in (1, 4, 8):
        report = ask(model, gpu, tp, name)
        gpu_terms = [t for t in report.terms if t.place == "gpu"]
        if report.budget.room_left_bytes >= 0:
            assert total(gpu_terms) == load_hardware(gpu).hbm_bytes
        assert report.starts == (report.short_bytes == 0) == (report.failing is None)
        if report.starts:
            assert report.kv_bytes >= report.needed_kv_bytes > 0
            assert (
                report.kv_bytes_for(report.tokens, report.setting.rank_requests)
                <= (report.kv_bytes)
                or report.tokens == 0
            )
            assert report.sessions >= 1
        else:
            assert size(report.short_bytes) in report.explain()
        assert report.kv_bytes == report.budget_bytes - total(report.budget.charged)
        json.dumps(report.to_dict(), allow_nan=False)


def test_tokens_and_bytes_are_inverse_in_the_report(model: Model) -> None:
    report = ask(model)
    requests = report.setting.rank_requests
    used = report.kv_bytes_for(report.tokens, requests)
    assert report.tokens_for(report.kv_bytes, requests) == report.tokens
    assert report.tokens_for(used, requests) == report.tokens
    assert used <= report.kv_bytes < report.kv_bytes_for(report.tokens + 1, requests)
    assert total(report.kv_parts(report.tokens, requests)) == used


def test_kv_memory_is_never_zero_and_its_parts_are_apart(model: Model) -> None:
    """Deployment question 6: main KV, index keys, window and compressor state apart."""
    parts = {t.name: t.bytes for t in ask(model).kv_parts(MILLION, 16)}
    for name in ("entries of layer 20", "index keys of layer 2", "window KV",
                 "state of unfinished groups"):  # fmt: skip
        assert parts[name] > 0


def test_residency_is_an_echoed_input(model: Model) -> None:
    """Deployment question 27: a row was added on the belief that the tables were on the host."""
    assert ask(model).setting.policy.engram_residency == "hbm"
    assert "Engram: hbm" in ask(model).explain()
    assert "Engram: host_shared" in ask(model, engram_residency="host_shared").explain()


def test_remedies_bring_what_they_say(model: Model) -> None:
    report = ask(model)
    host = next(r for r in report.frees_most if "host memory" in r.change)
    assert host.fields == (("engram_residency", "host_sharded"),)
    after = ask(model, engram_residency="host_sharded")
    assert after.kv_bytes - report.kv_bytes == host.freed_bytes == report.bytes_of(Kind.ENGRAM)
    assert (after.kv_bytes, after.tokens) == (host.kv_bytes, host.tokens)
    freed = [relief.freed_bytes for relief in report.frees_most]
    assert freed == sorted(freed, reverse=True)
    assert min(freed) > 0


def test_remedies_of_a_buffer(model: Model) -> None:
    report = ask(model, "h200", 8, "vllm", chunk_tokens=8192)
    changes_by_words = {relief.change: relief for relief in report.frees_most}
    tiled = changes_by_words["index scores in blocks of rows"]
    assert tiled.freed_bytes == 14 * GIB
    half = changes_by_words["prefill chunks of 4096 tokens"]
    assert half.freed_bytes > 8 * GIB
    assert "vision encoder not loaded" in changes_by_words
    assert not any("speculation" in words for words in changes_by_words)
    drafted = ask(model, "h200", 8, "vllm", speculation="dspark").frees_most
    assert any("speculation" in relief.change for relief in drafted)


def test_remedies_of_a_window_pool(model: Model) -> None:
    """Fewer running requests free windows, not tokens (deployment question 11)."""
    report = ask(model, "h200", 4, kv_layout="sglang_v4", memory_fraction=0.92, chunk_tokens=4096)
    fewer = next(r for r in report.frees_most if "128 running requests" in r.change)
    assert fewer.fields == (("requests", 128),)
    assert fewer.freed_bytes > 6 * GIB


def test_a_static_budget_keeps_buffers_outside(model: Model) -> None:
    report = ask(model, memory_fraction=0.99)
    assert not report.starts
    assert report.failing in {term.name for term in report.budget.outside}
    assert report.short_bytes == -report.budget.room_left_bytes > 0
    assert ask(model, memory_fraction=0.9).starts


def test_the_first_term_beyond_the_budget_is_named(model: Model) -> None:
    report = ask(model, "rtx_4090", 8, "vllm")
    assert report.failing == "routed experts"
    assert report.short_bytes > 0
    assert "DOES NOT START: routed experts" in report.explain()


def test_require(model: Model) -> None:
    report = ask(model)
    assert report.require(tokens=report.tokens, sessions=report.sessions) is report
    with pytest.raises(CapacityError, match=r"tokens need .* GiB of KV .* Most is freed by"):
        report.require(tokens=report.tokens + 1)
    with pytest.raises(CapacityError, match=rf"{report.sessions} fit"):
        report.require(sessions=report.sessions + 1)
    assert report.require(sessions=256, length=8192) is report
    with pytest.raises(CapacityError, match="at most 256 run"):
        report.require(sessions=257, length=8192)
    with pytest.raises(CapacityError, match="does not start: routed experts fails by"):
        ask(model, "h100", 1).require(tokens=1)


def test_fewer_or_shorter_never_fits_less(model: Model) -> None:
    tokens = [ask(model, requests=n).tokens for n in (1, 16, 256, 1024)]
    assert tokens == sorted(tokens, reverse=True)
    kv = [ask(model, "h200", 8, "vllm", max_length=n).kv_bytes for n in (1024, 65_536, MILLION)]
    assert kv == sorted(kv, reverse=True)
    sessions = [ask(model, requests=4096).sessions_of(n) for n in (1024, 65_536, MILLION)]
    assert sessions == sorted(sessions, reverse=True)


def test_expert_parallelism_is_accepted(model: Model, gb300: Hardware) -> None:
    for parallel in (Parallel(tp=4, ep=4), Parallel(tp=8, ep=8), Parallel(tp=1, dp=4, ep=4)):
        found = capacity(model, gb300, parallel, policy("vllm", engram_residency="host_shared"))
        assert found.starts


def test_data_parallel_ranks_share_the_requests(model: Model, gb300: Hardware) -> None:
    report = capacity(
        model, gb300, Parallel(tp=1, dp=4, ep=4),
        policy("vllm", engram_residency="host_sharded"), requests=10,
    )  # fmt: skip
    assert report.setting.rank_requests == 3
    assert report.replica_tokens == 4 * report.tokens


@pytest.mark.parametrize("parallel", [Parallel(tp=2, cp=4), Parallel(cp=16), Parallel(dp=2, cp=2)])
def test_a_mapping_without_steps_holds_nothing(
    model: Model, gb300: Hardware, parallel: Parallel
) -> None:
    """What no estimate answers has no capacity either."""
    with pytest.raises(UnsupportedPlanError, match="rows are interleaved over"):
        capacity(model, gb300, parallel, policy("sglang"))


def test_text_names_every_dimension(model: Model, gb300: Hardware) -> None:
    report = capacity(model, gb300, Parallel(cp=8), policy("sglang"))
    assert "8 x gb300 (tp 1, cp 8)" in report.explain()
    with pytest.raises(CapacityError, match=r"8 x gb300 \(tp 1, cp 8\)"):
        report.require(sessions=10**6)


def test_models_without_engram_draft_or_vision(config: dict[str, Any], gb300: Hardware) -> None:
    for name, change in changes.ALL.items():
        changed = model_from_config(change(config), name=name)
        for preset in preset_names():
            report = capacity(changed, gb300, Parallel(tp=2), policy(preset, speculation="dspark"))
            assert report.weights_bytes > 0
            report.explain()
            report.to_frame()


def test_report_is_frozen_and_repeats(model: Model) -> None:
    report = ask(model)
    assert ask(model) == report
    with pytest.raises(FrozenInstanceError):
        report.tokens = 1  # type: ignore[misc]


def test_frame_and_text(model: Model) -> None:
    report = ask(model)
    frame = report.to_frame()
    assert list(frame.columns) == [
        "term", "kind", "place", "bytes", "gib", "estimate", "formula", "source",
    ]  # fmt: skip
    assert frame.loc[frame["place"] == "gpu", "bytes"].sum() == load_hardware("gb300").hbm_bytes
    assert (frame["formula"].str.len() > 0).all()
    assert (frame["source"].str.len() > 0).all()
    lines = report.explain().splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 120
    assert any("KV pool" in line for line in lines)
    assert any("running request" in line for line in lines)


def test_it_is_fast(model: Model) -> None:
    """Well under 50 ms; the bound here leaves room for a busy machine."""
    ask(model)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        ask(model)
        best = min(best, time.perf_counter() - start)
    assert best < 0.05


# --- refusals ---------------------------------------------------------------------------------


def test_arguments_of_another_kind(model: Model, gb300: Hardware) -> None:
    for arguments, mentions in (
        ({"hardware": "gb300"}, "hardware = 'gb300'"),
        ({"parallel": 4}, "parallel = 4"),
        ({"policy": "sglang"}, "policy = 'sglang'"),
        ({"max_length": 1.5}, "max_length = 1.5"),
        ({"requests": True}, "requests = True"),
        ({"hosts": "2"}, "hosts = '2'"),
        ({"host_memory_bytes": 1e9}, "host_memory_bytes = 1000000000.0"),
    ):
        given = {"hardware": gb300, **arguments}
        with pytest.raises(InvalidInputError) as caught:
            capacity(model, **given)  # type: ignore[arg-type]
        assert mentions in str(caught.value)


def test_arguments_out_of_range(model: Model, gb300: Hardware) -> None:
    for arguments, mentions in (
        ({"max_length": 0}, "max_length = 0"),
        ({"max_length": MILLION + 1}, f"context of {MILLION}"),
        ({"requests": -1}, "requests = -1"),
        ({"hosts": 2}, "hosts = 2"),
        ({"host_memory_bytes": 0}, "host_memory_bytes = 0"),
    ):
        with pytest.raises(OutOfRangeError) as caught:
            capacity(model, gb300, **arguments)  # type: ignore[arg-type]
        assert mentions in str(caught.value)


def test_mappings_that_engines_refuse(model: Model, gb300: Hardware) -> None:
    with pytest.raises(UnsupportedPlanError, match="pipeline parallelism"):
        capacity(model, gb300, Parallel(pp=2))
    with pytest.raises(UnsupportedPlanError, match="tp = 16"):
        capacity(model, gb300, Parallel(tp=16))


def test_an_earlier_generation_says_that_it_has_no_step_model(gb300: Hardware) -> None:
    with pytest.raises(AisimError):
        capacity(load_model("deepseek-v4-flash"), gb300)  # type: ignore[arg-type]


ODD = (
    0, 1, -1, 7, 1 << 20, 1 << 40, 1 << 70, 1.0, 0.5, math.nan, math.inf, True, None, "", "x", [],
    {}, object(), np.int64(3), np.array([1, 2]), Parallel(tp=3), policy("paper"),
)  # fmt: skip


def report_or_refusal(model: Model, given: dict[str, Any]) -> str:
    try:
        return capacity(model, **given).explain()
    except AisimError as error:
        return str(error)


@pytest.mark.parametrize("batch", range(4))
def test_anything_gives_a_report_or_a_typed_error(
    model: Model, gb300: Hardware, batch: int
) -> None:
    random = Random(batch)
    names = ("hardware", "parallel", "policy", "max_length", "requests", "hosts",
             "host_memory_bytes")  # fmt: skip
    for _ in range(120):
        chosen = random.sample(names, random.randint(1, 2))
        given: dict[str, Any] = {"hardware": gb300, **{n: random.choice(ODD) for n in chosen}}
        assert report_or_refusal(model, given)


def test_a_tiny_gpu_and_a_huge_one(model: Model, gb300: Hardware) -> None:
    tiny = replace(gb300, hbm_bytes=1)
    huge = replace(gb300, hbm_bytes=1 << 50)
    for name in preset_names():
        assert not capacity(model, tiny, policy=policy(name)).starts
        assert capacity(model, huge, policy=policy(name)).starts


FIELDS = (
    "page_tokens", "window_slots", "window_page_rows", "window_evict_tokens", "prefix_tails",
    "pair_ring_rows", "chunk_tokens", "max_requests", "index_score_bytes", "index_tile_mib",
    "graph_pool_mib", "draft_tokens", "attention_head_multiple", "expert_slice_multiple",
)  # fmt: skip
CHOICES: dict[str, tuple[Any, ...]] = {
    "window_pool": ("per_request", "ratio", "request_cap"),
    "kv_blocks": ("own", "shared"),
    "page_counts": ("tokens", "entries"),
    "draft_pool": ("layers", "pool_share"),
    "speculation": ("off", "dspark"),
    "fraction_covers": ("all", "static"),
    "window_ratio": (1e-9, 0.1, 1.0),
    "memory_fraction": (1e-9, 0.5, 1.0),
    "engram_residency": ("hbm", "host_sharded", "host_shared", "disk"),
    "kv_layout": ("trained", "sglang_v4", "vllm_packed", "atom_bf16"),
}


@pytest.mark.parametrize("batch", range(4))
def test_any_policy_gives_a_report_or_a_typed_error(
    model: Model, gb300: Hardware, batch: int
) -> None:
    random = Random(batch)
    for _ in range(60):
        fields: dict[str, Any] = {
            name: random.choice((1, 2, 3, 64, 133, 1 << 16, 1 << 30))
            for name in random.sample(FIELDS, 2)
        }
        for name in random.sample(sorted(CHOICES), 3):
            fields[name] = random.choice(CHOICES[name])
        try:
            chosen = policy(random.choice(preset_names()), **fields)
        except AisimError:
            continue
        given = {
            "hardware": gb300,
            "policy": chosen,
            "parallel": Parallel(tp=random.choice((1, 4))),
        }
        assert report_or_refusal(model, given)


@pytest.mark.parametrize("value", ["a", [], 1.0, True, -1, math.nan])
@pytest.mark.parametrize("name", ["tokens", "sessions", "length"])
def test_requirements_are_whole_numbers(model: Model, name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} = .*must be a whole number"):
        ask(model).require(**{name: value})


def test_changed_fields_are_printed(model: Model) -> None:
    assert "changed:" not in ask(model).explain()
    told = ask(model, kv_layout="sglang_v4", wo_a="checkpoint").explain()
    assert "\nchanged: kv_layout=sglang_v4, wo_a=checkpoint\n" in told


@pytest.mark.parametrize(
    ("gpu", "engine", "layout", "noted"),
    [
        ("h200", "sglang", "sglang_v41", True), ("h200", "sglang", "sglang_v4", False),
        ("gb300", "sglang", "sglang_v41", False), ("mi355x", "vllm", "vllm_fp8", True),
        ("mi355x", "atom", "atom_packed", False),
    ],
)  # fmt: skip
def test_a_layout_of_another_gpu_is_noted(gpu: str, engine: str, layout: str, noted: bool):
    """Runtime-semantics §6.1: these layouts are those of SM100 and SM103."""
    report = aisim.capacity(
        aisim.load_model("deepseek-v4.1-flash"),
        aisim.load_hardware(gpu),
        parallel=aisim.Parallel(tp=8),
        policy=aisim.policy(engine, kv_layout=layout),
    )
    assert any("exists on sm100 and sm103 only" in note for note in report.notes) is noted
    assert ("the engine uses kv_layout=" in report.explain()) is noted
