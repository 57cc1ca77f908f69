"""How far the number of experts read moves OP's answer."""

from __future__ import annotations

import pytest

from aisim_v41.estimators.op.compiled import compiled_op
from aisim_v41.estimators.op.estimator import Op
from aisim_v41.estimators.op.expert_load import FEWER, MORE, load_span
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request

from .cases import gpu, model

VERIFY = [Request(new_tokens=6, prefix_tokens=4096, kind="verify", count=8)]
PREFILL = [Request(new_tokens=8192)]
STATED = {"expert_locality": 0.3, "expert_popularity": 0.8}
TP4 = Parallel(tp=4)


def span(requests, **fields):
    runtime = policy("vllm", **fields)
    return load_span(compiled_op(model(), gpu("b200"), TP4, runtime), requests)


def answer(requests, **fields):
    return Op().estimate(Plan(model(), requests, TP4, policy("vllm", **fields)), gpu("b200"))


def test_both_readings_are_those_of_their_policies():
    """Of a step whose kernels are decided by the weights of experts: where the law of a kernel is
    the same, the ends are the answers for those policies."""
    found, expected = span(VERIFY), answer(VERIFY).latency_s
    fewer, more = (answer(VERIFY, **reading).latency_s for reading in (FEWER, MORE))
    assert fewer < expected < more
    assert found.below_s == pytest.approx(expected - fewer, rel=0.2)
    assert found.above_s == pytest.approx(more - expected, rel=0.2)


def test_what_a_policy_states_is_known():
    assert span(VERIFY, **STATED) == (0.0, 0.0)
    for name, value in STATED.items():
        part, whole = span(VERIFY, **{name: value}), span(VERIFY)
        assert 0 < part.below_s < whole.below_s
        assert part.above_s > 0


def test_few_rows_and_many_leave_less_open():
    """One row chooses 6 experts and thousands choose all of them, whatever is alike."""
    one = [Request(new_tokens=1, prefix_tokens=4096, kind="decode")]
    assert span(one) == pytest.approx((0.0, 0.0), abs=1e-12)

    def share(requests):
        return sum(span(requests)) / answer(requests).latency_s

    assert share(PREFILL) < 0.5 * share(VERIFY)


def test_the_band_holds_both_readings():
    low, high = answer(VERIFY).band_s
    for reading in (FEWER, MORE):
        assert low < answer(VERIFY, **reading).latency_s < high


def test_the_band_is_wider_where_the_load_is_not_stated():
    stated, open_ = answer(VERIFY, **STATED), answer(VERIFY)
    widths = [(one.band_s[1] - one.band_s[0]) / one.latency_s for one in (stated, open_)]
    assert widths[0] < widths[1]


def test_experts_of_like_rows_cost_less():
    times = [answer(VERIFY, expert_locality=share).latency_s for share in (0.0, 0.4, 1.0)]
    assert times[0] > times[1] > times[2]
    bounds = {answer(VERIFY, expert_locality=share).bounds for share in (0.0, 0.4, 1.0)}
    assert len(bounds) == 1
