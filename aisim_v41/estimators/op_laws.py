"""Which law prices which task: the bridge from operators to evidence.

A task is one kernel, or a few in a row; each is a `Binding`: the key of a law in the calibration,
and the law's features as linear forms of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.estimators.resources import Price, Resource
from aisim_v41.evidence.laws import LawKind
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import Collective, Columns, Family, Task
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Number

Feature = Columns | float
"""A linear form of the ledger, or a constant."""

EXPERT_KEYS = {Arithmetic.MXFP4_MXFP8: "experts.mxfp4", Arithmetic.BF16: "experts.w4a16"}
HYPER_READS = {"mhc_collapse", "mhc_statistics", "site_norm", "head_collapse"}


@dataclass(frozen=True, slots=True)
class Binding:
    """One kernel of a task and the law that prices it."""

    task: Task
    key: str
    kind: LawKind
    features: Mapping[str, Feature]
    ranks: int | None = None


def bindings_of(
    task: Task, cost: Price, hardware: Hardware, engine: str, experts: tuple[int, int]
) -> list[Binding]:
    """The kernels of a task.

    Args:
        task: the task.
        cost: its seconds on each resource at peak, as forms.
        hardware: decides in which precision it can run.
        engine: whose collectives and experts are used.
        experts: experts a row visits, and routed experts, of one rank.
    """
    compute = _sum(cost.seconds[Resource.TENSOR], cost.seconds[Resource.SCALAR])
    base: dict[str, Feature] = {
        "compute_s": compute,
        "memory_s": cost.seconds[Resource.HBM],
        "rows": {task.rows: 1},
    }
    names = set(task.replaces)
    if task.collective is not None:
        return _collective(task, base, engine, names)
    if task.products:
        return _products(task, base, hardware)
    if "routed_experts" in names:
        top_k, routed = experts
        features = base | {"touched": {task.axes[1]: 1}, "top_k": top_k, "routed": routed}
        (arithmetic,) = task.flops
        key = EXPERT_KEYS.get(Arithmetic(arithmetic), "experts.mxfp4")
        return [Binding(task, key, LawKind.EXPERTS, features)]
    if "sparse_attention" in names:
        pairs: Columns = dict.fromkeys(task.axes[1:], 1)
        return [Binding(task, "attention", LawKind.ATTENTION, base | {"pairs": pairs})]
    if "index_score" in names:
        return _index(task, base, hardware, names)
    if "index_select" in names:
        features = base | {"positions": {task.axes[1]: 1}}
        return [Binding(task, "select", LawKind.SELECT, features)]
    if names & (HYPER_READS | {"mhc_expand"}) and task.family is Family.HYPER_CONNECTIONS:
        return [Binding(task, _hyper_key(names), LawKind.HYPER, base)]
    if "engram_lookup" in names:
        return [Binding(task, "gather.engram", LawKind.GATHER, base)]
    return [Binding(task, "elementwise", LawKind.ELEMENTWISE, base)]


def _hyper_key(names: set[str]) -> str:
    reads = bool(names & HYPER_READS)
    if "mhc_expand" in names:
        return "hyper.fused" if reads else "hyper.post"
    return "hyper.pre" if "mhc_statistics" in names else "elementwise.hyper"


def _collective(
    task: Task, base: Mapping[str, Feature], engine: str, names: set[str]
) -> list[Binding]:
    """A message, and what the same kernel does to the streams beside it."""
    name = "all_reduce" if task.collective is Collective.ALL_REDUCE else "all_gather"
    library = engine if name == "all_reduce" else "nccl"
    silent: dict[str, Feature] = {**base, "compute_s": 0.0, "memory_s": 0.0}
    features = silent | {"message_bytes": task.payload, "ranks": float(task.group)}
    found = [Binding(task, f"{name}.{library}", LawKind.COLLECTIVE, features, task.group)]
    if names & (HYPER_READS | {"mhc_expand"}):
        found.append(Binding(task, _hyper_key(names), LawKind.HYPER, base))
    return found


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
        found.append(Binding(task, key, LawKind.PRODUCT, features))
    return found


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
        found.append(Binding(task, "select", LawKind.SELECT, {**features, "compute_s": 0.0}))
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
