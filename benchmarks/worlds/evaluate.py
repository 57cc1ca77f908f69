"""How well FPM and plainer predictors recover the truth of a world."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

import aisim_v41 as aisim
from aisim_v41.estimators.fpm.estimator import Fpm, Prediction
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable
from aisim_v41.validation.plain import Predictor, constant_per_phase, linear_on_totals, phase_of
from benchmarks.worlds.steps import Step
from benchmarks.worlds.world import MILLISECONDS, Drawn, Question, Sample, World

GPU = "gb300"
PARALLEL = aisim.Parallel(tp=4)
FPM = "fpm"
Floats = npt.NDArray[np.float64]


@cache
def setting() -> tuple[aisim.Model, aisim.Hardware]:
    """The model and the GPU of every world."""
    return aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware(GPU)


def policy_of(world: World) -> aisim.RuntimePolicy:
    """How the engine of a world runs."""
    return aisim.policy("sglang", **world.policy)


def table_of(world: World, samples: Sequence[Sample]) -> StepTable:
    """Measurements of a world as a table."""
    model, hardware = setting()
    build = Build(
        checkpoint="none, synthetic",
        engine="sglang",
        engine_build="synthetic",
        image="none",
        topology="one node, 4 x GB300",
        modality="text",
        timer="gpu_events",
        settings={"world": world.name},
    )
    return StepTable(
        identity=Identity.of(model, hardware, PARALLEL, policy_of(world), build),
        gpu=GPU,
        records=tuple(
            StepRecord(
                step=sample.step, latency_ms=sample.measured_ms, run=sample.run, order=sample.order
            )
            for sample in samples
        ),
        licence="Apache-2.0",
        notice="synthetic",
    )


def fitted(world: World, samples: Sequence[Sample]) -> Fpm:
    """FPM made from measurements of a world, for an engine that has run for long."""
    return Fpm(table_of(world, samples), *setting())


def op_of(world: World) -> Predictor:
    """Operators (OP), which know nothing of the measurements."""
    return aisim.compile(*setting(), parallel=PARALLEL, policy=policy_of(world), method="op")


def rescaled(op: Predictor, steps: Sequence[Step], seconds: Sequence[float]) -> Predictor:
    """OP times the median of measured over predicted, phase by phase."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for step, value in zip(steps, seconds, strict=True):
        ratios[phase_of(step)].append(value / op(step))
    factor = {phase: float(np.median(values)) for phase, values in ratios.items()}
    return lambda step: factor[phase_of(step)] * op(step)


def rivals(world: World, samples: Sequence[Sample]) -> dict[str, Predictor]:
    """What FPM is held against, by name."""
    steps = [sample.step for sample in samples]
    seconds = [sample.measured_ms / MILLISECONDS for sample in samples]
    op = op_of(world)
    return {
        "linear on totals": linear_on_totals(steps, seconds),
        "in logarithms": linear_on_totals(steps, seconds, logarithms=True),
        "constant per phase": constant_per_phase(steps, seconds),
        "operators": op,
        "operators, rescaled": rescaled(op, steps, seconds),
    }


def misses(predict: Predictor, questions: Iterable[Question]) -> Floats:
    """|predicted / true - 1| of every question."""
    return np.array([abs(predict(asked.step) / asked.seconds - 1) for asked in questions])


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one predictor did in one world, all seeds together.

    Attributes:
        world, points, method: what was tried.
        median, p90: of the relative error against the truth.
        inside: share of further measurements inside the nominal 90 % band; None without bands.
        answered: share of questions answered without extrapolation; None where all are.
        found: share of the poisoned measurements that were flagged; None where there are none.
        blamed: share of the other measurements that were flagged.
        fit_s: seconds of the longest fit.
    """

    world: str
    points: int
    method: str
    median: float
    p90: float
    inside: float | None = None
    answered: float | None = None
    found: float | None = None
    blamed: float | None = None
    fit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FpmTrial:
    """FPM of one draw, and its answers to the questions."""

    fpm: Fpm
    drawn: Drawn
    fit_s: float
    answers: tuple[Prediction, ...]

    @property
    def misses(self) -> Floats:
        """|predicted / true - 1| of every question."""
        return np.array(
            [
                abs(answer.latency_s / asked.seconds - 1)
                for answer, asked in zip(self.answers, self.drawn.questions, strict=True)
            ]
        )

    @property
    def inside(self) -> Floats:
        """Whether each further measurement lies in its band."""
        return np.array(
            [
                float(answer.band_s[0] <= asked.observed_ms / MILLISECONDS <= answer.band_s[1])
                for answer, asked in zip(self.answers, self.drawn.questions, strict=True)
            ]
        )

    @property
    def answered(self) -> Floats:
        """Whether each question lies where there is an answer without extrapolation."""
        return np.array([float(answer.domain.verdict != "outside") for answer in self.answers])

    def flags(self, *, poisoned: bool) -> Floats:
        """Whether each poisoned measurement, or each other one, was flagged."""
        return np.array(
            [
                float(place in self.fpm.flagged)
                for place, sample in enumerate(self.drawn.samples)
                if sample.poisoned == poisoned
            ]
        )


def try_fpm(world: World, drawn: Drawn) -> FpmTrial:
    """Fit one draw and ask its questions."""
    start = time.perf_counter()
    fpm = fitted(world, drawn.samples)
    took = time.perf_counter() - start
    answers = tuple(fpm.predict(asked.step, extrapolate=True) for asked in drawn.questions)
    return FpmTrial(fpm=fpm, drawn=drawn, fit_s=took, answers=answers)


def evaluate(world: World, points: int, seeds: Iterable[int]) -> list[Score]:
    """Scores of FPM and its rivals with so many measurements.

    Args:
        world: the engine.
        points: measurements.
        seeds: each draws another engine of that kind, other measurements and questions.
    """
    draws = [world.draw(points, seed) for seed in seeds]
    trials = [try_fpm(world, drawn) for drawn in draws]
    found = _joined([trial.flags(poisoned=True) for trial in trials])
    scores = [
        Score(
            world=world.name, points=points, method=FPM,
            **_errors([trial.misses for trial in trials]),
            inside=_joined([trial.inside for trial in trials]),
            answered=_joined([trial.answered for trial in trials]),
            found=found,
            blamed=_joined([trial.flags(poisoned=False) for trial in trials]),
            fit_s=max(trial.fit_s for trial in trials),
        )
    ]  # fmt: skip
    by_method: dict[str, list[Floats]] = defaultdict(list)
    for drawn in draws:
        for name, predict in rivals(world, drawn.samples).items():
            by_method[name].append(misses(predict, drawn.questions))
    scores += [
        Score(world=world.name, points=points, method=name, **_errors(found))
        for name, found in by_method.items()
    ]
    return scores


def _errors(found: Sequence[Floats]) -> dict[str, float]:
    every = np.concatenate(found)
    return {"median": float(np.median(every)), "p90": float(np.quantile(every, 0.9))}


def _joined(found: Sequence[Floats]) -> float | None:
    every = np.concatenate(found)
    return float(every.mean()) if len(every) else None
