"""Speed of FPM: fits, predictions, and a large table; part of ``python -m benchmarks``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import aisim_v41 as aisim
from aisim_v41.estimators.fpm.estimator import Fpm
from aisim_v41.forwards.store import publish_table, read_table
from benchmarks.figures import Figure, best
from benchmarks.worlds.evaluate import fitted, op_of, setting, table_of
from benchmarks.worlds.mechanisms import Costs
from benchmarks.worlds.steps import grid, ragged
from benchmarks.worlds.work import work_of
from benchmarks.worlds.world import MILLISECONDS, WORLDS, Sample

RAGGED = next(world for world in WORLDS if world.name == "mixed_ragged")
LARGE, RUNS, RAGGED_STEPS = 100_000, 20, 12_000
"""Rows of the large table, its process runs, and how many steps of unlike requests it has."""


def fpm_figures() -> list[Figure]:
    """Fit of 150 points, compiled steps against OP, and a table of 100,000."""
    samples = RAGGED.draw(150, seed=0, questions=1).samples
    fpm, op = fitted(RAGGED, samples), op_of(RAGGED)
    figures = [
        Figure("fit of 150 measured forwards (FPM)",
               best(lambda: fitted(RAGGED, samples), calls=1, rounds=3), 2, "s")
    ]  # fmt: skip
    for number in (1, 8, 64):
        step = [
            aisim.Request(new_tokens=1, prefix_tokens=1000 + 37 * place, kind="decode")
            for place in range(number)
        ]
        from_operators = best(lambda s=step: op(s), calls=100)
        seconds = best(lambda s=step: fpm(s), calls=100)
        figures.append(
            Figure(f"step of {number} decodes from whole forwards (FPM)", seconds * 1e6,
                   2e6 * from_operators, "us")
        )  # fmt: skip
    return [*figures, *_large()]


def _large() -> Iterator[Figure]:
    table = table_of(RAGGED, tuple(large_samples()))
    with tempfile.TemporaryDirectory() as root:
        start = time.perf_counter()
        folder = publish_table(table, Path(root))
        yield Figure(f"publish {LARGE:,} measured forwards", time.perf_counter() - start, None, "s")
        start = time.perf_counter()
        read = read_table(folder)
        loaded = time.perf_counter()
        Fpm(read, *setting())
        yield Figure("  load them", loaded - start, None, "s")
        yield Figure("  load and fit them", time.perf_counter() - start, 60, "s")


def large_samples() -> Iterator[Sample]:
    """Live traffic: many steps again and again, and many that never come back."""
    rng = np.random.default_rng(0)
    costs = Costs().drawn(rng)
    often, once = grid(150, rng), ragged(RAGGED_STEPS, rng)
    times = {step: costs.seconds(work_of(step)) for step in (*often, *once)}
    steps = [*once, *(often[place] for place in rng.integers(0, len(often), LARGE - len(once)))]
    for place, chosen in enumerate(rng.permutation(LARGE)):
        run, order = divmod(place, LARGE // RUNS)
        true = times[steps[chosen]]
        noise = float(np.exp(0.01 * rng.standard_normal()))
        yield Sample(
            step=steps[chosen], seconds=true, measured_ms=MILLISECONDS * true * noise,
            run=f"run-{run}", order=order, poisoned=False,
        )  # fmt: skip


if __name__ == "__main__":
    print("\n".join(map(str, fpm_figures())))
