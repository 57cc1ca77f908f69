import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from aisim_v41.evidence.forwards import physical
from aisim_v41.evidence.forwards.physical import fit_physical
from tests.evidence.forwards.rows import drawn_terms, terms

QUIET = 0.002


def test_known_factors_come_back():
    made_of = drawn_terms(150, seed=1)
    truth = np.array([0.8, 1.9, 1.2])
    found = fit_physical(made_of, made_of.device_s @ truth, QUIET)
    assert found.factors == pytest.approx(truth, rel=0.01)
    assert found.floor_s < 1e-5


def test_a_floor_is_told_from_kernels():
    made_of = drawn_terms(150, seed=2)
    seconds = 2e-3 + made_of.device_s.sum(axis=1)
    found = fit_physical(made_of, seconds, QUIET)
    assert found.seconds(made_of) == pytest.approx(seconds, rel=0.01)
    assert found.floor_s == pytest.approx(2e-3, rel=0.05)


def test_a_host_that_runs_ahead_hides_kernels_and_one_that_waits_adds_them():
    made_of = drawn_terms(120, seed=3, host_s=0.02)
    device = made_of.device_s.sum(axis=1)
    ahead = fit_physical(made_of, np.maximum(0.024, device), QUIET)
    waits = fit_physical(made_of, 0.024 + device, QUIET)
    assert ahead.composition == "overlapped"
    assert waits.composition == "added"
    assert ahead.host_factor == pytest.approx(1.2, rel=0.01)
    assert waits.host_factor == pytest.approx(1.2, rel=0.05)


def test_prefills_have_a_host_of_their_own():
    made_of = drawn_terms(80, seed=8, host_s=0.2)
    made_of.prefills[::2] = 1.0
    seconds = made_of.host_s * np.where(made_of.prefills > 0, 1.1, 0.9)
    found = fit_physical(made_of, seconds, QUIET)
    assert found.host_factor == pytest.approx(0.9, rel=0.01)
    assert found.prefill_factor == pytest.approx(1.1, rel=0.01)


def test_few_rows_leave_the_prior():
    """One row cannot tell terms apart: they move together, and none far."""
    made_of = drawn_terms(1, seed=4)
    found = fit_physical(made_of, 1.5 * made_of.device_s.sum(axis=1), noise=0.03)
    assert found.seconds(made_of) == pytest.approx(1.5 * made_of.device_s.sum(axis=1), rel=0.02)
    assert np.all((found.factors > 0.9) & (found.factors < 2.0))


def test_a_term_that_was_never_seen_keeps_its_prior():
    made_of = drawn_terms(60, seed=5)
    made_of.device_s[:, 2] = 0.0
    found = fit_physical(made_of, made_of.device_s.sum(axis=1), QUIET)
    assert found.factors[2] == pytest.approx(1.0, rel=0.05)
    unseen = terms(np.zeros(1), np.array([[0.0, 0.0, 0.01]]))
    seen = terms(np.zeros(1), np.array([[0.01, 0.0, 0.0]]))
    assert found.spread(unseen)[0] > 5 * found.spread(seen)[0]


def test_wild_rows_do_not_pull_the_factors():
    made_of = drawn_terms(100, seed=6)
    seconds = made_of.device_s.sum(axis=1)
    wild = seconds.copy()
    wild[::20] *= 3.0
    found = fit_physical(made_of, wild, noise=0.01)
    assert found.seconds(made_of) == pytest.approx(seconds, rel=0.02)


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 50))
def test_no_work_takes_no_time_and_more_never_less(scale: float, seed: int):
    made_of = drawn_terms(20, seed, host_s=0.001)
    found = fit_physical(made_of, scale * made_of.device_s.sum(axis=1), noise=0.05)
    nothing = terms(np.zeros(1), np.zeros((1, 3)))
    assert found.seconds(nothing)[0] == 0.0
    more = terms(made_of.host_s, made_of.device_s * 1.1)
    assert np.all(found.seconds(more) >= found.seconds(made_of))


@pytest.mark.parametrize("composition", ["overlapped", "added"])
def test_slopes_are_those_of_the_times(composition: physical.Composition):
    made_of = drawn_terms(6, seed=7, host_s=0.01)
    made_of.prefills[::2] = 1.0
    theta = np.array([0.2, 0.15, -0.1, 0.3, -0.2, 0.1, 0.04])

    def log_seconds(at: np.ndarray) -> np.ndarray:
        return np.log(physical._seconds(at, made_of, 0.02, composition))

    expected = approx_fprime(theta, log_seconds, 1e-7)
    assert physical._slopes(theta, made_of, 0.02, composition) == pytest.approx(expected, abs=1e-5)
