"""Distinct experts against sums over experts, and the laws that hold whatever the load."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.load import load_model
from aisim_v41.plan.counts import Count
from aisim_v41.plan.expert_load import ExpertLoad
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request

E, K = 384, 6
ROWS = np.array([0.0, 1.0, 1.5, 2.0, 6.0, 48.0, 640.0, 8192.0, 1e6])
popularities = st.one_of(st.just(0.0), st.floats(1e-9, 30.0))


def touched(popularity, draws, routed: int = E, top_k: int = K) -> float:
    return float(ExpertLoad(routed, top_k, popularity).touched(np.array([draws]))[0])


def expected(requests: list[Request], count: Count = Count.EXPERTS_EXPECTED, **fields) -> float:
    """Experts of the first layer of a step."""
    plan = Plan(load_model("deepseek-v4.1-flash"), requests, policy=policy("paper", **fields))
    found = ledger(plan)
    ((_, counts),) = found.passes
    return float(counts.totals[found.program.position(count, found.program.classes[0])])


def verify(rows: int = 6, count: int = 1) -> list[Request]:
    return [Request(new_tokens=rows, prefix_tokens=4096, kind="verify", count=count)]


# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("popularity", "draws", "by_hand"),
    [
        (0.0, 64, 384 * (1 - (63 / 64) ** 64)),
        # v = 1: c = 64/63 - 1 = 1/63, so E (1 - 63 / (63 + N)) = E N / (63 + N).
        (1.0, 1, 6.0),
        (1.0, 64, 384 * 64 / 127),
        (1.0, 640, 384 * 640 / 703),
        # v = 2: c = (64/63)^2 - 1.
        (2.0, 64, 384 * (1 - (1 + 64 * ((64 / 63) ** 2 - 1)) ** -0.5)),
    ],
)
def test_by_hand(popularity: float, draws: int, by_hand: float):
    assert touched(popularity, draws) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("popularity", [0.3, 1.0, 2.5])
def test_a_number_is_a_gamma_distribution_of_hazards(popularity: float):
    """Experts at the quantiles of that distribution, drawn one by one, touch as many."""
    random = np.random.default_rng(7)
    hazards = np.sort(random.gamma(1 / popularity, popularity, 2_000_000))
    low, high = 0.0, 1.0
    for _ in range(60):
        scale = (low + high) / 2
        low, high = (scale, high) if -np.expm1(-scale * hazards).mean() < K / E else (low, scale)
    for draws in (2, 6, 32, 640, 8192):
        drawn = E * -np.expm1(-scale * hazards * draws).mean()
        assert touched(popularity, draws) == pytest.approx(drawn, rel=5e-3)


def test_a_histogram_of_equal_shares_is_a_popularity_of_zero():
    alike = ExpertLoad(E, K, (1 / E,) * E)
    assert alike.touched(ROWS) == pytest.approx(ExpertLoad(E, K, 0.0).touched(ROWS), rel=1e-9)
    assert alike.variation == pytest.approx(0.0, abs=1e-9)


def test_a_histogram_by_hand():
    """Two of four experts a row, shares .7 .1 .1 .1: the first in every row, the rest in a third of
    the rows each; two rows touch 1 + 3 (1 - (2/3)^2) = 8/3."""
    load = ExpertLoad(4, 2, (0.1, 0.7, 0.1, 0.1))
    assert load.inclusion == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])
    assert load.touched(np.array([0.0, 1.0, 2.0])) == pytest.approx([0.0, 2.0, 8 / 3])


def test_experts_that_nobody_asks_for_stay_untouched():
    shares = (0.1,) * 10 + (0.0,) * (E - 10)
    assert touched(shares, 1e6) == pytest.approx(10.0)


def test_shares_must_fit_the_model():
    with pytest.raises(InvalidInputError, match="has 3 shares: the model has 384 routed experts"):
        ExpertLoad(E, K, (0.5, 0.25, 0.25))
    with pytest.raises(InvalidInputError, match="5 shares are above 0, but a row chooses 6"):
        ExpertLoad(E, K, (0.2,) * 5 + (0.0,) * (E - 5))
    with pytest.raises(InvalidInputError, match="384 routed experts"):
        expected(verify(), expert_popularity=(0.5, 0.5))


# --- laws -------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True)
@given(
    popularity=popularities,
    draws=st.floats(1.0, 1e6),
    more=st.floats(0.0, 1e5),
    skew=st.floats(0.0, 10.0),
)
def test_more_rows_touch_more_and_unlike_experts_fewer(popularity, draws, more, skew):
    found = touched(popularity, draws)
    assert K * (1 - 1e-9) <= found <= min(E, K * draws) * (1 + 1e-9)
    assert touched(popularity, draws + more) >= found * (1 - 1e-9)
    assert touched(popularity + skew, draws) <= found * (1 + 1e-9)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(weights=st.lists(st.floats(0.01, 100.0), min_size=8, max_size=8), top_k=st.integers(1, 8))
def test_every_histogram_includes_as_many_as_a_row_chooses(weights, top_k):
    load = ExpertLoad(8, top_k, tuple(weight / sum(weights) for weight in weights))
    assert load.inclusion.sum() == pytest.approx(top_k)
    assert load.inclusion.max() <= 1 + 1e-12
    found = load.touched(ROWS)
    assert found[0] == 0
    assert found[1] == pytest.approx(top_k)
    assert (np.diff(found) >= -1e-9).all()
    assert (found <= ExpertLoad(8, top_k, 0.0).touched(ROWS) + 1e-9)[ROWS >= 1].all()


@settings(deadline=None, derandomize=True)
@given(popularity=popularities, draws=st.floats(0.0, 1e4))
def test_one_more_draw_is_that(popularity: float, draws: float):
    load = ExpertLoad(E, K, popularity)
    before, after = load.touched(np.array([draws, draws + 1]))
    assert load.one_more(np.array([before]))[0] == pytest.approx(after, rel=1e-5)


def test_one_more_draw_of_a_histogram_is_one_of_its_variation():
    shares = (1 / E,) * E
    found = ExpertLoad(E, K, shares).one_more(np.array([0.0, 100.0]))
    assert found == pytest.approx(ExpertLoad(E, K, 0.0).one_more(np.array([0.0, 100.0])))


def test_one_more_draw_asks_for_no_other_experts():
    load = ExpertLoad(E, K, (0.1,) * 10 + (0.0,) * (E - 10))
    before = load.touched(np.array([1.0, 2.0, 9.0, 1e6]))
    after = load.one_more(before)
    assert (after >= before).all()
    assert after.max() == 10.0


def test_zero_rows_touch_none():
    for popularity in (0.0, 1.0, (1 / E,) * E):
        assert touched(popularity, 0.0) == 0


def test_all_experts_chosen_by_every_row():
    for popularity in (0.0, 1.0, (0.5, 0.3, 0.2)):
        assert touched(popularity, 2.0, routed=3, top_k=3) == pytest.approx(3.0)


# --- in the ledger ----------------------------------------------------------------------------


def test_rows_of_one_verifying_request_draw_in_part_anew():
    """1 + 5 x 0.6 = 4 draws of one request, 32 of eight: E N / (63 + N) at popularity 1."""
    assert expected(verify()) == pytest.approx(384 * 4 / 67)
    assert expected(verify(count=8)) == pytest.approx(384 * 32 / 95)
    assert expected(verify(), expert_locality=0.0) == pytest.approx(384 * 6 / 69)
    assert expected(verify(), expert_locality=1.0) == pytest.approx(6.0)


def test_locality_is_of_verifying_rows_alone():
    prefill = [Request(new_tokens=6)]
    decodes = [Request(new_tokens=1, prefix_tokens=9, kind="decode", count=6)]
    for requests in (prefill, decodes):
        found = {expected(requests, expert_locality=share) for share in (0.0, 0.5, 1.0)}
        assert len(found) == 1


def test_more_locality_never_touches_more_experts():
    found = [
        expected(verify(count=8), expert_locality=share) for share in (0.0, 0.2, 0.4, 0.8, 1.0)
    ]
    assert (np.diff(found) <= 0).all()


@pytest.mark.parametrize("routing", ["independent", "per_request", "fewest"])
@pytest.mark.parametrize("locality", [0.0, 0.4, 1.0])
def test_a_bound_never_reads_more_than_expected(routing: str, locality: float):
    for requests in (verify(), verify(count=16), [Request(new_tokens=700), *verify(count=3)]):
        fields = {"expert_routing": routing, "expert_locality": locality}
        bound = expected(requests, Count.EXPERTS_TOUCHED, **fields)
        assert 6 * (1 - 1e-12) <= bound <= expected(requests, **fields) * (1 + 1e-12)


def test_grouping_changes_nothing():
    assert expected(verify(count=3)) == expected(verify() * 3)
