"""What a time is made of: rows by operator, the critical path, a timeline.

The same for every estimator: each says, for one forward, how long a task takes alone, why, and what
a parallel block cannot undercut (`ForwardPrice`); everything here follows from that and the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from aisim_v41.estimators.compiled import CompiledGraph, Floats
from aisim_v41.estimators.resources import RESOURCES
from aisim_v41.ops.backbone import Step
from aisim_v41.ops.graph import Node, Par, Seq, seq
from aisim_v41.ops.operator import Columns, Task
from aisim_v41.units import MILLISECOND

ROUNDING = 1e-12
"""Relative difference of two times that says nothing."""


class ForwardPrice(Protocol):
    """One forward, priced."""

    @property
    def compiled(self) -> CompiledGraph:
        """The graph of its kernels."""
        ...

    @property
    def times(self) -> int:
        """How often it runs in the step."""
        ...

    @property
    def counts(self) -> Floats:
        """The ledger's columns."""
        ...

    @property
    def total_s(self) -> float:
        """Its time [s]."""
        ...

    @property
    def waits_s(self) -> float:
        """Of it, what kernels wait for their host [s]."""
        ...

    def task_seconds(self, task: Task) -> float:
        """Time of one call alone [s]."""
        ...

    def source(self, task: Task) -> str:
        """Kind of evidence behind it."""
        ...

    def shared(self, node: Node) -> Floats:
        """Time of a block on each resource that its members share [resources], in seconds."""
        ...

    def arranged(self, node: Node) -> Node:
        """The node as this forward runs it: side by side, or one task after another."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operator in one class of layers: work and time of all its calls in the step.

    ``seconds`` is the time of all calls alone [s], ``bound`` the resource that decides the floor,
    ``source`` the kind of evidence.
    """

    operator: str
    family: str
    replaces: tuple[str, ...]
    layers: tuple[int, ...]
    calls: int
    rows: float
    flop: float
    bytes_by_kind: Mapping[str, float]
    message_bytes: float
    launches: float
    seconds: float
    floor_s: float
    seconds_by_resource: Mapping[str, float]
    bound: str
    source: str


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Details of a priced step.

    Args:
        forwards: its forwards; each knows its graph, since kernels change with the rows.
    """

    forwards: tuple[ForwardPrice, ...]

    def rows(self) -> tuple[Row, ...]:
        """By distinct task, in order of first occurrence."""
        by_graph: dict[int, list[ForwardPrice]] = defaultdict(list)
        for forward in self.forwards:
            by_graph[id(forward.compiled)].append(forward)
        found = (row for alike in by_graph.values() for row in _rows_of(alike))
        return tuple(row for row in found if row.launches or row.seconds)

    def path(self) -> dict[str, float]:
        """Operators on the longest way through the graph [s], longest first.

        What a block takes beyond its longest member, because the members share a resource, appears
        as "shared <resource>"; what kernels wait for an eager host as "host".
        """
        path: dict[str, float] = defaultdict(float)
        for forward in self.forwards:
            for name, seconds in _path_of(
                forward, forward.arranged(forward.compiled.graph), {}
            ).items():
                path[name] += forward.times * seconds
            if forward.waits_s:
                path["host"] += forward.times * forward.waits_s
        return dict(sorted(path.items(), key=lambda item: -item[1]))

    def parts(self) -> dict[str, float]:
        """The model's own forward and, where steps speculate, the draft pass after it [s]."""
        drafting = sum(f.times * _draft_seconds(f) for f in self.forwards)
        total = sum(f.times * f.total_s for f in self.forwards)
        if all(f.compiled.drafting is None for f in self.forwards):
            return {"target": total}
        return {"target": total - drafting, "draft": drafting}

    def timeline(self) -> tuple[dict[str, Any], ...]:
        """Every task of every forward; one that runs several times is shown once."""
        rows: list[dict[str, Any]] = []
        clock = 0.0
        for number, forward in enumerate(self.forwards):
            compiled = forward.compiled
            timeline = _Timeline(forward, number, rows)
            main = forward.arranged(seq(*(step.node for step in compiled.backbone.chain)))
            apart = isinstance(forward.arranged(compiled.target), Par)
            lane = timeline.width(main) if apart else 0
            beside = timeline.place_steps(compiled.backbone.beside, clock, lane)
            start = clock if apart else beside
            after = timeline.place_steps(compiled.backbone.chain, start, 0)
            longest = max(after, beside)
            end = clock + forward.total_s - _draft_seconds(forward)
            kernels = end - forward.waits_s
            timeline.wait(compiled.target, longest, kernels, 0, len(compiled.model.layers))
            if forward.waits_s:
                timeline.add("host", kernels, end, 0, len(compiled.model.layers), "host")
            timeline.place_steps(compiled.backbone.draft, end, 0)
            clock += forward.times * forward.total_s
        return tuple(rows)


def seconds_of(forward: ForwardPrice, node: Node) -> float:
    """Time of a part of a forward, as the forward arranges it [s]."""
    return sum(_path_of(forward, forward.arranged(node), {}).values())


def _draft_seconds(forward: ForwardPrice) -> float:
    """Time of the draft pass of one forward [s]."""
    drafting = forward.compiled.drafting
    return 0.0 if drafting is None else seconds_of(forward, drafting)


def _rows_of(forwards: Sequence[ForwardPrice]) -> Iterator[Row]:
    """Rows of forwards that share a graph."""
    compiled = forwards[0].compiled
    where: dict[int, list[int]] = defaultdict(list)
    for step in compiled.backbone.steps:
        for task in compiled.tasks_in(step.node):
            where[id(task)].append(step.layer)
    for place, task in enumerate(compiled.tasks):
        yield _row(forwards, place, tuple(where[id(task)]))


def _row(forwards: Sequence[ForwardPrice], place: int, layers: tuple[int, ...]) -> Row:
    compiled = forwards[0].compiled
    task, calls = compiled.tasks[place], len(layers)

    def total(form: Columns) -> float:
        vector = compiled.vector(form)
        return sum(f.times * float(vector @ f.counts) for f in forwards)

    spent, floor, seconds = np.zeros(len(RESOURCES)), 0.0, 0.0
    for forward in forwards:
        resources = compiled.resource_forms[place] @ forward.counts
        spent += forward.times * resources
        floor += forward.times * float(resources.max())
        seconds += forward.times * forward.task_seconds(task)
    return Row(
        operator=task.name,
        family=str(task.family),
        replaces=task.replaces,
        layers=layers,
        calls=calls * sum(forward.times for forward in forwards),
        rows=calls * total({task.rows: 1}),
        flop=calls * sum(total(form) for form in task.flops.values()),
        bytes_by_kind={
            str(kind): calls * total(form) for kind, form in task.traffic.items() if form
        },
        message_bytes=calls * total(task.payload),
        launches=calls * total(task.launches),
        seconds=calls * seconds,
        floor_s=calls * floor,
        seconds_by_resource={str(r): calls * float(spent[i]) for i, r in enumerate(RESOURCES)},
        bound=str(RESOURCES[int(np.argmax(spent))]),
        source=", ".join(sorted({forward.source(task) for forward in forwards})),
    )


def _path_of(
    forward: ForwardPrice, node: Node, known: dict[int, dict[str, float]]
) -> dict[str, float]:
    key = id(node)
    if key in known:
        return known[key]
    path: dict[str, float] = defaultdict(float)
    if isinstance(node, Task):
        path[node.name] = forward.task_seconds(node)
    elif isinstance(node, Seq):
        for member in node.members:
            for name, seconds in _path_of(forward, member, known).items():
                path[name] += seconds
    else:
        shared = forward.shared(node)
        limit = int(np.argmax(shared))
        ways = [_path_of(forward, member, known) for member in node.members]
        longest = max(ways, key=lambda way: sum(way.values()))
        path.update(longest)
        beyond = float(shared[limit]) - sum(longest.values())
        if beyond > ROUNDING * float(shared[limit]):
            path[f"shared {RESOURCES[limit]}"] += beyond
    known[key] = dict(path)
    return known[key]


@dataclass(slots=True)
class _Timeline:
    """Tasks laid out in time, members of a block in lanes of their own."""

    forward: ForwardPrice
    number: int
    rows: list[dict[str, Any]]
    _widths: dict[int, tuple[Node, int]] = field(default_factory=dict)
    """By id; the node is kept, so that no other gets it."""

    def width(self, node: Node) -> int:
        """Lanes that a node needs."""
        key = id(node)
        if key not in self._widths:
            inside = [] if isinstance(node, Task) else [self.width(m) for m in node.members]
            width = sum(inside) if isinstance(node, Par) else max([1, *inside])
            self._widths[key] = (node, max(width, 1))
        return self._widths[key][1]

    def place_steps(self, steps: Iterable[Step], start: float, lane: int) -> float:
        """Lay out steps one after another; return when the last one ends [s]."""
        for step in steps:
            node = self.forward.arranged(step.node)
            start += self.place(node, start, lane, step.layer)
        return start

    def place(self, node: Node, start: float, lane: int, layer: int) -> float:
        """Lay out a node that starts at ``start``; return how long it takes [s]."""
        if isinstance(node, Task):
            length = self.forward.task_seconds(node)
            limit = int(np.argmax(self.forward.shared(node)))
            self.add(node.name, start, start + length, lane, layer, str(RESOURCES[limit]))
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
        length = max(longest, float(self.forward.shared(node).max()))
        self.wait(node, start + longest, start + length, lane, layer)
        return length

    def wait(self, node: Node, start: float, end: float, lane: int, layer: int) -> None:
        """A block that its members have left unfinished, since they share a resource."""
        if end - start > ROUNDING * end:
            limit = int(np.argmax(self.forward.shared(node)))
            self.add(f"shared {RESOURCES[limit]}", start, end, lane, layer, str(RESOURCES[limit]))

    def add(
        self, operator: str, start: float, end: float, lane: int, layer: int, bound: str
    ) -> None:
        """One row; none where it would take no time."""
        if end > start:
            self.rows.append(
                {
                    "forward": self.number,
                    "layer": layer,
                    "operator": operator,
                    "lane": lane,
                    "start_ms": start / MILLISECOND,
                    "end_ms": end / MILLISECOND,
                    "bound": bound,
                }
            )
