"""Series-parallel graphs of tasks.

`seq` is one after the other, `par` is side by side on the same GPU. What they cost is decided by
the estimator: a sum, and the longest member but never less than any one shared resource.
"""

from __future__ import annotations

from collections.abc import Iterator
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


Node = Task | Seq | Par


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
        for member in node.members:
            yield from tasks_of(member)
