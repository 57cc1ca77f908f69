"""How long encoding images takes: once, before the prefill that holds their tokens.

An encode is no step: image sizes decide its work, not positions, so it has an estimate of its own
beside `estimate`, from the same laws and bounds (docs/updates.md, "Native vision").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.encode_result import (
    EncodeBounds,
    EncodeEstimate,
    EncodeMemory,
    EncodeRow,
    Ranks,
)
from aisim_v41.estimators.messages import link_bandwidth
from aisim_v41.estimators.op.compiled import ENGINE_OF_POLICY
from aisim_v41.estimators.op.estimator import MOST_ERROR
from aisim_v41.estimators.op.evidence import KernelEvidence, evidence_of
from aisim_v41.estimators.op.laws import Binding, Routing, bindings_of
from aisim_v41.estimators.resources import Resource, price
from aisim_v41.evidence.calibration import Calibration, load_calibration
from aisim_v41.evidence.laws import LawKind
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.layers import LayerKind
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.vision import ImageGrid, image_grid
from aisim_v41.ops.operator import Family, Operator, Task, Traffic, place
from aisim_v41.ops.vision import EncodeOperator, divides, encode_operators, gather_embeddings
from aisim_v41.ops.vision import vision_of as encoder_of
from aisim_v41.ops.vision_memory import activation_bytes, embedding_bytes, weight_bytes
from aisim_v41.ops.vision_runs import BATCHINGS, Batching, balanced, encode_runs
from aisim_v41.plan.columns import LayerClass
from aisim_v41.plan.counts import Count
from aisim_v41.plan.mappings import check_mapping_is_modelled
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.policy import policy as preset
from aisim_v41.plan.spans import Region

Execution = Literal["eager", "graph"]
RANKS: tuple[Ranks, ...] = ("copies", "tensor", "images")
METHODS = ("auto", "sol", "op")
HOST_ERROR = 0.5
"""90 % error of an encode's host time: kernels that an engine runs as several calls (norms and
rotations in plain tensor operations) against those that it fuses. docs/assumptions.md, "Vision"."""
ATTENTION_LAW = "attention.dense"
_NO_EXPERTS = Routing(skew=0.0)
_WHERE = LayerClass(LayerKind.WINDOW_ONLY, 0, Region.FULL, False)
"""Any layer class: an encode has rows and nothing else of a layer."""


def encode(
    model: Model,
    images: Sequence[tuple[int, int] | ImageGrid],
    hardware: Hardware,
    method: str = "auto",
    *,
    parallel: Parallel | None = None,
    policy: RuntimePolicy | None = None,
    ranks: Ranks | None = None,
    batching: Batching | None = None,
    execution: Execution = "eager",
) -> EncodeEstimate:
    """How long the vision encoder and its projector take for a batch of images.

    Args:
        model: with a vision encoder.
        images: width and height of each as given [pixel], or grids from `image_grid`.
        hardware: from `load_hardware`.
        method: "op" (measured and stated laws, with a band), "sol" (a lower bound), "auto" ("op").
        parallel: ``tp`` ranks share the encode; other dimensions are replicas of them.
        policy: whose engine runs it; its ``chunk_tokens`` is the largest captured run.
        ranks: every rank encodes all images ("copies"), heads and widths are cut over the ranks
            ("tensor"), or whole images are spread over them ("images"). By default "tensor" under
            vLLM where the ranks divide the encoder, else "copies".
        batching: "one_by_one" or "packed"; by default eager runs take one image, graphs all.
        execution: "eager", or "graph": a captured run, filled up to its captured tokens.

    Raises:
        InvalidInputError: an argument that is none of these, or an impossible size.
        OutOfRangeError: an image so long that nothing is left of it.
        UnsupportedPlanError: no vision encoder, ranks that do not divide it, a mapping without
            steps, or images larger than every graph.
        MissingProfileError: nothing is known about kernels of this GPU or its family.

    Example:
        >>> import aisim_v41 as aisim
        >>> model = aisim.load_model("deepseek-v4.1-flash")
        >>> found = encode(model, [(1024, 768)], aisim.load_hardware("gb300"), "sol")
        >>> found.tokens, found.embedding_bytes
        (496, 5079040)
    """
    if method not in METHODS:
        known = " (no whole encodes were measured)" if method == "fpm" else ""
        raise InvalidInputError(f"method = {method!r}: must be one of {', '.join(METHODS)}{known}")
    vision = encoder_of(require_step_model(model))
    parallel = Parallel() if parallel is None else parallel
    runtime = preset("paper") if policy is None else policy
    for name, given, expected in (
        ("hardware", hardware, Hardware),
        ("parallel", parallel, Parallel),
        ("policy", runtime, RuntimePolicy),
    ):
        if not isinstance(given, expected):
            raise InvalidInputError(f"{name} = {given!r}: must be a {expected.__name__}")
    check_mapping_is_modelled(parallel)
    tp = parallel.tp
    cut = divides(vision, model.hidden, tp)
    if ranks is None:
        ranks = "tensor" if runtime.name == "vllm" and cut and tp > 1 else "copies"
    if batching is None:
        batching = "packed" if execution == "graph" else "one_by_one"
    for name, value, allowed in (
        ("ranks", ranks, RANKS),
        ("batching", batching, BATCHINGS),
        ("execution", execution, ("eager", "graph")),
    ):
        if value not in allowed:
            raise InvalidInputError(f"{name} = {value!r}: must be one of {', '.join(allowed)}")
    try:
        listed = list(images)
    except TypeError:
        raise InvalidInputError(f"images = {images!r}: must be a list of sizes") from None
    grids = tuple(_grid(model, place, image) for place, image in enumerate(listed))
    asked = _Encode(model, grids, hardware, tp, runtime, ranks, batching, execution)
    return asked.estimate("op" if method == "auto" else method)


def _grid(model: Model, place: int, image: object) -> ImageGrid:
    if isinstance(image, ImageGrid):
        return image
    if not isinstance(image, (tuple, list)) or len(image) != 2:
        raise InvalidInputError(
            f"images[{place}] = {image!r}: must be (width, height) in pixels, or an ImageGrid"
        )
    return image_grid(model, *image)


@dataclass(frozen=True, slots=True)
class _Spent:
    """What one operator takes in all its calls of all runs."""

    operator: EncodeOperator
    times: int
    seconds: float
    peak_s: float
    bound: Resource
    tag: str
    law: str
    error: float


class _Encode:
    """One batch on one mapping."""

    def __init__(
        self, model: Model, images: tuple[ImageGrid, ...], hardware: Hardware, tp: int,
        runtime: RuntimePolicy, ranks: Ranks, batching: Batching, execution: Execution,
    ) -> None:  # fmt: skip
        self.model, self.images, self.hardware = model, images, hardware
        self.tp, self.runtime, self.ranks = tp, runtime, ranks
        self.batching, self.execution = batching, execution
        self.engine = ENGINE_OF_POLICY.get(runtime.name, "sglang")
        self.cut = tp if ranks == "tensor" else 1
        if tp > 1 and ranks != "copies":
            link_bandwidth(hardware, tp)

    def of_ranks(self) -> list[tuple[ImageGrid, ...]]:
        """Images of each rank whose work differs."""
        if self.ranks == "images":
            return list(balanced(self.images, self.tp))
        return [self.images]

    def operators(self, images: Sequence[ImageGrid]) -> Iterator[tuple[EncodeOperator, int]]:
        """Operators of one rank with the number of runs that have them, in order."""
        limit = self.runtime.chunk_tokens if self.execution == "graph" else 0
        for run in encode_runs(images, self.batching, captured_up_to=limit):
            for operator in encode_operators(
                self.model, run.images, ranks=self.cut, captured_tokens=run.captured_tokens
            ):
                yield operator, run.times
        if self.ranks == "images" and self.tp > 1 and self.images:
            most = max(sum(i.cells for i in own) for own in self.of_ranks())
            yield gather_embeddings(self.model, most, self.tp), 1

    def estimate(self, method: str) -> EncodeEstimate:
        calibration = load_calibration(self.hardware, self.engine) if method == "op" else None
        found = [
            [self._spent(op, times, calibration) for op, times in self.operators(images)]
            for images in self.of_ranks()
        ]
        bounds = EncodeBounds(
            resource_s=max(self._resource_bound(spent) for spent in found),
            graph_s=max(_graph_bound(spent) for spent in found),
        )
        slowest = max(found, key=lambda spent: sum(one.seconds for one in spent))
        kernels_s = sum(one.seconds for one in slowest)
        host_s = 0.0
        if calibration is not None and self.execution == "eager":
            calls = max(sum(s.times * s.operator.calls for s in spent) for spent in found)
            host_s = calls * calibration.launch.framework_call_s
        latency = max(kernels_s, host_s, bounds.graph_s)
        if method == "sol":
            latency, band = bounds.graph_s, (bounds.graph_s, np.inf if self.images else 0.0)
        else:
            band = _band(slowest, latency, host_s, bounds.graph_s)
        return EncodeEstimate(
            model=self.model, images=self.images, hardware=self.hardware, method=method,
            tp=self.tp, policy=self.runtime.name, ranks=self.ranks, batching=self.batching,
            execution=self.execution, latency_s=latency, band_s=band, bounds=bounds,
            kernels_s=kernels_s if method == "op" else 0.0, host_s=host_s,
            source_share=_shares(slowest, latency if method == "op" else bounds.graph_s),
            rows=tuple(_rows(slowest)), memory=self._memory(),
            rank_images=tuple(len(own) for own in self.of_ranks()),
        )  # fmt: skip

    def _memory(self) -> EncodeMemory:
        largest = 0
        limit = self.runtime.chunk_tokens if self.execution == "graph" else 0
        for images in self.of_ranks():
            for run in encode_runs(images, self.batching, captured_up_to=limit):
                size = activation_bytes(
                    self.model, run.images, ranks=self.cut, captured_tokens=run.captured_tokens
                )
                largest = max(largest, size)
        return EncodeMemory(
            weight_bytes=weight_bytes(self.model, ranks=self.cut),
            activation_bytes=largest,
            embedding_bytes=embedding_bytes(self.model, self.images),
        )

    # --- prices -------------------------------------------------------------------------------

    def _peaks(self, operator: EncodeOperator) -> dict[Resource, float]:
        """Seconds of one call on each resource at peak."""
        cost = price(_task(operator), self.hardware)
        return {
            resource: sum(
                factor * (operator.rows if column.quantity is Count.QUERY_ROWS else 1)
                for column, factor in form.items()
            )
            for resource, form in cost.seconds.items()
        }

    def _spent(
        self, operator: EncodeOperator, times: int, calibration: Calibration | None
    ) -> _Spent:
        peaks = self._peaks(operator)
        bound = max(peaks, key=lambda resource: peaks[resource])
        peak_s = peaks[bound]
        seconds, tag, law, error = peak_s, "theoretical", "peak", 0.0
        if calibration is not None:
            kernel = self._kernel(operator, calibration)
            alone = float(kernel.seconds_of_rows(np.array([float(operator.rows)]))[0])
            seconds = max(alone, peak_s)
            tag, error, _ = kernel.tag(float(operator.rows))
            law = kernel.law.key
        calls = times * operator.calls
        return _Spent(operator, times, calls * seconds, calls * peak_s, bound, tag, law, error)

    def _kernel(self, operator: EncodeOperator, calibration: Calibration) -> KernelEvidence:
        task = _task(operator)
        if operator.family is Family.ATTENTION:
            peaks = self._peaks(operator)
            binding = Binding(
                task, ATTENTION_LAW, LawKind.ATTENTION,
                {
                    "compute_s": peaks[Resource.TENSOR], "memory_s": peaks[Resource.HBM],
                    "rows": {task.rows: 1}, "pairs": float(operator.pairs),
                },
            )  # fmt: skip
        else:
            cost = price(task, self.hardware)
            (binding,) = bindings_of(
                task, cost, self.hardware, self.engine, self.model, _NO_EXPERTS
            )
        return next(evidence_of(binding, calibration, self.hardware))

    def _resource_bound(self, spent: Sequence[_Spent]) -> float:
        """Work that no fusion avoids over the peak of each resource: products and attention, their
        weights once, messages."""
        busy: dict[Resource, float] = defaultdict(float)
        weights: dict[str, int] = {}
        for one in spent:
            if one.operator.family is Family.ELEMENTWISE:
                continue
            peaks = self._peaks(one.operator)
            calls = one.times * one.operator.calls
            for resource in (Resource.TENSOR, Resource.LINK, Resource.NETWORK):
                busy[resource] += calls * peaks[resource]
            if one.operator.traffic:
                weights[one.operator.name] = (
                    one.operator.calls * one.operator.traffic[Traffic.WEIGHTS]
                )
        busy[Resource.HBM] = sum(weights.values()) / self.hardware.hbm_bandwidth_bytes_per_s
        return max(busy.values())


def _task(operator: EncodeOperator) -> Task:
    """The operator as a task whose forms are those of its rows."""
    rows = max(operator.rows, 1)
    traffic = operator.traffic

    made = Operator(
        name=operator.name,
        family=operator.family,
        flops={kind: flop / rows * Count.QUERY_ROWS for kind, flop in operator.flops.items()},
        weights=traffic.get(Traffic.WEIGHTS, 0) * Count.ACTIVE,
        inputs={"read": traffic.get(Traffic.ACTIVATION_READ, 0) / rows * Count.QUERY_ROWS},
        outputs={"written": traffic.get(Traffic.ACTIVATION_WRITE, 0) / rows * Count.QUERY_ROWS},
        collective=operator.collective,
        payload=operator.payload / rows * Count.QUERY_ROWS,
        group=operator.group,
        products=() if operator.product is None else (operator.product,),
        source=operator.source,
    )
    return place(made, _WHERE)


def _graph_bound(spent: Sequence[_Spent]) -> float:
    """Rooflines one after another; norms, rotations and sums ride along with their neighbours."""
    return sum(one.peak_s for one in spent if one.operator.family is not Family.ELEMENTWISE)


def _band(
    spent: Sequence[_Spent], latency: float, host_s: float, floor: float
) -> tuple[float, float]:
    """Interval that should hold the time: kernels of one law are off together, laws apart."""
    by_law: dict[str, float] = defaultdict(float)
    shorter = longer = 0.0
    for one in spent:
        by_law[one.law] += min(one.error, MOST_ERROR) * one.seconds
    seconds: dict[str, float] = defaultdict(float)
    for one in spent:
        seconds[one.law] += one.seconds
    for law, off in by_law.items():
        error = off / seconds[law] if seconds[law] else 0.0
        shorter += (seconds[law] * error / (1.0 + error)) ** 2
        longer += (seconds[law] * error / (1.0 - error)) ** 2
    kernels = sum(seconds.values())
    low = max(kernels - shorter**0.5, host_s * (1.0 - HOST_ERROR), floor)
    high = max(kernels + longer**0.5, host_s * (1.0 + HOST_ERROR))
    return (min(low, latency), max(high, latency))


def _shares(spent: Sequence[_Spent], latency: float) -> Mapping[str, float]:
    """Share of the time by kind of evidence, and of what the host adds."""
    kernels = sum(one.seconds for one in spent)
    if not latency or not kernels:
        return {}
    total: dict[str, float] = defaultdict(float)
    if latency > kernels:
        total["host"] = 1.0 - kernels / latency
    for one in spent:
        total[one.tag] += one.seconds / max(latency, kernels)
    return dict(sorted(total.items()))


def _rows(spent: Sequence[_Spent]) -> Iterator[EncodeRow]:
    """One row an operator, its runs together."""
    together: dict[str, list[_Spent]] = defaultdict(list)
    for one in spent:
        together[one.operator.name].append(one)
    for name, members in together.items():
        calls = [one.times * one.operator.calls for one in members]
        longest = max(members, key=lambda one: one.seconds)
        yield EncodeRow(
            operator=name,
            family=str(longest.operator.family),
            calls=sum(calls),
            rows=sum(one.times * one.operator.rows for one in members),
            flop=sum(
                n * sum(o.operator.flops.values()) for n, o in zip(calls, members, strict=True)
            ),
            bytes=sum(
                n * sum(o.operator.traffic.values()) for n, o in zip(calls, members, strict=True)
            ),
            message_bytes=sum(n * o.operator.payload for n, o in zip(calls, members, strict=True)),
            seconds=sum(one.seconds for one in members),
            bound=str(longest.bound),
            source=longest.tag,
        )
