"""When rows from elsewhere are there, and how long the layers wait for them: one forward replayed.

The times are those of the forward's tasks; their longest way through the graph is the same time
(`aisim_v41.ops.graph.Fed`), so this only says where in it the waiting is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisim_v41.estimators.breakdown import ForwardPrice, seconds_of
from aisim_v41.ops.backbone import Step
from aisim_v41.ops.graph import Fed, par, seq
from aisim_v41.ops.operator import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Rows of one module in one forward; times from the forward's start [s].

    Attributes:
        step: the transfer and its layer.
        gate: segment of the chain that waits for it, 0 where the whole forward does.
        start_s, there_s: when it begins and ends.
        follows_s: work beside the chain between the rows and what waits for them.
        reached_s: when the chain alone would need it.
        waits_s: what the chain waits, over what it has waited before.
    """

    step: Step
    gate: int
    start_s: float
    there_s: float
    follows_s: float
    reached_s: float
    waits_s: float


def deliveries(forward: ForwardPrice) -> tuple[Delivery, ...]:
    """Transfers of one forward in order; none where the tables are in GPU memory."""
    steps = forward.compiled.backbone.fetches
    node = forward.arranged(forward.compiled.target)
    if not isinstance(node, Fed):
        return _before_the_layers(forward, steps)
    lengths = [seconds_of(forward, segment) for segment in node.segments]
    found: list[Delivery] = []
    link = late = 0.0
    for step, gate in zip(steps, node.gates, strict=True):
        start, link = link, link + _length(forward, step)
        work = node.before[gate]
        follows = 0.0 if work is None else seconds_of(forward, work)
        reached = sum(lengths[:gate])
        waits = max(link + follows - reached - late, 0.0)
        late += waits
        found.append(
            Delivery(
                step=step, gate=gate, start_s=start, there_s=link, follows_s=follows,
                reached_s=reached, waits_s=waits,
            )
        )  # fmt: skip
    return tuple(found)


def without_transfer_s(forward: ForwardPrice) -> float:
    """Time of the forward if every row were there from its start [s]."""
    compiled = forward.compiled
    backbone = compiled.backbone
    beside = seq(*(step.node for step in backbone.beside)) if backbone.beside else None
    whole = seq(par(seq(*(step.node for step in backbone.chain)), beside), compiled.drafting)
    return max(seconds_of(forward, whole), forward.host_s)


def _before_the_layers(forward: ForwardPrice, steps: Sequence[Step]) -> tuple[Delivery, ...]:
    found: list[Delivery] = []
    link = 0.0
    for step in steps:
        start, link = link, link + _length(forward, step)
        found.append(
            Delivery(
                step=step, gate=0, start_s=start, there_s=link, follows_s=0.0, reached_s=0.0,
                waits_s=link - start,
            )
        )  # fmt: skip
    return tuple(found)


def _length(forward: ForwardPrice, step: Step) -> float:
    assert isinstance(step.node, Task)
    return forward.task_seconds(step.node)
