"""OP: kernels priced by laws, composed over the graph, and the evidence that is shown."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings

from aisim_v41.estimators.compare import compare
from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.op.builds import compiled_build
from aisim_v41.estimators.op.compiled import CompiledOp, compiled_op, serial
from aisim_v41.estimators.op.estimator import Op
from aisim_v41.estimators.op.evidence import Tag
from aisim_v41.estimators.result import Estimate
from aisim_v41.estimators.sol import Sol
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.graph import Fed, Node, Seq
from aisim_v41.ops.operator import Task
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

from .cases import GPUS, POLICIES, gpu, model, policies, steps
from .recursion import walk_fed

PREFILL = [Request(new_tokens=2048)]
VERIFY = [Request(new_tokens=6, prefix_tokens=4096, kind="verify", count=4)]
MIXED = [*PREFILL, *VERIFY]
SGLANG = policy("sglang")
ONE_STREAM = policy("sglang", decode_streams="single")
CAPTURED = policy("sglang", prefill_execution="full_graph")


def compiled(runtime: RuntimePolicy = SGLANG, *, on: str = "gb300") -> CompiledOp:
    return compiled_op(model(), gpu(on), Parallel(tp=4), runtime)


def plan_of(requests: list[Request], runtime: RuntimePolicy = SGLANG) -> Plan:
    return Plan(model(), requests, Parallel(tp=4), runtime)


def answer(requests: list[Request], runtime: RuntimePolicy = SGLANG, *, on: str = "gb300"):
    return Op().estimate(plan_of(requests, runtime), gpu(on))


def kernels_ms(one: Estimate) -> float:
    return float(one.to_frame()["time_ms"].sum())


@pytest.mark.parametrize("on", GPUS)
@pytest.mark.parametrize("requests", [PREFILL, MIXED], ids=["prefill", "mixed"])
def test_a_step_with_a_prefill_is_the_sum_of_its_kernels(requests: list[Request], on: str):
    one = answer(requests, CAPTURED, on=on)
    assert one.latency_ms == pytest.approx(kernels_ms(one), rel=1e-9)


def test_side_streams_hide_kernels_of_a_verify_step_and_only_there():
    beside, after = answer(VERIFY), answer(VERIFY, ONE_STREAM)
    assert kernels_ms(beside) == pytest.approx(kernels_ms(after), rel=1e-9)
    assert after.latency_ms == pytest.approx(kernels_ms(after), rel=1e-9)
    assert 0.5 * after.latency_ms < beside.latency_ms < after.latency_ms
    assert answer(PREFILL).latency_ms == answer(PREFILL, ONE_STREAM).latency_ms


@pytest.mark.parametrize(
    ("name", "on", "beside"),
    [
        ("sglang", "gb300", True), ("sglang", "h200", False), ("vllm", "h200", True),
        ("vllm", "mi355x", False), ("atom", "mi355x", False),
    ],
)  # fmt: skip
def test_who_uses_side_streams(name: str, on: str, beside: bool):
    assert compiled(policy(name), on=on).side_streams is beside


@settings(deadline=None, max_examples=60)
@given(requests=steps, name=policies)
def test_a_step_agrees_with_recursion_over_the_graph(requests: list[Request], name: str):
    """A block takes its longest member, but never less than its share of any one resource."""
    build = compiled_build(model(), gpu(), Parallel(tp=4), POLICIES[name])
    for _, counts in ledger(plan_of(requests, POLICIES[name])).passes:
        totals = counts.totals
        one = build.at(totals)
        alone = dict(zip(map(id, one.tasks), one.task_seconds(totals), strict=True))

        def cost(task: Task, one: CompiledOp = one, totals: np.ndarray = totals) -> list[float]:
            return [float(value) for value in one.totals(task) @ totals]

        if one.overlaps(totals):
            by_hand = by_recursion(one.side_by_side, alone, cost)
        else:
            by_hand = by_recursion(serial(one.graph), alone, cost)
        assert float(one.device_seconds(totals)) == pytest.approx(by_hand, rel=1e-9, abs=1e-15)


def by_recursion(graph: Node, alone: dict[int, float], cost: Callable) -> float:
    """As `recursion.seconds`, but a task takes what its law says, not its longest resource."""

    def walk(node: Node) -> tuple[float, list[float]]:
        if isinstance(node, Task):
            return float(alone[id(node)]), cost(node)
        if isinstance(node, Fed):
            return walk_fed(node, walk)
        found = [walk(member) for member in node.members]
        filled = [spent for _, spent in found if spent]
        total = [sum(column) for column in zip(*filled, strict=True)]
        times = [time for time, _ in found]
        return (sum(times) if isinstance(node, Seq) else max([0.0, *times, *total])), total

    return walk(graph)[0]


@settings(deadline=None, max_examples=60)
@given(requests=steps, name=policies)
def test_op_is_never_below_its_bound_and_inside_its_band(requests: list[Request], name: str):
    plan = plan_of(requests, POLICIES[name])
    for on in GPUS:
        op, sol = Op().estimate(plan, gpu(on)), Sol().estimate(plan, gpu(on))
        assert op.latency_s >= sol.latency_s * (1 - 1e-9)
        low, high = op.band_s
        assert op.bounds.graph_s * (1 - 1e-9) <= low <= op.latency_s <= high
        assert np.isfinite(high)


def test_a_product_by_hand():
    """t = launch + inner x inputs + ||compute/share, memory/share||, of the query projection."""
    one = compiled()
    place = next(i for i, task in enumerate(one.tasks) if "q_down" in task.replaces)
    task, (kernel,) = one.tasks[place], one.evidence[place]
    (_, counts), *_ = ledger(plan_of(VERIFY)).passes
    spent, p = one.price(task).seconds, kernel.law.parameters
    compute, memory = (
        sum(factor * counts.totals[one.program.columns.index(column)] for column, factor in f)
        for f in (spent["tensor"].items(), spent["hbm"].items())
    )
    compute += sum(
        factor * counts.totals[one.program.columns.index(column)]
        for column, factor in spent["scalar"].items()
    )
    norm = p["norm"]
    busy = (
        (compute / p["compute_share"]) ** norm + (memory / p["memory_share"]) ** norm
    ) ** (1 / norm)  # fmt: skip
    assert "quantised" in task.inputs  # the conversion of its input is another kernel's work
    by_hand = p["launch_s"] + p["inner_s"] * model().hidden + busy
    assert one.task_seconds(counts.totals)[place] == pytest.approx(by_hand, rel=1e-9)


def test_the_answer_says_what_it_rests_on():
    one = answer(MIXED, CAPTURED)
    assert one.method == "op"
    assert sum(one.source_share.values()) == pytest.approx(1.0)
    assert set(one.source_share) <= set(get_args(Tag))
    assert one.source_share["calibrated"] > 0.75
    assert one.source_share["interpolated"] > 0.03
    assert set(answer(MIXED, CAPTURED, on="mi355x").source_share) == {"default"}
    assert "calibrated" in one.explain()


def test_less_is_known_of_a_gpu_without_tables():
    def width(on: str, build: str = "any") -> float:
        one = answer(VERIFY, policy("sglang", build=build), on=on)
        return (one.band_s[1] - one.latency_s) / one.latency_s

    assert width("mi355x") > width("gb300", "sglang-2026-09-19")


def test_replay_saves_less_than_its_bound_says():
    """Fixed times of kernels do not shrink with their rows."""
    replay = policy("sglang", decoder_replay=True)
    plans = [plan_of([Request(new_tokens=8192)], one) for one in (SGLANG, replay)]
    off, on = (Op().estimate(plan, gpu()).latency_s for plan in plans)
    bound_off, bound_on = (Sol().estimate(plan, gpu()).bounds.resource_s for plan in plans)
    assert 1.0 < off / on < bound_off / bound_on


def test_a_sweep_is_the_steps_one_by_one():
    one = compiled_build(model(), gpu(), Parallel(tp=4), SGLANG)
    requests = [PREFILL, VERIFY, MIXED, [Request(new_tokens=1, prefix_tokens=9, kind="decode")]]
    counts = np.array([ledger(plan_of(r)).passes[0][1].totals for r in requests])
    together = one.seconds(counts.T)
    assert together == pytest.approx([float(one.seconds(row)) for row in counts], rel=1e-12)
    assert one(VERIFY) == pytest.approx(answer(VERIFY).latency_s, rel=1e-12)


def test_compare_ends_with_the_whole_step():
    table = compare(plan_of(VERIFY), gpu())
    whole = table.iloc[-1]
    assert whole["operator"] == "whole step"
    assert whole["op_ms"] == pytest.approx(answer(VERIFY).latency_ms)
    assert whole["sol_ms"] == pytest.approx(estimate(plan_of(VERIFY), gpu(), "sol").latency_ms)
    assert whole["calls"] == table["calls"].iloc[:-1].sum()
    assert table["op_ms"].iloc[:-1].sum() == pytest.approx(kernels_ms(answer(VERIFY)))
    assert (table["op_ms"] >= table["sol_ms"] * (1 - 1e-9)).all()
    assert list(table["op_ms"].iloc[:-1]) == sorted(table["op_ms"].iloc[:-1], reverse=True)


def test_compare_names_every_kind_of_evidence_of_an_operator():
    """The message of the last layers is a kernel of its own in decode, with a second source."""
    one = answer(VERIFY)
    table = compare(plan_of(VERIFY), gpu()).set_index("operator")
    for operator in {row.operator for row in one.rows}:
        kinds = {k for r in one.rows if r.operator == operator for k in r.source.split(" + ")}
        assert set(table.loc[operator, "source"].split(" + ")) == kinds


@pytest.mark.parametrize("method", ["sol", "op"])
def test_an_estimate_survives_a_pickle(method: str):
    one = estimate(plan_of(VERIFY), gpu(), method=method)
    assert one.rows
    assert one.path
    again = pickle.loads(pickle.dumps(one))
    assert again.latency_s == one.latency_s
    assert again.to_frame().equals(one.to_frame())
    assert again.timeline().equals(one.timeline())
