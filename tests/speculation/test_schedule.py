"""Schedules against every schedule there is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.schedule import confident, scheduled, step_curve, uniform

acceptances = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3).map(
    lambda values: Acceptance(tuple(values))
)
batches = st.lists(acceptances, min_size=1, max_size=4)
times = st.floats(0.1, 10.0)


@given(batches, st.data())
def test_no_schedule_is_faster(requests: list[Acceptance], data: st.DataObject):
    """For any curve, rising or not: buckets make steps of it."""
    drafts = sum(acceptance.drafts for acceptance in requests)
    curve = data.draw(st.lists(times, min_size=1, max_size=drafts + 1))
    every = [
        scheduled(requests, chosen, curve)
        for chosen in product(*(range(acceptance.drafts + 1) for acceptance in requests))
        if sum(chosen) < len(curve)
    ]
    best = max(schedule.tokens_per_s for schedule in every)
    assert confident(requests, curve).tokens_per_s == pytest.approx(best, rel=1e-12)
    alike = [s.tokens_per_s for s in every if len(set(s.drafts)) == 1]
    assert uniform(requests, curve).tokens_per_s == max(alike)


def test_ties_take_fewer_drafts_then_earlier_ones():
    half = Acceptance((0.5, 0.5))
    # 2 tokens in 1 s without drafts; 2.5 in 1.25 s is the same rate: no drafts.
    assert confident([half, half], [1.0, 1.25]).drafts == (0, 0)
    # One draft is free, and both requests' first are alike: the first request's.
    assert confident([half, half], [1.0, 1.0]).drafts == (1, 0)


def test_a_bucket_is_filled():
    """Rows that the captured graph computes anyway are verified."""
    poor = Acceptance.constant(0.1, 3)
    assert confident([poor, poor], [1.0] * 7).drafts == (3, 3)
    assert confident([poor, poor], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]).drafts == (1, 1)


def test_the_curve_is_the_compiled_step():
    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("b200")
    policy = aisim.policy("sglang", speculation="dspark")
    step = aisim.compile(model, gpu, parallel=aisim.Parallel(tp=4), policy=policy, method="sol")
    curve = step_curve(step, [4096, 8192], 2)
    pairs = [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]
    for time, (first, second) in zip(curve, pairs, strict=True):
        requests = [
            aisim.Request(new_tokens=first, prefix_tokens=4096, kind="verify"),
            aisim.Request(new_tokens=second, prefix_tokens=8192, kind="verify"),
        ]
        assert time == step(requests)
    with pytest.raises(UnsupportedPlanError, match="draft 5"):
        step_curve(step, [4096], 6)
    with pytest.raises(InvalidInputError, match="prefix_tokens"):
        step_curve(step, [], 1)


def test_what_is_no_schedule_is_refused():
    half = Acceptance((0.5,))
    with pytest.raises(InvalidInputError, match="requests"):
        confident([], [1.0])
    for curve in ([], [0.0], [1.0, float("inf")]):
        with pytest.raises(InvalidInputError, match="curve"):
            uniform([half], curve)
    with pytest.raises(InvalidInputError, match="reaches 0"):
        scheduled([half], [1], [1.0])
    with pytest.raises(InvalidInputError, match="1 requests and 2"):
        scheduled([half], [1, 1], [1.0])
