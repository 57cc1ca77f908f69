"""A table of few forwards: 20 and 60 measurements."""

from __future__ import annotations

import pytest

from benchmarks.worlds.world import WORLDS, World

from . import recovery

each_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
each_size = pytest.mark.parametrize("points", [20, 60])


@each_size
@each_world
def test_truth_is_recovered_better_than_by_totals(world: World, points: int):
    recovery.check_it_beats_the_totals(world, points)


@each_size
@each_world
def test_a_constant_is_never_much_better(world: World, points: int):
    recovery.check_it_is_no_worse_than_a_constant(world, points)


@each_size
@each_world
def test_bands_hold_what_a_further_run_measures(world: World, points: int):
    recovery.check_bands_hold(world, points)


@each_size
@each_world
def test_poisoned_measurements_are_flagged(world: World, points: int):
    recovery.check_flags(world, points)


def test_the_same_table_gives_the_same_answers():
    again = recovery.trial.__wrapped__("knees", 20)
    assert again.answers == recovery.trial("knees", 20).answers
