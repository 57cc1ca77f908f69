"""Every estimator passes every check, and the checks notice estimators that break a law."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aisim_v41.estimators.entry import ESTIMATORS, Estimator, compile
from aisim_v41.estimators.result import Estimate
from aisim_v41.hardware import Hardware
from aisim_v41.plan.plan import Plan
from contract import checks, measured
from contract.checks import CHECKS, REPLAY, SGLANG, STEPS, Check


@pytest.fixture(scope="module", autouse=True)
def forwards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measured forwards of all sizes, for the estimator that has nothing to say without."""
    root = tmp_path_factory.mktemp("forwards")
    measured.publish_everywhere(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AISIM_V41_PATH", str(root))
        yield


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_contract(estimator: Estimator, check: Check):
    check(estimator)


def test_every_check_is_run():
    own = [
        function
        for _, function in inspect.getmembers(checks, inspect.isfunction)
        if function.__module__ == checks.__name__
    ]
    takes_only_an_estimator = {
        f for f in own if list(inspect.signature(f).parameters) == ["estimator"]
    }
    assert takes_only_an_estimator == set(CHECKS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_compiled_steps_agree_with_estimates(name: str):
    for runtime in (SGLANG, REPLAY):
        for requests in STEPS:
            plan = checks.plan_of(list(requests), runtime)
            step = compile(
                plan.model, checks.gpu(), parallel=plan.parallel, policy=runtime, method=name
            )
            expected = ESTIMATORS[name].estimate(plan, checks.gpu()).latency_s
            assert step(requests) == pytest.approx(expected, rel=1e-12)


# --- estimators that break one law each ----------------------------------------------------------


class Altered:
    """The SOL estimator with something changed in its answer."""

    method = "altered"

    def estimate(self, plan: Plan, hardware: Hardware) -> Estimate:
        return self.change(ESTIMATORS["sol"].estimate(plan, hardware), plan)

    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, method=self.method)


class TooFast(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, latency_s=0.9 * found.latency_s)


class AtLeastOneSecond(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, latency_s=max(1.0, found.latency_s))


class FastestWhenLong(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        longest = max((request.end for request in plan.requests), default=0)
        return replace(found, latency_s=found.latency_s and 10 + 1 / (1 + longest))


class FastestWhenMany(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, latency_s=found.latency_s / (1 + sum(r.count for r in plan.requests)))


class AddsAFloorPerStep(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        many = len(plan.requests) > 1
        return replace(found, latency_s=found.latency_s + (1.0 if many else 0.0))


class LooksAtTheFirstRequest(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        extra = plan.requests[0].new_tokens if plan.requests else 0
        return replace(found, latency_s=found.latency_s + extra)


class ForgetsARow(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        vars(found)["rows"] = found.rows[1:]
        return found


class ForgetsItsSource(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, source_share={})


class NarrowBand(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, band_s=(0.0, 0.5 * found.latency_s))


class Counts(Altered):
    """Remembers how often it was asked, in itself and in its answers."""

    def __init__(self) -> None:
        self.asked = 0

    def change(self, found: Estimate, plan: Plan) -> Estimate:
        self.asked += 1
        return replace(found, warnings=(f"asked {self.asked} times",))


class ChangesThePolicy(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        object.__setattr__(plan.policy, "chunk_tokens", plan.policy.chunk_tokens + 1)
        return found


class Misnamed(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return found


class NeverEnds(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, latency_s=found.latency_s * float("inf") if found.latency_s else 0.0)


class BusierThanTheStep(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        return replace(found, resource_s=dict.fromkeys(found.resource_s, 2 * found.latency_s))


class SwappedBounds(Altered):
    def change(self, found: Estimate, plan: Plan) -> Estimate:
        bounds = found.bounds
        swapped = replace(bounds, resource_s=bounds.launch_s, launch_s=bounds.resource_s)
        return replace(found, bounds=swapped)


BREAKS: dict[type[Altered], tuple[Check, ...]] = {
    TooFast: (checks.speed_of_light_is_a_floor, checks.the_band_holds_the_estimate),
    AtLeastOneSecond: (checks.zero_work_is_zero_time,),
    FastestWhenLong: (
        checks.more_new_tokens_are_never_faster,
        checks.a_longer_context_is_never_faster,
    ),
    FastestWhenMany: (checks.more_requests_are_never_faster,),
    AddsAFloorPerStep: (
        checks.a_mixed_step_lies_between_its_largest_part_and_their_sum,
        checks.grouping_of_requests_changes_nothing,
    ),
    LooksAtTheFirstRequest: (checks.order_of_requests_changes_nothing,),
    ForgetsARow: (checks.rows_add_up_to_the_totals, checks.rows_do_the_work_of_every_estimator),
    ForgetsItsSource: (checks.every_time_names_its_source,),
    NarrowBand: (checks.the_band_holds_the_estimate,),
    Counts: (
        checks.the_same_question_has_the_same_answer,
        checks.construction_stores_parameters_and_nothing_else,
    ),
    ChangesThePolicy: (checks.inputs_are_untouched,),
    Misnamed: (checks.the_answer_says_what_was_asked,),
    NeverEnds: (
        checks.some_work_takes_time,
        checks.the_answer_can_be_read_by_programs,
    ),
    BusierThanTheStep: (checks.no_resource_is_busy_for_longer_than_the_step,),
    SwappedBounds: (checks.bounds_are_nested,),
}

broken = pytest.mark.parametrize(
    ("kind", "check"),
    [
        pytest.param(kind, check, id=f"{kind.__name__}-{check.__name__}")
        for kind, found in BREAKS.items()
        for check in found
    ],
)


@broken
def test_a_broken_law_is_noticed(kind: type[Altered], check: Check):
    limit = SGLANG.chunk_tokens
    try:
        with pytest.raises((AssertionError, ValueError)):
            check(kind())
    finally:
        object.__setattr__(SGLANG, "chunk_tokens", limit)


def test_every_check_can_fail():
    assert {check for found in BREAKS.values() for check in found} == set(CHECKS)
