"""Bounds of converted cases, through the library's own compiled steps.

Two bounds of a step are checked. The *floor* is the resource bound with the fewest experts that
rows can touch: what must cross memory and links and be multiplied, over the peak of each resource.
The *graph bound* adds the order of operators and the traffic of activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.compiled import CompiledGraph, CompiledSol
from aisim_v41.estimators.resources import Resource
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.operator import Task
from aisim_v41.plan.compatibility import check_requests
from aisim_v41.plan.plan import forward_passes
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.validation.conversion import Claim, Conversion, Part, Way
from aisim_v41.validation.groups import KernelGroup

Floats = npt.NDArray[np.float64]
LINK = list(Resource).index(Resource.LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBounds:
    """Bounds of one case [s], each the smallest over what the source leaves open.

    Attributes:
        floor_s: resource bound, fewest experts.
        graph_s: graph bound, fewest experts.
        taken_s: the floor of the case as it is taken, where more than one reading is open.
        independent_s: graph bound as taken, with experts of independent uniform routing.
        preset_s: graph bound that `aisim_v41.estimate` gives for the engine's preset as taken.
        resource: what decides the floor.
    """

    floor_s: float
    graph_s: float
    taken_s: float
    independent_s: float
    preset_s: float
    resource: str


@dataclass(frozen=True, slots=True)
class _Sum:
    """Bounds of a sequence of steps, summed [s]."""

    floor_s: float
    graph_s: float
    independent_s: float
    resource: str


@dataclass(slots=True)
class Evaluator:
    """Evaluates conversions; compiles each distinct configuration once.

    Args:
        model: the model.
    """

    model: Model
    _compiled: dict[tuple[Hardware, Parallel, RuntimePolicy], CompiledSol] = field(
        default_factory=dict
    )

    def bounds(self, conversion: Conversion) -> CaseBounds:
        """Bounds of a converted case."""
        claims = [
            (claim, [self._way(conversion, way) for way in claim.ways])
            for claim in conversion.claims
        ]
        sure = [min(sums, key=lambda s: s.floor_s) for _, sums in claims]
        longest = max(sure, key=lambda s: s.floor_s)
        return CaseBounds(
            floor_s=longest.floor_s,
            graph_s=max(min(s.graph_s for s in sums) for _, sums in claims),
            taken_s=max(sums[0].floor_s for _, sums in claims),
            independent_s=max(sums[0].independent_s for _, sums in claims),
            preset_s=max(self._preset(conversion, claim) for claim, _ in claims),
            resource=longest.resource,
        )

    def _way(self, conversion: Conversion, way: Way) -> _Sum:
        group, machine = conversion.group, conversion.machine
        if group is not None:
            return self._group(conversion, way, group)
        compiled = self._compile(machine.hardware, machine.parallel, way.policy)
        floor = graph = independent = 0.0
        busy = np.zeros(len(Resource))
        for part in way.parts:
            for times, counts in self._forwards(compiled, part):
                fewest = fewest_experts(compiled, counts)
                spent = compiled.certain_forms @ fewest
                spent[LINK] *= machine.link_share
                busy += times * spent
                floor += times * float(spent.max())
                graph += times * float(compiled.time.seconds(fewest))
                independent += times * float(compiled.time.seconds(counts))
        return _Sum(floor, graph, independent, str(list(Resource)[int(np.argmax(busy))]))

    def _group(self, conversion: Conversion, way: Way, group: KernelGroup) -> _Sum:
        """Kernels of a group: certain work of its operators, and a serial sum of its kernels."""
        machine = conversion.machine
        alone = self._compile(
            machine.hardware, machine.parallel, way.policy.with_overrides(fusion="elementary")
        )
        fused = self._compile(machine.hardware, machine.parallel, way.policy)
        busy = np.zeros(len(Resource))
        graph = independent = 0.0
        for part in way.parts:
            for times, counts in self._forwards(alone, part):
                fewest = fewest_experts(alone, counts)
                for task in _tasks(alone, group, lambda t: t.name in group.operators):
                    busy += times * _spent(alone, task, fewest, certain=True)
            for times, counts in self._forwards(fused, part):
                fewest = fewest_experts(fused, counts)
                for task in _tasks(fused, group, group.holds):
                    graph += times * float(_spent(fused, task, fewest).max())
                    independent += times * float(_spent(fused, task, counts).max())
        busy[LINK] *= machine.link_share
        share = 1 / len(group.layers) if group.each else 1.0
        place = int(np.argmax(busy))
        return _Sum(
            share * float(busy[place]), share * graph, share * independent,
            str(list(Resource)[place]),
        )  # fmt: skip

    def _preset(self, conversion: Conversion, claim: Claim) -> float:
        """The answer of `aisim_v41.estimate` for the preset: graph bound, independent routing."""
        way, machine = claim.ways[0], conversion.machine
        compiled = self._compile(machine.packaged, machine.parallel, way.preset)
        if conversion.group is None:
            return sum(part.times * compiled(part.requests) for part in way.parts)
        group, total = conversion.group, 0.0
        for part in way.parts:
            for times, counts in self._forwards(compiled, part):
                for task in _tasks(compiled, group, group.holds):
                    total += times * float(_spent(compiled, task, counts).max())
        return total / len(group.layers) if group.each else total

    def _compile(
        self, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
    ) -> CompiledSol:
        key = (hardware, parallel, policy)
        if key not in self._compiled:
            self._compiled[key] = CompiledSol(self.model, hardware, parallel, policy)
        return self._compiled[key]

    def _forwards(self, compiled: CompiledSol, part: Part) -> Iterator[tuple[float, Floats]]:
        """Forwards of a part with their counts; experts touched are those of the policy."""
        for forward in forward_passes(part.requests, compiled.policy):
            columns = check_requests(self.model, compiled.policy, forward.requests)
            counts = compiled.program.count(columns, one_step=True).totals
            yield part.times * forward.times, counts


def fewest_experts(compiled: CompiledSol, counts: Floats) -> Floats:
    """The counts if all rows chose the same experts: no routing touches fewer."""
    fewest = counts.copy()
    for touched, active, top_k in compiled.program.expert_columns():
        fewest[touched] = fewest[active] * top_k
    return fewest


def _tasks(
    compiled: CompiledGraph, group: KernelGroup, wanted: Callable[[Task], bool]
) -> Iterator[Task]:
    """Kernels of a forward that a group asks for, each as often as it runs."""
    for step in group.steps(compiled.backbone):
        yield from (task for task in compiled.tasks_in(step.node) if wanted(task))


def reported_tasks(compiled: CompiledGraph, group: KernelGroup) -> Iterator[Task]:
    """Kernels that a profile would report under a group, each as often as it runs."""
    return _tasks(compiled, group, group.holds)


def _spent(compiled: CompiledSol, task: Task, counts: Floats, *, certain: bool = False) -> Floats:
    """Seconds of one kernel on each resource."""
    price = compiled.price(task)
    forms = price.certain if certain else price.seconds
    return np.array([float(compiled.vector(forms[r]) @ counts) for r in Resource])
