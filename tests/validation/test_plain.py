"""Plain predictors: what they read of a step, and what they answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.plan.request import Request
from aisim_v41.validation.plain import (
    StepSums,
    constant_per_phase,
    linear_on_totals,
    phase_of,
    sums_of,
)


def prefill(new: int, prefix: int = 0, count: int = 1) -> list[Request]:
    return [Request(new_tokens=new, prefix_tokens=prefix, count=count)]


def decode(batch: int, context: int) -> list[Request]:
    return [Request(new_tokens=1, prefix_tokens=context, kind="decode", count=batch)]


def test_sums_keep_prefills_and_decodes_apart():
    step = [*prefill(64, 128, 2), *decode(3, 1000), *decode(1, 10)]
    assert sums_of(step) == StepSums(2, 128, 256, 4, 3010)
    assert [phase_of(s) for s in (step, prefill(1), decode(1, 1))] == ["mixed", "prefill", "decode"]


def test_a_request_that_computes_nothing_is_in_no_sum():
    assert sums_of([*prefill(0, 100), *decode(1, 7)]) == StepSums(0, 0, 0, 1, 7)
    assert phase_of([*prefill(0, 100), *decode(1, 7)]) == "decode"


def test_the_constant_is_the_median_of_the_phase():
    told = constant_per_phase([prefill(1), prefill(2), prefill(3), decode(1, 1)], [1, 2, 30, 5])
    assert told(prefill(9)) == 2
    assert told(decode(9, 9)) == 5
    assert told([*prefill(9), *decode(9, 9)]) == 3.5


CORNERS = [(new, prefix, count) for new in (8, 64) for prefix in (0, 512) for count in (1, 2, 4)]


@settings(max_examples=50, deadline=None)
@given(
    costs=st.tuples(*[st.floats(0, 1e3)] * 3),
    new=st.integers(8, 64),
    prefix=st.integers(0, 512),
)
def test_a_plane_comes_back_between_its_corners(costs, new, prefix):
    def true(step):
        sums = sums_of(step)
        each = np.dot(costs, (sums.prefill_requests, sums.new_tokens, sums.prefill_kv))
        return 1 + float(each)

    steps = [prefill(*corner) for corner in CORNERS]
    told = linear_on_totals(steps, [true(step) for step in steps])
    for asked in (*steps, prefill(new, prefix, 2)):
        assert told(asked) == pytest.approx(true(asked), rel=1e-6)


def test_in_logarithms_a_power_law_comes_back():
    steps = [prefill(new - 1) for new in (2, 8, 128)]
    told = linear_on_totals(steps, [3.0 * new**2 for new in (2, 8, 128)], logarithms=True)
    assert told(prefill(31)) == pytest.approx(3.0 * 32**2)


def test_beyond_the_measured_totals_the_nearest_one_answers():
    told = linear_on_totals([prefill(8), prefill(16), prefill(64)], [1.0, 2.0, 5.0])
    assert told(prefill(40)) == pytest.approx(3.5)
    assert told(prefill(1000)) == 5.0
    assert told(prefill(1)) == 1.0
    assert told(decode(1, 1)) == 2.0


def test_one_step_measured_twice_is_one_point():
    told = linear_on_totals([prefill(8), prefill(8), prefill(16)], [1.0, 3.0, 4.0])
    assert told(prefill(8)) == 2.0
    assert told(prefill(12)) == pytest.approx(3.0)


def test_a_single_step_answers_everything():
    told = linear_on_totals([prefill(8, 4)], [7.0])
    assert told(prefill(8, 4)) == told(prefill(100)) == 7.0
