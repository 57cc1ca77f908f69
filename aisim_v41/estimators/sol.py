"""SOL: the speed-of-light estimate of a plan, with its reasons.

Three nested bounds (DESIGN §6; docs/bounds.md). Only peaks enter; what the graph bound takes as
true is in docs/assumptions.md, "SOL".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aisim_v41.estimators.breakdown import Breakdown, slowest
from aisim_v41.estimators.compiled import CompiledSol, Floats, compiled_sol
from aisim_v41.estimators.resources import RESOURCES
from aisim_v41.estimators.result import Bounds, Estimate
from aisim_v41.hardware import Hardware
from aisim_v41.ops.graph import Node
from aisim_v41.ops.operator import Task
from aisim_v41.plan.compatibility import engine_warnings
from aisim_v41.plan.counting import StepCounts
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import ForwardPass, Plan

SOURCE = "theoretical"


class Sol:
    """The speed-of-light estimator."""

    method = "sol"

    def estimate(
        self, plan: Plan, hardware: Hardware, *, extrapolate: bool | None = None
    ) -> Estimate:
        """Bounds of a plan, and what they are made of.

        Raises:
            UnsupportedPlanError: the mapping does not fit the model or the GPU.
        """
        compiled = compiled_sol(plan.model, hardware, plan.running, plan.policy)
        counted = ledger(plan)
        ranks = tuple(_forwards(compiled, forward) for forward in counted.forwards)
        forwards = slowest(ranks)
        bounds = sol_bounds(compiled, counted)
        busy = np.zeros(len(RESOURCES))
        for forward in forwards:
            busy += forward.times * (compiled.resource_totals @ forward.counts)
        return Estimate(
            plan=plan,
            hardware=hardware,
            method=self.method,
            latency_s=bounds.graph_s,
            band_s=(bounds.graph_s, math.inf if bounds.graph_s else 0.0),
            bounds=bounds,
            source_share={SOURCE: 1.0} if bounds.graph_s else {},
            resource_s={str(r): float(busy[i]) for i, r in enumerate(RESOURCES)},
            warnings=(*plan.warnings, *assumptions(plan, hardware)),
            breakdown=Breakdown(forwards, ranks),
            rank=deciding_rank(forwards),
        )


@dataclass(frozen=True, slots=True)
class SolForward:
    """One forward at the speed of light."""

    compiled: CompiledSol
    times: int
    counts: Floats
    total_s: float
    waits_s: float = 0.0
    host_s: float = 0.0
    """A bound has no host."""
    rank: int | None = None

    def task_seconds(self, task: Task) -> float:
        """The longest of the task's resources [s]."""
        return float(self.shared(task).max())

    def source(self, task: Task) -> str:
        """No evidence but peaks."""
        return SOURCE

    def error(self, task: Task) -> None:
        """A bound has no error."""

    def shared(self, node: Node) -> Floats:
        """Seconds on each resource."""
        spent: Floats = self.compiled.totals(node) @ self.counts
        return spent

    def arranged(self, node: Node) -> Node:
        """Whatever may run side by side does."""
        return node


class OfRank(Protocol):
    """Something that one rank does."""

    @property
    def rank(self) -> int | None:
        """Which rank; None where all are alike."""
        ...


def deciding_rank(forwards: Sequence[OfRank]) -> int | None:
    """The rank that a step waits for, where ranks run different rows."""
    return next((forward.rank for forward in forwards), None)


def _forwards(
    compiled: CompiledSol, ranks: Sequence[tuple[ForwardPass, StepCounts]]
) -> tuple[SolForward, ...]:
    """One forward on every rank."""
    return tuple(
        SolForward(
            compiled,
            forward.times,
            counts.totals,
            float(compiled.time.seconds(counts.totals)),
            rank=forward.rank,
        )
        for forward, counts in ranks
    )


def sol_bounds(compiled: CompiledSol, counted: Ledger) -> Bounds:
    """The three bounds of a counted plan."""
    graph_s = resource_s = 0.0
    for ranks in counted.forwards:
        times = ranks[0][0].times
        totals = [counts.totals for _, counts in ranks]
        graph_s += times * max(float(compiled.time.seconds(one)) for one in totals)
        certain = [compiled.certain_forms @ _fewest_experts(compiled, one) for one in totals]
        resource_s += times * max(float(one.max()) for one in certain)
    launch_s = _launch_bound(compiled, counted, graph_s)
    return Bounds(resource_s=resource_s, graph_s=graph_s, launch_s=launch_s)


def assumptions(plan: Plan, hardware: Hardware) -> tuple[str, ...]:
    """What an engine refuses on this GPU, or does otherwise."""
    policy = plan.policy
    everywhere = engine_warnings(policy, plan.parallel)
    here = engine_warnings(policy, plan.parallel, hardware.architecture)
    found = [warning for warning in here if warning not in everywhere]
    hits = any(request.window == "missing" for request in plan.requests)
    if hits and policy.name == "vllm" and hardware.architecture.startswith("gfx"):
        found.append(
            f"{policy.revision} has no encoder replay on ROCm: window KV is cached with the prefix "
            "there, so that a hit without its window does not occur (window='cached')"
        )
    return tuple(found)


def _fewest_experts(compiled: CompiledSol, counts: Floats) -> Floats:
    """The counts with the fewest experts that rows can touch: what holds whatever is routed."""
    fewest = counts.copy()
    program = compiled.program
    for touched, active, top_k in program.expert_columns():
        fewest[touched] = min(fewest[touched], fewest[active] * top_k)
    return fewest


def _launch_bound(compiled: CompiledSol, counted: Ledger, graph_s: float) -> float:
    """The graph bound with the launch floor of the execution mode.

    Eager: the host launches one kernel after another, so the step is the longer of the two.
    Graph: each kernel starts a gap after the last (docs/assumptions.md, "Launch").
    """
    launches = sum(
        ranks[0][0].times * max(float(compiled.launch_form @ counts.totals) for _, counts in ranks)
        for ranks in counted.forwards
    )
    policy, hardware = compiled.policy, compiled.hardware
    prefills = any(
        request.kind == "prefill"
        and request.count
        and (request.new_tokens or request.window != "running")
        for request in counted.plan.requests
    )
    execution = policy.prefill_execution if prefills else policy.decode_execution
    if execution == "eager":
        return max(graph_s, launches * hardware.eager_launch_s)
    return graph_s + launches * hardware.graph_node_gap_s
