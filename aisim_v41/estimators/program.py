"""A graph of tasks as arrays: one matrix product, then levels of sums and maxima.

Every task is the longest of its resources, a sequence the sum of its members, a parallel block the
longest member but never less than the total of any one resource. Since resource times are linear
in the counts, everything linear is done in one product with the count vector. A sum of maxima is
rewritten as a maximum of sums where that keeps the tree shallow, a + max(b, c) = max(a + b, a + c),
so that few levels are left to evaluate, for one step or for columns of steps alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.resources import Price, Resource
from aisim_v41.ops.graph import Node, Par, Seq
from aisim_v41.ops.operator import Columns, Task
from aisim_v41.plan.columns import Column

Floats = npt.NDArray[np.float64]
BLOCK_STEPS = 64
"""Steps of a sweep that are evaluated together at least; a multiple of every vector width."""


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
        """Position after the level's last value."""
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
        steps = counts.shape[1:]
        counts = _aligned(counts)
        values = np.empty((self.size, *counts.shape[1:]))
        np.matmul(self.forms, counts, out=values[: len(self.forms)])
        for level in self.levels:
            self._evaluate(level, values)
        result: Floats = values[self.root]
        return result[: steps[0]] if steps else result

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


def _aligned(counts: Floats) -> Floats:
    """Counts of many steps, filled up to whole blocks.

    Matrix products round the last few columns differently from those inside a block; in whole
    blocks a step has the same time to the last bit wherever a sweep is cut.
    """
    missing = -counts.shape[-1] % BLOCK_STEPS if counts.ndim > 1 else 0
    return np.pad(counts, ((0, 0), (0, missing))) if missing else counts


Alternative = dict[int, float]
"""One way through a subgraph: a sum of values, each with the number of times it occurs."""


@dataclass(slots=True)
class ProgramBuilder:
    """Flattens one graph.

    Args:
        columns: order of the count vector.
        price: cost of a task.
    """

    columns: Mapping[Column, int]
    price: Callable[[Task], Price]
    _vectors: list[Floats] = field(default_factory=list)
    _reductions: list[tuple[Literal["sum", "max"], Alternative]] = field(default_factory=list)
    _form_ids: dict[bytes, int] = field(default_factory=dict)
    _reduction_ids: dict[tuple[object, ...], int] = field(default_factory=dict)
    _alternatives: dict[int, list[Alternative]] = field(default_factory=dict)
    _totals: dict[int, Floats] = field(default_factory=dict)

    def build(self, graph: Node) -> TimeProgram:
        """The program of a graph."""
        return self._lay_out(self._longest(self._ways(graph)))

    def vector(self, form: Columns) -> Floats:
        """A form over columns as a dense vector [columns]."""
        dense = np.zeros(len(self.columns))
        for column, value in form.items():
            dense[self.columns[column]] += value
        return dense

    def totals(self, node: Node) -> Floats:
        """Seconds of a whole subgraph on each resource [resources, columns]."""
        key = id(node)
        if key not in self._totals:
            if isinstance(node, Task):
                seconds = self.price(node).seconds
                total = np.array([self.vector(seconds[resource]) for resource in Resource])
            else:
                total = np.zeros((len(Resource), len(self.columns)))
                for member, times in _multiplicities(node):
                    total += times * self.totals(member)
            self._totals[key] = total
        return self._totals[key]

    def _ways(self, node: Node) -> list[Alternative]:
        """Alternatives whose longest is the time of a node."""
        key = id(node)
        if key not in self._alternatives:
            if isinstance(node, Task):
                ways = [{self._longest(self._linear(node)): 1.0}]
            elif isinstance(node, Seq):
                ways = self._ways_of_sequence(node)
            else:
                # A task alone never exceeds the totals of its block; only a sequence can.
                longer = [way for m in node.members if isinstance(m, Seq) for way in self._ways(m)]
                ways = [*self._linear(node), *longer]
            self._alternatives[key] = ways
        return self._alternatives[key]

    def _ways_of_sequence(self, node: Seq) -> list[Alternative]:
        """Distributes the sum over one parallel member; with more, each becomes a value."""
        members = [(self._ways(member), times) for member, times in _multiplicities(node)]
        forked = [ways for ways, times in members if len(ways) > 1]
        fixed: Alternative = {}
        for ways, times in members:
            if len(ways) == 1:
                _accumulate(fixed, ways[0], times)
            elif len(forked) > 1 or times > 1:
                _accumulate(fixed, {self._longest(ways): 1.0}, times)
        if len(forked) != 1 or any(len(ways) > 1 and times > 1 for ways, times in members):
            return [fixed]
        distributed = []
        for way in forked[0]:
            total = dict(fixed)
            _accumulate(total, way, 1)
            distributed.append(total)
        return distributed

    def _linear(self, node: Node) -> list[Alternative]:
        """Forms of a node's resource totals; one that never exceeds another is left out."""
        vectors = [vector for vector in self.totals(node) if vector.any()]
        kept: list[Floats] = []
        for vector in sorted(vectors, key=lambda v: -float(v.sum())):
            if not any((vector <= other).all() for other in kept):
                kept.append(vector)
        return [{self._form(vector): 1.0} for vector in kept]

    def _form(self, vector: Floats) -> int:
        key = vector.tobytes()
        if key not in self._form_ids:
            self._vectors.append(vector)
            self._form_ids[key] = -len(self._vectors)
        return self._form_ids[key]

    def _longest(self, ways: list[Alternative]) -> int:
        """Value that is the longest of some alternatives."""
        if not ways:
            return self._form(np.zeros(len(self.columns)))
        sums = [self._reduction("sum", way) for way in ways]
        return self._reduction("max", dict.fromkeys(sums, 1.0))

    def _reduction(self, kind: Literal["sum", "max"], operands: Alternative) -> int:
        if len(operands) == 1:
            ((operand, times),) = operands.items()
            if times == 1.0:
                return operand
        key = (kind, *sorted(operands.items()))
        if key not in self._reduction_ids:
            self._reductions.append((kind, operands))
            self._reduction_ids[key] = len(self._reductions) - 1
        return self._reduction_ids[key]

    def _lay_out(self, root: int) -> TimeProgram:
        """Forms first, then reductions by height; sums and maxima of one height apart.

        Ids are negative for forms and count up for reductions, whose operands always come first.
        """
        heights: list[int] = []
        for _, operands in self._reductions:
            heights.append(1 + max(heights[o] if o >= 0 else 0 for o in operands))
        order = sorted(
            range(len(self._reductions)), key=lambda i: (heights[i], self._reductions[i][0], i)
        )
        place = {-1 - i: i for i in range(len(self._vectors))}
        place |= {index: len(self._vectors) + at for at, index in enumerate(order)}
        levels = []
        for height, kind in sorted({(heights[i], self._reductions[i][0]) for i in order}):
            group = [i for i in order if (heights[i], self._reductions[i][0]) == (height, kind)]
            members = [self._reductions[i][1] for i in group]
            weights = np.array([times for member in members for times in member.values()])
            lengths = [len(member) for member in members]
            levels.append(
                Level(
                    reduce=kind,
                    operands=np.array([place[o] for member in members for o in member], np.intp),
                    starts=np.array([0, *np.cumsum(lengths)[:-1]], np.intp),
                    weights=None if (weights == 1.0).all() else weights,
                    first=place[group[0]],
                )
            )
        size = len(self._vectors) + len(self._reductions)
        return TimeProgram(np.array(self._vectors), tuple(levels), size, place[root])


def _accumulate(total: Alternative, way: Alternative, times: float) -> None:
    for value, count in way.items():
        total[value] = total.get(value, 0.0) + times * count


def _multiplicities(node: Seq | Par) -> list[tuple[Node, int]]:
    """Distinct members of a sequence or block, and how often each occurs."""
    times = Counter(id(member) for member in node.members)
    distinct = {id(member): member for member in node.members}
    return [(member, times[key]) for key, member in distinct.items()]
