import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import SchemaError
from aisim_v41.evidence.forwards.online import COLD, Correction

SPREAD = 0.04


def places(count: int, rows: float = 5.0, prefill: float = 0.0) -> np.ndarray:
    found = np.zeros((count, 5))
    found[:, 0], found[:, 4] = rows, prefill
    return found


def taught(ratio: float, count: int, spread: float = SPREAD) -> Correction:
    return Correction(spread=spread).learnt(places(count), np.full(count, ratio))


def test_nothing_is_believed_at_a_cold_start():
    assert taught(0.08, COLD - 1).at(places(1))[0] == 0.0
    assert taught(0.08, COLD).at(places(1))[0] > 0.0


def test_enough_observations_are_believed():
    assert taught(0.08, 100).at(places(1))[0] == pytest.approx(0.08, rel=0.15)


def test_what_decode_steps_say_does_not_move_prefills():
    assert taught(0.1, 100).at(places(1, prefill=1.0))[0] == 0.0


def test_far_steps_are_moved_less():
    learnt = taught(0.1, 50)
    near, far = learnt.at(places(1))[0], learnt.at(places(1, rows=14.0))[0]
    assert 0.0 <= far < 0.5 * near


def test_it_forgets():
    learnt = taught(0.1, 100).learnt(places(400), np.full(400, -0.1))
    assert learnt.at(places(1))[0] == pytest.approx(-0.1, rel=0.15)


@given(st.floats(1.5, 1e6), st.integers(1, 40), st.integers(0, 60))
def test_a_poisoned_burst_changes_nothing(factor: float, burst: int, before: int):
    """Ten samples of twenty times the truth must move no prediction by 5 %."""
    clean = taught(0.01, before)
    poisoned = clean.learnt(places(burst), np.full(burst, np.log(factor)))
    assert abs(poisoned.at(places(1))[0] - clean.at(places(1))[0]) < np.log(1.05)
    assert len(poisoned.wild) == burst
    assert poisoned.seen == before + burst


def test_wild_observations_do_not_fade_what_was_learnt():
    clean = taught(0.08, 50)
    poisoned = clean.learnt(places(1000), np.full(1000, 3.0))
    assert poisoned.at(places(1))[0] == clean.at(places(1))[0]


def test_a_single_observation_says_at_most_a_few_standard_deviations():
    one = taught(0.0, 30).learnt(places(1), np.array([0.35]))
    assert one.ratio[-1] == pytest.approx(3 * SPREAD)


def test_twenty_times_is_never_believed_however_wide_the_table_scatters():
    learnt = Correction(spread=2.0).learnt(places(10), np.full(10, np.log(20.0)))
    assert len(learnt.wild) == 10
    assert np.all(learnt.at(places(10)) == 0.0)


def test_it_is_kept_and_read_again():
    learnt = taught(0.05, 20).learnt(places(1), np.array([3.0]))
    again = Correction.from_dict(json.loads(json.dumps(learnt.to_dict())), where="here")
    assert np.array_equal(again.at(places(3)), learnt.at(places(3)))
    assert (again.seen, again.believed, again.wild) == (21, 20, ((20, 3.0),))


@pytest.mark.parametrize(
    "change",
    [{"ratio": [1.0]}, {"spread": -1.0}, {"features": [[1.0]]}, {"when": ["x"] * 20},
     {"wild": [[1]]}, {"ratio": [float("nan")] * 20}, {"seen": None}, {"ratio": None},
     {"ratio": [[0.01] * 20]}, {"ratio": [0.9] * 20}, {"when": 0}, {"when": [1e9] * 20},
     {"spread": 1e9}, {"spread": 10**400}, {"features": [[1e300] * 5] * 20}],
)  # fmt: skip
def test_what_is_no_correction_is_refused(change: dict[str, object]):
    with pytest.raises(SchemaError, match=r"learnt\.json"):
        Correction.from_dict({**taught(0.05, 20).to_dict(), **change}, where="learnt.json")


def test_a_missing_field_is_named():
    content = taught(0.05, 20).to_dict()
    del content["when"]
    with pytest.raises(SchemaError, match="when is missing"):
        Correction.from_dict(content, where="learnt.json")
