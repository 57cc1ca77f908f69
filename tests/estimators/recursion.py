"""A graph evaluated by plain recursion over its nodes: what `TimeProgram` must agree with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aisim_v41.ops.graph import Node, Seq
from aisim_v41.ops.operator import Task

Cost = Callable[[Task], Sequence[float]]
"""Seconds of a task on each resource."""


def seconds(node: Node, cost: Cost) -> float:
    """A task takes its longest resource, a sequence the sum of its members, a block its longest
    member but never less than the total of any one resource."""
    return _walk(node, cost)[0]


def _walk(node: Node, cost: Cost) -> tuple[float, list[float]]:
    if isinstance(node, Task):
        spent = list(cost(node))
        return max(spent), spent
    times, totals = [], []
    for member in node.members:
        time, spent = _walk(member, cost)
        times.append(time)
        totals.append(spent)
    filled = [spent for spent in totals if spent]  # an empty block spends nothing
    total = [sum(column) for column in zip(*filled, strict=True)]
    if isinstance(node, Seq):
        return sum(times), total
    return max([0.0, *times, *total]), total
