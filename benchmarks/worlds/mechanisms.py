"""True times of steps: how each world turns work into seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from aisim_v41.plan.request import Request
from benchmarks.worlds.work import CHOSEN, EXPERTS, Work, work_of

Step = Sequence[Request]
Seconds = Callable[[Step], float]
Mechanism = Callable[[np.random.Generator], Seconds]
"""One engine of a world, with costs drawn at random."""

COST_SPREAD = 0.25
"""Engines of one world differ: standard deviation of the logarithm of every cost."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one unit of work.

    Sizes are those of one of four GB300-like GPUs: 9 GB of other weights, 18.8 MB an expert and
    layer over four ranks at 6 TB/s, 8 GFLOP a row, and gathers and scores well below peak.
    """

    step_s: float = 1.4e-3
    expert_s: float = 31e-6
    row_s: float = 5e-6
    request_s: float = 2e-6
    pair_s: float = 100e-12
    entry_s: float = 200e-12
    score_s: float = 15e-12

    def drawn(self, rng: np.random.Generator) -> Costs:
        """Costs of another engine of this kind."""
        costs = np.array(astuple(self))
        return Costs(*(costs * np.exp(COST_SPREAD * rng.standard_normal(len(costs)))).tolist())

    def seconds(self, work: Work) -> float:
        """Time of the device, all work after one another [s]."""
        return (
            self.step_s
            + self.expert_s * work.experts
            + self.row_s * work.rows
            + self.request_s * work.requests
            + self.pair_s * work.window_pairs
            + self.entry_s * work.selected
            + self.score_s * work.scored
        )


def is_decode(step: Step) -> bool:
    """Whether every request decodes."""
    return all(request.kind == "decode" for request in step)


def linear(rng: np.random.Generator) -> Seconds:
    """Work at a fixed rate each; the knees are those of window, selection and candidate pool."""
    costs = Costs().drawn(rng)
    return lambda step: costs.seconds(work_of(step))


HOST_S = {True: 30e-3, False: 36e-3}
"""Seconds that the host needs to launch a decode step, and one with a prefill."""
HOST_REQUEST_S = 20e-6
SLOW_DEVICE = 3.0


def behind_host(rng: np.random.Generator) -> Seconds:
    """The longer of device and host, which launches every kernel; they cross within the domain."""
    costs = Costs().drawn(rng)
    factor = float(np.exp(COST_SPREAD * rng.standard_normal()))

    def seconds(step: Step) -> float:
        work = work_of(step)
        host = factor * (HOST_S[is_decode(step)] + HOST_REQUEST_S * work.requests)
        return max(host, SLOW_DEVICE * costs.seconds(work))

    return seconds


EAGER_S = {True: 150e-3, False: 180e-3}
"""The same of a host that launches every operator of a framework on its own."""


def host_alone(rng: np.random.Generator) -> Seconds:
    """A slow host before a fast device: next to nothing depends on what a step computes."""
    factor = float(np.exp(COST_SPREAD * rng.standard_normal()))

    def seconds(step: Step) -> float:
        requests = sum(request.count for request in step)
        return factor * (EAGER_S[is_decode(step)] + HOST_REQUEST_S * requests)

    return seconds


CAPTURED = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GRAPH_ROW_S = 25e-6


def captured(rng: np.random.Generator) -> Seconds:
    """Decode steps run as graphs of few batch sizes, filled up with dummies: a staircase."""
    costs = Costs(row_s=GRAPH_ROW_S).drawn(rng)

    def seconds(step: Step) -> float:
        if not is_decode(step):
            return costs.seconds(work_of(step))
        batch = sum(request.count for request in step)
        return costs.seconds(work_of(step, CAPTURED[bisect_left(CAPTURED, batch)] - batch))

    return seconds


TILE_ROWS = 128
"""Rows of one tile of a matrix product; few rows run in a kernel without tiles."""
LAUNCHES_S, DENSE_READ_S, DENSE_ROW_S = 0.8e-3, 0.33e-3, 1.3e-6
EXPERT_ROW_S, UNEVEN = 2.9e-6, 0.6
"""Seconds of the experts' products of a row, and how much the fullest expert delays them at one
row an expert; falls with the root of that number."""
ENTRY_S = {True: 100e-12, False: 16e-12}
"""Seconds of one pair or entry: bytes in decodes, products in prefills."""
SCORE_S = {True: 11e-12, False: 1.5e-12}
ATTENTION_S, INDEX_S = 0.2e-3, 0.1e-3
"""Shortest times of all kernels of a kind."""
HOP_S, SENT_S = 80 * 6e-6, 80 * 22e-9
"""80 all-reduces: their hops, and the bytes of one row."""
ATTAINED = 0.6
"""Share of all these rates that kernels reach."""


def roofline(rng: np.random.Generator) -> Seconds:
    """Kernels as a GPU runs them: each the longer of memory and products, in tiles, never shorter
    than a launch, experts as late as the fullest one."""
    costs = Costs().drawn(rng)
    factors = np.exp(COST_SPREAD * rng.standard_normal(6)).tolist()

    def seconds(step: Step) -> float:
        work, decodes = work_of(step), is_decode(step)
        rows = work.rows
        tiles = TILE_ROWS * np.ceil(rows / TILE_ROWS) if rows > 16 else 16.0
        late = 1 + UNEVEN / np.sqrt(CHOSEN * max(rows, 1.0) / EXPERTS)
        kernels = (
            max(DENSE_READ_S, DENSE_ROW_S * tiles),
            max(costs.expert_s * work.experts, EXPERT_ROW_S * rows * late),
            max(ATTENTION_S, ENTRY_S[decodes] * (work.window_pairs + work.selected)),
            max(INDEX_S, SCORE_S[decodes] * work.scored),
            HOP_S + SENT_S * rows,
            LAUNCHES_S,
        )
        return float(sum(f * k for f, k in zip(factors, kernels, strict=True))) / ATTAINED

    return seconds


PAGE_WALK_S = 30e-9
SCHEDULE_S = 60e-9
THROTTLE, SUSTAINED_S = 0.15, 50e-3


def foreign(rng: np.random.Generator) -> Seconds:
    """Costs of other kinds on top of the work.

    Page tables are walked in pages x log(pages), a scheduler takes the square of the batch, and
    the longer a step draws full power, the more the clocks fall, by 15 % at most.
    """
    costs = Costs().drawn(rng)
    walk, schedule, throttle = np.exp(COST_SPREAD * rng.standard_normal(3)) * (
        PAGE_WALK_S, SCHEDULE_S, THROTTLE,
    )  # fmt: skip

    def seconds(step: Step) -> float:
        work = work_of(step)
        pages = np.asarray(work.pages)
        device = costs.seconds(work) + walk * float((pages * np.log2(1 + pages)).sum())
        device *= 1 + throttle * device / (device + SUSTAINED_S)
        return float(device + schedule * work.requests**2)

    return seconds
