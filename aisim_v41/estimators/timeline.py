"""Every task of a priced step laid out in time.

Members of a parallel block start together, each in lanes of its own; rows of Engram tables outside
the GPU come in a lane of their own, and what waits for them is shown as waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aisim_v41.estimators.breakdown import ROUNDING, ForwardPrice, draft_seconds
from aisim_v41.estimators.deliveries import Delivery, deliveries
from aisim_v41.estimators.resources import RESOURCES
from aisim_v41.ops.backbone import Step
from aisim_v41.ops.graph import Fed, Node, Par, Seq, seq
from aisim_v41.ops.operator import Task


@dataclass(frozen=True, slots=True)
class Stretch:
    """One task, or one wait, in time.

    Attributes:
        forward: number of the forward pass in the step.
        layer: layer that it belongs to.
        operator: name of the operator; "waiting <resource>", "shared <resource>" or "host" where
            nothing runs.
        lane: tasks side by side have lanes of their own.
        start_s, end_s: from the start of the step [s].
        bound: resource that decides.
        task: what runs; None for a wait.
    """

    forward: int
    layer: int
    operator: str
    lane: int
    start_s: float
    end_s: float
    bound: str
    task: Task | None


def timeline(forwards: Sequence[ForwardPrice]) -> tuple[Stretch, ...]:
    """Every task of every forward; one that runs several times is shown once."""
    rows: list[Stretch] = []
    clock = 0.0
    for number, forward in enumerate(forwards):
        rows += laid_out(forward, number, clock)
        clock += forward.times * forward.total_s
    return tuple(rows)


def laid_out(forward: ForwardPrice, number: int, start_s: float) -> list[Stretch]:
    """Every task of one run of a forward that starts at a time [s]."""
    compiled = forward.compiled
    lanes = _Lanes(forward, number, [])
    longest = lanes.target(start_s)
    end = start_s + forward.total_s - draft_seconds(forward)
    kernels = end - forward.waits_s
    lanes.wait(compiled.target, longest, kernels, 0, len(compiled.model.layers))
    if forward.waits_s:
        lanes.add("host", kernels, end, 0, len(compiled.model.layers), "host")
    lanes.place_steps(compiled.backbone.draft, end, 0)
    return lanes.rows


@dataclass(slots=True)
class _Lanes:
    """Rows of one forward."""

    forward: ForwardPrice
    number: int
    rows: list[Stretch]
    _widths: dict[int, tuple[Node, int]] = field(default_factory=dict)
    """By id; the node is kept, so that no other gets it."""

    def target(self, start: float) -> float:
        """Lay out the model's own forward; return when its last task ends [s]."""
        forward, backbone = self.forward, self.forward.compiled.backbone
        late = deliveries(forward)
        node = forward.arranged(forward.compiled.target)
        main = forward.arranged(seq(*(step.node for step in backbone.chain)))
        if isinstance(node, Fed):
            return self._fed(node, late, start, self.width(main))
        for one in late:
            self._deliver(one, start, 0)
        first = start + (late[-1].there_s if late else 0.0)
        # Ahead of the layers stand the transfers, if any.
        members = node.members[len(late) :] if late and isinstance(node, Seq) else (node,)
        apart = isinstance(members[0], Par) and bool(backbone.beside)
        beside = self.place_steps(backbone.beside, first, self.width(main) if apart else 0)
        after = self.place_steps(backbone.chain, first if apart else beside, 0)
        return max(after, beside)

    def _fed(self, node: Fed, late: Sequence[Delivery], start: float, width: int) -> float:
        """A chain that waits for rows: the chain, what runs beside it, and the rows."""
        backbone = self.forward.compiled.backbone
        apart = any(work is not None for work in node.before)
        lane = width + (len(late) if apart else 0)
        clock = longest = start
        for place, steps in enumerate((*backbone.segments(), ())):
            here = [one for one in late if one.gate == place]
            ready = max([clock, *(start + one.there_s + one.follows_s for one in here)])
            for one in here:
                self._deliver(one, start, lane)
            if ready - clock > ROUNDING * ready:
                resource = self._limit(here[-1].step.node)
                self.add(f"waiting {resource}", clock, ready, 0, steps[0].layer if steps else
                         len(self.forward.compiled.model.layers), resource)  # fmt: skip
            clock = ready
            module = backbone.fetches[place - 1].layer if 0 < place <= len(late) else None
            work = [step for step in backbone.beside if step.layer == module]
            if apart:
                there = start + max([0.0, *(one.there_s for one in here)])
                longest = max(longest, self.place_steps(work, there, width + place - 1))
            else:
                clock = self.place_steps(work, clock, 0)
            clock = self.place_steps(steps, clock, 0)
        return max(clock, longest)

    def _deliver(self, one: Delivery, start: float, lane: int) -> None:
        task = one.step.node
        assert isinstance(task, Task)
        begin, end = start + one.start_s, start + one.there_s
        self.add(task.name, begin, end, lane, one.step.layer, self._limit(task), task)

    def _limit(self, node: Node) -> str:
        return str(RESOURCES[int(np.argmax(self.forward.shared(node)))])

    def width(self, node: Node) -> int:
        """Lanes that a node needs."""
        key = id(node)
        if key not in self._widths:
            inside = [] if isinstance(node, Task) else [self.width(m) for m in node.members]
            width = max([1, *inside]) if isinstance(node, Seq) else sum(inside)
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
            bound = str(RESOURCES[limit])
            self.add(node.name, start, start + length, lane, layer, bound, node)
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
        self,
        operator: str,
        start: float,
        end: float,
        lane: int,
        layer: int,
        bound: str,
        task: Task | None = None,
    ) -> None:
        """One row; none where it would take no time."""
        if end > start:
            self.rows.append(Stretch(self.number, layer, operator, lane, start, end, bound, task))
