"""OP: the time of a plan from measured and calibrated operators, with its evidence shown.

Every task is priced by the best law there is for its kind of kernel
(`aisim_v41.estimators.op.laws`) and composed over the same graph as SOL. The answer says which
share of its time rests on what, and how far it may be off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aisim_v41.estimators.breakdown import Breakdown, slowest
from aisim_v41.estimators.compiled import Floats, compiled_sol
from aisim_v41.estimators.op.builds import CompiledBuild, compiled_build
from aisim_v41.estimators.op.compiled import CompiledOp
from aisim_v41.estimators.op.evidence import Kernel
from aisim_v41.estimators.op.expert_load import load_span
from aisim_v41.estimators.resources import RESOURCES
from aisim_v41.estimators.result import Estimate
from aisim_v41.estimators.sol import assumptions, deciding_rank, sol_bounds
from aisim_v41.hardware import Hardware
from aisim_v41.ops.graph import Node
from aisim_v41.ops.operator import Task
from aisim_v41.plan.captured import Mask
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import RankCounts, StepCounts
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import ForwardPass, Plan

MOST_ERROR = 0.75
"""Largest 90 % error that a band counts with: beyond it an upper end would say nothing."""


class Op:
    """The estimator from operators."""

    method = "op"

    def estimate(
        self, plan: Plan, hardware: Hardware, *, extrapolate: bool | None = None
    ) -> Estimate:
        """Time of a plan, its band, and what it is made of.

        Raises:
            UnsupportedPlanError: the mapping does not fit the model or the GPU.
            MissingProfileError: nothing is known about kernels of this GPU or its family.
        """
        compiled = compiled_build(plan.model, hardware, plan.running, plan.policy)
        counted = ledger(plan)
        ranks = op_ranks(compiled, counted)
        forwards = slowest(ranks)
        sol = compiled_sol(plan.model, hardware, plan.running, plan.policy)
        bounds = sol_bounds(sol, counted)
        latency = sum(forward.times * forward.total_s for forward in forwards)
        by_kernels = tuple(forward for forward in forwards if not forward.waits_s)
        host = sum(forward.times * forward.host_s for forward in forwards)
        by_host = sum(f.times * f.host_s * f.host_error for f in forwards if f.waits_s)
        shorter, longer = np.hypot(_kernel_errors(by_kernels), by_host)
        low, high = compiled.range_s((f.times, f.counts, f.uncaptured) for f in forwards)
        load = load_span(compiled, plan.requests)
        below = np.hypot(np.hypot(shorter, load.below_s), latency - low)
        above = np.hypot(np.hypot(longer, load.above_s), high - latency)
        above = np.hypot(above, _meeting_s(compiled, counted))
        busy = np.zeros(len(RESOURCES))
        for forward in forwards:
            busy += forward.times * (forward.compiled.resource_totals @ forward.counts)
        return Estimate(
            plan=plan,
            hardware=hardware,
            method=self.method,
            latency_s=latency,
            band_s=(max(bounds.graph_s, latency - float(below)), latency + float(above)),
            bounds=bounds,
            source_share=_source_share(forwards),
            resource_s={str(r): float(busy[i]) for i, r in enumerate(RESOURCES)},
            warnings=(*plan.warnings, *assumptions(plan, hardware)),
            breakdown=Breakdown(forwards, ranks),
            rank=deciding_rank(forwards),
            beyond=_beyond(forwards),
            kernels_s=sum(forward.times * forward.device_s for forward in forwards),
            host_s=host,
        )


@dataclass(frozen=True)
class OpForward:
    """One forward, its tasks priced by their laws."""

    compiled: CompiledOp
    times: int
    counts: Floats
    uncaptured: Mask | None = None
    """Whether the step is larger than every captured graph."""
    rank: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made from, without what was computed on the way."""
        return type(self), (self.compiled, self.times, self.counts, self.uncaptured, self.rank)

    @property
    def total_s(self) -> float:
        """Time of the forward [s]."""
        return max(self.device_s, self.host_s)

    @cached_property
    def device_s(self) -> float:
        """Time of its kernels [s]."""
        return float(self.compiled.device_seconds(self.counts))

    @cached_property
    def host_s(self) -> float:
        """Time that the host needs to issue it [s]."""
        return float(self.compiled.host.seconds(self.counts, self.uncaptured))

    @property
    def host_error(self) -> float:
        """90 % error of that time, as a share of it."""
        return self.compiled.host.error_relative

    @property
    def waits_s(self) -> float:
        """What the host adds to the kernels' time [s]."""
        return self.total_s - self.device_s

    @cached_property
    def _seconds(self) -> Floats:
        """Time of one call of every task [tasks]."""
        return self.compiled.task_seconds(self.counts)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of one run, with the laws that price them."""
        return tuple(self.compiled.kernels(self.counts))

    def task_seconds(self, task: Task) -> float:
        """Time of one call alone [s]."""
        return float(self._seconds[self.compiled.place_of(task)])

    def source(self, task: Task) -> str:
        """Kinds of evidence behind the task's kernels."""
        return " + ".join(sorted({kernel.tag for kernel in self.kernels if kernel.task is task}))

    def error(self, task: Task) -> float | None:
        """90 % error of its kernels, as a share of their time; all off to the same side."""
        kernels = [kernel for kernel in self.kernels if kernel.task is task and kernel.seconds]
        total = sum(kernel.seconds for kernel in kernels)
        off = sum(min(kernel.error_p90, MOST_ERROR) * kernel.seconds for kernel in kernels)
        return off / total if total else None

    def shared(self, node: Node) -> Floats:
        """Seconds on each resource at peak."""
        spent: Floats = self.compiled.totals(node) @ self.counts
        return spent

    def arranged(self, node: Node) -> Node:
        """The node as this forward runs it: prefill on one stream."""
        return self.compiled.arranged(node, self.counts)


def op_forwards(build: CompiledBuild, counted: Ledger) -> tuple[OpForward, ...]:
    """The forwards of a plan, each of the rank that the others wait for."""
    return slowest(op_ranks(build, counted))


def op_ranks(build: CompiledBuild, counted: Ledger) -> tuple[tuple[OpForward, ...], ...]:
    """Every forward on every rank, with the dummy rows of the graphs that they replay."""
    return tuple(
        tuple(
            OpForward(build.at(counts), forward.times, counts, uncaptured, forward.rank)
            for (forward, _), (counts, uncaptured) in zip(ranks, _filled(build, ranks), strict=True)
        )
        for ranks in counted.forwards
    )


def _meeting_s(build: CompiledBuild, counted: Ledger) -> float:
    """By how much a step may be longer because ranks meet in every layer [s].

    The slowest rank of a layer need not be that of the step; none takes longer there than a rank
    that has the most of everything.
    """
    longer = 0.0
    for ranks in counted.forwards:
        if len(ranks) > 1:
            filled = _filled(build, ranks)
            most = np.maximum.reduce([counts for counts, _ in filled])
            slowest = max(float(build.seconds(*one)) for one in filled)
            longer += max(0.0, float(build.seconds(most, filled[0][1])) - slowest)
    return longer


def _filled(
    build: CompiledBuild, ranks: Sequence[tuple[ForwardPass, StepCounts]]
) -> list[tuple[Floats, Mask | None]]:
    """Counts of every rank with the dummy rows of the graphs that they replay."""
    one = np.asarray(1.0)
    counted = [RankCounts(pack(forward.requests), one, counts) for forward, counts in ranks]
    return build.captured.filled_ranks(counted, one_step=True)


def _kernel_errors(forwards: tuple[OpForward, ...]) -> Floats:
    """How much shorter and longer kernels may take, 90 %, from the laws' errors [s].

    Errors are shares of what was measured, so that a law that is r too long stands for a kernel of
    1/(1 + r) of its time, and one that is r too short for one of 1/(1 - r). Kernels of one law are
    off together, different laws independently.
    """
    by_law: dict[str, Floats] = defaultdict(lambda: np.zeros(2))
    for forward in forwards:
        for kernel in forward.kernels:
            error = min(kernel.error_p90, MOST_ERROR)
            both = np.array([error / (1.0 + error), error / (1.0 - error)])
            by_law[kernel.law.key] += forward.times * kernel.seconds * both
    squares = sum((np.square(error) for error in by_law.values()), np.zeros(2))
    return np.asarray(np.sqrt(squares))


def _source_share(forwards: tuple[OpForward, ...]) -> dict[str, float]:
    """Share of the kernels' time by kind of evidence, and of what the host adds."""
    shares: dict[str, float] = defaultdict(float)
    for forward in forwards:
        if forward.waits_s:
            shares["host"] += forward.times * forward.waits_s
        for kernel in forward.kernels:
            shares[kernel.tag] += forward.times * kernel.seconds
    total = sum(shares.values())
    return {name: value / total for name, value in sorted(shares.items())} if total else {}


def _beyond(forwards: tuple[OpForward, ...]) -> tuple[str, ...]:
    """Sizes outside what their evidence covers, longest time first."""
    times: dict[str, float] = defaultdict(float)
    for forward in forwards:
        for kernel in forward.kernels:
            if kernel.reason:
                text = f"{kernel.task.name} ({kernel.law.key}): {kernel.reason}"
                times[text] += forward.times * kernel.seconds
    return tuple(sorted(times, key=lambda text: -times[text]))
