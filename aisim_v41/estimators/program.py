"""A graph of tasks as arrays: levels of matrix products and maxima.

Every task is the longest of its resources, a sequence the sum of its members, a parallel block the
longest member but never less than the total of any one resource. Resource times are linear in the
counts. So every value is the longest of some *ways*, and every way is a weighted sum of counts (for
tasks) or of earlier values (for blocks). A sum of maxima is rewritten as a maximum of sums where
that keeps the tree shallow, a + max(b, c) = max(a + b, a + c); three levels are left for the
backbone, evaluated for one step or for columns of steps alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.resources import Price, Resource
from aisim_v41.ops.graph import Fed, Node, Par, Seq, parts_of
from aisim_v41.ops.operator import Columns, Task
from aisim_v41.plan.columns import Column

Floats = npt.NDArray[np.float64]
BLOCK_STEPS = 64
"""Steps of a sweep that are evaluated together at least; a multiple of every vector width."""


@dataclass(frozen=True, slots=True)
class Level:
    """Values of one height: each the longest of a run of ways.

    Attributes:
        ways: [ways, inputs]: weights of counts (first level) or of all earlier values.
        terms: the same as (input, weight) pairs of each way, for columns of steps.
        starts: first way of each value.
        first: position of the level's first value.
    """

    ways: Floats
    terms: tuple[tuple[tuple[int, float], ...], ...]
    starts: npt.NDArray[np.intp]
    first: int

    @property
    def last(self) -> int:
        """Position after the level's last value."""
        return self.first + len(self.starts)


@dataclass(frozen=True, slots=True)
class TimeProgram:
    """Seconds of a graph as a function of counts."""

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
        if counts.ndim == 1:
            return self._evaluate(evaluate_step, counts)
        return self._evaluate(evaluate_columns, whole_blocks(counts))[: counts.shape[1]]

    def _evaluate(
        self, evaluate: Callable[[Level, Floats, Floats], None], counts: Floats
    ) -> Floats:
        values = np.empty((self.size, *counts.shape[1:]))
        for level in self.levels:
            evaluate(level, values[: level.first] if level.first else counts, values)
        result: Floats = values[self.root]
        return result


def whole_blocks(counts: Floats) -> Floats:
    """Counts of many steps, filled up to whole blocks.

    Matrix products round the last few columns differently from those inside a block; in whole
    blocks a step has the same time to the last bit wherever a sweep is cut.
    """
    missing = -counts.shape[1] % BLOCK_STEPS
    return np.pad(counts, ((0, 0), (0, missing))) if missing else counts


def evaluate_step(level: Level, inputs: Floats, values: Floats) -> None:
    """Values of a level for one step."""
    np.maximum.reduceat(level.ways @ inputs, level.starts, out=values[level.first : level.last])


def evaluate_columns(level: Level, inputs: Floats, values: Floats) -> None:
    """The same, row by row: most weights of later levels are zero."""
    dense = level.ways @ inputs if level.first == 0 else None
    ends = [*level.starts[1:].tolist(), len(level.terms)]
    for place, (start, end) in enumerate(zip(level.starts.tolist(), ends, strict=True)):
        out = values[level.first + place]
        for way in range(start, end):
            seconds = _weighted_sum(level.terms[way], inputs) if dense is None else dense[way]
            if way == start:
                out[...] = seconds
            else:
                np.maximum(out, seconds, out=out)


def _weighted_sum(terms: tuple[tuple[int, float], ...], inputs: Floats) -> Floats:
    (first, weight), *rest = terms
    total = inputs[first] * weight
    for place, times in rest:
        total += inputs[place] if times == 1.0 else inputs[place] * times
    result: Floats = total
    return result


Way = dict[int, float]
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
    _linear_values: list[list[Floats]] = field(default_factory=list)
    _block_values: list[list[Way]] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)
    _ways_of: dict[int, list[Way]] = field(default_factory=dict)
    _totals: dict[int, Floats] = field(default_factory=dict)
    _kept: list[Node] = field(default_factory=list)
    """Nodes known by their id stay alive, so that no other node gets it."""

    @property
    def width(self) -> int:
        """Length of the vector that linear forms refer to."""
        return len(self.columns)

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
            total = np.zeros((len(Resource), len(self.columns)))
            if isinstance(node, Task):
                seconds = self.price(node).seconds
                for place, resource in enumerate(Resource):
                    for column, value in seconds[resource].items():
                        total[place, self.columns[column]] += value
            else:
                for member, times in _multiplicities(node):
                    total += times * self.totals(member)
            self._totals[key] = total
            self._kept.append(node)
        return self._totals[key]

    def _ways(self, node: Node) -> list[Way]:
        """Ways whose longest is the time of a node."""
        key = id(node)
        if key not in self._ways_of:
            if isinstance(node, Task):
                ways = [{self._linear(self.task_forms(node)): 1.0}]
            elif isinstance(node, Seq):
                ways = self._ways_of_sequence(node)
            else:
                longer = [way for m in node.members if self.may_last(m) for way in self._ways(m)]
                totals = [{self._linear([form]): 1.0} for form in self.block_forms(node)]
                ways = [*totals, *longer]
            self._ways_of[key] = ways
            self._kept.append(node)
        return self._ways_of[key]

    def _ways_of_sequence(self, node: Seq) -> list[Way]:
        """Distributes the sum over one parallel member; with more, each becomes a value."""
        members = [(self._ways(member), times) for member, times in _multiplicities(node)]
        forked = [(ways, times) for ways, times in members if len(ways) > 1]
        distribute = len(forked) == 1 and forked[0][1] == 1
        fixed: Way = {}
        for ways, times in members:
            if len(ways) == 1:
                _accumulate(fixed, ways[0], times)
            elif not distribute:
                _accumulate(fixed, {self._longest(ways): 1.0}, times)
        if not distribute:
            return [fixed]
        distributed = []
        for way in forked[0][0]:
            total = dict(fixed)
            _accumulate(total, way, 1)
            distributed.append(total)
        return distributed

    def task_forms(self, task: Task) -> list[Floats]:
        """Linear forms whose longest is the time of a task."""
        return self.largest(self.totals(task))

    def block_forms(self, block: Par | Fed) -> list[Floats]:
        """Linear forms that a parallel block cannot undercut."""
        return self.largest(self.totals(block))

    def may_last(self, member: Node) -> bool:
        """Whether a member of a block can take longer than the totals of the block.

        A task at peak cannot; a sequence can, where its tasks need different resources.
        """
        return isinstance(member, Seq)

    @staticmethod
    def largest(forms: Floats) -> list[Floats]:
        """Forms of a stack; one that never exceeds another is left out."""
        vectors = [vector for vector in forms if vector.any()]
        kept: list[Floats] = []
        for vector in sorted(vectors, key=lambda v: -float(v.sum())):
            if not any((vector <= other).all() for other in kept):
                kept.append(vector)
        return kept

    def _linear(self, forms: list[Floats]) -> int:
        """Value that is the longest of some forms; ids of these are negative."""
        forms = forms or [np.zeros(self.width)]
        key = tuple(form.tobytes() for form in forms)
        if key not in self._known:
            self._linear_values.append(forms)
            self._known[key] = -len(self._linear_values)
        return self._known[key]

    def _longest(self, ways: list[Way]) -> int:
        """Value that is the longest of some ways; ids of these count up from 0."""
        ways = [way for way in ways if way]  # an empty sequence takes no time
        if not ways:
            return self._linear([])
        if len(ways) == 1 and list(ways[0].values()) == [1.0]:
            return next(iter(ways[0]))
        key = tuple(tuple(sorted(way.items())) for way in ways)
        if key not in self._known:
            self._block_values.append(ways)
            self._known[key] = len(self._block_values) - 1
        return self._known[key]

    def _lay_out(self, root: int) -> TimeProgram:
        """Linear values first, then blocks by height; operands always come first."""
        place = {-1 - i: i for i in range(len(self._linear_values))}
        forms = [form for value in self._linear_values for form in value]
        starts = _starts(len(value) for value in self._linear_values)
        levels = [Level(np.array(forms), ((),) * len(forms), starts, 0)]
        heights: list[int] = []
        for ways in self._block_values:
            operands = [operand for way in ways for operand in way]
            heights.append(1 + max((heights[o] for o in operands if o >= 0), default=0))
        for height in sorted(set(heights)):
            group = [i for i, own in enumerate(heights) if own == height]
            first = len(place)
            ways = [way for i in group for way in self._block_values[i]]
            terms = tuple(tuple((place[o], w) for o, w in way.items()) for way in ways)
            matrix = np.zeros((len(ways), first))
            for row, way_terms in enumerate(terms):
                for operand, weight in way_terms:
                    matrix[row, operand] = weight
            starts = _starts(len(self._block_values[i]) for i in group)
            levels.append(Level(matrix, terms, starts, first))
            place |= {index: first + at for at, index in enumerate(group)}
        return TimeProgram(tuple(levels), len(place), place[root])


def _starts(lengths: Iterable[int]) -> npt.NDArray[np.intp]:
    ends = np.cumsum([0, *lengths])
    return ends[:-1].astype(np.intp)


def _accumulate(total: Way, way: Way, times: float) -> None:
    for value, count in way.items():
        total[value] = total.get(value, 0.0) + times * count


def _multiplicities(node: Seq | Par | Fed) -> list[tuple[Node, int]]:
    """Distinct parts of a sequence or block, and how often each occurs."""
    times = Counter(id(part) for part in parts_of(node))
    distinct = {id(part): part for part in parts_of(node)}
    return [(member, times[key]) for key, member in distinct.items()]
