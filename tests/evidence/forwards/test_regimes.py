import numpy as np

from aisim_v41.evidence.forwards.regimes import find_regimes

DRAW = np.random.default_rng(0)


def features(rows: int) -> np.ndarray:
    found = np.zeros((rows, 5))
    found[:, 0] = np.linspace(0.0, 6.0, rows)
    return found


def test_rows_that_belong_together_are_one():
    ratio = DRAW.normal(0.0, 0.05, 60)
    (only,) = find_regimes(ratio, np.exp(ratio), features(60), ["a"] * 60, [""] * 60)
    assert (only.name, len(only.rows)) == ("all", 60)


def test_a_session_five_times_slower_is_a_regime():
    ratio = np.concatenate([DRAW.normal(1.7, 0.05, 50), DRAW.normal(0.0, 0.02, 6)])
    places = np.concatenate([features(50), features(50)[::8][:6]])
    runs = ["slow"] * 50 + ["diagnosis"] * 6
    labels = ["2026-09-10"] * 50 + [""] * 6
    fast, slow = find_regimes(ratio, np.exp(ratio), places, runs, labels)
    assert (fast.name, slow.name) == ("fast", "2026-09-10")
    assert slow.rows == tuple(sorted(slow.rows, key=lambda row: ratio[row]))
    assert set(fast.rows) == set(range(50, 56))
    assert fast.high_s < slow.low_s


def test_wild_rows_inside_a_run_are_no_regime():
    ratio = DRAW.normal(0.0, 0.02, 60)
    ratio[::12] += DRAW.uniform(np.log(2.0), np.log(4.0), 5)
    assert len(find_regimes(ratio, np.exp(ratio), features(60), ["a"] * 60, [""] * 60)) == 1


def test_a_large_half_inside_one_run_is_a_regime():
    ratio = DRAW.normal(0.0, 0.02, 60) + np.where(np.arange(60) % 2, 0.8, 0.0)
    assert len(find_regimes(ratio, np.exp(ratio), features(60), ["a"] * 60, [""] * 60)) == 2


def test_a_gap_between_places_that_never_meet_is_physics():
    """Prefills that operators underrate are no other machine."""
    ratio = np.concatenate([DRAW.normal(0.0, 0.02, 30), DRAW.normal(0.9, 0.02, 30)])
    places = np.concatenate([features(30), features(30) + 50.0])
    assert len(find_regimes(ratio, np.exp(ratio), places, ["a"] * 30 + ["b"] * 30, [""] * 60)) == 1


def test_three_levels_are_three_regimes():
    ratio = np.repeat([0.0, 0.7, 1.5], 20) + DRAW.normal(0.0, 0.02, 60)
    places = np.tile(features(20), (3, 1))
    found = find_regimes(ratio, np.exp(ratio), places, [*"a" * 20, *"b" * 20, *"c" * 20], [""] * 60)
    assert [one.name for one in found] == ["1", "2", "3"]


def test_a_run_twice_as_slow_is_a_regime_where_operators_miss_by_more_than_that():
    """At each step the runs differ by a factor of two; between steps operators err by six."""
    misses = np.tile(np.linspace(0.0, np.log(6.0), 20), 3)
    ratio = misses + np.repeat([0.0, 0.02, np.log(2.0)], 20)
    places = np.tile(features(20), (3, 1))
    runs = [*"a" * 20, *"b" * 20, *"c" * 20]
    fast, slow = find_regimes(ratio, np.exp(ratio), places, runs, [""] * 60)
    assert (set(fast.rows), set(slow.rows)) == (set(range(40)), set(range(40, 60)))
    mild = misses + np.repeat([0.0, 0.02, np.log(1.4)], 20)
    assert len(find_regimes(mild, np.exp(mild), places, runs, [""] * 60)) == 1


def test_a_run_that_shares_no_step_belongs_to_the_others():
    ratio = DRAW.normal(0.0, 0.02, 60)
    runs = ["a"] * 30 + ["b"] * 30
    assert len(find_regimes(ratio, np.exp(ratio), features(60), runs, [""] * 60)) == 1


def test_runs_twice_apart_are_two_however_wrong_operators_are():
    """What operators predict is off by up to a factor of 7 here, the same in both runs."""
    wrong = DRAW.normal(0.0, 0.7, 30)
    ratio = np.concatenate([wrong, wrong + np.log(2.0)]) + DRAW.normal(0.0, 0.02, 60)
    places = np.tile(features(30), (2, 1))
    runs = ["monday"] * 30 + ["tuesday"] * 30
    found = find_regimes(ratio, np.exp(ratio), places, runs, [""] * 60)
    assert [(one.name, len(one.rows)) for one in found] == [("fast", 30), ("slow", 30)]
    assert set(found[0].rows) == set(range(30))


def test_runs_a_few_percent_apart_are_one():
    wrong = DRAW.normal(0.0, 0.7, 30)
    ratio = np.concatenate([wrong, wrong + 0.06, wrong[:5] - 0.08])
    places = np.concatenate([features(30), features(30), features(30)[:5]])
    runs = ["a"] * 30 + ["b"] * 30 + ["c"] * 5
    assert len(find_regimes(ratio, np.exp(ratio), places, runs, [""] * 65)) == 1


def test_runs_that_share_no_step_are_not_compared():
    ratio = np.concatenate([DRAW.normal(0.0, 0.02, 20), DRAW.normal(0.5, 0.3, 20)])
    places = np.concatenate([features(20), features(20) + 40.0])
    runs = ["a"] * 20 + ["b"] * 20
    assert len(find_regimes(ratio, np.exp(ratio), places, runs, [""] * 40)) == 1
