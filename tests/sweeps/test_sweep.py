"""Sweeps against one estimate a point."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from tests.sweeps.cases import same

SMALL: dict[str, Any] = {
    "hardware": ["gb300", {"name": "b200", "hbm_bandwidth_bytes_per_s": {"times": [1, 2]}}],
    "parallel": [{"tp": 4}, {"tp": [2, 4], "dp": 2}],
    "policy": ["sglang", {"name": "vllm", "decoder_replay": [True, False]}],
    "method": ["sol", "op"],
    "requests": {"new_tokens": [1, 300, 8192], "prefix_tokens": {"log": [1, 65536], "points": 3}},
}


def alone(row: Any, policy: aisim.RuntimePolicy, gpu: aisim.Hardware, request: dict[str, Any]):
    """The compiled time of one point, asked for on its own."""
    step = aisim.compile(
        aisim.load_model(row.model), gpu, parallel=aisim.Parallel(tp=row.tp, dp=row.dp),
        policy=policy, method=row.method,
    )  # fmt: skip
    return 1e3 * step([aisim.Request(**request)])


def test_every_point_is_the_time_that_one_asks_for():
    frame = aisim.sweep(SMALL).frame()
    assert len(frame) == 3 * 3 * 3 * 2 * 9
    assert frame["point"].tolist() == list(range(len(frame)))
    assert set(frame["status"]) == {"ok"}
    for row in frame.sample(60, random_state=1).itertuples():
        gpu = aisim.load_hardware(row.hardware)
        if row.hardware == "b200":
            from dataclasses import replace

            gpu = replace(gpu, hbm_bandwidth_bytes_per_s=row.hbm_bandwidth_bytes_per_s)
        else:
            assert row.hbm_bandwidth_bytes_per_s == gpu.hbm_bandwidth_bytes_per_s
        changes = {} if row.policy == "sglang" else {"decoder_replay": bool(row.decoder_replay)}
        request = {"new_tokens": row.new_tokens, "prefix_tokens": row.prefix_tokens}
        expected = alone(row, aisim.policy(row.policy, **changes), gpu, request)
        assert row.latency_ms == pytest.approx(expected, rel=1e-12)
        assert row.gpus == row.tp * row.dp
        rate = row.new_tokens / (row.latency_ms / 1e3) / row.gpus
        assert row.tokens_per_s_per_gpu == pytest.approx(rate)


def test_points_are_numbered_in_the_order_of_the_sections():
    frame = aisim.sweep(SMALL | {"method": "sol"}).frame()
    settings_ = product(
        (("gb300", 8e12), ("b200", 7.672e12), ("b200", 15.344e12)),
        ((4, 1), (2, 2), (4, 2)),
        (("sglang", False), ("vllm", True), ("vllm", False)),
        (1, 300, 8192),
        (1, 256, 65536),
    )
    names = ["hardware", "hbm_bandwidth_bytes_per_s", "tp", "dp", "policy", "decoder_replay",
             "new_tokens", "prefix_tokens"]  # fmt: skip
    for row, (gpu, mapping, policy, new, prefix) in zip(
        frame[names].itertuples(index=False), settings_, strict=True
    ):
        assert (row.hardware, row.tp, row.dp, row.policy) == (gpu[0], *mapping, policy[0])
        assert row.hbm_bandwidth_bytes_per_s == gpu[1]
        assert (row.new_tokens, row.prefix_tokens) == (new, prefix)
        assert row.decoder_replay == policy[1]


MIXED = [
    {"name": "chunk", "new_tokens": [512, 2048], "prefix_tokens": [0, 4096]},
    {"name": "decodes", "kind": "decode", "new_tokens": 1, "count": [1, 32],
     "prefix_tokens": 8192},
]  # fmt: skip


def test_steps_of_several_requests():
    space = {"hardware": "gb300", "parallel": {"tp": 4}, "method": "sol", "requests": MIXED}
    frame = aisim.sweep(space).frame()
    step = aisim.compile(
        aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300"),
        parallel=aisim.Parallel(tp=4), method="sol",
    )  # fmt: skip
    assert len(frame) == 8
    for row in frame.itertuples():
        seconds = step([
            aisim.Request(new_tokens=row.chunk_new_tokens, prefix_tokens=row.chunk_prefix_tokens),
            aisim.Request(new_tokens=1, prefix_tokens=8192, kind="decode", count=row.decodes_count),
        ])  # fmt: skip
        assert row.latency_ms == seconds / 1e-3
        tokens = row.chunk_new_tokens + row.decodes_count
        assert row.tokens_per_s_per_gpu == pytest.approx(tokens / row.latency_ms * 1e3 / 4)
    assert set(frame["decodes_prefix_tokens"]) == {8192}


SECTIONS = st.fixed_dictionaries({
    "hardware": st.sampled_from(["gb300", "h200", "mi355x"]),
    "parallel": st.fixed_dictionaries({"tp": st.sampled_from([1, 4, 8])}),
    "policy": st.sampled_from(["paper", "sglang", "vllm", "atom", "trtllm"]),
    "method": st.sampled_from(["sol", "op"]),
    "requests": st.fixed_dictionaries({
        "kind": st.sampled_from(["prefill", "decode", "verify"]),
        "new_tokens": st.lists(st.integers(1, 9000), min_size=1, max_size=3, unique=True),
        "prefix_tokens": st.lists(st.integers(0, 200_000), min_size=1, max_size=3, unique=True),
        "count": st.integers(1, 300),
    }),
})  # fmt: skip


@settings(max_examples=60)
@given(SECTIONS)
def test_random_spaces_are_estimates_or_their_refusals(space: dict[str, Any]):
    for row in aisim.sweep(space).frame().itertuples():
        try:
            plan = aisim.Plan(
                aisim.load_model(row.model),
                [aisim.Request(new_tokens=row.new_tokens, prefix_tokens=row.prefix_tokens,
                               kind=row.kind, count=row.count)],
                parallel=aisim.Parallel(tp=row.tp), policy=aisim.policy(row.policy),
            )  # fmt: skip
            answer = aisim.estimate(plan, aisim.load_hardware(row.hardware), row.method)
        except aisim.AisimError:
            assert row.status == "refused"
            assert row.reason
        else:
            assert row.status == "ok"
            assert row.latency_ms == pytest.approx(answer.latency_ms, rel=1e-9)


def test_a_setting_says_what_only_others_change():
    """A preset's own value stands where another setting changes it, so that conditions see it."""
    space = SMALL | {"method": "sol", "requests": {"new_tokens": [5, 9]}}
    every = aisim.sweep(space).frame()
    assert every["decoder_replay"].notna().all()
    fast = aisim.sweep(
        space | {"where": ["hbm_bandwidth_bytes_per_s >= 8e12", "not decoder_replay"]}
    ).frame()
    kept = every[(every.hbm_bandwidth_bytes_per_s >= 8e12) & ~every.decoder_replay]
    assert set(kept["policy"]) == {"sglang", "vllm"}
    same(fast, kept)


def test_conditions_leave_points_out_and_numbers_stay():
    every = aisim.sweep(SMALL).frame()
    some = aisim.sweep(
        SMALL | {"where": ["tp * dp <= 4", "new_tokens + prefix_tokens <= 8192", "method == 'sol'"]}
    ).frame()
    kept = every[
        (every.tp * every.dp <= 4)
        & (every.new_tokens + every.prefix_tokens <= 8192)
        & (every.method == "sol")
    ]
    assert 0 < len(kept) < len(every)
    same(some, kept)


def test_points_that_cannot_run_stay_with_their_reason():
    frame = aisim.sweep({
        "hardware": "gb300", "method": "op",
        "parallel": [{"tp": 4}, {"tp": 3}, {"tp": 4, "ep": 3}],
        "requests": {"new_tokens": [1, 8], "kind": ["prefill", "decode"],
                     "prefix_tokens": [0, 2_000_000]},
    }).frame()  # fmt: skip
    assert len(frame) == 3 * 8
    refused = frame[frame.status == "refused"]
    assert refused["latency_ms"].isna().all()
    assert refused["tokens_per_s_per_gpu"].isna().all()
    assert refused["reason"].notna().all()
    good = frame[frame.status == "ok"]
    assert good["reason"].isna().all()
    assert set(good["tp"]) == {4}
    assert len(good) == 3  # no 8 tokens a decode, nothing beyond the model's context
    assert refused["reason"].str.contains("kind 'decode': a decode step computes one").any()
    assert refused[refused.tp == 3]["reason"].nunique() == 1
    for row in refused.itertuples():
        with pytest.raises(aisim.AisimError) as error:
            priced(row)
        assert str(error.value) == row.reason


def priced(row: Any) -> float:
    """A refused point, asked for on its own."""
    mapping = aisim.Parallel(tp=row.tp, ep=row.ep)
    model, gpu = aisim.load_model(row.model), aisim.load_hardware(row.hardware)
    step = aisim.compile(model, gpu, parallel=mapping)
    request = aisim.Request(
        new_tokens=row.new_tokens, prefix_tokens=row.prefix_tokens, kind=row.kind
    )
    return step([request])


def test_memory_is_said_where_it_is_asked_for():
    space = {"hardware": ["gb300", "h100"], "parallel": {"tp": [1, 8]}, "method": "sol",
             "policy": "vllm", "memory": True,
             "requests": {"kind": "decode", "new_tokens": 1, "prefix_tokens": [1024, 500_000],
                          "count": [1, 400]}}  # fmt: skip
    frame = aisim.sweep(space).frame()
    assert {"ok", "does_not_fit"} <= set(frame["status"])
    for row in frame.itertuples():
        plan = aisim.Plan(
            aisim.load_model("deepseek-v4.1-flash"),
            [aisim.Request(new_tokens=1, prefix_tokens=row.prefix_tokens, kind="decode",
                           count=row.count)],
            parallel=aisim.Parallel(tp=row.tp), policy=aisim.policy("vllm"),
        )  # fmt: skip
        memory = aisim.estimate(plan, aisim.load_hardware(row.hardware), method="sol").memory
        assert row.fits == memory.fits
        assert row.short_bytes == memory.short_bytes
        assert row.latency_ms > 0
        assert (row.status == "ok") == memory.fits
        assert memory.fits or "GiB short" in row.reason
