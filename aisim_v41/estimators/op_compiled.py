"""OP compiled: every task priced by its law, composed over the same graph as SOL.

Laws of one kind are evaluated together for all tasks, so that a step costs a few dozen array
operations. Steps with a prefill run their kernels one after another; others let side streams
overlap where the engine has them, a block never being shorter than its share of any one resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import MissingProfileError
from aisim_v41.estimators.compiled import CompiledGraph, Floats
from aisim_v41.estimators.op_laws import Binding, Feature, bindings_of
from aisim_v41.estimators.program import ProgramBuilder, TimeProgram
from aisim_v41.evidence.calibration import CalibratedLaw, Calibration, load_calibration
from aisim_v41.evidence.laws import LawKind, law_seconds
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.graph import Node, Par, Seq, seq, tasks_of
from aisim_v41.ops.operator import Task
from aisim_v41.plan.policy import RuntimePolicy

SIDE_STREAM_GPUS = {"sglang": ("sm10", "sm12")}
"""Architectures on which a preset's engine overlaps kernels; elsewhere any NVIDIA GPU."""
ENGINE_OF_POLICY = {"sglang": "sglang", "vllm": "vllm", "atom": "sglang", "paper": "sglang",
                    "trtllm": "trtllm"}  # fmt: skip
"""Whose measured kernels stand for a preset."""


@dataclass(frozen=True, slots=True)
class LawGroup:
    """All kernels whose laws have one form.

    Attributes:
        kind: form of the law.
        bindings: kernels.
        laws: their laws, in the same order.
        forms: features as [kernels, columns] of the ledger, by name; `constants` as [kernels].
        task_of: task of each kernel.
    """

    kind: LawKind
    bindings: tuple[Binding, ...]
    laws: tuple[CalibratedLaw, ...]
    names: tuple[str, ...]
    forms: Floats
    constants: Mapping[str, Floats]
    parameters: Mapping[str, Floats]
    task_of: npt.NDArray[np.intp]

    def seconds(self, counts: Floats) -> Floats:
        """Seconds of each kernel: [kernels] of one step, [kernels, steps] of more."""
        wide = counts.ndim > 1
        linear = self.forms @ counts
        size = len(self.bindings)
        features = {
            name: linear[place * size : (place + 1) * size] for place, name in enumerate(self.names)
        }
        for name, values in self.constants.items():
            features[name] = values[:, None] if wide else values
        parameters = {
            name: values[:, None] if wide else values for name, values in self.parameters.items()
        }
        return law_seconds(self.kind, features, parameters)


class Kernel(NamedTuple):
    """Seconds of all calls of one kernel of a task, and the law behind them."""

    task: Task
    law: CalibratedLaw
    seconds: float


class _OpBuilder(ProgramBuilder):
    """Forms over [seconds of every task, counts]."""

    def __init__(self, base: ProgramBuilder, tasks: tuple[Task, ...]) -> None:
        super().__init__(base.columns, base.price)
        self.place = {id(task): place for place, task in enumerate(tasks)}

    @property
    def width(self) -> int:
        return len(self.place) + len(self.columns)

    def task_forms(self, task: Task) -> list[Floats]:
        form = np.zeros(self.width)
        form[self.place[id(task)]] = 1.0
        return [form]

    def may_last(self, member: Node) -> bool:
        """Any kernel can: it does not reach the peak."""
        return True

    def block_forms(self, block: Par) -> list[Floats]:
        padded = np.zeros((len(self.totals(block)), self.width))
        padded[:, len(self.place) :] = self.totals(block)
        return self.largest(padded)


class CompiledOp(CompiledGraph):
    """Time of steps from measured and calibrated operators.

    Args and errors: as for `CompiledGraph`.

    Raises:
        MissingProfileError: no calibration for the GPU or its family.
    """

    method = "op"

    def __init__(
        self, model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
    ) -> None:
        super().__init__(model, hardware, parallel, policy)
        self.engine = ENGINE_OF_POLICY.get(policy.name, "sglang")
        self.calibration: Calibration = load_calibration(hardware, self.engine)
        self.groups = self._bind()
        builder = _OpBuilder(self.builder, self.tasks)
        self.overlapped: TimeProgram = builder.build(self.graph)
        self.serial: TimeProgram = builder.build(serial(self.graph))

    def _bind(self) -> tuple[LawGroup, ...]:
        found: dict[LawKind, list[tuple[Binding, CalibratedLaw, int]]] = {}
        for place, task in enumerate(self.tasks):
            for binding in bindings_of(
                task, self.price(task), self.hardware, self.engine, self.model
            ):
                for known, law in self._known(binding):
                    found.setdefault(law.kind, []).append((known, law, place))
        return tuple(self._group(kind, members) for kind, members in found.items())

    def _known(self, binding: Binding) -> list[tuple[Binding, CalibratedLaw]]:
        """The binding with its law, or what stands in for it.

        Raises:
            MissingProfileError: neither is known.
        """
        keys = (binding.key, *FALLBACK_KEYS.get(binding.key, ()))
        last = None if binding.instead else keys[-1]
        for key in keys:
            try:
                return [(binding, self.calibration.law(key, binding.ranks))]
            except MissingProfileError:
                if key == last:
                    raise
        return [pair for part in binding.instead for pair in self._known(part)]

    def _group(self, kind: LawKind, members: list[tuple[Binding, CalibratedLaw, int]]) -> LawGroup:
        bindings = tuple(binding for binding, _, _ in members)
        laws = tuple(law for _, law, _ in members)
        names = [
            name
            for name in bindings[0].features
            if any(isinstance(b.features.get(name), Mapping) for b in bindings)
        ]
        forms = np.array([[self._form(b.features[name]) for b in bindings] for name in names])
        constant = [name for name in bindings[0].features if name not in names]
        parameters = laws[0].parameters
        return LawGroup(
            kind=kind,
            bindings=bindings,
            laws=laws,
            names=tuple(names),
            forms=forms.reshape(len(names) * len(bindings), -1),
            constants={n: np.array([_constant(b.features[n]) for b in bindings]) for n in constant},
            parameters={n: np.array([law.parameters[n] for law in laws]) for n in parameters},
            task_of=np.array([place for _, _, place in members], np.intp),
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
        total = np.zeros((len(self.tasks), *counts.shape[1:]))
        for group in self.groups:
            np.add.at(total, group.task_of, group.seconds(counts))
        floor = (self._floor_forms @ counts).reshape(len(self.tasks), -1, *counts.shape[1:])
        seconds: Floats = np.maximum(total, floor.max(axis=1))
        return seconds

    @cached_property
    def _floor_forms(self) -> Floats:
        """[tasks x resources, columns]."""
        return self.resource_forms.reshape(-1, self.resource_forms.shape[-1])

    def kernels(self, counts: Floats) -> Iterator[Kernel]:
        """Every kernel of one forward, with its law and the seconds of all its calls."""
        for group in self.groups:
            spent = group.seconds(counts) * self.calls[group.task_of]
            for binding, law, seconds in zip(group.bindings, group.laws, spent, strict=True):
                yield Kernel(binding.task, law, float(seconds))

    def seconds(self, counts: Floats) -> Floats:
        """Seconds of a forward."""
        inputs = np.concatenate((self.task_seconds(counts), counts))
        if counts.ndim == 1:
            program = self.overlapped if self.overlaps(counts) else self.serial
            return program.seconds(inputs)
        return np.where(
            self.overlaps(counts), self.overlapped.seconds(inputs), self.serial.seconds(inputs)
        )

    def overlaps(self, counts: Floats) -> npt.NDArray[np.bool_]:
        """Whether side streams run: every row reaches the head, as in decode and verify steps."""
        program = self.program
        every: npt.NDArray[np.bool_] = counts[program.logits_place] >= counts[program.tokens_place]
        return every & self.side_streams

    @cached_property
    def side_streams(self) -> bool:
        """Whether the engine uses side streams on this GPU (runtime-semantics §5.2, §5.3)."""
        built_for = SIDE_STREAM_GPUS.get(self.policy.name, "sm")
        return self.policy.decode_streams == "side" and self.hardware.architecture.startswith(
            built_for
        )

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

    def laws_of(self, task: Task) -> tuple[CalibratedLaw, ...]:
        """Laws that price a task."""
        return self._laws[self.place_of(task)]

    @cached_property
    def _laws(self) -> tuple[tuple[CalibratedLaw, ...], ...]:
        found: list[list[CalibratedLaw]] = [[] for _ in self.tasks]
        for group in self.groups:
            for law, place in zip(group.laws, group.task_of, strict=True):
                found[place].append(law)
        return tuple(tuple(laws) for laws in found)


FALLBACK_KEYS: Mapping[str, tuple[str, ...]] = {
    "elementwise.hyper": ("elementwise",),
    "scores.bf16": ("scores.fp8",),
    "experts.w4a16": ("experts.mxfp4",),
    "all_reduce.trtllm": ("all_reduce.sglang",),
    "all_reduce.vllm": ("all_reduce.sglang",),
}
"""Laws that stand in where an engine or GPU has none of its own."""


def _constant(feature: Feature) -> float:
    assert not isinstance(feature, Mapping)
    return float(feature)


def serial(node: Node) -> Node:
    """The same tasks one after another."""
    if isinstance(node, Task):
        return node
    members = [serial(member) for member in node.members]
    return seq(*members) if isinstance(node, (Seq, Par)) else node


@lru_cache(maxsize=32)
def compiled_op(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> CompiledOp:
    """`CompiledOp`, kept for the next call with the same arguments."""
    return CompiledOp(model, hardware, parallel, policy)
