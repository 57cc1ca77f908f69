"""Execution modes: the host path of eager forwards, and what graphs leave of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.op.compiled import CompiledOp, compiled_op
from aisim_v41.estimators.result import Estimate
from aisim_v41.evidence.calibration import Launch, load_calibration
from aisim_v41.evidence.host_calls import HostCalls, load_host_calls
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request
from aisim_v41.tables import load_table
from aisim_v41.validation.cases import Case, load_cases
from aisim_v41.validation.conversion import Conversion
from aisim_v41.validation.convert import convert
from aisim_v41.validation.prediction import executed

from .cases import gpu, model

EAGER = policy("sglang", prefill_execution="eager", decode_execution="eager")
SHORT = [Request(new_tokens=96)]
DECODE = [Request(new_tokens=1, prefix_tokens=1024, kind="decode")]


def compiled(runtime: RuntimePolicy = EAGER, on: str = "gb300", tp: int = 4) -> CompiledOp:
    return compiled_op(model(), gpu(on), Parallel(tp=tp), runtime)


def answer(requests: list[Request], runtime: RuntimePolicy = EAGER, on: str = "gb300") -> Estimate:
    plan = Plan(model(), requests, Parallel(tp=4), runtime)
    return estimate(plan, gpu(on), method="op")


def parts(on: str) -> tuple[HostCalls, Launch]:
    return load_host_calls("sglang")[0], load_calibration(load_hardware(on)).launch


# --- the inventory against measured modules ---------------------------------------------------

ATTENTION = [
    "q_down",
    "q_norm",
    "q_up",
    "q_rope",
    "kv_down",
    "kv_store",
    "sparse_attention",
    "inverse_rope",
    "o_down",
    "o_up",
]
INDEX = ["index_query", "index_query_rope", "index_weights", "index_score", "index_select"]
COMPRESS = ["compress_project", "compress_pool", "main_store", "index_key", "index_key_store"]
STREAMS = ["mhc_statistics", "mhc_collapse", "mhc_expand"]
MODULES = {
    "swa": (ATTENTION, "window_only", 0, 1),
    "reuse_r2": (ATTENTION, "reuse", 2, 1),
    "reuse_r1": (ATTENTION, "reuse", 1, 1),
    "full_r2": ([*ATTENTION, *INDEX, *COMPRESS], "full", 2, 1),
    "full_r1": ([*ATTENTION, *INDEX, *COMPRESS], "full", 1, 1),
    "reindex_r1": ([*ATTENTION, *INDEX], "reindex", 1, 1),
    "mhc": (STREAMS, "reuse", 1, 2),
    "engram_layer_1": (["engram_lookup", "engram_project", "engram_gate"], "", 0, 1),
}
"""Operators, kind and ratio of a layer, and how often, of each measured module."""


def module_errors(on: str, tp: int) -> dict[tuple[str, str], float]:
    """Counted over measured floor, less 1, of every module and phase."""
    calls, host = parts(on)
    frame = load_table(on, "v41_modules").to_frame()
    frame = frame[(frame["flag"] == "") & (frame["caveat"] == "")]
    frame = frame[frame["tensor_parallel"].isin([tp, 0]) & (frame["prefill_rows"] == "all")]
    found = {}
    for (module, phase), rows in frame.groupby(["operator", "phase"]):
        if module not in MODULES:
            continue
        operators, kind, ratio, times = MODULES[module]
        small = rows[rows["tokens"] <= 128] if phase == "any" else rows
        mode = "decode" if phase == "any" else phase
        counted = sum(calls.calls(name, mode, kind, ratio).seconds(host) for name in operators)
        found[module, phase] = times * counted * 1e6 / float(small["latency_us"].median()) - 1
    return found


@pytest.mark.parametrize("on", ["b200", "gb200"])
def test_counts_are_those_of_the_two_hosts_that_they_were_read_from(on: str):
    errors = module_errors(on, 4)
    assert len(errors) == 14
    assert max(map(abs, errors.values())) < 0.10


@pytest.mark.parametrize(
    ("on", "typical"), [("gb300", 0.12), ("b300", 0.12), ("h200", 0.16), ("h100", 0.17)]
)
def test_floors_of_hosts_that_did_not_enter(on: str, typical: float):
    """The hosts of GB300 and B300 ran whole forwards, their streams one after another."""
    errors = np.abs(list(module_errors(on, 4).values()))
    assert np.median(errors) < typical
    assert errors.max() < 0.45


def test_every_operator_of_the_backbone_is_in_the_inventory():
    calls, _ = load_host_calls("sglang")
    graph = compiled(policy("sglang", fusion="elementary")).tasks
    paper = compiled(policy("paper")).tasks
    names = {name for task in (*graph, *paper) for name in task.replaces}
    assert names <= set(calls.operators)
    assert calls.breaks <= set(calls.operators)


# --- forwards ---------------------------------------------------------------------------------


def eager_cases() -> list[tuple[Case, Conversion]]:
    found = []
    for case in load_cases():
        if case.name.startswith("gb300-eager-") and case.gpus == 4 and case.parallel.tp == 4:
            conversion = convert(case)
            assert isinstance(conversion, Conversion)
            found.append((case, conversion))
    return found


def test_eager_forwards_of_gb300_zero_shot():
    """No forward entered: calls are from B200's and GB200's modules. Target: 6 % in the median."""
    errors, inside = [], []
    for case, conversion in eager_cases():
        way = conversion.claims[0].ways[0]
        runtime = executed(case, way.preset)
        assert runtime.prefill_execution == runtime.decode_execution == "eager"
        (part,) = way.parts
        one = estimate(
            Plan(model(), list(part.requests), conversion.machine.parallel, runtime),
            load_hardware("gb300"),
            method="op",
        )
        errors.append(one.latency_ms / conversion.measured_ms - 1)
        inside.append(one.band_ms[0] <= conversion.measured_ms <= one.band_ms[1])
    assert len(errors) >= 70
    assert np.median(np.abs(errors)) < 0.06
    assert np.quantile(np.abs(errors), 0.9) < 0.10
    assert np.mean(inside) > 0.8


def test_the_host_is_a_property_of_the_machine_not_of_the_gpu():
    grace, x86 = answer(DECODE, on="gb300").host_s, answer(DECODE, on="b300").host_s
    assert 1.5 < grace / x86 < 2.0
    assert answer(DECODE, on="h200").host_s == pytest.approx(x86, rel=1e-12)
    assert answer(DECODE, on="gb200").host_s == grace


def test_one_parameter_set_a_platform_has_three_costs():
    calls, host = parts("gb300")
    by_hand = 2.0 * 33e-6 + 3.0 * 55e-6 + 1.0 * 33e-6
    assert type(calls.other)(2.0, 3.0, 1.0).seconds(host) == pytest.approx(by_hand)


def test_the_longer_path_decides_and_says_so():
    short = answer(SHORT)
    (forward,) = short.breakdown.forwards
    assert short.latency_s == short.host_s > 5 * forward.device_s  # type: ignore[attr-defined]
    assert next(iter(short.path)) == "host"
    assert sum(short.path.values()) == pytest.approx(short.latency_s)
    assert short.source_share["host"] > 0.8
    assert short.timeline()["bound"].iloc[-1] == "host"
    assert short.timeline()["end_ms"].max() == pytest.approx(short.latency_ms)
    assert "decides" in short.explain()
    assert json.loads(json.dumps(short.to_dict()))["host_ms"] == short.latency_ms
    long = answer([Request(new_tokens=65536)])
    assert long.host_s == short.host_s < long.latency_s
    assert "host" not in long.source_share
    assert "is hidden" in long.explain()


def test_the_band_of_an_eager_step_is_that_of_its_host():
    one = answer(DECODE)
    low, high = one.band_s
    assert (high - one.latency_s) / one.latency_s == pytest.approx(
        compiled().host.error_relative, rel=1e-6
    )
    assert low < one.latency_s < high


def test_kernels_alone_are_free_of_the_host():
    one = compiled()
    captured = compiled(policy("sglang", prefill_execution="full_graph"))
    (forward,) = answer(SHORT).breakdown.forwards
    assert float(one.device_seconds(forward.counts)) == pytest.approx(captured(SHORT))
    assert one(SHORT) > 3 * captured(SHORT)


def test_a_graph_costs_the_host_nothing():
    graph = answer(DECODE, policy("sglang"))
    assert graph.host_s == 0
    assert graph.latency_s < answer(DECODE).latency_s / 10


def test_a_breakable_graph_leaves_the_breaks():
    """vLLM runs attention eagerly between captured pieces, up to a size."""
    runs = policy("vllm")
    pieces, eager = (
        answer([Request(new_tokens=tokens, prefix_tokens=65536)], runs, on="b200").host_s
        for tokens in (640, 1025)
    )
    assert 0.4 * eager < pieces < 0.7 * eager


def test_late_layers_of_a_trimmed_step_break_a_graph():
    sizes = {"prefill_execution": "breakable_graph", "prefill_graph_tokens": 0}
    off, on = (policy("vllm", decoder_replay=replay, **sizes) for replay in (False, True))
    step = [Request(new_tokens=512)]
    whole = answer(step, policy("vllm", prefill_execution="eager"), on="b200").host_s
    assert answer(step, off, on="b200").host_s < answer(step, on, on="b200").host_s < whole


def test_layers_without_rows_cost_the_host_nothing():
    """An early chunk of TensorRT-LLM runs no late layers."""
    replay = policy("trtllm", decoder_replay=True)
    early = Request(new_tokens=2048, prompt_tokens=8192)
    last = Request(new_tokens=2048, prefix_tokens=6144, prompt_tokens=8192)
    assert answer([early], replay).host_s < 0.7 * answer([last], replay).host_s


def test_no_rows_take_no_time():
    one = compiled()
    assert one([]) == 0
    assert one([Request(new_tokens=0, prefix_tokens=64, kind="decode")]) == 0


# --- captured sizes ---------------------------------------------------------------------------


def decode(batch: int) -> list[Request]:
    return [Request(new_tokens=1, prefix_tokens=2048, kind="decode", count=batch)]


def test_a_step_between_two_sizes_takes_the_larger_graph():
    one = compiled(policy("sglang"))
    every = compiled(policy("sglang", decode_graph_sizes="every"))
    assert one(decode(8)) == every(decode(8))
    assert every(decode(9)) < one(decode(9)) <= every(decode(12))
    assert one(decode(9)) < one(decode(12)) * (1 + 1e-9)


def test_above_the_largest_graph_a_step_is_eager():
    runs = policy("sglang", decode_graph_sizes="1-8")
    assert answer(decode(8), runs).host_s == 0
    above = answer(decode(9), runs)
    assert above.latency_s == above.host_s == answer(decode(9)).host_s
    assert compiled(runs)(decode(9)) == pytest.approx(above.latency_s)


@settings(deadline=None, max_examples=30)
@given(batch=st.integers(1, 599), prefix=st.integers(0, 30000))
def test_one_more_request_is_never_faster(batch: int, prefix: int):
    one = compiled(policy("sglang"))
    fewer, more = (
        one([Request(new_tokens=1, prefix_tokens=prefix, kind="decode", count=n)])
        for n in (batch, batch + 1)
    )
    assert fewer <= more * (1 + 1e-9)


def test_a_sweep_is_the_steps_one_by_one():
    import pandas as pd

    frame = pd.DataFrame(
        {
            "new_tokens": [1, 1, 96, 6, 1, 16384],
            "prefix_tokens": [1024, 1024, 0, 4096, 64, 0],
            "kind": ["decode", "decode", "prefill", "verify", "decode", "prefill"],
            "count": [1, 513, 1, 5, 9, 1],
        }
    )
    for runtime in (policy("sglang"), policy("vllm"), EAGER):
        one = compiled(runtime)
        alone = [one([Request(**row)]) * 1e3 for row in frame.to_dict(orient="records")]
        np.testing.assert_allclose(one.sweep(frame)["latency_ms"], alone, rtol=1e-9)
