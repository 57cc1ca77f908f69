"""Published speculative steps beside ours: prices know nothing of these rows' speculation."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.reports.speculate import speculate
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.published import PUBLISHED
from aisim_v41.validation.cases import load_cases
from aisim_v41.validation.errors import CaseError, run_error_table

CONTEXT = 4096 + 512
"""Half way through the answers of the run: prompts of 4096, answers of 1024 tokens."""
TOLERANCE = 0.15
MODEL = aisim.load_model("deepseek-v4.1-flash")


def step_ratio(count: int, ep: int) -> float:
    """A step of 6 verify rows a request with its draft, over a plain one, on 4x MI355X; the run had
    a quarter of the experts on each."""
    one = aisim.Request(new_tokens=1, prefix_tokens=CONTEXT, kind="decode", count=count)
    plan = aisim.Plan(MODEL, [one], aisim.Parallel(tp=4, ep=ep), aisim.policy("sglang"))
    acceptance = PUBLISHED["benchmark"].acceptance()
    report = speculate(plan, aisim.load_hardware("mi355x"), acceptance, "op",
                       schedules=("off", "fixed"))  # fmt: skip
    plain, *_, whole = report.outcomes
    assert report.gain(whole) == pytest.approx(3.51 * plain.step_s / whole.step_s)
    return whole.step_s / plain.step_s


@pytest.mark.parametrize("ep", [1, 4])
def test_one_request_on_four_mi355x(ep: int):
    """Published: a step of 1.36 plain ones, 2.57 times the rate, at accept length 3.51."""
    ratio = step_ratio(1, ep)
    emitted = PUBLISHED["benchmark"].acceptance().expected_emitted()
    assert ratio == pytest.approx(1.36, rel=TOLERANCE)
    assert emitted / ratio == pytest.approx(2.57, rel=TOLERANCE)


@pytest.mark.parametrize("ep", [1, 4])
def test_thirty_two_requests_on_four_mi355x(ep: int):
    """Prompts of the same run stall its decodes, which leaves an interval: 1.5 ... 2.8."""
    assert 1.5 < step_ratio(32, ep) < 2.8


@pytest.mark.parametrize(("count", "measured_ms"), [(1, 5.71), (8, 10.42), (16, 12.53)])
def test_six_to_ninety_six_verify_rows_on_four_b200(count: int, measured_ms: float):
    """ITL p50 of vLLM at 64K of context, streams of a step each: notes of rows P0068 and P0069 of
    the public points (kkHuang-amd/claude-skills dsv41/results/b200_tp4_profile_1006.md)."""
    runtime = aisim.policy(
        "vllm", speculation="dspark", build="vllm-2026-09-20", engram_residency="host_sharded"
    )
    step = aisim.Request(new_tokens=6, prefix_tokens=65536 + 512, kind="verify", count=count)
    plan = aisim.Plan(MODEL, [step], aisim.Parallel(tp=4), runtime)
    found = aisim.estimate(plan, aisim.load_hardware("b200"), method="op")
    assert found.latency_ms == pytest.approx(measured_ms, rel=TOLERANCE)
    assert found.band_ms[0] < measured_ms < found.band_ms[1]


GB300 = {
    "gb300-39674-pr-step-c1": 0.05,
    "gb300-39674-base-step-c1": 0.05,
    "gb300-39370-step-c1": 0.05,
    "gb300-39301-pr-step-c1": 0.15,
    "gb300-39301-base-step-c1": 0.15,
    "gb300-38976-pr-step-c64": 0.15,
    "gb300-38976-base-step-c64": 0.15,
    "gb300-38976-pr-step-c1": 0.20,
    "gb300-38976-base-step-c1": 0.20,
}
"""Steps of SGLang's pull requests, draft included, and how near ours are. The oldest miss kernels
of the first days that no source counts (docs/builds.md, "What it does not reach")."""


@pytest.fixture(scope="module")
def steps() -> dict[str, CaseError]:
    cases = [case for case in load_cases() if case.name in GB300]
    return {error.case: error for error in run_error_table(MODEL, cases=cases).errors}


@pytest.mark.parametrize(("name", "tolerance"), GB300.items())
def test_steps_of_one_and_of_sixty_four_requests_on_four_gb300(
    name: str, tolerance: float, steps: dict[str, CaseError]
):
    """Each in the band of the engine build that its source ran."""
    assert steps[name].contained
    assert abs(steps[name].relative) < tolerance


def test_a_simulated_length_is_the_length():
    """SGLang's runs simulate 5.5: steps keep four drafts and, every other one, a fifth."""
    assert Acceptance.simulated(5.5, 5).distribution()[4:] == (0.5, 0.5)
