"""An operator: what one kernel computes, reads, writes and sends, as linear forms of the ledger.

Operators are declared once, in the file of their family, with FLOPs, bytes and messages side by
side; nothing about an operator lives elsewhere. `place` puts one into a layer (its counts become
ledger columns); `fuse` makes one kernel of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.plan.columns import Column, LayerClass, column_of
from aisim_v41.plan.counts import Count, LinearForm, Number, as_form
from aisim_v41.plan.expert_groups import Scatter
from aisim_v41.units import KIB


class Family(StrEnum):
    """Kind of work; reports and measured tables group by it."""

    PROJECTION = "projection"
    ATTENTION = "attention"
    COMPRESSOR = "compressor"
    INDEXER = "indexer"
    EXPERTS = "experts"
    HYPER_CONNECTIONS = "hyper_connections"
    ENGRAM = "engram"
    ENDS = "ends"
    """Embedding and output head."""
    ELEMENTWISE = "elementwise"
    """Norms, rotations and quantisation that a kernel of their own would do."""
    COLLECTIVE = "collective"


class Traffic(StrEnum):
    """Bytes that an operator moves, by what they are."""

    WEIGHTS = "weights"
    WEIGHTS_REREAD = "weights_reread"
    """Weights that an earlier kernel of the step has read: a cache may still hold them."""
    KV_READ = "kv_read"
    """Cache rows written before this step that no earlier operator of the step has read."""
    KV_REREAD = "kv_reread"
    """Cache rows written or read earlier in this step: a cache may still hold them."""
    KV_WRITE = "kv_write"
    TABLE_READ = "table_read"
    """Engram rows in GPU memory."""
    HOST_READ = "host_read"
    """Engram rows that cross the link to the host."""
    DISK_READ = "disk_read"
    """Whole pages with Engram rows, from a disk."""
    ACTIVATION_READ = "activation_read"
    ACTIVATION_WRITE = "activation_write"
    WORKSPACE = "workspace"
    """Intermediates that a kernel writes and reads back."""


MUST_CROSS_HBM = frozenset({Traffic.WEIGHTS, Traffic.KV_READ, Traffic.KV_WRITE})
"""Bytes that memory must deliver whatever is cached, selected or fused.

Engram rows are not among them: repeated text asks for the same rows again.
"""


NOT_FROM_HBM = frozenset({Traffic.HOST_READ, Traffic.DISK_READ})
PAGE_BYTES = 4 * KIB
"""What a file system reads at least."""


class Collective(StrEnum):
    """Communication patterns."""

    ALL_REDUCE = "all_reduce"
    """Every rank gets the sum of what all hold."""
    ALL_GATHER = "all_gather"
    """Every rank gets the parts of all; the message is the whole of them."""
    REDUCE_SCATTER = "reduce_scatter"
    """Every rank gets its part of the sum; the message is the whole sum."""
    ALL_TO_ALL = "all_to_all"
    """Every rank sends rows to those that need them; the message is a rank's rows, sent once."""


Form = LinearForm | Count
ZERO = LinearForm()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One kernel in one layer of one rank, before it is placed.

    All forms are per step and rank; FLOP counts two per multiply-accumulate, bytes are bytes.

    Attributes:
        name: unique inside a layer.
        family: kind of work.
        flops: multiply-accumulate work by arithmetic class [FLOP].
        weights: weight bytes read [B].
        weights_rereads: of weights that an earlier kernel of the step reads too [B].
        kv_reads, kv_rereads, kv_writes, table_reads, host_reads, disk_reads, workspace: see
            `Traffic` [B].
        inputs, outputs: activation tensors read and written, by name [B]. Fusing two operators
            drops what one hands to the other.
        collective, payload, group: message [B] over ``group`` ranks.
        scatter: which ranks get a row of an all-to-all.
        row_share: share of the rows of its first axis that this rank works on.
        products: (outputs, inputs) of each dense product in it, one kernel each.
        launches: kernels launched.
        axes: counts that a measured table of this operator is keyed by.
        source: where the formula comes from.
    """

    name: str
    family: Family
    flops: Mapping[Arithmetic, Form] = field(default_factory=dict)
    weights: Form = ZERO
    weights_rereads: Form = ZERO
    kv_reads: Form = ZERO
    kv_rereads: Form = ZERO
    kv_writes: Form = ZERO
    table_reads: Form = ZERO
    host_reads: Form = ZERO
    disk_reads: Form = ZERO
    workspace: Form = ZERO
    inputs: Mapping[str, Form] = field(default_factory=dict)
    outputs: Mapping[str, Form] = field(default_factory=dict)
    collective: Collective | None = None
    payload: Form = ZERO
    group: int = 1
    scatter: Scatter | None = None
    row_share: float = 1.0
    products: tuple[tuple[int, int], ...] = ()
    launches: Form = Count.ACTIVE
    axes: tuple[Count, ...] = (Count.QUERY_ROWS,)
    source: str = ""


def reread(operator: Operator) -> Operator:
    """The operator where an earlier kernel of the step has read its weights."""
    return replace(operator, weights=ZERO, weights_rereads=operator.weights)


def on_share(operator: Operator, share: float) -> Operator:
    """The operator on a share of its rows: what it does a row shrinks, its weights do not."""
    return replace(
        operator,
        flops={kind: share * as_form(form) for kind, form in operator.flops.items()},
        inputs={name: share * as_form(form) for name, form in operator.inputs.items()},
        outputs={name: share * as_form(form) for name, form in operator.outputs.items()},
        row_share=operator.row_share * share,
    )


Columns = Mapping[Column, Number]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """An operator in its place: forms over ledger columns.

    ``replaces`` names the elementary operators that it does the work of (itself, if not fused).
    """

    name: str
    family: Family
    replaces: tuple[str, ...]
    flops: Mapping[Arithmetic, Columns]
    traffic: Mapping[Traffic, Columns]
    inputs: Mapping[str, Columns]
    outputs: Mapping[str, Columns]
    collective: Collective | None
    payload: Columns
    group: int
    scatter: Scatter | None
    row_share: float
    products: tuple[tuple[int, int], ...]
    launches: Columns
    axes: tuple[Column, ...]
    rows: Column
    """Rows that it works on: tasks with other rows do not fuse."""


def place(operator: Operator, where: LayerClass | None) -> Task:
    """Resolve an operator's counts in a layer class (None: outside the layers)."""

    def resolve(form: Form) -> Columns:
        if form is ZERO:
            return {}
        resolved: dict[Column, Number] = {}
        for count, value in as_form(form).terms.items():
            column = column_of(count, where)
            resolved[column] = resolved.get(column, 0) + value
        return resolved

    traffic = {
        Traffic.WEIGHTS: resolve(operator.weights),
        Traffic.WEIGHTS_REREAD: resolve(operator.weights_rereads),
        Traffic.KV_READ: resolve(operator.kv_reads),
        Traffic.KV_REREAD: resolve(operator.kv_rereads),
        Traffic.KV_WRITE: resolve(operator.kv_writes),
        Traffic.TABLE_READ: resolve(operator.table_reads),
        Traffic.HOST_READ: resolve(operator.host_reads),
        Traffic.DISK_READ: resolve(operator.disk_reads),
        Traffic.WORKSPACE: resolve(operator.workspace),
    }
    inputs = {name: resolve(form) for name, form in operator.inputs.items()}
    outputs = {name: resolve(form) for name, form in operator.outputs.items()}
    axes = tuple(column_of(count, where) for count in operator.axes)
    return Task(
        name=operator.name,
        family=operator.family,
        replaces=(operator.name,),
        flops={kind: resolve(form) for kind, form in operator.flops.items()},
        traffic=traffic | _activations(inputs, outputs),
        inputs=inputs,
        outputs=outputs,
        collective=operator.collective,
        payload=resolve(operator.payload),
        group=operator.group,
        scatter=operator.scatter,
        row_share=operator.row_share,
        products=operator.products,
        launches=resolve(operator.launches),
        axes=axes,
        rows=axes[0],
    )


def fuse(name: str, tasks: Sequence[Task], *, kept: Iterable[str] = ()) -> Task:
    """One kernel that does the work of several consecutive ones.

    FLOPs, weights, cache traffic and messages add. A tensor that one member writes and another
    reads stays on chip; it is written only if it is in ``kept`` (someone else needs it). A tensor
    that several members read is read once.

    Args:
        name: of the fused kernel.
        tasks: members, in order; all work on the same rows.
        kept: names of internal tensors that must still be written.

    Raises:
        ValueError: more than one member sends a message.
    """
    kept = set(kept)
    produced = {tensor: form for task in tasks for tensor, form in task.outputs.items()}
    inputs = {
        tensor: form
        for task in tasks
        for tensor, form in task.inputs.items()
        if tensor not in produced
    }
    consumed = {tensor for task in tasks for tensor in task.inputs}
    outputs = {
        tensor: form
        for tensor, form in produced.items()
        if tensor not in consumed or tensor in kept
    }
    kinds = dict.fromkeys(kind for task in tasks for kind in task.flops)
    traffic = {
        kind: _merge(task.traffic[kind] for task in tasks)
        for kind in Traffic
        if kind not in (Traffic.ACTIVATION_READ, Traffic.ACTIVATION_WRITE)
    }
    messages = [task for task in tasks if task.collective is not None]
    if len(messages) > 1:
        raise ValueError(f"{name}: one kernel sends one message, not {len(messages)}")
    message = (messages or tasks)[0]
    leader = max(tasks, key=lambda task: task.family is not Family.ELEMENTWISE)
    return Task(
        name=name,
        family=leader.family,
        replaces=tuple(part for task in tasks for part in task.replaces),
        flops={k: _merge(task.flops[k] for task in tasks if k in task.flops) for k in kinds},
        traffic=traffic | _activations(inputs, outputs),
        inputs=inputs,
        outputs=outputs,
        collective=message.collective,
        payload=message.payload,
        group=message.group,
        scatter=message.scatter,
        row_share=leader.row_share,
        products=tuple(shape for task in tasks for shape in task.products),
        launches=leader.launches,
        axes=leader.axes,
        rows=leader.rows,
    )


def _activations(
    inputs: Mapping[str, Columns], outputs: Mapping[str, Columns]
) -> dict[Traffic, Columns]:
    return {
        Traffic.ACTIVATION_READ: _merge(inputs.values()),
        Traffic.ACTIVATION_WRITE: _merge(outputs.values()),
    }


def _merge(parts: Iterable[Columns]) -> Columns:
    merged: dict[Column, Number] = {}
    for part in parts:
        for column, value in part.items():
            merged[column] = merged.get(column, 0) + value
    return merged
