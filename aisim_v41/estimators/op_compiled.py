"""OP compiled: every task priced by its evidence, composed over the same graph as SOL.

Tasks that one number of rows decides are tabulated; laws of one kind are evaluated together for the
others, so that a step costs a few dozen array operations. Steps with a prefill run their kernels
one after another; others let side streams overlap where the engine has them, a block never being
shorter than its share of any one resource. Kernels are those of one inventory; which one a step
runs is chosen in `aisim_v41.estimators.op_builds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.compiled import CompiledGraph, Floats
from aisim_v41.estimators.execution import HostPath
from aisim_v41.estimators.op_curves import row_curves
from aisim_v41.estimators.op_evidence import Kernel, KernelEvidence, evidence_of
from aisim_v41.estimators.op_inventory import as_built, on_streams, policy_of
from aisim_v41.estimators.op_laws import Feature, bindings_of
from aisim_v41.estimators.op_program import composition
from aisim_v41.estimators.program import whole_blocks
from aisim_v41.evidence.calibration import Calibration, load_calibration
from aisim_v41.evidence.laws import LAWS, LawKind
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.fusion import Fusion, groups_of
from aisim_v41.ops.graph import Node, Par, Seq, seq, tasks_of
from aisim_v41.ops.operator import Task
from aisim_v41.plan.builds import Inventory
from aisim_v41.plan.captured import CapturedSteps, Mask
from aisim_v41.plan.columns import ACTIVITY, Column
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.spans import RequestColumns

SIDE_STREAM_GPUS = {"sglang": ("sm10", "sm12")}
"""Architectures on which a preset's engine overlaps kernels; elsewhere any NVIDIA GPU."""
ENGINE_OF_POLICY = {"sglang": "sglang", "vllm": "vllm", "atom": "sglang", "paper": "sglang",
                    "trtllm": "trtllm"}  # fmt: skip
"""Whose measured kernels stand for a preset."""


@dataclass(frozen=True, slots=True)
class LawGroup:
    """Kernels whose laws have one form, of tasks that more than their rows decide.

    Attributes:
        kind: form of the law.
        kernels: their evidence.
        names: features that are forms; `constants` are the others, by name, a number where all
            kernels share it, else [kernels].
        forms: [names x kernels, columns] of the ledger.
        parameters: by name, a number where all kernels share it, else [kernels].
    """

    kind: LawKind
    kernels: tuple[KernelEvidence, ...]
    names: tuple[str, ...]
    forms: Floats
    constants: Mapping[str, Floats | float]
    parameters: Mapping[str, Floats | float]

    def seconds(self, linear: Floats) -> Floats:
        """Seconds of each kernel, from ``forms @ counts``: [kernels], or [kernels, steps].

        As the law's form gives them: also for kernels without rows, and without their peak.
        """
        size = len(self.kernels)
        features = {
            name: linear[place * size : (place + 1) * size] for place, name in enumerate(self.names)
        }
        if linear.ndim == 1:
            return LAWS[self.kind]({**features, **self.constants}, self.parameters)
        constants, parameters = _of_steps(self.constants), _of_steps(self.parameters)
        return LAWS[self.kind]({**features, **constants}, parameters)


class CompiledOp(CompiledGraph):
    """Time of steps from measured and calibrated operators, for one inventory of kernels.

    Args and errors: as for `CompiledGraph`.

    Args:
        inventory: kernels of a build; None: those of the policy's fusion profile.

    Raises:
        MissingProfileError: no calibration for the GPU or its family.
    """

    method = "op"
    chunk_steps = 2048
    distinct_experts = Count.EXPERTS_EXPECTED

    def __init__(
        self,
        model: Model,
        hardware: Hardware,
        parallel: Parallel,
        policy: RuntimePolicy,
        inventory: Inventory | None = None,
    ) -> None:
        fusion = None if inventory is None else Fusion(groups_of(inventory))
        super().__init__(model, hardware, parallel, policy_of(policy, inventory), fusion)
        self.inventory = inventory
        self.engine = ENGINE_OF_POLICY.get(policy.name, "sglang")
        self.calibration: Calibration = load_calibration(hardware, self.engine)
        self.evidence: tuple[tuple[KernelEvidence, ...], ...] = tuple(
            tuple(self._evidence(task)) for task in self.tasks
        )
        self._tabulate()
        self.side_by_side = on_streams(self.graph, inventory)
        self.overlapped = composition(self.builder, self.tasks, self.side_by_side)
        self.host = HostPath(self, self.calibration.launch, self.engine)
        self.captured = CapturedSteps(self.program)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made from: tasks and nodes are known by their id."""
        made_from = (self.model, self.hardware, self.parallel, self.policy, self.inventory)
        return type(self), made_from

    def _evidence(self, task: Task) -> Iterator[KernelEvidence]:
        price, skew = self.price(task), self.program.load.variation
        plain = bindings_of(task, price, self.hardware, self.engine, self.model, skew)
        for binding in as_built(plain, task, self.inventory):
            yield from evidence_of(binding, self.calibration, self.hardware)

    def _tabulate(self) -> None:
        """Tasks that their rows decide as curves, the others as laws of the ledger."""
        by_rows = [self._rows_of(place) for place in range(len(self.tasks))]
        self._curved = np.array([p for p, rows in enumerate(by_rows) if rows is not None], np.intp)
        self._others = np.array([p for p, rows in enumerate(by_rows) if rows is None], np.intp)
        self.curves = row_curves(
            [self.evidence[place] for place in self._curved],
            [self._floor_of_rows(place) for place in self._curved],
            [self._column(by_rows[place]) for place in self._curved],
        )
        found: dict[LawKind, list[tuple[KernelEvidence, int]]] = {}
        linear = np.zeros((len(self._others), len(self.program.columns)))
        for row, place in enumerate(self._others):
            for kernel in self.evidence[place]:
                form = self._linear_form(kernel)
                if form is None:
                    found.setdefault(kernel.law.kind, []).append((kernel, row))
                else:
                    linear[row] += form
        self.groups = tuple(
            self._group(kind, [kernel for kernel, _ in members]) for kind, members in found.items()
        )
        owners = [row for members in found.values() for _, row in members]
        self._task_sums = np.zeros((len(self._others), len(owners)))
        self._task_sums[owners, np.arange(len(owners))] = 1.0
        # A kernel whose rows are not those that make it active may run without any.
        odd = [p for p in self._curved if not self._is_active_by_rows(p, by_rows[p])]
        self._floored = np.array([*self._others, *odd], np.intp)
        # One product with the counts gives the features of every group, what is linear of the other
        # tasks, and the floors.
        floors = self.resource_forms[self._floored].reshape(-1, self.resource_forms.shape[-1])
        self._forms = np.concatenate([*(group.forms for group in self.groups), linear, floors])
        self._ends = np.cumsum([len(group.forms) for group in self.groups]).tolist()
        starts = [0, *self._ends[:-1]] if self.groups else []
        self._rows_of_kernels = np.array(
            [
                start + group.names.index("rows") * len(group.kernels) + place
                for start, group in zip(starts, self.groups, strict=True)
                for place in range(len(group.kernels))
            ],
            np.intp,
        )

    def _linear_form(self, kernel: KernelEvidence) -> Floats | None:
        """Seconds a count [columns] of a streaming kernel; None where time is not linear."""
        rows = kernel.binding.task.rows
        makes = {made: active for active, made in ACTIVITY.items()}
        moved = kernel.binding.features["memory_s"]
        linear = kernel.law.kind in (LawKind.ELEMENTWISE, LawKind.GATHER)
        if not linear or rows.quantity not in makes:
            return None
        parameters = kernel.law.parameters
        active = rows._replace(quantity=makes[rows.quantity])
        started: Floats = parameters["launch_s"] * self.vector({active: 1})
        return started + self._form(moved) / parameters["memory_share"]

    def _other_tasks(self, counts: Floats) -> tuple[Floats, Floats, Floats]:
        """Seconds of kernels that laws price, of other tasks, and of floored tasks at peak."""
        forms = self._forms @ counts
        spent, first = [], 0
        for group, end in zip(self.groups, self._ends, strict=True):
            spent.append(group.seconds(forms[first:end]))
            first = end
        last = first + len(self._others)
        others = forms[first:last]
        kernels = np.concatenate(spent) if spent else others[:0]
        kernels *= forms[self._rows_of_kernels] > 0
        floors = forms[last:].reshape(len(self._floored), -1, *counts.shape[1:])
        return kernels, self._task_sums @ kernels + others, floors.max(axis=1)

    def _rows_of(self, place: int) -> Column | None:
        """The one column of rows that decides a task's time; None where more columns do."""
        columns = {kernel.rows_column for kernel in self.evidence[place]}
        for seconds in self.price(self.tasks[place]).seconds.values():
            columns |= {column for column in seconds if column.quantity not in ACTIVITY}
        return columns.pop() if len(columns) == 1 else None

    def _is_active_by_rows(self, place: int, rows: Column | None) -> bool:
        """Whether a task is active exactly where it has rows."""
        used = {c for form in self.price(self.tasks[place]).seconds.values() for c in form}
        makers = {
            column._replace(quantity=ACTIVITY[column.quantity])
            for column in used
            if column.quantity in ACTIVITY
        }
        return makers <= {rows}

    def _floor_of_rows(self, place: int) -> tuple[Floats, Floats]:
        """Seconds at peak of one row, and of a call whatever its rows [resources]."""
        forms = self.resource_forms[place]
        calls = [c.quantity in ACTIVITY for c in self.program.columns]
        return forms[:, np.logical_not(calls)].sum(axis=1), forms[:, calls].sum(axis=1)

    def _column(self, column: Column | None) -> int:
        assert column is not None
        return self.program.columns.index(column)

    def _group(self, kind: LawKind, kernels: list[KernelEvidence]) -> LawGroup:
        features = [kernel.binding.features for kernel in kernels]
        names = [
            name
            for name in features[0]
            if any(isinstance(one.get(name), Mapping) for one in features)
        ]
        forms = np.array([[self._form(one[name]) for one in features] for name in names])
        constant = [name for name in features[0] if name not in names]
        return LawGroup(
            kind=kind,
            kernels=tuple(kernels),
            names=tuple(names),
            forms=forms.reshape(len(names) * len(kernels), -1),
            constants={n: _shared([_constant(one[n]) for one in features]) for n in constant},
            parameters={
                name: _shared([kernel.law.parameters[name] for kernel in kernels])
                for name in kernels[0].law.parameters
            },
        )

    def _form(self, feature: Feature) -> Floats:
        if isinstance(feature, Mapping):
            return self.vector(feature)
        if feature:
            raise AssertionError("a feature that is a form for one kernel must be one for all")
        return np.zeros(len(self.program.columns))

    def task_seconds(self, counts: Floats) -> Floats:
        """Seconds of one call of every distinct task: [tasks] or [tasks, steps]; never below its
        resources at peak."""
        steps = counts.shape[1:]
        seconds = np.empty((len(self.tasks), *steps))
        seconds[self._curved] = self.curves.seconds(counts)
        _, seconds[self._others], floors = self._other_tasks(counts)
        seconds[self._floored] = np.maximum(seconds[self._floored], floors)
        return seconds

    def kernels(self, counts: Floats) -> Iterator[Kernel]:
        """Every kernel of one forward, with the seconds of all its calls and their evidence.

        Seconds of a task's kernels add up to the task's, also where its resources at peak decide.
        """
        priced = [kernel for group in self.groups for kernel in group.kernels]
        by_law = self._other_tasks(counts)[0].tolist()
        alone = {id(kernel): seconds for kernel, seconds in zip(priced, by_law, strict=True)}
        spent = self.task_seconds(counts)
        for place, (task, kernels) in enumerate(zip(self.tasks, self.evidence, strict=True)):
            if not spent[place]:
                continue
            rows = float(counts[self._column(task.rows)])
            own = [
                alone[id(k)] if id(k) in alone else self._alone(k, rows, counts) for k in kernels
            ]
            total = float(spent[place] * self.calls[place])
            for kernel, seconds in zip(kernels, own, strict=True):
                tag, error, reason = kernel.tag(max(rows, 1.0))
                share = seconds / sum(own) if sum(own) else 1 / len(own)
                yield Kernel(task, kernel.law, total * share, tag, error, reason, kernel)

    def _alone(self, kernel: KernelEvidence, rows: float, counts: Floats) -> float:
        """Seconds of one call of a kernel that no group prices."""
        form = None if kernel.rows_column is not None else self._linear_form(kernel)
        if form is None:
            return float(kernel.seconds_of_rows(np.asarray(rows)))
        return float(form @ counts)

    def seconds(self, counts: Floats, uncaptured: Mask | None = None) -> Floats:
        """Seconds of a forward: the longer of what its kernels and what its host takes.

        Args:
            counts: [columns] of one step, or [columns, steps].
            uncaptured: decode steps above every captured size, which run eagerly.
        """
        return np.maximum(self.device_seconds(counts), self.host.seconds(counts, uncaptured))

    def priced(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Seconds of requests as columns, filled up to captured sizes."""
        totals = self.program.count(requests, one_step=one_step).totals
        return self.seconds(*self.captured.filled(requests, totals, one_step=one_step))

    def device_seconds(self, counts: Floats) -> Floats:
        """Seconds of a forward's kernels, as if the host were never late."""
        wide = counts.ndim > 1
        steps = whole_blocks(counts) if wide else counts
        overlaps, spent = self.overlaps(steps), self.task_seconds(steps)
        if not wide:
            one: Floats = self.overlapped.seconds(spent, steps) if overlaps else self.calls @ spent
            return one
        total: Floats = self.calls @ spent
        if overlaps.any():
            total = np.where(overlaps, self.overlapped.seconds(spent, steps), total)
        return total[: counts.shape[1]]

    def overlaps(self, counts: Floats) -> npt.NDArray[np.bool_]:
        """Whether side streams run: every row reaches the head, as in decode and verify steps."""
        program = self.program
        every: npt.NDArray[np.bool_] = counts[program.logits_place] >= counts[program.tokens_place]
        return every & self.side_streams

    @cached_property
    def side_streams(self) -> bool:
        """Whether the engine uses side streams on this GPU (runtime-semantics §5.2, §5.3)."""
        if self.inventory is not None:
            return self.policy.decode_streams == "side" and bool(self.inventory.beside)
        built_for = SIDE_STREAM_GPUS.get(self.policy.name, "sm")
        return self.policy.decode_streams == "side" and self.hardware.architecture.startswith(
            built_for
        )

    def arranged(self, node: Node, counts: Floats) -> Node:
        """The node as a forward of these counts runs it: on its streams, or one after another."""
        return on_streams(node, self.inventory) if self.overlaps(counts) else serial(node)

    @cached_property
    def calls(self) -> Floats:
        """Calls of every distinct task in a forward [tasks]."""
        times = Counter(id(task) for task in tasks_of(self.graph))
        return np.array([float(times[id(task)]) for task in self.tasks])

    def place_of(self, task: Task) -> int:
        """Place of a task among `tasks`."""
        return self._places[id(task)]

    @cached_property
    def _places(self) -> dict[int, int]:
        return {id(task): place for place, task in enumerate(self.tasks)}


def _of_steps(values: Mapping[str, Floats | float]) -> dict[str, Floats | float]:
    """Values of kernels beside many steps."""
    return {
        name: value if isinstance(value, float) else value[:, None]
        for name, value in values.items()
    }


def _shared(values: list[float]) -> Floats | float:
    """One number where all are equal, which is cheaper to work with."""
    return float(values[0]) if len(set(values)) == 1 else np.array(values)


def _constant(feature: Feature) -> float:
    assert not isinstance(feature, Mapping)
    return float(feature)


def serial(node: Node) -> Node:
    """The same tasks one after another."""
    if isinstance(node, Task):
        return node
    members = [serial(member) for member in node.members]
    return seq(*members) if isinstance(node, (Seq, Par)) else node


@lru_cache(maxsize=128)
def compiled_op(
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
    inventory: Inventory | None = None,
) -> CompiledOp:
    """`CompiledOp`, kept for the next call with the same arguments."""
    return CompiledOp(model, hardware, parallel, policy, inventory)
