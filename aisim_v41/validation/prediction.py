"""What OP says for one reading of a measured case, with its band.

A whole step, prompt or token is asked through `aisim_v41.estimate`, so that the figure is the one
that a user gets. A group of kernels is the sum of its kernels' times, without host and overlap, as
a profiler sums them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, hypot, sqrt

from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.op import OpForward
from aisim_v41.estimators.op_compiled import CompiledOp, compiled_op
from aisim_v41.estimators.result import Estimate
from aisim_v41.model.description import Model
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
        spread: half-width that engine builds add, as a share of the time.
        used_cases: cases whose measured kernels the laws of this GPU were made from.
    """

    value_s: float
    low_s: float
    high_s: float
    error_by_law_s: Mapping[str, float]
    spread: float = 0.0
    used_cases: frozenset[str] = frozenset()


def predict(model: Model, conversion: Conversion, way: Way) -> Prediction:
    """One reading of a case.

    Raises:
        UnsupportedPlanError: OP does not know the mapping.
        MissingProfileError: nor the GPU.
    """
    case, machine = conversion.case, conversion.machine
    policy = executed(case, way.preset)
    parts = _at_mid_output(case, way.parts)
    compiled = compiled_op(model, machine.packaged, machine.parallel, policy)
    whole = conversion.group is None and case.quantity != KERNEL_SUM
    asked: dict[int, Prediction] = {}
    found = []
    for place, part in enumerate(parts):
        like = _sample(place, len(parts)) if whole else place
        if like not in asked:
            plan = Plan(model, parts[like].requests, parallel=machine.parallel, policy=policy)
            answer = estimate(plan, machine.packaged, method="op")
            asked[like] = _step(answer) if whole else _kernels(answer, conversion.group)
        one = asked[like]
        if like != place:
            one = _scaled(one, compiled(part.requests) / one.value_s)
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
    )


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


def _step(answer: Estimate) -> Prediction:
    """The whole answer."""
    errors = _errors(answer)
    return Prediction(
        value_s=answer.latency_s,
        low_s=answer.band_s[0],
        high_s=answer.band_s[1],
        error_by_law_s=errors,
        spread=_spread(answer, errors),
        used_cases=_used_cases(answer),
    )


def _kernels(answer: Estimate, group: KernelGroup | None) -> Prediction:
    """The sum of a group's kernels, or of all of them."""
    every, inside = _calls(answer, None), _calls(answer, group)
    shares = {place: inside.get(place, 0.0) / calls for place, calls in every.items()}
    compiled = answer.breakdown.compiled
    value = fsum(
        forward.times * inside[id(task)] * forward.task_seconds(task)
        for forward in answer.breakdown.forwards
        for task in compiled.tasks
        if id(task) in inside
    )
    errors, spread = _errors(answer, shares), _spread(answer, _errors(answer))
    half = hypot(_together(errors), spread * value)
    return Prediction(
        value_s=value,
        low_s=max(0.0, value - half),
        high_s=value + half,
        error_by_law_s=errors,
        spread=spread,
        used_cases=_used_cases(answer),
    )


def _spread(answer: Estimate, errors: Mapping[str, float]) -> float:
    """What widens the band of a whole answer beyond its laws, as a share of the time: builds."""
    half, laws = answer.band_s[1] - answer.latency_s, _together(errors)
    return sqrt(max(0.0, half * half - laws * laws)) / answer.latency_s


def _calls(answer: Estimate, group: KernelGroup | None) -> Mapping[int, float]:
    """Calls of each task inside a group, by identity; a mean over its layers where it is one's."""
    compiled = answer.breakdown.compiled
    one = 1 / len(group.layers) if group is not None and group.each else 1.0
    found: dict[int, float] = {}
    for step in (*compiled.backbone.chain, *compiled.backbone.beside):
        for task in compiled.tasks_in(step.node):
            inside = group is None or (
                group.holds(task) and (not group.layers or step.layer in group.layers)
            )
            if inside:
                found[id(task)] = found.get(id(task), 0.0) + one
    return found


def _errors(answer: Estimate, shares: Mapping[int, float] | None = None) -> Mapping[str, float]:
    """Half-width of the 90 % band that each law adds [s].

    Args:
        answer: the estimate.
        shares: share of each task's calls that count, by identity; all of all when left out.
    """
    laws: dict[str, float] = defaultdict(float)
    for forward in answer.breakdown.forwards:
        assert isinstance(forward, OpForward)
        for kernel in forward.kernels:
            share = 1.0 if shares is None else shares[id(kernel.task)]
            laws[kernel.law.key] += forward.times * share * kernel.seconds * kernel.error_p90
    return laws


def _used_cases(answer: Estimate) -> frozenset[str]:
    """Cases whose kernel rows the GPU's laws were made from."""
    compiled = answer.breakdown.compiled
    assert isinstance(compiled, CompiledOp)
    return compiled.calibration.used_cases


def executed(case: Case, policy: RuntimePolicy) -> RuntimePolicy:
    """The policy with the execution that the case states.

    Only an eager host is stated apart: "graph" is what presets do for decode steps, and a kernel
    group has no host. The one place that switches the host on.
    """
    if case.execution != "eager" or case.usable == "zero_shot":
        return policy
    return policy.with_overrides(prefill_execution="eager", decode_execution="eager")


def ratio(first: Prediction, second: Prediction) -> Prediction:
    """``first / second``, of one machine and build, as numbers in place of seconds.

    A law that is off is off on both sides. Builds differ by launches and small kernels, of which
    both sides have the same: a build adds one time to both, at most the spread of the shorter. So
    the ratio moves by spread x (1 - shorter / longer).
    """
    keys = {*first.error_by_law_s, *second.error_by_law_s}
    relative = {
        key: first.error_by_law_s.get(key, 0.0) / first.value_s
        - second.error_by_law_s.get(key, 0.0) / second.value_s
        for key in keys
    }
    value = first.value_s / second.value_s
    spread = max(first.spread, second.spread) * (1 - min(value, 1 / value))
    half = value * hypot(_together(relative), spread)
    return Prediction(
        value_s=value,
        low_s=value - half,
        high_s=value + half,
        error_by_law_s={key: abs(value * error) for key, error in relative.items()},
        spread=spread,
        used_cases=first.used_cases | second.used_cases,
    )


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


def _together(errors: Mapping[str, float]) -> float:
    """Different laws are off independently."""
    return sqrt(fsum(error * error for error in errors.values()))


def _sum(parts: Sequence[tuple[float, Prediction]]) -> Prediction:
    """Steps of one run, each so many times: their errors go together."""
    laws: dict[str, float] = defaultdict(float)
    for times, one in parts:
        for key, error in one.error_by_law_s.items():
            laws[key] += times * error
    return Prediction(
        value_s=fsum(times * one.value_s for times, one in parts),
        low_s=fsum(times * one.low_s for times, one in parts),
        high_s=fsum(times * one.high_s for times, one in parts),
        error_by_law_s=laws,
        spread=max(one.spread for _, one in parts),
        used_cases=frozenset[str]().union(*(one.used_cases for _, one in parts)),
    )
