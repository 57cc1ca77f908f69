"""A table of many forwards: 150 measurements."""

from __future__ import annotations

import numpy as np
import pytest

from aisim_v41.validation.plain import linear_on_totals
from benchmarks.worlds.mechanisms import CAPTURED
from benchmarks.worlds.steps import decode
from benchmarks.worlds.world import WORLDS, World

from . import recovery

POINTS = 150
each_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)

WITHIN = {
    "knees": 0.015, "host_floor": 0.015, "host_only": 0.01, "drift": 0.025, "outliers": 0.015,
    "graph_buckets": 0.02, "roofline": 0.02, "foreign": 0.02, "mixed_ragged": 0.025,
}  # fmt: skip
"""Median error that is allowed; noise and offsets of runs are 0.01 in most worlds."""


@each_world
def test_truth_is_recovered_better_than_by_totals(world: World):
    recovery.check_it_beats_the_totals(world, POINTS)


@each_world
def test_truth_is_recovered_about_as_well_as_it_was_measured(world: World):
    assert np.median(recovery.trial(world.name, POINTS).misses) < WITHIN[world.name]


@each_world
def test_a_constant_is_never_much_better(world: World):
    recovery.check_it_is_no_worse_than_a_constant(world, POINTS)


@each_world
def test_bands_hold_what_a_further_run_measures(world: World):
    recovery.check_bands_hold(world, POINTS)


@each_world
def test_poisoned_measurements_are_flagged(world: World):
    recovery.check_flags(world, POINTS)


@pytest.mark.parametrize("size", CAPTURED[4:-1])
def test_the_stairs_of_captured_graphs_are_recovered(size: int):
    """Where a batch no longer fits a captured size: interpolation on totals cannot see the step."""
    tried = recovery.trial("graph_buckets", POINTS)
    seconds = recovery.BY_NAME["graph_buckets"].engine(0)
    linear = linear_on_totals(
        [sample.step for sample in tried.drawn.samples],
        [sample.seconds for sample in tried.drawn.samples],
    )
    steps = decode(size, 2048), decode(size + 1, 2048)
    true, told, blurred = (
        predict(steps[1]) - predict(steps[0]) for predict in (seconds, tried.fpm, linear)
    )
    assert 0.5 * true < told < 2 * true
    assert blurred < 0.25 * true
