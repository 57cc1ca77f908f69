"""Composition of tasks that were priced apart: a graph as a function of their seconds.

The same levels of sums and maxima as the bound's program (`aisim_v41.estimators.program`), but the
lowest values are given: the seconds of every task, and for each parallel block what its members
need of every resource, below which side streams cannot go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.program import Level, ProgramBuilder, evaluate_columns, evaluate_step
from aisim_v41.ops.graph import Fed, Node, Par
from aisim_v41.ops.operator import Task

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Composition:
    """Seconds of a graph from the prices of its tasks and the counts.

    Attributes:
        of_price: values that are a price, and `prices`, which one each is.
        of_block: values that are a block's longest resource.
        block_ways: [ways, columns] seconds of each block on each resource a count.
        block_starts: first way of each block.
        levels: what is made of these.
        size, root: number of values, and the one that is the whole graph.
    """

    of_price: Places
    prices: Places
    of_block: Places
    block_ways: Floats
    block_starts: Places
    levels: tuple[Level, ...]
    size: int
    root: int

    def seconds(self, spent: Floats, counts: Floats) -> Floats:
        """Seconds of the graph: a scalar array for one step, [steps] for columns of steps.

        Args:
            spent: [prices] or [prices, steps] seconds of one call.
            counts: [columns] or [columns, steps] of the ledger.
        """
        values = np.empty((self.size, *counts.shape[1:]))
        values[self.of_price] = spent[self.prices]
        if len(self.of_block):
            ways = self.block_ways @ counts
            values[self.of_block] = np.maximum.reduceat(ways, self.block_starts)
        evaluate = evaluate_step if counts.ndim == 1 else evaluate_columns
        for level in self.levels:
            evaluate(level, values[: level.first], values)
        result: Floats = values[self.root]
        return result


class _Builder(ProgramBuilder):
    """Forms over [every price, counts]."""

    def __init__(self, base: ProgramBuilder, price_of: Mapping[int, int], prices: int) -> None:
        super().__init__(base.columns, base.price)
        self.price_of, self.prices = price_of, prices

    @property
    def width(self) -> int:
        return self.prices + len(self.columns)

    def task_forms(self, task: Task) -> list[Floats]:
        form = np.zeros(self.width)
        form[self.price_of[id(task)]] = 1.0
        return [form]

    def may_last(self, member: Node) -> bool:
        """Any kernel can: it does not reach the peak."""
        return True

    def block_forms(self, block: Par | Fed) -> list[Floats]:
        padded = np.zeros((len(self.totals(block)), self.width))
        padded[:, self.prices :] = self.totals(block)
        return self.largest(padded)


def composition(
    base: ProgramBuilder, price_of: Mapping[int, int], prices: int, graph: Node
) -> Composition:
    """Compose a graph of priced tasks.

    Args:
        base: gives the columns of the counts, and what tasks need of resources.
        price_of: id of a task -> number of its price.
        prices: how many there are.
        graph: of these tasks.
    """
    program = _Builder(base, price_of, prices).build(graph)
    lowest, *levels = program.levels
    ends = [*lowest.starts[1:].tolist(), len(lowest.ways)]
    of_price: list[int] = []
    numbers: list[int] = []
    of_block: list[int] = []
    starts: list[int] = []
    ways: list[Floats] = []
    for value, (start, end) in enumerate(zip(lowest.starts.tolist(), ends, strict=True)):
        form = lowest.ways[start]
        own = np.flatnonzero(form[:prices])
        if len(own):
            of_price.append(value)
            numbers.append(int(own[0]))
        else:
            of_block.append(value)
            starts.append(len(ways))
            ways += list(lowest.ways[start:end, prices:])
    return Composition(
        of_price=np.array(of_price, np.intp),
        prices=np.array(numbers, np.intp),
        of_block=np.array(of_block, np.intp),
        block_ways=np.array(ways).reshape(len(ways), len(base.columns)),
        block_starts=np.array(starts, np.intp),
        levels=tuple(levels),
        size=program.size,
        root=program.root,
    )
