"""What a time is made of: rows by operator, the critical path.

The same for every estimator: each says, for one forward, how long a task takes alone, why, and what
a parallel block cannot undercut (`ForwardPrice`); everything here follows from that and the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from aisim_v41.estimators.compiled import CompiledGraph, Floats
from aisim_v41.estimators.resources import RESOURCES
from aisim_v41.ops.graph import Node, Seq
from aisim_v41.ops.operator import Columns, Task

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
    def rank(self) -> int | None:
        """The rank that runs it; None where all are alike."""
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

    @property
    def host_s(self) -> float:
        """What its host needs to issue it [s]."""
        ...

    def task_seconds(self, task: Task) -> float:
        """Time of one call alone [s]."""
        ...

    def source(self, task: Task) -> str:
        """Kind of evidence behind it."""
        ...

    def error(self, task: Task) -> float | None:
        """90 % error of its time, as a share of it; None where only a floor or a whole is known."""
        ...

    def shared(self, node: Node) -> Floats:
        """Time of a block on each resource that its members share [resources], in seconds."""
        ...

    def arranged(self, node: Node) -> Node:
        """The node as this forward runs it: side by side, or one task after another."""
        ...


Priced = TypeVar("Priced", bound=ForwardPrice)


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
        forwards: its forwards, each of the rank that the others wait for; each knows its graph,
            since kernels change with the rows.
        ranks: every forward on every rank that runs rows of its own; empty where all are alike.
    """

    forwards: tuple[ForwardPrice, ...]
    ranks: tuple[tuple[ForwardPrice, ...], ...] = ()

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
        for part in self.paths().values():
            for name, seconds in part.items():
                path[name] += seconds
        return dict(sorted(path.items(), key=lambda item: -item[1]))

    def paths(self) -> dict[str, dict[str, float]]:
        """`path` of the model's own forward and, where steps speculate, of the draft pass [s]."""
        target: dict[str, float] = defaultdict(float)
        draft: dict[str, float] = defaultdict(float)
        for forward in self.forwards:
            compiled = forward.compiled
            for node, path in ((compiled.target, target), (compiled.drafting, draft)):
                if node is not None:
                    for name, seconds in _path_of(forward, forward.arranged(node), {}).items():
                        path[name] += forward.times * seconds
            if forward.waits_s:
                target["host"] += forward.times * forward.waits_s
        if all(forward.compiled.drafting is None for forward in self.forwards):
            return {"target": dict(target)}
        return {"target": dict(target), "draft": dict(draft)}

    def parts(self) -> dict[str, float]:
        """The model's own forward and, where steps speculate, the draft pass after it [s]."""
        drafting = sum(f.times * draft_seconds(f) for f in self.forwards)
        total = sum(f.times * f.total_s for f in self.forwards)
        if all(f.compiled.drafting is None for f in self.forwards):
            return {"target": total}
        return {"target": total - drafting, "draft": drafting}


def slowest(ranks: Sequence[Sequence[Priced]]) -> tuple[Priced, ...]:
    """Of each forward, the one that the other ranks wait for, the first of those as long."""
    return tuple(max(forward, key=lambda one: one.total_s) for forward in ranks)


def seconds_of(forward: ForwardPrice, node: Node) -> float:
    """Time of a part of a forward, as the forward arranges it [s]."""
    return sum(_path_of(forward, forward.arranged(node), {}).values())


def draft_seconds(forward: ForwardPrice) -> float:
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
