"""The contract of every estimator: one small check a law (STYLE §22).

A check takes an estimator (``estimate(plan, hardware) -> Estimate``) and returns nothing or fails.
`test_estimators.py` runs all of them on all of `ESTIMATORS`; an estimator of someone else's can be
run through the same list. Laws that only one estimator has are tested with it, not here.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise

import pytest

from aisim_v41.estimators.entry import ESTIMATORS, Estimator
from aisim_v41.estimators.result import Estimate
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

Check = Callable[[Estimator], None]

ROUNDING = 1e-9
TP = 4
PREFILL = Request(new_tokens=2048)
CHUNK = Request(new_tokens=300, prefix_tokens=4000, prompt_tokens=9000)
DECODE = Request(new_tokens=1, prefix_tokens=5000, kind="decode", count=8)
VERIFY = Request(new_tokens=6, prefix_tokens=700, kind="verify", count=2)
STEPS = ([PREFILL], [DECODE], [PREFILL, CHUNK, DECODE, VERIFY])

SGLANG = policy("sglang")
REPLAY = policy("sglang", decoder_replay=True)
DENSE = policy("sglang", reindex_scoring="dense")
"""No candidate pool, whose size falls by 7 when a block begins, and no cut: work only grows."""


@cache
def gpu() -> Hardware:
    return load_hardware("gb300")


def plan_of(requests: list[Request], runtime: RuntimePolicy = SGLANG) -> Plan:
    return Plan(load_model("deepseek-v4.1-flash"), requests, Parallel(tp=TP), runtime)


def ask(estimator: Estimator, requests: list[Request], runtime: RuntimePolicy = SGLANG) -> Estimate:
    return estimator.estimate(plan_of(requests, runtime), gpu())


def seconds(
    estimator: Estimator, requests: list[Request], runtime: RuntimePolicy = SGLANG
) -> float:
    return ask(estimator, requests, runtime).latency_s


FALLS = {"fpm": 0.005}
"""Share by which more work may look faster: measured steps come back as they were measured, and
between them lies a smooth curve."""


def at_most(smaller: float, larger: float, slack: float = ROUNDING) -> bool:
    return smaller <= larger * (1 + slack)


def rises(estimator: Estimator, times: Iterable[float]) -> bool:
    """Whether no time is below the one before it, but for what measurements may."""
    slack = FALLS.get(estimator.method, ROUNDING)
    return all(at_most(a, b, slack) for a, b in pairwise(times))


# --- time ----------------------------------------------------------------------------------------


def zero_work_is_zero_time(estimator: Estimator) -> None:
    idle = ([], [Request(new_tokens=0)], [Request(new_tokens=9, count=0)])
    for nothing in (*idle, [Request(new_tokens=0, prefix_tokens=50, kind="decode")]):
        for runtime in (SGLANG, REPLAY):
            found = ask(estimator, nothing, runtime)
            assert found.latency_s == 0
            assert found.bounds.launch_s == 0
            assert not found.source_share


def some_work_takes_time(estimator: Estimator) -> None:
    for requests in (*STEPS, [Request(new_tokens=1)]):
        assert 0 < seconds(estimator, requests) < float("inf")


def more_new_tokens_are_never_faster(estimator: Estimator) -> None:
    for prefix in (0, 5000):
        lengths = (0, 1, 2, 127, 128, 129, 512, 1025, 1026, 4096, 20_000)
        times = [
            seconds(estimator, [Request(new_tokens=n, prefix_tokens=prefix)], DENSE)
            for n in lengths
        ]
        assert rises(estimator, times)


def a_longer_context_is_never_faster(estimator: Estimator) -> None:
    for kind, new in (("decode", 1), ("prefill", 256)):
        # Even lengths: a token that closes a pair of ratio 2 writes more than the next one.
        prefixes = (0, 2, 126, 128, 130, 1024, 1026, 16_384, 100_000, 1_000_000)
        times = [
            seconds(estimator, [Request(new_tokens=new, prefix_tokens=p, kind=kind)], DENSE)
            for p in prefixes
        ]
        assert rises(estimator, times)


def more_requests_are_never_faster(estimator: Estimator) -> None:
    for runtime in (SGLANG, REPLAY):
        counts = (0, 1, 2, 3, 16, 64, 500)
        times = [
            seconds(
                estimator,
                [Request(new_tokens=1, prefix_tokens=999, kind="decode", count=n)],
                runtime,
            )
            for n in counts
        ]
        assert rises(estimator, times)
        grown = [list(STEPS[-1][:size]) for size in range(len(STEPS[-1]) + 1)]
        assert rises(estimator, [seconds(estimator, step, runtime) for step in grown])


def a_mixed_step_lies_between_its_largest_part_and_their_sum(estimator: Estimator) -> None:
    for runtime in (SGLANG, REPLAY):
        parts = [seconds(estimator, [request], runtime) for request in STEPS[-1]]
        whole = seconds(estimator, STEPS[-1], runtime)
        assert rises(estimator, [max(parts), whole])
        assert at_most(whole, sum(parts))


def order_of_requests_changes_nothing(estimator: Estimator) -> None:
    for runtime in (SGLANG, REPLAY):
        one, other = (ask(estimator, r, runtime) for r in (STEPS[-1], STEPS[-1][::-1]))
        assert one.latency_s == other.latency_s
        assert one.rows == other.rows


def grouping_of_requests_changes_nothing(estimator: Estimator) -> None:
    alone = Request(new_tokens=1, prefix_tokens=5000, kind="decode")
    grouped, apart = (ask(estimator, r) for r in ([DECODE], [alone] * DECODE.count))
    assert grouped.latency_s == apart.latency_s
    assert grouped.rows == apart.rows


# --- bounds --------------------------------------------------------------------------------------


def speed_of_light_is_a_floor(estimator: Estimator) -> None:
    for requests in STEPS:
        for runtime in (SGLANG, REPLAY):
            found = ask(estimator, requests, runtime)
            floor = ESTIMATORS["sol"].estimate(found.plan, found.hardware)
            assert found.bounds == floor.bounds
            assert at_most(floor.latency_s, found.latency_s)
            assert found.sol_ms == floor.sol_ms


def bounds_are_nested(estimator: Estimator) -> None:
    for requests in STEPS:
        bounds = ask(estimator, requests).bounds
        assert bounds.resource_s > 0
        assert at_most(bounds.resource_s, bounds.graph_s)
        assert at_most(bounds.graph_s, bounds.launch_s)


def no_resource_is_busy_for_longer_than_the_step(estimator: Estimator) -> None:
    for requests in STEPS:
        found = ask(estimator, requests)
        assert set(found.utilisation) == set(found.resource_s)
        for share in found.utilisation.values():
            assert share >= 0
            assert at_most(share, 1)


def the_band_holds_the_estimate(estimator: Estimator) -> None:
    for requests in STEPS:
        found = ask(estimator, requests)
        low, high = found.band_s
        assert found.bounds.graph_s <= low <= found.latency_s <= high


# --- result --------------------------------------------------------------------------------------


def rows_add_up_to_the_totals(estimator: Estimator) -> None:
    for requests in STEPS:
        found = ask(estimator, requests, REPLAY)
        for resource, busy in found.resource_s.items():
            parts = [row.seconds_by_resource[resource] for row in found.rows]
            assert sum(parts) == pytest.approx(busy, rel=ROUNDING)
        assert at_most(found.bounds.graph_s, sum(row.seconds for row in found.rows))
        assert sum(found.path.values()) == pytest.approx(found.latency_s, rel=ROUNDING)


def rows_do_the_work_of_every_estimator(estimator: Estimator) -> None:
    """The same operators as often, with the same work: kernels may hold other operators together,
    since engines fuse by rows, but what they do may not differ."""
    for requests in STEPS:
        found = ask(estimator, requests, REPLAY)
        floor = ESTIMATORS["sol"].estimate(found.plan, found.hardware)

        def calls(estimate: Estimate) -> Counter[str]:
            done: Counter[str] = Counter()
            for row in estimate.rows:
                for operator in row.replaces:
                    done[operator] += row.calls
            return done

        assert calls(found) == calls(floor)
        assert sum(r.message_bytes for r in found.rows) == sum(r.message_bytes for r in floor.rows)


def every_time_names_its_source(estimator: Estimator) -> None:
    for requests in STEPS:
        found = ask(estimator, requests)
        assert sum(found.source_share.values()) == pytest.approx(1, rel=ROUNDING)
        assert all(0 < share <= 1 + ROUNDING for share in found.source_share.values())
        assert all(row.source for row in found.rows)


def inputs_are_untouched(estimator: Estimator) -> None:
    for requests in STEPS:
        listed = list(requests)
        plan, hardware = plan_of(listed), gpu()
        before = pickle.dumps((plan.requests, plan.policy, plan.parallel)), repr(hardware)
        estimator.estimate(plan, hardware)
        after = pickle.dumps((plan.requests, plan.policy, plan.parallel)), repr(hardware)
        assert after == before
        assert listed == requests


def the_same_question_has_the_same_answer(estimator: Estimator) -> None:
    """To the last byte: asked again, of a copy, after other questions."""
    first = ask(estimator, STEPS[-1])
    ask(estimator, STEPS[0], REPLAY)
    again = ask(estimator, STEPS[-1])
    copied = ask(copy.deepcopy(estimator), STEPS[-1])
    assert repr(first) == repr(again) == repr(copied)
    assert first.explain() == again.explain()


def the_answer_says_what_was_asked(estimator: Estimator) -> None:
    plan = plan_of(STEPS[-1], REPLAY)
    found = estimator.estimate(plan, gpu())
    assert (found.plan, found.hardware, found.method) == (plan, gpu(), estimator.method)
    assert ESTIMATORS.get(estimator.method, estimator) is estimator


def the_answer_can_be_read_by_programs(estimator: Estimator) -> None:
    for requests in STEPS:
        found = ask(estimator, requests)
        data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert data["latency_ms"] == found.latency_ms
        assert len(found.to_frame()) == len(found.rows) > 0
        assert found.timeline().end_ms.max() == pytest.approx(found.latency_ms, rel=ROUNDING)


def construction_stores_parameters_and_nothing_else(estimator: Estimator) -> None:
    """No loading: a fresh one has the same attributes, before and after it has been asked."""
    fresh = type(estimator)()
    before = dict(vars(fresh))
    fresh.estimate(plan_of([PREFILL]), gpu())
    assert vars(fresh) == before == vars(type(estimator)())


CHECKS: tuple[Check, ...] = (
    zero_work_is_zero_time,
    some_work_takes_time,
    more_new_tokens_are_never_faster,
    a_longer_context_is_never_faster,
    more_requests_are_never_faster,
    a_mixed_step_lies_between_its_largest_part_and_their_sum,
    order_of_requests_changes_nothing,
    grouping_of_requests_changes_nothing,
    speed_of_light_is_a_floor,
    bounds_are_nested,
    no_resource_is_busy_for_longer_than_the_step,
    the_band_holds_the_estimate,
    rows_add_up_to_the_totals,
    rows_do_the_work_of_every_estimator,
    every_time_names_its_source,
    inputs_are_untouched,
    the_same_question_has_the_same_answer,
    the_answer_says_what_was_asked,
    the_answer_can_be_read_by_programs,
    construction_stores_parameters_and_nothing_else,
)
