"""Worlds: a mechanism, an engine's setting, and what measuring does to the truth."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.worlds.mechanisms import (
    Mechanism,
    Seconds,
    behind_host,
    captured,
    foreign,
    host_alone,
    linear,
    roofline,
)
from benchmarks.worlds.steps import Step, asked, grid, ragged

GRAPHS: Mapping[str, str] = {"prefill_execution": "full_graph", "decode_graph_sizes": "every"}
FEW_GRAPHS: Mapping[str, str] = {**GRAPHS, "decode_graph_sizes": "1, 2, 4, 8, 16, 32, 64, 128, 256"}
EAGER: Mapping[str, str] = {"prefill_execution": "eager", "decode_execution": "eager"}

MILLISECONDS = 1e3
ASKED = 240
SHARED = 4
"""One in so many steps is measured in every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement.

    Attributes:
        step: what ran.
        seconds: its true time.
        measured_ms: what the timer said.
        run, order: process run, and place in it.
        poisoned: something else disturbed it.
    """

    step: Step
    seconds: float
    measured_ms: float
    run: str
    order: int
    poisoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A step to predict.

    Attributes:
        step: what would run.
        seconds: its true time at the mean level of the measured runs; how that level lies to other
            runs, no measurement can tell.
        observed_ms: one measurement of it in a further run that has settled; never poisoned.
    """

    step: Step
    seconds: float
    observed_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a world gave: measurements to learn from, and questions with answers."""

    samples: tuple[Sample, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A synthetic engine and its timer.

    Attributes:
        name: of the world.
        what: its mechanism in a few words.
        mechanism: draws an engine.
        policy: fields of the preset "sglang" that differ.
        noise: standard deviation of the logarithm of one measurement.
        run_offset: the same, of all measurements of a process run together.
        runs: process runs; two where there are fewer than 60 points.
        warm_up: share by which the first step of a run is slower; falls exponentially over a third
            of the run.
        poisoned: share of measurements that take two to four times as long; so many, drawn.
        collect: chooses what is measured.
        ask: chooses what is asked.
    """

    name: str
    what: str
    mechanism: Mechanism
    policy: Mapping[str, str] = field(default_factory=lambda: GRAPHS)
    noise: float = 0.01
    run_offset: float = 0.01
    runs: int = 2
    warm_up: float = 0.0
    poisoned: float = 0.0
    collect: Callable[[int, np.random.Generator], list[Step]] = grid
    ask: Callable[[int, np.random.Generator], list[Step]] = asked

    def engine(self, seed: int) -> Seconds:
        """True seconds of steps of the engine that a seed draws."""
        return self.mechanism(np.random.default_rng([seed, zlib.crc32(self.name.encode())]))

    def draw(self, points: int, seed: int, questions: int = ASKED) -> Drawn:
        """Measurements and questions; the engine depends on the seed alone, not on ``points``."""
        seconds = self.engine(seed)
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode()), points])
        runs = self.runs if points >= 60 else min(self.runs, 2)
        offsets = self.run_offset * rng.standard_normal(runs)
        level = float(np.exp(offsets.mean()))
        samples = tuple(self._measure(seconds, points, offsets, rng))
        return Drawn(
            samples=samples,
            questions=tuple(
                Question(
                    step=step,
                    seconds=level * true,
                    observed_ms=MILLISECONDS * true * self._noise(rng) * self._offset(rng),
                )
                for step in self.ask(questions, rng)
                for true in (seconds(step),)
            ),
        )

    def _measure(
        self,
        seconds: Callable[[Step], float],
        points: int,
        offsets: npt.NDArray[np.float64],
        rng: np.random.Generator,
    ) -> Iterator[Sample]:
        """Every run measures its own share of the steps, and some of them all runs do."""
        runs = len(offsets)
        each = points // runs
        shared = each // SHARED
        steps = self.collect(points - shared * (runs - 1), rng)
        common, rest = steps[:shared], steps[shared:]
        places = [(run, order) for run in range(runs) for order in range(each)]
        wild = {
            places[place]
            for place in rng.permutation(len(places))[: round(self.poisoned * len(places))]
        }
        for run in range(runs):
            own = common + rest[run::runs]
            offset = float(np.exp(offsets[run]))
            for order, place in enumerate(rng.permutation(len(own))):
                step = own[place]
                true = seconds(step)
                drift = 1 + self.warm_up * float(np.exp(-3 * order / len(own)))
                poisoned = (run, order) in wild
                factor = rng.uniform(2, 4) if poisoned else 1.0
                yield Sample(
                    step=step,
                    seconds=true,
                    measured_ms=MILLISECONDS * true * offset * drift * factor * self._noise(rng),
                    run=f"run-{run + 1}",
                    order=order,
                    poisoned=poisoned,
                )

    def _noise(self, rng: np.random.Generator) -> float:
        return float(np.exp(self.noise * rng.standard_normal()))

    def _offset(self, rng: np.random.Generator) -> float:
        return float(np.exp(self.run_offset * rng.standard_normal()))


WORLDS: tuple[World, ...] = (
    World(
        name="knees",
        what="linear in work, with knees at window, selection and candidate pool",
        mechanism=linear,
    ),
    World(
        name="host_floor",
        what="the longer of host and device, which cross",
        mechanism=behind_host,
        policy=EAGER,
    ),
    World(
        name="host_only",
        what="the host decides every time, runs 4 % apart",
        mechanism=host_alone,
        policy=EAGER,
        run_offset=0.04,
    ),
    World(
        name="drift",
        what="6 % slower at the start of a run, runs 4 % apart",
        mechanism=linear,
        run_offset=0.04,
        runs=3,
        warm_up=0.06,
    ),
    World(
        name="outliers",
        what="5 % of measurements two to four times as long",
        mechanism=linear,
        noise=0.005,
        poisoned=0.05,
    ),
    World(
        name="graph_buckets",
        what="decodes filled up to captured sizes",
        mechanism=captured,
        policy=FEW_GRAPHS,
    ),
    World(
        name="roofline",
        what="the longer of memory and products, tiles, uneven experts",
        mechanism=roofline,
    ),
    World(
        name="foreign",
        what="page walks, throttling and a quadratic scheduler on top",
        mechanism=foreign,
    ),
    World(
        name="mixed_ragged",
        what="chunks and decodes of unlike lengths in one step",
        mechanism=linear,
        collect=ragged,
        ask=ragged,
    ),
)
