"""What a build's inventory changes in OP: attention kernel, small kernels, streams.

Which operators are one kernel is in the graph already (`aisim_v41.ops.fusion.groups_of`); here are
the parts of an inventory that only a price can show (`aisim_v41.plan.builds`, docs/builds.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from aisim_v41.estimators.op.laws import Binding, Feature
from aisim_v41.evidence.laws import LawKind
from aisim_v41.ops.graph import Fed, Node, Seq, fed, inline, par, seq, tasks_of
from aisim_v41.ops.operator import Task
from aisim_v41.plan.builds import Inventory
from aisim_v41.plan.operators import OPERATORS
from aisim_v41.plan.policy import RuntimePolicy


def as_built(
    bindings: Iterable[Binding], task: Task, inventory: Inventory | None
) -> Iterator[Binding]:
    """Kernels of a task as a build has them.

    Its attention kernel, laws of its own, inputs that arrive converted, and small kernels beside
    the task, each of which takes what the start of a streaming kernel takes.
    """
    if inventory is None:
        yield from bindings
        return
    for binding in bindings:
        features = dict(binding.features)
        if inventory.converted & set(task.inputs) and "quantised" in features:
            features["quantised"] = 1.0
        attention = inventory.attention and binding.kind is LawKind.ATTENTION
        key = dict(inventory.laws).get(binding.key, binding.key)
        key = f"{key}.{inventory.attention}" if attention else key
        yield replace(binding, key=key, features=features)
    start: dict[str, Feature] = {"compute_s": 0.0, "memory_s": 0.0, "rows": {task.rows: 1}}
    for operator, times in inventory.more:
        if operator in task.replaces:
            yield from [Binding(task, "elementwise", LawKind.ELEMENTWISE, start)] * times


def policy_of(policy: RuntimePolicy, inventory: Inventory | None) -> RuntimePolicy:
    """The policy with the padding of a build's attention kernel, unless the user chose another."""
    own = policy.attention_head_multiple
    if inventory is None or own != policy.origin.attention_head_multiple:
        return policy
    return policy.with_overrides(attention_head_multiple=inventory.head_multiple)


def on_streams(node: Node, inventory: Inventory | None) -> Node:
    """The graph on a build's streams.

    Members of a block that hold none but side operators stay beside; the others run on the main
    stream, one after another. Without an inventory every member runs beside.
    """
    if inventory is None:
        return node
    known: dict[int, Node] = {}

    def walk(one: Node) -> Node:
        if isinstance(one, Task):
            return one
        if isinstance(one, Fed):
            segments = [walk(segment) for segment in one.segments]
            fetched = fed(segments, one.before, one.deliveries, one.gates)
            ahead = seq(*one.before)
            return fetched if _all_of(ahead, inventory.beside) else inline(fetched)
        if id(one) not in known:
            members = [walk(member) for member in one.members]
            if isinstance(one, Seq):
                known[id(one)] = seq(*members)
            else:
                aside = [m for m in members if _all_of(m, inventory.beside)]
                main = [m for m in members if not _all_of(m, inventory.beside)]
                known[id(one)] = par(seq(*main) if main else None, *aside)
        return known[id(one)]

    return walk(node)


def _all_of(node: Node, operators: frozenset[str]) -> bool:
    """Whether a node holds none but these operators, and such as inventories do not name."""
    names = {name for task in tasks_of(node) for name in task.replaces}
    return operators.issuperset(names & OPERATORS)
