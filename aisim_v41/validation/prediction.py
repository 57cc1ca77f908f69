"""What OP says for one reading of a measured case, with its band.

A whole step, prompt or token is asked through `aisim_v41.estimate`, so that the figure is the one
that a user gets. A group of kernels is the sum of its kernels' times, without host and overlap, as
a profiler sums them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import fsum, hypot, sqrt

from aisim_v41.errors import MissingProfileError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledStep
from aisim_v41.estimators.entry import compile as compile_step
from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.op.eager_modules import eager_modules
from aisim_v41.estimators.op.estimator import OpForward
from aisim_v41.estimators.result import Estimate
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.operator import Task
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request
from aisim_v41.units import MICROSECOND
from aisim_v41.validation.cases import Case
from aisim_v41.validation.conversion import Conversion, Part, Way
from aisim_v41.validation.groups import KernelGroup
from aisim_v41.validation.setting import ENGINES

SAMPLES = 5
"""Steps of one prompt whose band is asked for."""
KERNEL_SUM = "kernel_ms:sum"
"""Quantity that sums all kernels of a step, whatever runs beside what."""
SIMULATED_ACCEPT = "simulated_accept"
"""In a case's ``includes``: acceptance was simulated, not drawn by the verifier."""
SIMULATED_ACCEPT_S = 104 * MICROSECOND
"""What SGLang's eager accept path adds to a step under simulated acceptance, and a real run does
not pay (sgl-project/sglang pull request 39301, row Q0048): a condition of the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted time with its 90 % band [s].

    Attributes:
        value_s, low_s, high_s: time and band.
        error_by_law_s: half-width that each law adds; those of one law go together.
        error_by_size_s: the same, apart by the rows of the kernels: a law is off alike for one
            number of rows, and independently for unlike ones. Of whole steps, where asked for.
        spread: half-width that engine builds add, as a share of the time.
        paths: of every forward its times, and the seconds of its kernels and of the host that
            issues them; it takes the longer. Empty for sums of kernels.
        host_relative: 90 % error of the host's path.
        used_cases: cases whose measured kernels the laws of this GPU were made from.
    """

    value_s: float
    low_s: float
    high_s: float
    error_by_law_s: Mapping[str, float]
    error_by_size_s: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0
    paths: tuple[tuple[float, float, float], ...] = ()
    host_relative: float = 0.0
    used_cases: frozenset[str] = frozenset()


def predict(model: Model, conversion: Conversion, way: Way, *, by_size: bool = False) -> Prediction:
    """One reading of a case.

    Args:
        model, conversion, way: the case and its reading.
        by_size: errors by size too, which a ratio needs.

    Raises:
        UnsupportedPlanError: OP does not know the mapping.
        MissingProfileError: nor the GPU.
    """
    case, machine = conversion.case, conversion.machine
    policy = executed(case, way.preset)
    parts = _at_mid_output(case, way.parts)
    whole = conversion.group is None and case.quantity != KERNEL_SUM
    asked: dict[int, Prediction] = {}
    found = []
    for place, part in enumerate(parts):
        like = _sample(place, len(parts)) if whole else place
        if like not in asked:
            plan = Plan(model, parts[like].requests, parallel=machine.parallel, policy=policy)
            answer = estimate(plan, machine.packaged, method="op")
            asked[like] = _step(answer, by_size) if whole else _kernels(answer, conversion.group)
        one = asked[like]
        if like != place:
            step = _step_function(model, machine.packaged, machine.parallel, policy)
            one = _scaled(one, step(part.requests) / one.value_s)
        found.append((part.times, one))
    return _with_conditions(case, _sum(found), steps=fsum(times for times, _ in found))


def _sample(place: int, parts: int) -> int:
    """The step whose band stands for that of a step, in relation to the time.

    Chunks of a long prompt differ little from their neighbours: `SAMPLES` of them are asked for
    their band, all for their time.
    """
    if parts <= SAMPLES:
        return place
    return round(round(place * (SAMPLES - 1) / (parts - 1)) * (parts - 1) / (SAMPLES - 1))


def _scaled(told: Prediction, factor: float) -> Prediction:
    return replace(
        told,
        value_s=factor * told.value_s,
        low_s=factor * told.low_s,
        high_s=factor * told.high_s,
        error_by_law_s={law: factor * error for law, error in told.error_by_law_s.items()},
        error_by_size_s={law: factor * error for law, error in told.error_by_size_s.items()},
        paths=tuple((t, factor * device, factor * host) for t, device, host in told.paths),
    )


def module_seconds(model: Model, conversion: Conversion, way: Way) -> float | None:
    """An eager reading as the sum of measured modules [s]; None where they were not measured."""
    machine, total = conversion.machine, 0.0
    for part in way.parts:
        runtime = executed(conversion.case, way.preset)
        plan = Plan(model, part.requests, parallel=machine.parallel, policy=runtime)
        try:
            total += part.times * eager_modules(plan, machine.packaged).total_s
        except (MissingProfileError, OutOfRangeError, UnsupportedPlanError):
            return None
    return total


def _with_conditions(case: Case, told: Prediction, *, steps: float) -> Prediction:
    """What the way of measuring adds to whole steps."""
    measured_whole = case.workload.kind == "step" and not case.quantity.startswith("kernel_ms:")
    simulated = SIMULATED_ACCEPT in case.includes and ENGINES.get(case.engine) == "sglang"
    if not (measured_whole and simulated):
        return told
    extra = steps * SIMULATED_ACCEPT_S
    return replace(
        told,
        value_s=told.value_s + extra,
        low_s=told.low_s + extra,
        high_s=told.high_s + extra,
    )


def _step(answer: Estimate, by_size: bool) -> Prediction:
    """The whole answer."""
    forwards = tuple(_forwards(answer))
    return Prediction(
        value_s=answer.latency_s,
        low_s=answer.band_s[0],
        high_s=answer.band_s[1],
        error_by_law_s=_errors(answer, None),
        error_by_size_s=_errors_by_size(answer) if by_size else {},
        spread=_spread(answer),
        paths=tuple((float(f.times), f.device_s, f.host_s) for f in forwards),
        host_relative=max(f.compiled.host.error_relative for f in forwards),
        used_cases=_used_cases(answer),
    )


@lru_cache(maxsize=32)
def _step_function(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> CompiledStep:
    """Times of steps that `estimate` would give too, without what they are made of."""
    return compile_step(model, hardware, parallel=parallel, policy=policy, method="op")


def _kernels(answer: Estimate, group: KernelGroup | None) -> Prediction:
    """The sum of a group's kernels, or of all of them."""
    value = fsum(
        forward.times * calls * forward.task_seconds(task)
        for forward in _forwards(answer)
        for task, calls in _calls(forward, group)
    )
    errors, spread = _errors(answer, group), _spread(answer)
    half = hypot(together(errors), spread * value)
    return Prediction(
        value_s=value,
        low_s=max(0.0, value - half),
        high_s=value + half,
        error_by_law_s=errors,
        spread=spread,
        used_cases=_used_cases(answer),
    )


def _forwards(answer: Estimate) -> Iterator[OpForward]:
    for forward in answer.breakdown.forwards:
        assert isinstance(forward, OpForward)
        yield forward


def _spread(answer: Estimate) -> float:
    """What widens the band of a whole answer beyond its laws, as a share of the time: builds.

    Zero where the host decides: builds then differ by what it issues, which is in its own error.
    """
    if any(forward.waits_s for forward in _forwards(answer)):
        return 0.0
    value, (low, high) = answer.latency_s, answer.band_s
    laws = together(_errors(answer, None))
    half = max(value - low, high - value)
    return sqrt(max(0.0, half * half - laws * laws)) / value


def _calls(forward: OpForward, group: KernelGroup | None) -> Iterable[tuple[Task, float]]:
    """Tasks inside a group, with their calls; a mean over its layers where it is one's."""
    backbone = forward.compiled.backbone
    one = 1 / len(group.layers) if group is not None and group.each else 1.0
    found: dict[int, tuple[Task, float]] = {}
    for step in backbone.steps if group is None else group.steps(backbone):
        for task in forward.compiled.tasks_in(step.node):
            if group is None or group.holds(task):
                found[id(task)] = (task, found.get(id(task), (task, 0.0))[1] + one)
    return found.values()


def _errors(answer: Estimate, group: KernelGroup | None) -> Mapping[str, float]:
    """Half-width of the 90 % band that each law adds [s], over a group's kernels or all."""
    laws: dict[str, float] = defaultdict(float)
    for forward in _forwards(answer):
        shares = {} if group is None else _shares(forward, group)
        for kernel in forward.kernels:
            share = 1.0 if group is None else shares.get(id(kernel.task), 0.0)
            laws[kernel.law.key] += forward.times * share * kernel.seconds * kernel.error_p90
    return laws


def _errors_by_size(answer: Estimate) -> Mapping[str, float]:
    """Half-width of the 90 % band that each law adds for each number of rows [s]."""
    laws: dict[str, float] = defaultdict(float)
    for forward in _forwards(answer):
        rows: dict[int, float] = {}
        for kernel in forward.kernels:
            task = kernel.task
            if id(task) not in rows:
                form = forward.compiled.vector({task.rows: 1})
                rows[id(task)] = float(form @ forward.counts)
            law = f"{kernel.law.key} at {rows[id(task)]:g} rows"
            laws[law] += forward.times * kernel.seconds * kernel.error_p90
    return laws


def _shares(forward: OpForward, group: KernelGroup) -> Mapping[int, float]:
    """Share of each task's calls that a group holds, by identity."""
    every = {id(task): calls for task, calls in _calls(forward, None)}
    return {id(task): calls / every[id(task)] for task, calls in _calls(forward, group)}


def _used_cases(answer: Estimate) -> frozenset[str]:
    """Cases whose kernel rows the GPU's laws were made from."""
    used = (forward.compiled.calibration.used_cases for forward in _forwards(answer))
    return frozenset[str]().union(*used)


def executed(case: Case, policy: RuntimePolicy) -> RuntimePolicy:
    """The policy with the execution that the case states, where that is an eager forward.

    Other cases run as the engine's preset does: "graph" is what presets do for decode steps, the
    prompts of zero-shot cases were run by the preset's own engine, and a kernel group has no host.
    """
    if case.execution != "eager" or case.usable == "zero_shot":
        return policy
    return policy.with_overrides(prefill_execution="eager", decode_execution="eager")


def _at_mid_output(case: Case, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Steps of a mean time per token, where its mean token is; others as they are.

    A bound takes the first token of the output, or no context where lengths are means.
    """
    load = case.workload
    if case.quantity != "tpot_ms" or load.prompt_tokens is None or load.output_tokens is None:
        return parts
    context = load.prompt_tokens + load.output_tokens // 2
    return tuple(
        Part(tuple(_after(request, context) for request in part.requests), part.times)
        for part in parts
    )


def _after(request: Request, context: int) -> Request:
    return Request(
        new_tokens=request.new_tokens,
        prefix_tokens=context,
        kind=request.kind,
        count=request.count,
    )


def together(errors: Mapping[str, float]) -> float:
    """Half-width of errors of different laws, which are off independently."""
    return sqrt(fsum(error * error for error in errors.values()))


def _sum(parts: Sequence[tuple[float, Prediction]]) -> Prediction:
    """Steps of one run, each so many times: their errors go together."""
    laws: dict[str, float] = defaultdict(float)
    sizes: dict[str, float] = defaultdict(float)
    for times, one in parts:
        for key, error in one.error_by_law_s.items():
            laws[key] += times * error
        for key, error in one.error_by_size_s.items():
            sizes[key] += times * error
    return Prediction(
        value_s=fsum(times * one.value_s for times, one in parts),
        low_s=fsum(times * one.low_s for times, one in parts),
        high_s=fsum(times * one.high_s for times, one in parts),
        error_by_law_s=laws,
        error_by_size_s=sizes,
        spread=max(one.spread for _, one in parts),
        paths=tuple(
            (times * t, device, host) for times, one in parts for t, device, host in one.paths
        ),
        host_relative=max(one.host_relative for _, one in parts),
        used_cases=frozenset[str]().union(*(one.used_cases for _, one in parts)),
    )
