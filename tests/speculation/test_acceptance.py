"""Acceptance against enumeration of every outcome of every draft."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.speculation.acceptance import Acceptance, drawn_emitted
from aisim_v41.speculation.published import PUBLISHED

probabilities = st.floats(0.0, 1.0)
vectors = st.lists(probabilities, min_size=1, max_size=6)


def enumerated(by_position: list[float]) -> list[float]:
    """Probability of each number of emitted tokens, over all 2^k outcomes of k drafts."""
    shares = [0.0] * (len(by_position) + 1)
    for outcome in product((True, False), repeat=len(by_position)):
        kept = next((place for place, good in enumerate(outcome) if not good), len(outcome))
        shares[kept] += prod(
            p if good else 1.0 - p for p, good in zip(by_position, outcome, strict=True)
        )
    return shares


@given(vectors)
def test_distribution_is_that_of_every_outcome(by_position: list[float]):
    acceptance = Acceptance(tuple(by_position))
    for drafts in range(len(by_position) + 1):
        shares = enumerated(by_position[:drafts])
        assert acceptance.distribution(drafts) == pytest.approx(shares, abs=1e-12)
        mean = sum(size * share for size, share in enumerate(shares, 1))
        assert acceptance.expected_emitted(drafts) == pytest.approx(mean, abs=1e-12)
        bursts = acceptance.bursts(drafts)
        spread = sum((size - mean) ** 2 * share for size, share in enumerate(shares, 1))
        assert bursts.mean == pytest.approx(mean, abs=1e-12)
        assert bursts.variance == pytest.approx(spread, abs=1e-10)


@given(vectors)
def test_more_drafts_emit_more_up_to_one_more_each(by_position: list[float]):
    acceptance = Acceptance(tuple(by_position))
    means = [acceptance.expected_emitted(drafts) for drafts in range(len(by_position) + 1)]
    assert means[0] == 1.0
    for drafts, (fewer, more) in enumerate(pairwise(means), 1):
        assert fewer <= more <= fewer + 1.0
        assert more <= 1.0 + drafts


@given(vectors, st.data())
def test_a_better_position_never_emits_less(by_position: list[float], data: st.DataObject):
    place = data.draw(st.integers(0, len(by_position) - 1))
    better = [*by_position]
    better[place] = data.draw(st.floats(by_position[place], 1.0))
    worse_mean = Acceptance(tuple(by_position)).expected_emitted()
    assert Acceptance(tuple(better)).expected_emitted() >= worse_mean


@given(probabilities, st.integers(1, 8))
def test_accept_length_and_back(probability: float, drafts: int):
    mean = Acceptance.constant(probability, drafts).expected_emitted()
    found = Acceptance.of_accept_length(mean, drafts)
    assert found.expected_emitted() == pytest.approx(mean, abs=1e-12)


def test_ends_of_the_range_are_never_and_always():
    assert Acceptance.of_accept_length(1.0, 5).by_position == (0.0,) * 5
    assert Acceptance.of_accept_length(6.0, 5).by_position == (1.0,) * 5
    for length in (0.99, 6.01, float("nan")):
        for acceptance in (Acceptance.of_accept_length, Acceptance.simulated):
            with pytest.raises(OutOfRangeError, match="between 1 and 6"):
                acceptance(length, 5)


@given(st.floats(1.0, 6.0))
def test_simulated_lengths_have_two_sizes_of_bursts(length: float):
    """And so the least variance that a mean allows: f (1 - f) of its fraction f."""
    bursts = Acceptance.simulated(length, 5).bursts()
    assert bursts.mean == pytest.approx(length, abs=1e-12)
    fraction = length % 1.0
    assert bursts.variance == pytest.approx(fraction * (1.0 - fraction), abs=1e-9)
    assert sum(share > 1e-12 for share in bursts.distribution) <= 2


def test_a_simulated_length_gains_less_from_more_drafts_than_it_keeps():
    simulated = Acceptance.simulated(3.51, 5)
    means = [simulated.expected_emitted(drafts) for drafts in range(6)]
    assert means == pytest.approx([1.0, 2.0, 3.0, 3.51, 3.51, 3.51])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_lengths_are_met(name: str):
    published = PUBLISHED[name]
    acceptance = published.acceptance()
    assert acceptance.drafts == published.drafts
    assert acceptance.expected_emitted() == pytest.approx(published.accept_length, abs=1e-12)


def test_draws_are_those_of_the_distribution():
    acceptance = Acceptance((0.9, 0.6, 0.3))
    steps = 20_000
    drawn = drawn_emitted([acceptance] * steps, [3] * steps, seed=7)
    assert np.array_equal(drawn, drawn_emitted([acceptance] * steps, [3] * steps, seed=7))
    for size, share in enumerate(acceptance.distribution(), 1):
        error = (share * (1.0 - share) / steps) ** 0.5
        assert abs(np.mean(drawn == size) - share) < 5.0 * error


def test_draws_of_each_request_follow_its_own_acceptance():
    never, always = Acceptance((0.0, 0.0)), Acceptance((1.0, 1.0))
    assert list(drawn_emitted([never, always, always], [2, 2, 1], seed=0)) == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("survival", "length"),
    [
        # vllm-project/vllm-ascend pull request 15269: 51,225 kept of 15,386 drafts of five
        ((0.8957, 0.7760, 0.6556, 0.5518, 0.4502), 1 + 51_225 / 15_386),
        # vllm-project/vllm pull request 41834, comment of 2026-08-01: mean 2.74, average 34.7 %
        ((0.579, 0.447, 0.316, 0.237, 0.158), 1 + 5 * 0.3474),
    ],
)
def test_logged_rates_by_position_give_the_logged_mean(survival, length: float):
    """Engines log survival by position, not conditional acceptance."""
    acceptance = Acceptance.of_survival(survival)
    assert acceptance.survival == pytest.approx(survival)
    assert acceptance.expected_emitted() == pytest.approx(length, abs=1e-4)
    assert acceptance.by_position[1] == pytest.approx(survival[1] / survival[0])


def test_one_draw_for_a_step_keeps_requests_in_lock_step():
    half = Acceptance.constant(0.5, 5)
    steps = [drawn_emitted([half] * 32, [5] * 32, seed=seed, draw="step") for seed in range(300)]
    assert all(len(set(step)) == 1 for step in steps)
    assert len(set(drawn_emitted([half] * 32, [5] * 32, seed=0))) > 2
    # Each request still emits what its acceptance says: a mean of 1.97 of variance 1.4.
    assert np.mean(steps) == pytest.approx(half.expected_emitted(), abs=5 * (1.4 / 300) ** 0.5)
    with pytest.raises(InvalidInputError, match="'request' or 'step'"):
        drawn_emitted([half], [5], seed=0, draw="batch")


def test_survival_never_rises():
    assert Acceptance.of_survival((0.5, 0.0, 0.0)).by_position == (0.5, 0.0, 0.0)
    for wrong in ((0.5, 0.6), (1.1,), (0.5, -0.1), ()):
        with pytest.raises(InvalidInputError, match=r"survival|by_position"):
            Acceptance.of_survival(wrong)


def test_bursts_by_hand():
    # 1/2, 1/4, 1/4 for 1, 2, 3 tokens: mean 7/4, variance 1/2 + 1 + 9/4 - 49/16 = 11/16.
    bursts = Acceptance.constant(0.5, 2).bursts()
    assert (bursts.mean, bursts.variance, bursts.largest) == (1.75, 0.6875, 3)
    assert bursts.waiting_share == pytest.approx(4 / 7)
    assert bursts.mean_interval(0.035) == pytest.approx(0.02)
    assert Acceptance((0.5, 0.0, 0.9)).bursts().largest == 2


@pytest.mark.parametrize("values", [(), (1.1,), (-0.1,), (float("nan"),), (True,), ("0.5",)])
def test_what_is_no_acceptance_is_refused(values: tuple[float, ...]):
    with pytest.raises(InvalidInputError, match="by_position"):
        Acceptance(values)


@pytest.mark.parametrize("drafts", [-1, 3, 1.0, True])
def test_no_more_drafts_than_positions(drafts: int):
    with pytest.raises(InvalidInputError, match=r"0 \.\.\. 2"):
        Acceptance((0.5, 0.5)).expected_emitted(drafts)
    with pytest.raises(InvalidInputError, match=r"0 \.\.\. 2"):
        drawn_emitted([Acceptance((0.5, 0.5))], [drafts], seed=0)


def test_one_number_of_drafts_a_request():
    with pytest.raises(InvalidInputError, match="2 requests and 1"):
        drawn_emitted([Acceptance((0.5,))] * 2, [1], seed=0)
