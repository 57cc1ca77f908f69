from dataclasses import replace

import numpy as np
import pytest

from aisim_v41.evidence.forwards import residual as parts
from aisim_v41.evidence.forwards.residual import Sizes, leave_out, likeliest_sizes, solve
from tests.evidence.forwards.rows import drawn_terms, samples

SIZES = Sizes(local=0.05, run=0.03, drift=0.02, noise=0.005, reach=1.5, memory=0.3)


def line(rows: int, runs: int = 1, seed: int = 0):
    """Rows along one feature, the same steps in every run, each run in an order of its own."""
    draw = np.random.default_rng(seed)
    features = np.zeros((rows * runs, 5))
    features[:, 0] = np.tile(np.linspace(0.0, 9.0, rows), runs)
    order = np.concatenate([draw.permutation(rows) / (rows - 1) for _ in range(runs)])
    return samples(
        drawn_terms(rows * runs, seed), np.ones(rows * runs), features=features,
        run=np.repeat(np.arange(runs), rows), order=order, site=np.tile(np.arange(rows), runs),
    )  # fmt: skip


def test_the_local_part_vanishes_away_from_the_rows():
    rows = line(20)
    found = solve(rows, np.full(20, 0.04), SIZES, np.ones(20))
    far = np.zeros((1, 5))
    far[0, 0] = 60.0
    assert found.local(rows.features).mean() > 0.01
    assert abs(found.local(far)[0]) < 1e-9
    assert found.local_spread(far)[0] == pytest.approx(SIZES.local)
    assert np.all(found.local_spread(rows.features) < 0.7 * SIZES.local)


def test_a_row_without_weight_says_nothing():
    rows = line(20)
    residual = np.zeros(20)
    residual[7] = 1.0
    weights = np.ones(20)
    weights[7] = 0.0
    assert np.abs(solve(rows, residual, SIZES, weights).local(rows.features)).max() < 1e-4


def test_run_offsets_are_told_from_place():
    """Two runs over the same steps, 6 % apart: the place keeps the mean."""
    rows = line(25, runs=2)
    residual = np.where(rows.run == 0, 0.03, -0.03)
    found = solve(rows, residual, SIZES, np.ones(50))
    assert np.abs(found.local(rows.features)).max() < 0.003
    assert found.drifted == pytest.approx(residual, abs=0.006)


def test_a_drift_is_told_from_place_when_the_order_is_mixed():
    rows = line(60, runs=2)
    residual = 0.06 * np.exp(-rows.order / 0.2)
    found = solve(rows, residual, SIZES, np.ones(120))
    assert np.abs(found.local(rows.features)).max() < 0.012
    assert np.corrcoef(found.drifted, residual)[0, 1] > 0.97


def test_a_warm_up_leaves_the_level_where_runs_settle():
    """A stationary drift would take the mean of the run, 0.012 above, for the level."""
    rows = line(60, runs=3)
    warm = 0.06 * np.exp(-rows.order / 0.2)
    sizes = replace(SIZES, drift=0.05, run=0.001)
    found = solve(rows, warm, sizes, np.ones(180))
    settled = rows.order > 0.8
    assert abs(found.drifted[settled].mean()) < 0.004
    assert np.abs(found.local(rows.features)).max() < 0.006


def test_predictions_are_medians_of_skew_noise():
    rows = line(400)
    noise = np.random.default_rng(9).exponential(0.02, 400) - 0.02
    found = solve(rows, noise, SIZES, np.ones(400))
    told = found.local(rows.features) + found.drifted + found.middle
    assert np.median(noise - told) == pytest.approx(0.0, abs=1e-12)
    assert found.middle < -0.003


def test_leaving_rows_out_is_solving_without_them():
    rows = line(15)
    residual = np.sin(rows.features[:, 0]) * 0.03
    left = np.array([2, 3, 11])
    kept = np.setdiff1d(np.arange(15), left)
    local, spread = leave_out(rows, residual, SIZES, np.ones(15), left)
    alone = solve(rows.at(kept), residual[kept], SIZES, np.ones(12))
    assert np.array_equal(local, alone.local(rows.features[left]) + alone.middle)
    assert np.array_equal(spread, alone.local_spread(rows.features[left]))


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_the_likeliest_noise_is_the_one_that_was_drawn(noise: float):
    rows = line(150)
    residual = np.random.default_rng(5).normal(0.0, noise, 150)
    assert likeliest_sizes(rows, residual, np.ones(150)).noise == pytest.approx(noise, rel=0.25)


def test_rows_that_are_not_believed_say_nothing_of_sizes():
    rows = line(120)
    residual = np.random.default_rng(8).normal(0.0, 0.02, 120)
    weights = np.ones(120)
    weights[::2] = 0.0
    kept = weights > 0
    alone = likeliest_sizes(rows.at(kept), residual[kept], weights[kept])
    residual[~kept] = 1.0
    assert likeliest_sizes(rows, residual, weights) == alone


def test_a_row_of_unknown_spread_is_as_wide_as_the_others():
    """A single shot must not outweigh a median of repeats."""
    rows = replace(
        line(3), spread=np.array([0.05, 0.05, np.nan]), repeats=np.array([5.0, 5.0, 1.0])
    )
    repeated, _, single = parts._noise(rows, SIZES, np.ones(3))
    assert repeated == pytest.approx(0.005**2 + 0.05**2 / 5, rel=1e-3)
    assert single == pytest.approx(0.005**2 + 0.05**2, rel=1e-3)


def test_one_run_says_nothing_of_runs():
    rows = line(40)
    found = likeliest_sizes(rows, np.random.default_rng(6).normal(0, 0.01, 40), np.ones(40))
    assert found.run == pytest.approx(parts.PRIOR["run"][0])


def test_without_an_order_there_is_no_drift():
    rows = line(40)
    unordered = samples(rows.terms, rows.seconds, features=rows.features)
    found = likeliest_sizes(unordered, np.random.default_rng(7).normal(0, 0.01, 40), np.ones(40))
    assert found.drift == 0.0


def test_a_new_run_is_wider_than_a_measured_one_and_more_runs_narrow_it():
    assert SIZES.new_run(1) > SIZES.new_run(2) > SIZES.new_run(50) > SIZES.noise
    moment = 0.02 * np.sqrt(0.3 + 0.15 * (1 - np.exp(-2 / 0.3)))
    assert SIZES.moment == pytest.approx(moment)
    slow = 1.5 * 1.25 * (0.03**2 + moment**2)
    assert SIZES.new_run(2) == pytest.approx(np.sqrt(slow + 0.005**2))
    assert SIZES.between_runs(2) == pytest.approx(np.sqrt(slow))
    assert SIZES.own_run(1) == pytest.approx(np.hypot(moment, 0.005))
    assert SIZES.own_run(2) == pytest.approx(np.sqrt(0.5 * 0.03**2 + moment**2 + 0.005**2))
