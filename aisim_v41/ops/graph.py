"""Series-parallel graphs of tasks.

`seq` is one after the other, `par` is side by side on the same GPU. What they cost is decided by
the estimator: a sum, and the longest member but never less than any one shared resource. `fed` is
the one exception, a chain that waits for deliveries of another queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aisim_v41.ops.operator import Task


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Members one after the other."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Par:
    """Members side by side."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fed:
    """A chain, some of whose segments wait for what another queue delivers, one after another.

    No series-parallel graph says that: the second delivery waits for the first, whether or not the
    chain did. So the node names its *ways*, which share parts: the chain alone, and for each
    delivery everything delivered up to it, what follows from it, and the chain from there. It takes
    its longest way, but never less than its parts need of any one resource.

    Attributes:
        segments: of the chain, in order.
        before: for each segment, work that it waits for and that may run beside the chain.
        deliveries: in order.
        gates: for each delivery, the segment that waits for it.
        members: the ways.
        parts: every part, once.
    """

    segments: tuple[Node, ...]
    before: tuple[Node | None, ...]
    deliveries: tuple[Node, ...]
    gates: tuple[int, ...]
    members: tuple[Node, ...]
    parts: tuple[Node, ...]


Node = Task | Seq | Par | Fed


def fed(
    segments: Sequence[Node],
    before: Sequence[Node | None],
    deliveries: Sequence[Node],
    gates: Sequence[int],
) -> Fed:
    """A chain and what it waits for; arguments as the attributes of `Fed`."""
    late = [
        seq(*deliveries[: place + 1], before[gate], *segments[gate:])
        for place, gate in enumerate(gates)
    ]
    ways = (seq(*segments), *late, seq(*before))
    beside = [work for work in before if work is not None]
    return Fed(
        tuple(segments),
        tuple(before),
        tuple(deliveries),
        tuple(gates),
        tuple(way for way in ways if not (isinstance(way, Seq) and not way.members)),
        (*segments, *beside, *deliveries),
    )


def inline(node: Fed) -> Fed:
    """The same with the work that segments wait for in the chain, before them."""
    segments = [seq(*pair) for pair in zip(node.before, node.segments, strict=True)]
    return fed(segments, [None] * len(segments), node.deliveries, node.gates)


def parts_of(node: Seq | Par | Fed) -> tuple[Node, ...]:
    """Everything in a node, once."""
    return node.parts if isinstance(node, Fed) else node.members


def seq(*members: Node | None) -> Node:
    """Members in order; nested sequences are flattened, None is left out."""
    flat: list[Node] = []
    for member in members:
        if isinstance(member, Seq):
            flat.extend(member.members)
        elif member is not None:
            flat.append(member)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def par(*members: Node | None) -> Node:
    """Members side by side; nested ones are flattened, empty ones are left out."""
    flat: list[Node] = []
    for member in members:
        if isinstance(member, Par):
            flat.extend(member.members)
        elif member is not None and not (isinstance(member, Seq) and not member.members):
            flat.append(member)
    return flat[0] if len(flat) == 1 else Par(tuple(flat))


def tasks_of(node: Node) -> Iterator[Task]:
    """Every task of a graph, in order."""
    if isinstance(node, Task):
        yield node
    else:
        for member in parts_of(node):
            yield from tasks_of(member)
