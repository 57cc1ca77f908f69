"""Groups of experts: which a row reaches, and what the fullest has to do."""

from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.expert_groups import drawn_rows, fullest, groups_reached

from aisim_v41.plan.expert_groups import Scatter, fullest_group, largest_normal, of_copies


@pytest.mark.parametrize(("experts", "top_k", "groups"), [(12, 3, 4), (12, 3, 12), (10, 4, 2)])
def test_groups_reached_by_counting_every_row(experts: int, top_k: int, groups: int):
    found = Scatter(experts, top_k, fewest=False).reached(groups)
    assert found == pytest.approx(groups_reached(experts, top_k, groups), rel=1e-12)


def test_groups_reached_by_hand():
    """Six of 384. On 384 ranks each of the six is elsewhere; on one all are there; on two, both
    unless all six of one half: 2 (1 - C(192, 6)/C(384, 6)) = 1.97."""
    rows = Scatter(384, 6, fewest=False)
    assert rows.reached(384) == pytest.approx(6, rel=1e-12)
    assert rows.reached(1) == 1
    missed = Fraction(math.comb(192, 6), math.comb(384, 6))
    assert rows.reached(2) == pytest.approx(float(2 - 2 * missed), rel=1e-12)


@pytest.mark.parametrize(("parts", "least"), [(1, 1), (4, 1), (64, 1), (96, 2), (128, 2), (384, 6)])
def test_fewest_groups_that_hold_the_experts_of_a_row(parts: int, least: int):
    assert Scatter(384, 6, fewest=True).reached(parts) == least


def test_largest_of_normal_variables():
    """Two: 1/sqrt(pi). Three: 3/(2 sqrt(pi)), square 1 + sqrt(3)/(2 pi). One: the mean."""
    assert largest_normal(2)[0] == pytest.approx(1 / math.sqrt(math.pi), abs=1e-5)
    first, square = largest_normal(3)
    assert first == pytest.approx(1.5 / math.sqrt(math.pi), abs=1e-5)
    assert 1 + 6 * square == pytest.approx(1 + math.sqrt(3) / (2 * math.pi), abs=1e-4)
    assert largest_normal(1)[0] == pytest.approx(0, abs=1e-9)


RUNS = [
    # groups, rows, squared variation, how far off [1]
    (4, 4, 0.0, 0.03),
    (4, 64, 1.0, 0.04),
    (8, 16, 1.0, 0.04),
    (8, 128, 0.0, 0.02),
    (64, 64, 1.0, 0.08),
]


@pytest.mark.parametrize(("groups", "rows", "variation", "off"), RUNS)
def test_fullest_group_row_by_row(groups: int, rows: int, variation: float, off: float):
    experts, top_k = 384, 6
    chance = random.Random(groups * 1000 + rows)
    choices, distinct, all_distinct = [], [], []
    for run in range(max(40, 1600 // rows)):
        weights = [1.0] * experts
        if variation:
            weights = [chance.gammavariate(1 / variation, variation) for _ in weights]
        drawn = drawn_rows([max(w, 1e-12) for w in weights], top_k, rows, run)
        most = fullest(drawn, experts, groups)
        choices.append(most[0])
        distinct.append(most[1])
        all_distinct.append(len({e for row in drawn for e in row}))
    touched = np.array(statistics.mean(all_distinct))
    found = fullest_group(np.array(float(rows * top_k)), touched, groups, experts, variation)
    assert float(found.choices) == pytest.approx(statistics.mean(choices), rel=off)
    assert float(found.touched) == pytest.approx(statistics.mean(distinct), rel=off)


@given(
    rows=st.integers(1, 100_000),
    parts=st.sampled_from([2, 4, 8, 16, 64, 384]),
    variation=st.floats(0, 4),
    share=st.floats(0, 1),
)
def test_the_fullest_has_the_mean_at_least_and_all_at_most(rows, parts, variation, share):
    touched = 6 + share * (min(6.0 * rows, 384.0) - 6)
    found = fullest_group(np.array(6.0 * rows), np.array(touched), parts, 384, variation)
    assert 6 * rows / parts <= found.choices <= 6 * rows
    assert touched / parts * (1 - 1e-12) <= found.touched <= min(384 / parts, touched) * (1 + 1e-12)


def test_without_rows_there_is_nothing_to_do():
    found = fullest_group(np.zeros(2), np.zeros(2), 8, 384, 1.0)
    assert not found.choices.any()
    assert not found.touched.any()


def test_a_known_imbalance_replaces_the_expectation():
    found = fullest_group(np.array(600.0), np.array(200.0), 4, 384, 1.0, imbalance=1.2)
    assert (float(found.choices), float(found.touched)) == pytest.approx((180, 60))
    full = fullest_group(np.array(6e4), np.array(384.0), 4, 384, 1.0, imbalance=1.2)
    assert float(full.touched) == 96


def test_copies_that_are_read():
    """No copies: the experts touched. All touched: every copy. A single draw of 6 out of 400
    misses a copy with 394/400, where 384 experts would be missed with (394/400)^(400/384)."""
    assert of_copies(np.array(100.0), 384, 384) == pytest.approx(100)
    assert of_copies(np.array(384.0), 384, 400) == pytest.approx(400)
    alike = 384 * (1 - (394 / 400) ** (400 / 384))
    assert of_copies(np.array(alike), 384, 400) == pytest.approx(6)
