"""Arguments of the wrong kind, and methods that do not exist, are refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledSol
from aisim_v41.estimators.entry import ESTIMATORS, compile, estimate
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from estimators.cases import gpu, model, step

PLAN = Plan(model(), [Request(new_tokens=8)])


def test_methods():
    assert "sol" in ESTIMATORS
    for name in ("auto", *ESTIMATORS.keys() - {"fpm"}):
        assert estimate(PLAN, gpu(), name).method in ESTIMATORS
        assert compile(model(), gpu(), method=name).method in ESTIMATORS
    assert estimate(PLAN, gpu()).latency_s == estimate(PLAN, gpu(), "op").latency_s
    assert estimate(PLAN, gpu()).method == "op"


UNKNOWN_METHODS = [
    None, 5, "", "SOL", "theoretical", [], {}, b"sol", np.array([1, 2]), np.array(["auto"] * 2),
]  # fmt: skip


@pytest.mark.parametrize("method", UNKNOWN_METHODS, ids=repr)
def test_unknown_methods(method: object):
    for call in (
        lambda: estimate(PLAN, gpu(), method),
        lambda: compile(model(), gpu(), method=method),
    ):
        with pytest.raises(InvalidInputError, match=r"method = .*must be one of auto, .*sol"):
            call()


@pytest.mark.parametrize("plan", [None, 5, [], "plan", model(), [PLAN]])
def test_plan(plan: object):
    with pytest.raises(InvalidInputError, match=r"plan = .*must be a Plan"):
        estimate(plan, gpu())


@pytest.mark.parametrize("hardware", [None, 5, "gb300", {}, model(), gpu])
def test_hardware(hardware: object):
    for call in (lambda: estimate(PLAN, hardware), lambda: compile(model(), hardware)):
        with pytest.raises(InvalidInputError, match=r"hardware = .*must be a Hardware"):
            call()


@pytest.mark.parametrize("wrong", [None, 5, "deepseek-v4.1-flash", {}, gpu()])
def test_model(wrong: object):
    with pytest.raises(InvalidInputError, match=r"model = .*load_model"):
        compile(wrong, gpu())


@pytest.mark.parametrize("parallel", [4, "tp4", {"tp": 4}, (4,)])
def test_parallel(parallel: object):
    with pytest.raises(InvalidInputError, match=r"parallel = .*must be a Parallel"):
        compile(model(), gpu(), parallel=parallel)


@pytest.mark.parametrize("runtime", [4, "sglang", {}, policy])
def test_policy(runtime: object):
    with pytest.raises(InvalidInputError, match=r"policy = .*must be a RuntimePolicy"):
        compile(model(), gpu(), policy=runtime)


NO_REQUESTS = [
    None, 5, 1.5, "prefill", b"x", [1], [None], [[]], {"new_tokens": 8}, [Request], np.ones(2),
    Request(new_tokens=8), [Request(new_tokens=8), "decode"],
]  # fmt: skip


@pytest.mark.parametrize("requests", NO_REQUESTS, ids=repr)
@pytest.mark.parametrize("name", ["paper", "sglang"])
def test_requests(requests: object, name: str):
    separate = policy(name, encoder_replay="separate")
    for runtime in (policy(name), separate):
        with pytest.raises(InvalidInputError, match=r"requests.*must be a (list of )?Request"):
            step(runtime)(requests)


def test_defaults_of_a_compiled_step():
    plain = compile(model(), gpu())
    assert (plain.parallel, plain.policy) == (Parallel(), policy("paper"))
    assert plain([Request(new_tokens=8)]) == estimate(PLAN, gpu()).latency_s


def test_mappings_that_have_no_step_model():
    for mapping, message in (
        (Parallel(tp=3), "tp = 3 does not divide 8 o_groups"),
        (Parallel(tp=16), "allowed: 1, 2, 4, 8"),
        (Parallel(tp=2, cp=2), r"Parallel\.cp = 2 with tp = 2"),
        (Parallel(dp=2, cp=2), r"Parallel\.cp = 2 with dp = 2"),
        (Parallel(cp=16), r"at most 8"),
        (Parallel(cp=3), "tp = 3 does not divide 8 o_groups"),
    ):
        with pytest.raises(UnsupportedPlanError, match=message):
            compile(model(), gpu(), parallel=mapping)


def test_earlier_generations_have_no_step_model():
    with pytest.raises(UnsupportedPlanError, match=r"deepseek-v3\.2"):
        compile(load_model("deepseek-v3.2"), gpu())


def test_a_domain_too_small_for_the_mapping():
    """More ranks than GPUs that the links reach."""
    lonely = replace(gpu(), link_domain_gpus=2, nic_bytes_per_s=None)
    assert compile(model(), lonely, parallel=Parallel(tp=2))
    with pytest.raises(UnsupportedPlanError, match=r"4 ranks on gb300: a link domain has 2"):
        compile(model(), lonely, parallel=Parallel(tp=4))


def test_building_an_estimator_reads_nothing():
    """STYLE 21: parameters only; a policy that is refused is refused when it is used."""
    for estimator in ESTIMATORS.values():
        assert vars(type(estimator)()) == {}
    with pytest.raises(UnsupportedPlanError, match="exclude each other"):
        CompiledSol(
            model(),
            gpu(),
            Parallel(),
            policy("sglang", decoder_replay=True, prefill_execution="full_graph"),
        )
