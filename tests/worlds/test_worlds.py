"""What the synthetic engines do is what they are said to do."""

from __future__ import annotations

import math

import numpy as np
import pytest

import aisim_v41 as aisim
from aisim_v41.validation.plain import phase_of
from benchmarks.worlds.evaluate import PARALLEL, policy_of, setting
from benchmarks.worlds.mechanisms import CAPTURED, behind_host, captured, foreign, linear, roofline
from benchmarks.worlds.steps import decode, prefill
from benchmarks.worlds.world import ASKED, WORLDS, World

BY_NAME = {world.name: world for world in WORLDS}
SIZES = (20, 60, 150)


def engine(mechanism, seed: int = 1):
    return mechanism(np.random.default_rng(seed))


def each_world(function):
    return pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)(function)


@each_world
@pytest.mark.parametrize("points", SIZES)
def test_so_many_measurements_as_were_asked_for(world: World, points: int):
    drawn = world.draw(points, seed=1, questions=12)
    assert len(drawn.samples) == points
    assert len(drawn.questions) == 12
    for run in {sample.run for sample in drawn.samples}:
        orders = [sample.order for sample in drawn.samples if sample.run == run]
        assert orders == list(range(len(orders)))


@each_world
def test_a_seed_says_everything(world: World):
    assert world.draw(20, seed=3, questions=5) == world.draw(20, seed=3, questions=5)
    assert world.draw(20, seed=3, questions=5) != world.draw(20, seed=4, questions=5)


@each_world
def test_the_engine_stays_the_same_however_much_is_measured(world: World):
    few, many = world.draw(20, seed=2), world.draw(60, seed=2)
    times = {sample.step: sample.seconds for sample in many.samples}
    shared = [sample for sample in few.samples if sample.step in times]
    assert all(sample.seconds == times[sample.step] for sample in shared)
    assert shared or world.name == "mixed_ragged"


@each_world
def test_questions_are_free_of_what_disturbs_measurements(world: World):
    drawn = world.draw(60, seed=5)
    assert len(drawn.questions) == ASKED >= 200
    spread = math.hypot(world.noise, world.run_offset)
    level = np.log([q.observed_ms / (1e3 * q.seconds) for q in drawn.questions])
    assert abs(level.mean()) < 4 * world.run_offset
    assert np.abs(level - level.mean()).max() < 5 * spread
    assert level.std() == pytest.approx(spread, rel=0.25)


@each_world
def test_the_level_that_is_asked_for_is_that_of_the_measured_runs(world: World):
    seconds = world.engine(7)
    drawn = world.draw(60, seed=7)
    (level,) = {round(q.seconds / seconds(q.step), 9) for q in drawn.questions}
    late = [s for s in drawn.samples if s.order >= 10 and not s.poisoned]
    off = [np.log(s.measured_ms / (1e3 * s.seconds)) for s in late]
    assert np.mean(off) == pytest.approx(math.log(level), abs=0.01 + 0.4 * world.warm_up)


@each_world
def test_no_engine_is_faster_than_light(world: World):
    bound = aisim.compile(*setting(), parallel=PARALLEL, policy=policy_of(world), method="sol")
    for seed in range(8):
        for asked in world.draw(20, seed, questions=20).questions:
            assert asked.seconds > bound(asked.step)


def test_runs_lie_apart_and_warm_up():
    early, settled = [], []
    for seed in range(4):
        samples = BY_NAME["drift"].draw(300, seed).samples
        for run in ("run-1", "run-2", "run-3"):
            off = np.log([s.measured_ms / (1e3 * s.seconds) for s in samples if s.run == run])
            early.append(off[:8].mean())
            settled.append(off[-30:].mean())
    assert np.mean(early) - np.mean(settled) == pytest.approx(0.05, abs=0.005)
    assert np.std(settled) == pytest.approx(0.04, rel=0.4)


def test_poisoned_samples_are_known():
    samples = BY_NAME["outliers"].draw(600, seed=1).samples
    off = np.array([s.measured_ms / (1e3 * s.seconds) for s in samples])
    poisoned = np.array([s.poisoned for s in samples])
    assert poisoned.mean() == 0.05
    assert off[poisoned].min() > 1.9
    assert off[~poisoned].max() < 1.1


def test_the_ragged_world_holds_all_three_kinds_of_step():
    drawn = BY_NAME["mixed_ragged"].draw(60, seed=1)
    for steps in (drawn.samples, drawn.questions):
        phases = [phase_of(one.step) for one in steps]
        assert min(phases.count(p) for p in ("prefill", "decode", "mixed")) > len(phases) / 4


@pytest.mark.parametrize(
    ("below", "at", "above"), [(64, 127, 300), (512, 1023, 1600), (12_000, 16_383, 24_000)]
)
def test_a_linear_engine_bends_at_window_selection_and_pool(below: int, at: int, above: int):
    """Each further token of context costs less behind a knee."""
    seconds = engine(linear)
    first, knee, last = (seconds(decode(64, context)) for context in (below, at, above))
    assert (last - knee) / (above - at) < 0.95 * (knee - first) / (at - below)


def test_host_and_device_cross_inside_the_domain():
    seconds = engine(behind_host)
    for few, many in ((decode(1, 16), decode(256, 16_384)), (prefill(16, 0), prefill(8192, 0))):
        assert seconds(many) > 1.2 * seconds(few)
    assert seconds(prefill(16, 0)) == seconds(prefill(64, 128))


def test_captured_decodes_climb_stairs():
    seconds = engine(captured)
    for low in CAPTURED[3:-1]:
        last, first, second = (seconds(decode(low + more, 16)) for more in (0, 1, 2))
        assert first - last > 3 * (second - first) > 0


def test_a_roofline_is_flat_below_a_tile_and_steps_above():
    seconds = engine(roofline)
    assert seconds(prefill(129, 0)) - seconds(prefill(128, 0)) < 1e-4
    dense = [seconds(prefill(new, 0)) for new in (1024, 1025, 1026)]
    assert dense[1] - dense[0] > 5 * (dense[2] - dense[1]) > 0


def test_the_foreign_engine_costs_what_work_cannot_say():
    """The same costs of work as in the linear world of that seed, and more that grows faster."""
    steps = [decode(batch, 16) for batch in (64, 128, 256)]
    added = [engine(foreign)(step) - engine(linear)(step) for step in steps]
    assert added[1] / added[0] > 2
    assert added[2] / added[1] > 2.5
