"""Which law prices which task: the bridge from operators to evidence.

A task is one kernel, or a few in a row; each is a `Binding`: the key of a law in the calibration,
and the law's features as linear forms of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.estimators.messages import bytes_by_level, domains_of
from aisim_v41.estimators.op.transfers import transfer_law
from aisim_v41.estimators.resources import Price, Resource
from aisim_v41.evidence.calibration import CalibratedLaw
from aisim_v41.evidence.features import BF16_BYTES, HYPER_PASSES, HyperPart
from aisim_v41.evidence.laws import LawKind
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.ops.operator import Collective, Columns, Family, Task, Traffic
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Number
from aisim_v41.plan.draft import experts_of

Feature = Columns | float
"""A linear form of the ledger, or a constant."""

EXPERT_KEYS = {Arithmetic.MXFP4_MXFP8: "experts.mxfp4", Arithmetic.BF16: "experts.w4a16"}
COEFFICIENTS_OF_PRE = 4 / 9
"""Of the bytes of "pre": four streams read for the coefficients; four read again and one written
to collapse."""
SCORE_BYTES = 4
"""Index scores are kept in FP32 between scoring and selection (runtime-semantics §4.2)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One kernel of a task and the law that prices it.

    Attributes:
        task: the task.
        key: of the law in a calibration.
        kind: form of the law.
        features: what the law takes.
        ranks: GPUs of a collective.
        instead: kernels that do the same work where the calibration has no such law.
        law: the law itself, where the hardware file and not a calibration gives it.
        plain: an ordinary product and nothing else, as tables of products time it.
    """

    task: Task
    key: str
    kind: LawKind
    features: Mapping[str, Feature]
    ranks: int | None = None
    instead: tuple[Binding, ...] = ()
    law: CalibratedLaw | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Routing:
    """What is known of the experts' load beside the counts of the ledger.

    Attributes:
        skew: squared coefficient of variation of the experts' popularity.
        groups: of ranks that hold different experts.
        copies: further copies of experts of a layer.
        imbalance: work of the fullest group over the mean; 0: not known.
    """

    skew: float
    groups: int = 1
    copies: int = 0
    imbalance: float = 0.0


def bindings_of(
    task: Task, cost: Price, hardware: Hardware, engine: str, model: Model, routing: Routing
) -> list[Binding]:
    """The kernels of a task.

    Args:
        task: the task.
        cost: its seconds on each resource at peak, as forms.
        hardware: decides in which precision it can run.
        engine: whose collectives and experts are used.
        model: widths, and experts that a row visits.
        routing: the experts' load.
    """
    compute = _sum(cost.seconds[Resource.TENSOR], cost.seconds[Resource.SCALAR])
    base: dict[str, Feature] = {
        "compute_s": compute,
        "memory_s": cost.seconds[Resource.HBM],
        "rows": {task.rows: task.row_share},
    }
    names = set(task.replaces)
    if task.collective is not None:
        sent = _collective(task, base, engine, hardware)
        return [*sent, *_hyper(task, base, names, hardware, model)]
    if task.products:
        return _products(task, base, hardware)
    if "routed_experts" in names:
        return [_experts(task, base, hardware, model, routing)]
    if "sparse_attention" in names:
        pairs: Columns = dict.fromkeys(task.axes[1:], 1)
        return [Binding(task, "attention", LawKind.ATTENTION, base | {"pairs": pairs})]
    if "index_score" in names:
        return _index(task, base, hardware, names)
    if "index_select" in names:
        features = base | {"positions": {task.axes[1]: 1}}
        return [Binding(task, "select", LawKind.SELECT, features)]
    if task.family is Family.HYPER_CONNECTIONS:
        return _hyper(task, base, names, hardware, model)
    if "engram_fetch" in names:
        return [_transfer(task, base, cost, hardware)]
    if "engram_lookup" in names:
        return [Binding(task, "gather.engram", LawKind.GATHER, base)]
    return [Binding(task, "elementwise", LawKind.ELEMENTWISE, base)]


def _experts(
    task: Task,
    base: Mapping[str, Feature],
    hardware: Hardware,
    model: Model,
    routing: Routing,
) -> Binding:
    """Routed experts of one rank: of the mean group, and what the law needs for the fullest."""
    experts = experts_of(model, task.rows.region)
    features = {
        **base,
        "touched": {task.axes[1]: 1 / routing.groups},
        "top_k": experts.top_k / routing.groups,
        "routed": experts.routed / routing.groups,
        "skew": routing.skew,
    }
    if routing.groups > 1:
        (weights,) = task.traffic[Traffic.WEIGHTS].values()
        features |= {
            "groups": float(routing.groups),
            "copies": routing.copies / routing.groups,
            "imbalance": routing.imbalance,
            "expert_memory_s": weights * routing.groups / hardware.hbm_bandwidth_bytes_per_s,
        }
    (arithmetic,) = task.flops
    key = EXPERT_KEYS.get(Arithmetic(arithmetic), "experts.mxfp4")
    return Binding(task, key, LawKind.EXPERTS, features)


def _hyper(
    task: Task, base: Mapping[str, Feature], names: set[str], hardware: Hardware, model: Model
) -> list[Binding]:
    """Kernels over the residual streams.

    Tables time one site: "pre" makes coefficients and collapses, "post" expands, "fused" does both.
    Where coefficients and collapse are kernels apart, each sweeps the streams once: the share of
    "pre" that reads them for the coefficients stays with the coefficients. A collapse fused to an
    expansion finds the streams on chip and writes its result.
    """
    expands, measures = "mhc_expand" in names, "mhc_statistics" in names
    collapses = "mhc_collapse" in names
    row_s = model.hidden * BF16_BYTES / hardware.hbm_bandwidth_bytes_per_s

    def part(name: HyperPart, passes: float, instead: tuple[Binding, ...] = ()) -> Binding:
        features = {**base, "compute_s": 0.0, "memory_s": {task.rows: passes * row_s}}
        return Binding(task, f"hyper.{name}", LawKind.HYPER, features, instead=instead)

    pre, post = HYPER_PASSES["pre"], HYPER_PASSES["post"]
    if expands and measures:
        apart = (part("pre", pre), part("post", post))
        return [part("fused", HYPER_PASSES["fused"], apart)]
    if measures:
        return [part("pre", pre if collapses else pre * COEFFICIENTS_OF_PRE)]
    if expands:
        return [part("post", post + 1.0 if collapses else post)]
    if names & {"mhc_collapse", "head_collapse"}:
        return [Binding(task, "elementwise.hyper", LawKind.ELEMENTWISE, base)]
    return []


OWN_KERNELS = (Collective.ALL_REDUCE, Collective.ALL_TO_ALL)
"""Collectives for which engines have kernels of their own; NCCL or RCCL do the others."""


def _collective(
    task: Task, base: Mapping[str, Feature], engine: str, hardware: Hardware
) -> list[Binding]:
    """A message: one kernel inside a link domain, and one over the network between domains.

    The message of an all-to-all is what libraries count: the buffer of a rank, with a part for
    every rank and one for itself.
    """
    assert task.collective is not None
    inside, domains = domains_of(hardware, task.group)
    library = engine if task.collective in OWN_KERNELS else "nccl"
    link, network = (1.0, 1.0 / inside)
    if task.scatter is not None:
        sent = bytes_by_level(task.collective, task.scatter, inside, domains, in_network=False)
        link = sent.link * inside / (inside - 1)
        network = sent.network * domains / max(domains - 1, 1)
    silent: dict[str, Feature] = {**base, "compute_s": 0.0, "memory_s": 0.0}

    def part(library: str, ranks: int, share: float) -> Binding:
        features = silent | {"message_bytes": _scaled(task.payload, share), "ranks": float(ranks)}
        key = f"{task.collective}.{library}"
        return Binding(task, key, LawKind.COLLECTIVE, features, ranks)

    across = [part("network", domains, network)] if domains > 1 else []
    return [part(library, inside, link), *across]


def _transfer(task: Task, base: Mapping[str, Feature], cost: Price, hardware: Hardware) -> Binding:
    """Rows from the host, at the rate that the file quotes as achieved, or from a disk."""
    ways = (Resource.HOST_LINK, Resource.DISK)
    way = max(ways, key=lambda r: max(cost.seconds[r].values(), default=0.0))
    features = {**base, "memory_s": cost.seconds[way]}
    law = transfer_law(hardware, str(way))
    return Binding(task, law.key, law.kind, features, law=law)


def _products(task: Task, base: Mapping[str, Feature], hardware: Hardware) -> list[Binding]:
    """Dense products; several in one task share its work by their size."""
    (arithmetic, *_) = task.flops
    _, used = hardware.peak(Arithmetic(arithmetic))
    narrow = used in (Arithmetic.FP8, Arithmetic.FP4, Arithmetic.MXFP4_MXFP8)
    whole = sum(outputs * inputs for outputs, inputs in task.products)
    found = []
    for outputs, inputs in task.products:
        share = outputs * inputs / whole
        features: dict[str, Feature] = {
            "compute_s": _scaled(base["compute_s"], share),
            "memory_s": _scaled(base["memory_s"], share),
            "rows": base["rows"],
            "inputs": float(inputs),
            "outputs": float(outputs),
            "quantised": 1.0 if _arrives_quantised(task) else 0.0,
        }
        key = "product.fp8" if narrow else "product.bf16"
        plain = _is_plain(task, inputs)
        found.append(Binding(task, key, LawKind.PRODUCT, features, plain=plain))
    return found


def _is_plain(task: Task, inputs: int) -> bool:
    """Whether a task is one product of its whole input in BF16: not fused, not in groups."""
    read = sum(factor for form in task.inputs.values() for factor in form.values())
    return len(task.replaces) == len(task.products) == 1 and read == inputs * BF16_BYTES


def _arrives_quantised(task: Task) -> bool:
    """Whether the conversion of the input was another kernel's work."""
    return bool({"quantised", "q_latent_quantised"} & set(task.inputs))


def _index(
    task: Task, base: Mapping[str, Feature], hardware: Hardware, names: set[str]
) -> list[Binding]:
    (arithmetic, *_) = task.flops
    _, used = hardware.peak(Arithmetic(arithmetic))
    key = {Arithmetic.FP4: "scores.fp4", Arithmetic.BF16: "scores.bf16"}.get(used, "scores.fp8")
    features: dict[str, Feature] = {**base, "positions": {task.axes[1]: 1}}
    found = [Binding(task, key, LawKind.SCORES, features)]
    if "index_select" in names:
        read_s = SCORE_BYTES / hardware.hbm_bandwidth_bytes_per_s
        select = {**features, "compute_s": 0.0, "memory_s": {task.axes[1]: read_s}}
        found.append(Binding(task, "select", LawKind.SELECT, select))
    return found


def _scaled(form: Feature, factor: float) -> Feature:
    if isinstance(form, Mapping):
        return {column: value * factor for column, value in form.items()}
    return form * factor


def _sum(first: Columns, second: Columns) -> Columns:
    total: dict[Column, Number] = dict(first)
    for column, value in second.items():
        total[column] = total.get(column, 0) + value
    return total
