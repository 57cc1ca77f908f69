"""Every combination of mapping, policy and step answers, or is refused as unsupported.

No third outcome: no other error, no negative time, no infinity. One compiled step serves many
combinations, since it is what takes time to make.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cache
from math import isfinite
from random import Random

import pytest
from oracle.combinations import any_parallel, any_runtime, any_step

import aisim_v41 as aisim
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledSol, CompiledStep
from aisim_v41.hardware import Hardware
from aisim_v41.memory import capacity
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request

GPUS = ("b200", "b200", "gb300", "h200", "mi300x", "mi355x", "rtx_pro_6000")
MODEL = aisim.load_model("deepseek-v4.1-flash")
STEPS_A_SETTING = 110
"""Steps of one mapping and policy that can be compiled."""
REFUSED = "refused"


@cache
def gpu(name: str) -> Hardware:
    return aisim.load_hardware(name)


def compiled(hardware: Hardware, parallel: Parallel, policy: RuntimePolicy) -> CompiledStep | None:
    """The step function; None where it is refused, as the plan then is too."""
    try:
        return CompiledSol(MODEL, hardware, parallel, policy)
    except UnsupportedPlanError:
        return None


def outcome(step: CompiledStep, requests: list[Request]) -> str:
    """ "answered", or the class of refusal."""
    try:
        seconds = step(requests)
    except UnsupportedPlanError:
        return REFUSED
    assert isfinite(seconds)
    assert seconds >= 0
    rows = sum(request.count * request.new_tokens for request in requests)
    assert seconds > 0 or rows == 0
    return "answered"


def tried(combinations: int, seed: int) -> Counter[str]:
    """Outcomes of so many different combinations; a refused mapping or policy counts as one."""
    random, found = Random(seed), Counter[str]()
    while found.total() < combinations:
        hardware, parallel = gpu(random.choice(GPUS)), any_parallel(random)
        policy = any_runtime(random)
        step = compiled(hardware, parallel, policy)
        if step is None:
            found[REFUSED] += 1
            continue
        for _ in range(STEPS_A_SETTING):
            requests = any_step(random, parallel.dp)
            try:
                found[outcome(step, requests)] += 1
            except Exception as error:
                error.add_note(f"{hardware.name} {parallel} {policy} {requests}")
                raise
    return found


def test_every_combination_answers_or_is_refused():
    found = tried(20_000, seed=41)
    assert found.total() >= 20_000
    assert found["answered"] > 8_000
    assert found[REFUSED] > 1_000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_more_combinations(seed: int):
    assert tried(40_000, seed)["answered"] > 15_000


def whole_answer(random: Random, method: str) -> str:
    """Plan, estimate, operators and memory of one combination."""
    hardware, parallel, policy = gpu(random.choice(GPUS)), any_parallel(random), any_runtime(random)
    if random.random() < 0.7:
        parallel = Parallel(tp=random.choice((1, 2, 4, 8)))
    requests = any_step(random, parallel.dp)
    try:
        answer = aisim.estimate(
            aisim.Plan(MODEL, requests, parallel, policy), hardware, method=method
        )
    except UnsupportedPlanError:
        return REFUSED
    assert isfinite(answer.latency_s)
    assert answer.latency_s >= 0
    assert sum(answer.path.values()) == pytest.approx(answer.latency_s, rel=1e-6, abs=1e-9)
    assert all(isfinite(row.seconds) and row.seconds >= 0 for row in answer.rows)
    with suppress(UnsupportedPlanError):
        assert answer.memory.bytes > 0
    step = aisim.compile(MODEL, hardware, parallel=parallel, policy=policy, method=method)
    assert step(requests) == pytest.approx(answer.latency_s, rel=1e-9)
    return "answered"


@pytest.mark.parametrize(("method", "combinations"), [("sol", 60), ("op", 12)])
def test_whole_answers_have_the_same_two_outcomes(method: str, combinations: int):
    random, found = Random(7), Counter[str]()
    for _ in range(combinations):
        state = random.getstate()
        try:
            found[whole_answer(random, method)] += 1
        except Exception as error:
            random.setstate(state)
            drawn = random.choice(GPUS), any_parallel(random), any_runtime(random)
            error.add_note(f"{drawn}")
            raise
    assert found["answered"] > combinations // 4


def test_what_fits_has_the_same_two_outcomes():
    random, found = Random(3), Counter[str]()
    for _ in range(150):
        hardware, parallel, policy = (
            gpu(random.choice(GPUS)), any_parallel(random), any_runtime(random)
        )  # fmt: skip
        if random.random() < 0.5:
            parallel = Parallel(tp=random.choice((1, 2, 4, 8)))
        length, requests = random.choice((1, 4096, 1 << 20)), random.choice((1, 8, 512))
        try:
            report = capacity(
                MODEL, hardware, parallel, policy, max_length=length, requests=requests
            )
        except UnsupportedPlanError:
            found[REFUSED] += 1
            continue
        assert report.explain()
        found["answered"] += 1
    assert found["answered"] > 50
