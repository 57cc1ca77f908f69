"""Laws of the time of a step, whatever the numbers are."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aisim_v41.plan.request import Request
from estimators.cases import (
    APART,
    GPUS,
    MONOTONE,
    POLICIES,
    any_request,
    estimated,
    lengths,
    policies,
    policies_apart,
    step,
    steps,
)

EXACT = 1e-12
"""Relative: sums of the same terms in another order."""


def above(time: float) -> float:
    """What a larger time may be below by rounding."""
    return time * (1 - EXACT)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=policies, requests=steps, tp=st.sampled_from((1, 4)), on=st.sampled_from(GPUS))
def test_one_number_whoever_is_asked(name: str, requests: list[Request], tp: int, on: str):
    """The compiled step, the estimate and the estimate's parts."""
    runtime = POLICIES[name]
    found = estimated(requests, runtime, tp=tp, on=on)
    assert step(runtime, tp=tp, on=on)(requests) == found.latency_s == found.bounds.graph_s
    assert found.latency_ms == found.sol_ms == found.band_ms[0]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(name=policies, requests=steps, tp=st.sampled_from((1, 4)), on=st.sampled_from(GPUS))
def test_bounds_are_nested(name: str, requests: list[Request], tp: int, on: str):
    bounds = estimated(requests, POLICIES[name], tp=tp, on=on).bounds
    assert 0 <= above(bounds.resource_s) <= bounds.graph_s <= bounds.launch_s


@settings(max_examples=80, deadline=None, derandomize=True)
@given(name=policies_apart, first=steps, second=steps)
def test_a_mixed_step_lies_between_its_parts_and_their_sum(name: str, first: list, second: list):
    compiled = step(POLICIES[name])
    one, other, both = compiled(first), compiled(second), compiled(first + second)
    assert above(max(one, other)) <= both
    assert above(both) <= one + other


def test_a_mixed_step_may_cost_more_where_it_switches_replay_off():
    """ATOM does not replay in a batch that also decodes: all late rows of the prompt run."""
    compiled = step(POLICIES["atom, replay"])
    prompt = Request(new_tokens=8192)
    token = Request(new_tokens=1, prefix_tokens=100, kind="decode")
    assert compiled([prompt, token]) > 1.5 * (compiled([prompt]) + compiled([token]))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(name=policies_apart, requests=steps, more=any_request())
def test_one_more_request_is_never_faster(name: str, requests: list[Request], more: Request):
    compiled = step(POLICIES[name])
    assert above(compiled(requests)) <= compiled([*requests, more])


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(MONOTONE),
    prefix=lengths,
    new=lengths,
    more=st.sampled_from((1, 2, 128, 5000)),
    count=st.sampled_from((1, 3)),
)
def test_more_tokens_are_never_faster(name: str, prefix: int, new: int, more: int, count: int):
    compiled = step(POLICIES[name])

    def time(new: int, prefix: int, count: int = count) -> float:
        return compiled([Request(new_tokens=new, prefix_tokens=prefix, count=count)])

    base = above(time(new, prefix))
    assert base <= time(new + more, prefix)
    # By pairs: a token that closes a pair of ratio 2 writes more than the next one.
    assert base <= time(new, prefix + 2 * more)
    assert base <= time(new, prefix, count + 1)


def test_a_pool_that_shrinks_is_the_one_exception():
    """At 16,385 tokens the candidate pool is 16,377 keys (16,384 before): 28 keys fewer in four
    Reindex layers, one more in layer 20. The step is faster by what that saves, not more."""
    compiled = step(POLICIES["paper"])
    full, shrunk = (
        compiled([Request(new_tokens=1, prefix_tokens=n - 1, kind="decode")])
        for n in (16_384, 16_385)
    )
    assert above(full) * (1 - 1e-5) <= shrunk < full


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "nothing",
    [
        [],
        [Request(new_tokens=0)],
        [Request(new_tokens=0, prefix_tokens=5000)],
        [Request(new_tokens=0, prefix_tokens=77, kind="decode")],
        [Request(new_tokens=9, count=0)],
        [Request(new_tokens=0), Request(new_tokens=1, count=0, kind="decode")],
    ],
)
def test_zero_work_is_zero_time(name: str, nothing: list[Request]):
    found = estimated(nothing, POLICIES[name])
    assert step(POLICIES[name])(nothing) == 0.0
    assert found.bounds.resource_s == found.bounds.graph_s == found.bounds.launch_s == 0.0
    assert found.band_ms == (0.0, 0.0)
    assert found.rows == ()
    assert set(found.utilisation.values()) == {0.0}
    assert found.source_share == {}
    assert sum(found.path.values()) == 0.0
    assert len(found.timeline()) == len(found.to_frame()) == 0
    assert found.explain()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=policies, requests=steps, at=st.integers(0, 3000))
def test_requests_without_work_change_nothing(name: str, requests: list[Request], at: int):
    """Neither the time nor the execution mode, and so the launch floor, of the others."""
    idle = [
        Request(new_tokens=0, prefix_tokens=at),
        Request(new_tokens=5, prefix_tokens=at, count=0),
        Request(new_tokens=0, prefix_tokens=at, kind="decode"),
    ]
    one, other = (estimated(r, POLICIES[name]) for r in (requests, requests + idle))
    assert one.bounds == other.bounds


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=policies, requests=steps, order=st.randoms(use_true_random=False))
def test_order_of_requests_changes_nothing(name: str, requests: list[Request], order):
    shuffled = list(requests)
    order.shuffle(shuffled)
    one, other = (estimated(r, POLICIES[name]) for r in (requests, shuffled))
    assert one.bounds == other.bounds
    assert one.rows == other.rows


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=policies, request=any_request(), copies=st.integers(0, 4))
def test_grouping_of_requests_changes_nothing(name: str, request: Request, copies: int):
    def of(count: int) -> Request:
        return Request(
            new_tokens=request.new_tokens, prefix_tokens=request.prefix_tokens, kind=request.kind,
            prompt_tokens=request.prompt_tokens, count=count,
        )  # fmt: skip

    grouped, apart = (estimated(r, POLICIES[name]) for r in ([of(copies)], [of(1)] * copies))
    assert grouped.bounds == apart.bounds
    assert grouped.rows == apart.rows


@settings(max_examples=40, deadline=None, derandomize=True)
@given(name=policies_apart, requests=steps)
def test_more_ranks_are_never_slower_without_a_link(name: str, requests: list[Request]):
    """All work is divided or repeated, none is added but messages and padding."""
    assume(requests)
    runtime = POLICIES[name].with_overrides(expert_slice_multiple=1)
    one = estimated(requests, runtime, tp=1)
    four = estimated(requests, runtime, tp=4)
    for resource in ("tensor", "scalar"):
        assert above(four.resource_s[resource]) <= one.resource_s[resource]


def test_the_same_step_on_a_faster_gpu():
    for name in APART:
        slow, fast = (step(POLICIES[name], on=on) for on in ("h200", "gb300"))
        for request in (Request(new_tokens=4096), Request(new_tokens=1, kind="decode", count=64)):
            assert fast([request]) < slow([request])
