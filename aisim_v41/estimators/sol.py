"""SOL: the speed-of-light estimate of a plan, with its reasons.

Three nested bounds (DESIGN §6; docs/bounds.md). Only peaks enter; what the graph bound takes as
true is in docs/assumptions.md, "SOL".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aisim_v41.estimators.compiled import CompiledSol, Floats, compiled_sol
from aisim_v41.estimators.resources import Resource
from aisim_v41.estimators.result import Bounds, Estimate, Row
from aisim_v41.hardware import Hardware
from aisim_v41.ops.backbone import Step
from aisim_v41.ops.graph import Node, Par, Seq, seq
from aisim_v41.ops.operator import Columns, Task
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MILLISECOND

RESOURCES = tuple(Resource)
SOURCE = "theoretical"
ROUNDING = 1e-12
"""Relative difference of two times that says nothing."""


class Sol:
    """The speed-of-light estimator."""

    method = "sol"

    def estimate(self, plan: Plan, hardware: Hardware) -> Estimate:
        """Bounds of a plan, and what they are made of.

        Raises:
            UnsupportedPlanError: the mapping does not fit the model or the GPU.
        """
        compiled = compiled_sol(plan.model, hardware, plan.parallel, plan.policy)
        counted = ledger(plan)
        forwards = [(forward.times, counts.totals) for forward, counts in counted.passes]
        graph_s = sum(times * float(compiled.time.seconds(x)) for times, x in forwards)
        resource_s = sum(
            times * float((compiled.certain_forms @ _fewest_experts(compiled, x)).max())
            for times, x in forwards
        )
        launch_s = _launch_bound(compiled, counted, graph_s)
        rows = _rows(compiled, forwards)
        busy = np.zeros(len(RESOURCES))
        for times, x in forwards:
            busy += times * (compiled.resource_totals @ x)
        return Estimate(
            plan=plan,
            hardware=hardware,
            method=self.method,
            latency_s=graph_s,
            band_s=(graph_s, math.inf if graph_s else 0.0),
            bounds=Bounds(resource_s=resource_s, graph_s=graph_s, launch_s=launch_s),
            rows=rows,
            source_share={SOURCE: 1.0} if graph_s else {},
            resource_s={str(r): float(busy[i]) for i, r in enumerate(RESOURCES)},
            path=_critical_path(compiled, forwards),
            warnings=(*plan.warnings, *_assumptions(plan)),
            timeline_rows=_timeline(compiled, forwards),
        )


def _assumptions(plan: Plan) -> tuple[str, ...]:
    policy = plan.policy
    if plan.model.engram is not None and policy.engram_residency != "hbm":
        return (
            f"engram_residency={policy.engram_residency!r}: the transfer of table rows from there "
            "is not part of this bound",
        )
    return ()


def _fewest_experts(compiled: CompiledSol, counts: Floats) -> Floats:
    """The counts with the fewest experts that rows can touch: what holds whatever is routed."""
    fewest = counts.copy()
    program = compiled.program
    top_k = compiled.model.experts.top_k
    for touched, active in program.expert_columns:
        fewest[touched] = min(fewest[touched], fewest[active] * top_k)
    return fewest


def _launch_bound(compiled: CompiledSol, counted: Ledger, graph_s: float) -> float:
    """The graph bound with the launch floor of the execution mode.

    Eager: the host launches one kernel after another, so the step is the longer of the two.
    Graph: each kernel starts a gap after the last (docs/assumptions.md, "Launch").
    """
    launches = sum(
        forward.times * float(compiled.launch_form @ counts.totals)
        for forward, counts in counted.passes
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


def _rows(compiled: CompiledSol, forwards: list[tuple[int, Floats]]) -> tuple[Row, ...]:
    """Breakdown by distinct task, in order of first occurrence."""
    where: dict[int, list[int]] = defaultdict(list)
    for step in (*compiled.backbone.chain, *compiled.backbone.beside):
        for task in compiled.tasks_in(step.node):
            where[id(task)].append(step.layer)

    def total(form: Columns) -> float:
        vector = compiled.vector(form)
        return sum(times * float(vector @ counts) for times, counts in forwards)

    rows = []
    for place, task in enumerate(compiled.tasks):
        layers = tuple(where[id(task)])
        calls = len(layers)
        per_forward = [
            (times, compiled.resource_forms[place] @ counts) for times, counts in forwards
        ]
        seconds = sum(times * float(spent.max()) for times, spent in per_forward)
        spent = sum((times * spent for times, spent in per_forward), np.zeros(len(RESOURCES)))
        launches = calls * total(task.launches)
        if launches == 0 and seconds == 0:
            continue
        rows.append(
            Row(
                operator=task.name,
                family=str(task.family),
                replaces=task.replaces,
                layers=layers,
                calls=calls * sum(times for times, _ in forwards),
                rows=calls * total({task.rows: 1}),
                flop=calls * sum(total(form) for form in task.flops.values()),
                bytes_by_kind={
                    str(kind): calls * total(form) for kind, form in task.traffic.items() if form
                },
                message_bytes=calls * total(task.payload),
                launches=launches,
                seconds=calls * seconds,
                seconds_by_resource={
                    str(r): calls * float(spent[i]) for i, r in enumerate(RESOURCES)
                },
                bound=str(RESOURCES[int(np.argmax(spent))]),
                source=SOURCE,
            )
        )
    return tuple(rows)


def _critical_path(compiled: CompiledSol, forwards: list[tuple[int, Floats]]) -> dict[str, float]:
    """Operators on the longest way through the graph [s], longest first.

    What a block takes beyond its longest member, because the members share a resource, appears as
    "shared <resource>".
    """
    path: dict[str, float] = defaultdict(float)
    for times, counts in forwards:
        for name, seconds in _path_of(compiled, compiled.graph, counts, {}).items():
            path[name] += times * seconds
    return dict(sorted(path.items(), key=lambda item: -item[1]))


def _path_of(
    compiled: CompiledSol, node: Node, counts: Floats, known: dict[int, dict[str, float]]
) -> dict[str, float]:
    key = id(node)
    if key in known:
        return known[key]
    path: dict[str, float] = defaultdict(float)
    if isinstance(node, Task):
        path[node.name] = float((compiled.totals(node) @ counts).max())
    elif isinstance(node, Seq):
        for member in node.members:
            for name, seconds in _path_of(compiled, member, counts, known).items():
                path[name] += seconds
    else:
        shared = compiled.totals(node) @ counts
        limit = int(np.argmax(shared))
        ways = [_path_of(compiled, member, counts, known) for member in node.members]
        longest = max(ways, key=lambda way: sum(way.values()))
        path.update(longest)
        beyond = float(shared[limit]) - sum(longest.values())
        if beyond > ROUNDING * float(shared[limit]):
            path[f"shared {RESOURCES[limit]}"] += beyond
    known[key] = dict(path)
    return known[key]


def _timeline(
    compiled: CompiledSol, forwards: list[tuple[int, Floats]]
) -> tuple[dict[str, Any], ...]:
    """Every task of every forward; one that runs several times is shown once."""
    main = seq(*(step.node for step in compiled.backbone.chain))
    timeline, clock = _Timeline(compiled), 0.0
    for number, (times, counts) in enumerate(forwards):
        timeline.forward, timeline.counts = number, counts
        after = timeline.place_steps(compiled.backbone.chain, clock, 0)
        beside = timeline.place_steps(compiled.backbone.beside, clock, timeline.width(main))
        whole = float(compiled.time.seconds(counts))
        longest = max(after, beside)
        timeline.wait(compiled.graph, longest, clock + whole, 0, len(compiled.model.layers))
        clock += times * whole
    return tuple(timeline.rows)


@dataclass(slots=True)
class _Timeline:
    """Tasks laid out in time, members of a block in lanes of their own."""

    compiled: CompiledSol
    forward: int = 0
    counts: Floats = field(default_factory=lambda: np.zeros(0))
    rows: list[dict[str, Any]] = field(default_factory=list)
    _widths: dict[int, int] = field(default_factory=dict)

    def width(self, node: Node) -> int:
        """Lanes that a node needs."""
        key = id(node)
        if key not in self._widths:
            inside = [] if isinstance(node, Task) else [self.width(m) for m in node.members]
            self._widths[key] = max(sum(inside) if isinstance(node, Par) else max([1, *inside]), 1)
        return self._widths[key]

    def place_steps(self, steps: Iterable[Step], start: float, lane: int) -> float:
        """Lay out steps one after another; return when the last one ends [s]."""
        for step in steps:
            start += self.place(step.node, start, lane, step.layer)
        return start

    def place(self, node: Node, start: float, lane: int, layer: int) -> float:
        """Lay out a node that starts at ``start``; return how long it takes [s]."""
        spent = self.compiled.totals(node) @ self.counts
        if isinstance(node, Task):
            length = float(spent.max())
            self._add(node.name, start, start + length, lane, layer, int(np.argmax(spent)))
            return length
        if isinstance(node, Seq):
            end = start
            for member in node.members:
                end += self.place(member, end, lane, layer)
            return end - start
        longest = 0.0
        beside = lane
        for member in node.members:
            longest = max(longest, self.place(member, start, beside, layer))
            beside += self.width(member)
        length = max(longest, float(spent.max()))
        self.wait(node, start + longest, start + length, lane, layer)
        return length

    def wait(self, node: Node, start: float, end: float, lane: int, layer: int) -> None:
        """A block that its members have left unfinished, since they share a resource."""
        if end - start > ROUNDING * end:
            limit = int(np.argmax(self.compiled.totals(node) @ self.counts))
            self._add(f"shared {RESOURCES[limit]}", start, end, lane, layer, limit)

    def _add(
        self, operator: str, start: float, end: float, lane: int, layer: int, limit: int
    ) -> None:
        if end > start:
            self.rows.append(
                {
                    "forward": self.forward,
                    "layer": layer,
                    "operator": operator,
                    "lane": lane,
                    "start_ms": start / MILLISECOND,
                    "end_ms": end / MILLISECOND,
                    "bound": str(RESOURCES[limit]),
                }
            )
