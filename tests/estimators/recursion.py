"""A graph evaluated by plain recursion over its nodes: what `TimeProgram` must agree with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aisim_v41.ops.graph import Fed, Node, Seq
from aisim_v41.ops.operator import Task

Cost = Callable[[Task], Sequence[float]]
"""Seconds of a task on each resource."""
Walk = Callable[[Node], tuple[float, list[float]]]


def seconds(node: Node, cost: Cost) -> float:
    """A task takes its longest resource, a sequence the sum of its members, a block its longest
    member but never less than the total of any one resource."""
    return _walk(node, cost)[0]


def _walk(node: Node, cost: Cost) -> tuple[float, list[float]]:
    if isinstance(node, Task):
        spent = list(cost(node))
        return max(spent), spent
    if isinstance(node, Fed):
        return walk_fed(node, lambda part: _walk(part, cost))
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


def walk_fed(node: Fed, walk: Walk) -> tuple[float, list[float]]:
    """Event by event: a queue that delivers in order, and a chain that stops at its gates.

    ``walk`` gives the time of a part and its seconds on each resource.
    """
    walked = [walk(part)[1] for part in node.parts]
    total = [sum(column) for column in zip(*(spent for spent in walked if spent), strict=True)]
    there, queue = [], 0.0
    for delivery in node.deliveries:
        queue += walk(delivery)[0]
        there.append(queue)
    clock = beside = 0.0
    for place, segment in enumerate(node.segments):
        ahead = node.before[place]
        follows = 0.0 if ahead is None else walk(ahead)[0]
        beside += follows
        for at, gate in zip(there, node.gates, strict=True):
            if gate == place:
                clock = max(clock, at + follows)
        clock += walk(segment)[0]
    return max([clock, beside, *total]), total
