"""Errors of left-out steps, by hand; plain predictors never see what they are asked."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.reports.fpm_errors import PLAIN, error_row, plain_predictions


def decode(context: int) -> list[aisim.Request]:
    return [aisim.Request(new_tokens=1, prefix_tokens=context, kind="decode")]


def test_figures_of_one_line():
    row = error_row(
        "run", "decode", "fpm", [100.0, 200.0, 50.0], [110.0, 190.0, 50.0],
        [(99.0, 120.0), (185.0, 195.0), (50.0, 50.0)],
    )  # fmt: skip
    # Errors +10 %, -5 %, 0.
    assert (row.by, row.phase, row.predictor, row.cases) == ("run", "decode", "fpm", 3)
    assert row.median == pytest.approx(0.05)
    assert row.p90 == pytest.approx(0.05 + 0.8 * 0.05)
    assert row.mape == pytest.approx(0.05)
    assert row.bias == pytest.approx(0.05 / 3)
    assert row.in_band == pytest.approx(2 / 3)
    assert error_row("run", "decode", "linear", [1.0], [2.0]).in_band is None


def test_a_constant_is_the_median_of_the_other_groups():
    steps = [decode(context) for context in (10, 10, 20, 30)]
    found = plain_predictions(PLAIN["constant"], steps, [1.0, 3.0, 7.0, 9.0], [10, 10, 20, 30])
    assert found == [8.0, 8.0, 3.0, 3.0]


def test_a_line_is_met_between_the_other_sites_and_held_at_the_ends():
    contexts = (0, 100, 200, 300)
    times = [5.0 + context / 100 for context in contexts]
    found = plain_predictions(PLAIN["linear"], [decode(c) for c in contexts], times, contexts)
    assert found == pytest.approx([6.0, 6.0, 7.0, 7.0])


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.floats(1.0, 100.0)), min_size=2, max_size=12
    ).filter(lambda rows: len({group for group, _ in rows}) > 1)
)  # fmt: skip
def test_nothing_of_a_group_enters_its_own_prediction(rows):
    groups, times = [group for group, _ in rows], [time for _, time in rows]
    steps = [decode(100 * group) for group in groups]
    for learn in PLAIN.values():
        found = plain_predictions(learn, steps, times, groups)
        for group in set(groups):
            changed = [t * 1.5 if g == group else t for g, t in zip(groups, times, strict=True)]
            again = plain_predictions(learn, steps, changed, groups)
            for place, other in enumerate(groups):
                if other == group:
                    assert again[place] == found[place]
    constant = plain_predictions(PLAIN["constant"], steps, times, groups)
    for place, group in enumerate(groups):
        others = [t for g, t in zip(groups, times, strict=True) if g != group]
        assert constant[place] == median(others)
