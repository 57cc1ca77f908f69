"""What an estimate shows: rows, critical path, timeline, text; all of the same numbers."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings

from aisim_v41.estimators.resources import Resource
from aisim_v41.estimators.result import Estimate, layer_span
from aisim_v41.ops.graph import tasks_of
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from estimators.cases import POLICIES, estimated, policies, step, steps

PREFILL = Request(new_tokens=8192)
DECODE = Request(new_tokens=1, prefix_tokens=32_768, kind="decode", count=32)
MIXED = [PREFILL, Request(new_tokens=64, prefix_tokens=8192), DECODE]

SHOWN = {
    f"{name}, {kind}": (requests, POLICIES[name])
    for name in ("paper, replay", "paper, elementary", "sglang, replay", "vllm", "trtllm, replay")
    for kind, requests in (("prefill", [PREFILL]), ("decode", [DECODE]), ("mixed", MIXED))
}
shown = pytest.mark.parametrize(("requests", "runtime"), SHOWN.values(), ids=SHOWN)


def above(time: float) -> float:
    return time * (1 - 1e-12)


# --- rows ----------------------------------------------------------------------------------------


@shown
@pytest.mark.parametrize("tp", [1, 4])
def test_rows_add_up_to_the_work_of_the_step(requests, runtime, tp: int):
    """Resource seconds, FLOP, bytes, messages and launches, against the graph task by task."""
    found, compiled = estimated(requests, runtime, tp=tp), step(runtime, tp=tp)
    from aisim_v41.plan.ledger import ledger

    ((_, counts),) = ledger(found.plan).passes
    totals = dict(zip(compiled.program.columns, counts.totals.tolist(), strict=True))

    def of(form) -> float:
        return sum(value * totals[column] for column, value in form.items())

    tasks = list(tasks_of(compiled.graph))
    expected = {
        "flop": sum(of(form) for task in tasks for form in task.flops.values()),
        "bytes": sum(of(form) for task in tasks for form in task.traffic.values()),
        "messages": sum(of(task.payload) for task in tasks),
        "launches": sum(of(task.launches) for task in tasks),
    }
    rows = found.rows
    assert {
        "flop": sum(row.flop for row in rows),
        "bytes": sum(sum(row.bytes_by_kind.values()) for row in rows),
        "messages": sum(row.message_bytes for row in rows),
        "launches": sum(row.launches for row in rows),
    } == pytest.approx(expected, rel=1e-12)
    for resource in Resource:
        spent = sum(row.seconds_by_resource[resource] for row in rows)
        assert found.resource_s[resource] == pytest.approx(spent, rel=1e-12)
        alone = sum(of(compiled.price(task).seconds[resource]) for task in tasks)
        assert spent == pytest.approx(alone, rel=1e-12)


@shown
def test_rows_are_consistent_in_themselves(requests, runtime):
    for row in estimated(requests, runtime).rows:
        assert row.seconds == pytest.approx(max(row.seconds_by_resource.values()), rel=1e-12)
        assert row.bound in [
            name for name, spent in row.seconds_by_resource.items() if spent >= above(row.seconds)
        ]
        assert row.calls == len(row.layers)
        assert row.source
        assert row.replaces


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=policies, requests=steps)
def test_no_time_below_its_own_resources_and_none_above_its_rows(name: str, requests: list):
    """Each resource is busy for at most the whole time; all rows one after another take longest."""
    found = estimated(requests, POLICIES[name])
    for resource, busy in found.resource_s.items():
        assert above(busy) <= found.latency_s
        assert 0 <= found.utilisation[resource] <= 1 + 1e-12
    assert above(found.latency_s) <= sum(row.seconds for row in found.rows)


@shown
def test_the_frame_shows_the_rows(requests, runtime):
    found = estimated(requests, runtime)
    frame = found.to_frame()
    assert len(frame) == len(found.rows) > 20
    assert frame.time_ms.sum() == pytest.approx(1000 * sum(row.seconds for row in found.rows))
    assert frame.flop.sum() == pytest.approx(sum(row.flop for row in found.rows))
    assert list(frame.columns) == [
        "operator", "family", "layers", "calls", "rows", "flop", "bytes", "message_bytes",
        "launches", "time_ms", "bound", "source",
    ]  # fmt: skip
    assert not frame.isna().any().any()


def test_every_layer_is_in_the_frame_once():
    """Attention, experts and both expansions of all 40 layers, whatever the layer."""
    rows = estimated([PREFILL], POLICIES["paper, elementary"]).rows
    for name, times in {"sparse_attention": 1, "routed_experts": 1, "mhc_expand": 2}.items():
        layers = sorted(layer for row in rows if row.operator == name for layer in row.layers)
        assert layers == sorted([*range(40)] * times), name


def test_layers_print_as_runs():
    assert layer_span((0, 1, 21, 22, 23)) == "0-1, 21-23"
    assert layer_span((-1,)) == "-1"
    assert layer_span(()) == ""
    assert layer_span((3, 5, 7)) == "3, 5, 7"


# --- critical path -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=policies, requests=steps)
def test_the_critical_path_is_the_graph_bound(name: str, requests: list):
    found = estimated(requests, POLICIES[name])
    assert sum(found.path.values()) == pytest.approx(found.bounds.graph_s, rel=1e-9)
    assert list(found.path.values()) == sorted(found.path.values(), reverse=True)
    assert all(seconds >= 0 for seconds in found.path.values())


@shown
def test_the_critical_path_names_operators_that_exist(requests, runtime):
    found = estimated(requests, runtime)
    spent = {}
    for row in found.rows:
        spent[row.operator] = spent.get(row.operator, 0.0) + row.seconds
    for name, seconds in found.path.items():
        if name.startswith("shared "):
            assert name.removeprefix("shared ") in set(Resource)
        else:
            assert above(seconds) <= spent[name]


def test_a_decode_step_shows_what_it_waits_for():
    """Most of it is named; what is shared is the rest, not the whole."""
    path = estimated([DECODE], POLICIES["paper"], tp=1).path
    shared = sum(seconds for name, seconds in path.items() if name.startswith("shared "))
    assert shared < 0.4 * sum(path.values())
    assert next(iter(path)) == "routed_experts"


# --- timeline ------------------------------------------------------------------------------------


@shown
@pytest.mark.parametrize("tp", [1, 4])
def test_the_timeline_ends_with_the_step(requests, runtime, tp: int):
    found = estimated(requests, runtime, tp=tp)
    timeline = found.timeline()
    assert timeline.start_ms.min() == 0.0
    assert timeline.end_ms.max() == pytest.approx(found.latency_ms, rel=1e-9)
    assert (timeline.end_ms > timeline.start_ms).all()


@shown
@pytest.mark.parametrize("tp", [1, 4])
def test_nothing_overlaps_in_a_lane(requests, runtime, tp: int):
    timeline = estimated(requests, runtime, tp=tp).timeline()
    slack = 1e-9 * timeline.end_ms.max()
    for _, lane in timeline.groupby("lane"):
        spans = sorted(zip(lane.start_ms, lane.end_ms, strict=True))
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert end <= start + slack


@shown
@pytest.mark.parametrize("tp", [1, 4])
def test_every_task_is_in_the_timeline(requests, runtime, tp: int):
    """As often as it runs, for as long as it takes."""
    found = estimated(requests, runtime, tp=tp)
    timeline = found.timeline()
    tasks = timeline[~timeline.operator.str.startswith("shared ")]
    times = (tasks.end_ms - tasks.start_ms).groupby(tasks.operator).sum()
    calls = tasks.groupby("operator").size()
    expected_times, expected_calls = {}, {}
    for row in found.rows:
        if row.seconds:
            expected_times[row.operator] = (
                expected_times.get(row.operator, 0.0) + 1000 * row.seconds
            )
            expected_calls[row.operator] = expected_calls.get(row.operator, 0) + row.calls
    assert calls.to_dict() == expected_calls
    assert times.to_dict() == pytest.approx(expected_times, rel=1e-6)


def test_layers_follow_each_other_in_the_timeline():
    """In the lane of the main chain."""
    timeline = estimated([PREFILL], POLICIES["sglang, replay"]).timeline()
    main = timeline[timeline.lane == 0].sort_values("start_ms")
    assert main.layer.is_monotonic_increasing
    assert set(main.layer) == {-1, *range(41)}


# --- text and data -------------------------------------------------------------------------------


@shown
def test_plain_data_is_json(requests, runtime):
    found = estimated(requests, runtime)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["latency_ms"] == found.latency_ms
    assert data["band_ms"] == [found.latency_ms, None]
    assert (
        data["bounds_ms"]["resource"] <= data["bounds_ms"]["graph"] <= data["bounds_ms"]["launch"]
    )
    assert len(data["operators"]) == len(found.rows)
    assert data["requests"] == [repr(request) for request in requests]


def test_changed_policy_fields_are_echoed():
    changed = policy("sglang", decoder_replay=True, kv_layout="sglang_v4")
    data = estimated([DECODE], changed).to_dict()
    assert data["policy"] == "sglang"
    assert data["policy_changed_fields"] == {"decoder_replay": "True", "kv_layout": "sglang_v4"}


@shown
def test_explanations_show_the_bounds_and_the_largest_operators(requests, runtime):
    found = estimated(requests, runtime)
    text = found.explain()
    assert f"at least {found.latency_ms:.3f} ms" in text
    for name in ("resource bound", "graph bound", "launch bound", "busy:", "note:"):
        assert name in text
    spent: dict[str, float] = {}
    for row in found.rows:
        spent[row.operator] = spent.get(row.operator, 0.0) + row.seconds
    for name in sorted(spent, key=lambda operator: -spent[operator])[:5]:
        assert name in text


def test_a_bound_has_no_upper_end():
    found = estimated([DECODE], POLICIES["paper"])
    assert found.band_s == (found.latency_s, math.inf)
    assert found.source_share == dict.fromkeys({row.source for row in found.rows}, 1.0)


def test_tables_outside_of_memory_are_part_of_the_time():
    def fetched(place: str) -> Estimate:
        return estimated([DECODE], policy("sglang", engram_residency=place))

    assert fetched("hbm").resource_s["host_link"] == 0
    for place in ("host_sharded", "host_shared"):
        assert fetched(place).resource_s["host_link"] > 0
        assert not any("engram" in note for note in fetched(place).warnings)


PROGRAM = """
import hashlib
import aisim_v41 as aisim
model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
for name in ("paper", "sglang", "vllm"):
    plan = aisim.Plan(model, [aisim.Request(new_tokens=3001), aisim.Request(new_tokens=1,
        prefix_tokens=20001, kind="decode", count=7)], parallel=aisim.Parallel(tp=4),
        policy=aisim.policy(name, decoder_replay=True))
    step = aisim.compile(model, gpu, parallel=plan.parallel, policy=plan.policy)
    found = aisim.estimate(plan, gpu)
    print(step(plan.requests).hex(), found.latency_s.hex(), found.bounds)
    shown = repr((found, found.rows, found.path))
    print(hashlib.sha256(shown.encode()).hexdigest())
    print(hashlib.sha256(found.explain().encode()).hexdigest())
"""


def test_the_same_bytes_in_every_process():
    """No result depends on the order of a set or on the hash seed."""
    answers = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4321")
    }
    assert len(answers) == 1
    assert len(answers.pop().splitlines()) == 9
