"""FPM fitted to one draw of a world, and what it must be at least."""

from __future__ import annotations

from functools import cache

import numpy as np

from benchmarks.worlds.evaluate import FpmTrial, misses, rivals, try_fpm
from benchmarks.worlds.world import MILLISECONDS, WORLDS, World

BY_NAME = {world.name: world for world in WORLDS}
QUESTIONS = 100
UNKNOWN = ("roofline", "foreign")
"""Engines whose mechanism the model does not contain."""
FAR_APART = 0.02
"""Offset between runs from which on two or three of them say little about the next one."""


@cache
def trial(name: str, points: int, seed: int = 0) -> FpmTrial:
    world = BY_NAME[name]
    return try_fpm(world, world.draw(points, seed, QUESTIONS))


def check_it_beats_the_totals(world: World, points: int) -> None:
    """Nearer to the truth than linear interpolation on totals."""
    tried = trial(world.name, points)
    linear = rivals(world, tried.drawn.samples)["linear on totals"]
    assert np.median(tried.misses) < np.median(misses(linear, tried.drawn.questions))


def check_it_is_no_worse_than_a_constant(world: World, points: int) -> None:
    """Within 1.1 times a constant per phase, of what a further run measures."""
    tried = trial(world.name, points)
    constant = rivals(world, tried.drawn.samples)["constant per phase"]
    observed = [asked.observed_ms / MILLISECONDS for asked in tried.drawn.questions]
    off = [a.latency_s / seen - 1 for a, seen in zip(tried.answers, observed, strict=True)]
    flat = [
        constant(asked.step) / seen - 1
        for asked, seen in zip(tried.drawn.questions, observed, strict=True)
    ]
    assert np.mean(np.abs(off)) <= 1.1 * np.mean(np.abs(flat))


def check_bands_hold(world: World, points: int) -> None:
    """Most of what a further run measures; of runs far apart, half at least."""
    share = trial(world.name, points).inside.mean()
    assert share >= (0.5 if world.run_offset > FAR_APART else 0.75)


def check_flags(world: World, points: int) -> None:
    """Every poisoned measurement is flagged, and no other one.

    Of an engine that the model does not contain, a corner of the domain that nothing lies near may
    look poisoned while there are few measurements.
    """
    tried = trial(world.name, points)
    assert tried.flags(poisoned=True).all()
    corners = 2 if world.name in UNKNOWN and points < 60 else 0
    assert tried.flags(poisoned=False).sum() <= corners
