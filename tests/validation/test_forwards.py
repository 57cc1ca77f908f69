"""Left-out forwards: every method answers a group from the others, and the errors add up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aisim_v41.errors import InvalidInputError
from aisim_v41.plan.request import Request
from aisim_v41.validation.forwards import RIVALS, LeftOut, errors_text, left_out_errors


def prefill(new: int) -> list[Request]:
    return [Request(new_tokens=new)]


def decode(context: int) -> list[Request]:
    return [Request(new_tokens=1, prefix_tokens=context, kind="decode")]


FOUND = LeftOut(
    steps=[prefill(8), prefill(16), decode(9), prefill(8), prefill(16), decode(9)],
    measured_s=[1.0, 2.0, 4.0, 2.0, 4.0, 5.0],
    groups=["a", "a", "a", "b", "b", "b"],
    predicted_s=[1.1, 1.8, 4.0, 2.0, 4.0, 10.0],
    low_s=[1.0, 1.7, 4.0, 1.9, 4.1, 9.0],
    high_s=[1.2, 1.9, 4.0, 2.1, 4.2, 11.0],
)


def rows(found: LeftOut):
    return {(row.method, row.phase): row for row in left_out_errors(found)}


def test_errors_of_the_model_are_worked_by_hand():
    prefills, decodes = rows(FOUND)["fpm", "prefill"], rows(FOUND)["fpm", "decode"]
    assert prefills.cases == 4
    assert prefills.mean == pytest.approx((0.1 + 0.1 + 0 + 0) / 4)
    assert prefills.median == pytest.approx(0.05)
    assert prefills.bias == pytest.approx(0, abs=1e-12)
    assert prefills.inside == 0.5
    assert (decodes.cases, decodes.inside) == (2, 0.5)
    assert decodes.mean == pytest.approx(0.5)
    assert rows(FOUND)["fpm", "all"].cases == 6


def test_plain_predictors_know_the_other_groups_alone():
    """Group a is answered with b's values, twice (prefill) and 5/4 times (decode) its own."""
    told = rows(FOUND)
    assert told["linear on totals", "prefill"].mean == pytest.approx((1 + 1 + 0.5 + 0.5) / 4)
    assert told["linear on totals", "decode"].bias == pytest.approx((5 / 4 + 4 / 5) / 2 - 1)
    constant = told["constant per phase", "prefill"]
    assert constant.mean == pytest.approx((2 + 0.5 + 0.25 + 0.625) / 4)
    assert constant.inside is None


def test_a_value_of_the_left_out_group_changes_no_answer_for_it():
    changed = replace(FOUND, measured_s=[1.0, 2.0, 4.0, 2.0, 4.0, 5.0 * 1.5])
    for name in RIVALS:
        before, after = rows(FOUND)[name, "decode"], rows(changed)[name, "decode"]
        assert after.mean == pytest.approx((7.5 / 4 - 1 + 1 - 4 / 7.5) / 2)
        assert before.mean == pytest.approx((5 / 4 - 1 + 1 - 4 / 5) / 2)


def test_without_a_band_nothing_is_inside():
    assert rows(replace(FOUND, low_s=None))["fpm", "all"].inside is None


def test_the_text_has_a_line_a_row():
    errors = left_out_errors(FOUND)
    lines = errors_text(errors).splitlines()
    assert len(lines) == 1 + len(errors) == 1 + 3 * 3
    assert lines[1].split() == ["prefill", "fpm", "4", "5.0%", "5.0%", "10.0%", "+0.0%", "50%"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"groups": ["a"] * 6}, r"groups = \['a'\]: at least two groups"),
        ({"predicted_s": [1.0]}, "predicted_s: 1 values for 6 steps"),
        ({"measured_s": [0.0] * 6}, "measured_s: every time must be above 0"),
        ({"predicted_s": [float("nan")] * 6}, "predicted_s: every time must be above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, says):
    with pytest.raises(InvalidInputError, match=says):
        replace(FOUND, **change)
