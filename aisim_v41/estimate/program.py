"""A graph of tasks as arrays: one matrix product, then levels of sums and maxima.

Every task is the longest of its resources, a sequence the sum of its members, a parallel block the
longest member but never less than the total of any one resource. Since resource times are linear
in the counts, everything linear is done in one product with the count vector; what is left is a
shallow tree that is evaluated level by level, for one step or for columns of steps alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from aisim_v41.estimate.resources import Price, Resource
from aisim_v41.ops.graph import Node, Seq, tasks_of
from aisim_v41.ops.operator import Columns, Task
from aisim_v41.plan.counting import Column

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Level:
    """Values of one height: each reduces a run of gathered operands."""

    reduce: Literal["sum", "max"]
    operands: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    weights: Floats | None
    first: int
    """Position of the level's first value."""

    @property
    def last(self) -> int:
        return self.first + len(self.starts)


@dataclass(frozen=True, slots=True)
class TimeProgram:
    """Seconds of a graph as a function of counts."""

    forms: Floats
    """[forms, columns]: seconds a count."""
    levels: tuple[Level, ...]
    size: int
    root: int

    def seconds(self, counts: Floats) -> Floats:
        """Seconds of the whole graph.

        Args:
            counts: [columns] of one step, or [columns, steps].

        Returns:
            A scalar array for one step, else [steps].
        """
        values = np.empty((self.size, *counts.shape[1:]))
        np.matmul(self.forms, counts, out=values[: len(self.forms)])
        for level in self.levels:
            self._evaluate(level, values)
        result: Floats = values[self.root]
        return result

    @staticmethod
    def _evaluate(level: Level, values: Floats) -> None:
        reduce = np.add if level.reduce == "sum" else np.maximum
        if values.ndim == 1:
            gathered = values[level.operands]
            if level.weights is not None:
                gathered *= level.weights
            reduce.reduceat(gathered, level.starts, out=values[level.first : level.last])
            return
        ends = [*level.starts[1:], len(level.operands)]
        scratch = np.empty(values.shape[1:])
        for place, (start, end) in enumerate(zip(level.starts, ends, strict=True)):
            out = values[level.first + place]
            for operand in range(start, end):
                row = values[level.operands[operand]]
                if level.weights is not None and level.weights[operand] != 1.0:
                    row = np.multiply(row, level.weights[operand], out=scratch)
                if operand == start:
                    out[...] = row
                else:
                    reduce(out, row, out=out)


@dataclass(slots=True)
class _Value:
    """A node of the expression tree before it is laid out."""

    kind: Literal["form", "sum", "max"]
    operands: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    height: int = 0


@dataclass(slots=True)
class ProgramBuilder:
    """Flattens one graph.

    Args:
        columns: order of the count vector.
        price: cost of a task.
    """

    columns: Mapping[Column, int]
    price: Callable[[Task], Price]
    values: list[_Value] = field(default_factory=list)
    forms: list[Floats] = field(default_factory=list)
    _of_node: dict[int, int] = field(default_factory=dict)
    _totals: dict[int, dict[Resource, Floats]] = field(default_factory=dict)

    def build(self, graph: Node) -> TimeProgram:
        """The program of a graph."""
        root = self._node(graph)
        return self._lay_out(root)

    def vector(self, form: Columns) -> Floats:
        """A form over columns as a dense vector [columns]."""
        dense = np.zeros(len(self.columns))
        for column, value in form.items():
            dense[self.columns[column]] += value
        return dense

    def totals(self, node: Node) -> dict[Resource, Floats]:
        """Seconds of a whole subgraph on each resource, as dense vectors."""
        key = id(node)
        if key not in self._totals:
            total = {resource: np.zeros(len(self.columns)) for resource in Resource}
            if isinstance(node, Task):
                for resource, form in self.price(node).seconds.items():
                    total[resource] = self.vector(form)
            else:
                for member, times in _multiplicities(node).values():
                    for resource, vector in self.totals(member).items():
                        total[resource] = total[resource] + times * vector
            self._totals[key] = total
        return self._totals[key]

    def _node(self, node: Node) -> int:
        key = id(node)
        if key not in self._of_node:
            self._of_node[key] = self._make(node)
        return self._of_node[key]

    def _make(self, node: Node) -> int:
        if isinstance(node, Task):
            return self._longest(self._linear(node))
        if isinstance(node, Seq):
            members = _multiplicities(node).values()
            operands = tuple(self._node(member) for member, _ in members)
            weights = tuple(float(times) for _, times in members)
            return self._add(_Value("sum", operands, weights))
        # A task alone never exceeds the totals of its own block; only a sequence can.
        longer = [m for m in node.members if isinstance(m, Seq) and _has_several_tasks(m)]
        return self._longest([*self._linear(node), *(self._node(m) for m in longer)])

    def _linear(self, node: Node) -> list[int]:
        """Forms of a node's resource totals; one that never exceeds another is left out."""
        vectors = [v for v in self.totals(node).values() if v.any()]
        kept = [
            vector
            for place, vector in enumerate(vectors)
            if not any(
                (vector <= other).all() and (place > at or not (vector == other).all())
                for at, other in enumerate(vectors)
                if at != place
            )
        ]
        return [self._form(vector) for vector in kept]

    def _form(self, vector: Floats) -> int:
        for index, value in enumerate(self.values):
            if value.kind == "form" and np.array_equal(self.forms[value.operands[0]], vector):
                return index
        self.forms.append(vector)
        return self._add(_Value("form", (len(self.forms) - 1,)))

    def _longest(self, operands: list[int]) -> int:
        if len(operands) == 1:
            return operands[0]
        if not operands:
            return self._form(np.zeros(len(self.columns)))
        return self._add(_Value("max", tuple(operands), (1.0,) * len(operands)))

    def _add(self, value: _Value) -> int:
        if value.kind != "form":
            value.height = 1 + max(self.values[operand].height for operand in value.operands)
        self.values.append(value)
        return len(self.values) - 1

    def _lay_out(self, root: int) -> TimeProgram:
        """Forms first, then values by height; sums and maxima of one height apart."""
        order = [i for i, value in enumerate(self.values) if value.kind == "form"]
        groups: list[list[int]] = []
        heights = sorted({value.height for value in self.values if value.kind != "form"})
        for height in heights:
            for kind in ("max", "sum"):
                group = [
                    i for i, v in enumerate(self.values) if v.height == height and v.kind == kind
                ]
                if group:
                    groups.append(group)
                    order.extend(group)
        position = {index: place for place, index in enumerate(order)}
        levels = []
        for group in groups:
            members = [self.values[i] for i in group]
            weights = np.array([w for m in members for w in m.weights])
            kind = members[0].kind
            lengths = [len(m.operands) for m in members]
            levels.append(
                Level(
                    reduce="sum" if kind == "sum" else "max",
                    operands=np.array([position[o] for m in members for o in m.operands], np.intp),
                    starts=np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp),
                    weights=None if (weights == 1.0).all() else weights,
                    first=position[group[0]],
                )
            )
        forms = np.array(
            [self.forms[self.values[i].operands[0]] for i in order if self.values[i].kind == "form"]
        )
        return TimeProgram(forms, tuple(levels), len(order), position[root])


def _multiplicities(node: Node) -> dict[int, tuple[Node, int]]:
    """Distinct members of a sequence or block, and how often each occurs."""
    assert not isinstance(node, Task)  # noqa: S101
    times = Counter(id(member) for member in node.members)
    return {id(member): (member, times[id(member)]) for member in node.members}


def _has_several_tasks(node: Node) -> bool:
    tasks = tasks_of(node)
    next(tasks)
    return next(tasks, None) is not None
