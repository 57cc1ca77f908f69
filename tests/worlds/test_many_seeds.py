"""Many engines of each kind: the figures of the table, not those of one draw."""

from __future__ import annotations

import pytest

from benchmarks.worlds.evaluate import FPM, evaluate
from benchmarks.worlds.world import WORLDS, World

from .recovery import FAR_APART

SEEDS = range(8)
pytestmark = pytest.mark.long


@pytest.mark.parametrize("points", [20, 60, 150])
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_errors_and_bands_over_many_engines(world: World, points: int):
    scores = {score.method: score for score in evaluate(world, points, SEEDS)}
    own, totals = scores[FPM], scores["linear on totals"]
    assert own.median < totals.median
    assert own.p90 < totals.p90
    assert own.inside is not None
    assert own.inside >= (0.6 if world.run_offset > FAR_APART else 0.85)
    if world.poisoned:
        assert own.found is not None
        assert own.found >= 0.95
