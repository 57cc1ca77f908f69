"""What the library says for measured memory and capacities.

Both are counts, not times: weights and buffers of a rank in GiB, tokens in a KV pool. Each comes
from `aisim_v41.memory` with the engine's preset. Where a source leaves the mapping open its
``take`` counts. Row layouts are never stated with a pool, so the engine's own layout on that GPU is
used and named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aisim_v41.hardware import load_hardware
from aisim_v41.memory import CapacityReport, Kind, capacity
from aisim_v41.memory.layouts import DATA_CENTRE_BLACKWELL, ELSEWHERE
from aisim_v41.memory.weights import group_bytes
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.tensor import Tensor, TensorGroup
from aisim_v41.model.tensors import all_tensors
from aisim_v41.plan.policy import policy
from aisim_v41.units import GIB
from aisim_v41.validation.cases import Case
from aisim_v41.validation.setting import ENGINES

ANY_GPU = "b200"
"""GPU of cases that hold on any: nothing that they ask for depends on it."""
VLLM_SM12X = {"page_tokens": 64, "page_counts": "entries", "window_page_rows": 64}
"""vLLM's pages on SM12x (the preset is that of data-centre Blackwell; policies.yaml)."""
EXPERT_GROUPS = frozenset({TensorGroup.ROUTED_EXPERTS, TensorGroup.DRAFT_EXPERTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A counted size, in the unit of the case (GiB or tokens), and what it takes as given."""

    value: float
    assumptions: tuple[str, ...]


def counted(model: Model, case: Case) -> Size | None:
    """The library's figure for a memory or capacity case; None where it has none.

    Raises:
        UnsupportedPlanError: the mapping does not divide the model.
    """
    item = case.workload.item or ""
    if item.startswith("checkpoint:"):
        return _checkpoint(model, item.removeprefix("checkpoint:"))
    if case.engine not in ENGINES:
        return None
    if case.workload.kind == "capacity":
        return _tokens(model, case)
    found = _ITEMS.get(item)
    return None if found is None else found(model, case)


# --- checkpoint -------------------------------------------------------------------------------


def _checkpoint(model: Model, part: str) -> Size | None:
    """A part of the stored tensors; scales are a part of their own, whatever they belong to."""
    keep = _PARTS.get(part)
    if part == "block_scales":
        amount = sum(tensor.scale_bytes for tensor in all_tensors(model))
    elif part == "total":
        amount = sum(tensor.bytes for tensor in all_tensors(model))
    elif keep is not None:
        amount = sum(tensor.element_bytes for tensor in all_tensors(model) if keep(tensor))
    else:
        return None
    return Size(value=amount / GIB, assumptions=("sum over the stored tensors",))


def _is_table(tensor: Tensor) -> bool:
    return tensor.group is TensorGroup.ENGRAM_TABLE


_PARTS: dict[str, Callable[[Tensor], bool]] = {
    "routed_and_draft_experts": lambda t: t.group in EXPERT_GROUPS,
    "engram_values": _is_table,
    # Bytes agree with everything else that has block scales; the label also names the routers.
    "attention_dense_routers": lambda t: (
        bool(t.format.scale_bits) and t.group not in EXPERT_GROUPS and not _is_table(t)
    ),
    "embedding_head_norms": lambda t: not t.format.scale_bits,
}


# --- one rank ---------------------------------------------------------------------------------


def _report(model: Model, case: Case, **fields: Any) -> CapacityReport:
    """Memory of the case's deployment with the engine's preset."""
    engine = ENGINES[case.engine]
    gpu = load_hardware(ANY_GPU if case.gpu == "any" else case.gpu)
    chosen: dict[str, Any] = {
        "engram_residency": case.policy.engram or case.take.get("engram", "hbm"),
        "speculation": "off" if case.policy.speculation is None else "dspark",
        "vision_weights": not case.says("text only"),
    }
    if case.policy.chunk_tokens is not None:
        chosen["chunk_tokens"] = case.policy.chunk_tokens
    layout = policy(engine).kv_layout
    if gpu.architecture not in DATA_CENTRE_BLACKWELL:
        chosen["kv_layout"] = ELSEWHERE.get(layout, layout)
    if engine == "vllm" and gpu.architecture.startswith("sm12"):
        chosen |= VLLM_SM12X
    runtime = policy(engine, **{**chosen, **fields})
    return capacity(model, gpu, _parallel(case), runtime, max_length=case.policy.max_length)


def _parallel(case: Case) -> Parallel:
    stated = {"tp": case.parallel.tp, "ep": case.parallel.ep, "dp": case.parallel.dp}
    return Parallel(
        **{name: int(case.take.get(name, 1)) if value is None else value
           for name, value in stated.items()}
    )  # fmt: skip


def _weights(model: Model, case: Case) -> Size:
    report = _report(model, case)
    text = "without" if case.says("text only") else "with"
    return Size(value=report.weights_bytes / GIB, assumptions=(f"{text} the vision encoder",))


def _table(model: Model, case: Case) -> Size:
    assert model.engram is not None
    one = _tables(model, case).value / len(model.engram.layers)
    return Size(value=one, assumptions=("values and scales; modules taken alike",))


def _tables(model: Model, case: Case) -> Size:
    held = _report(model, case, engram_residency="hbm").bytes_of(Kind.ENGRAM)
    return Size(value=held / GIB, assumptions=("values and scales",))


def _experts(model: Model, case: Case) -> Size:
    rules = policy(ENGINES[case.engine]).sharding
    held = group_bytes(model, _parallel(case), rules)[TensorGroup.ROUTED_EXPERTS]
    pad = rules.expert_slice_multiple
    return Size(value=held / GIB, assumptions=(f"slices padded to a multiple of {pad}",))


def _index_scores(model: Model, case: Case) -> Size | None:
    """Rows of a step times the longest context; the name of such a case says the rows."""
    rows = case.policy.chunk_tokens or _rows_in_name(case.name)
    if rows is None:
        return None
    report = _report(model, case, chunk_tokens=rows, index_workspace="full")
    held = sum(term.bytes for term in report.budget.terms if term.name == "index scores")
    return Size(value=held / GIB, assumptions=("kept whole, one score a key of ratio 1",))


def _rows_in_name(name: str) -> int | None:
    last = name.rsplit("-", 1)[-1].split("x")[0]
    return int(last) if last.isdigit() else None


def _kv_pool(model: Model, case: Case) -> Size:
    report = _report(model, case)
    return Size(value=report.kv_bytes / GIB, assumptions=("the preset's memory fraction",))


_ITEMS: dict[str, Callable[[Model, Case], Size | None]] = {
    "weights_per_rank": _weights,
    "weights_plus_nontorch_per_rank": _weights,
    "engram_per_rank": _tables,
    "engram_per_rank_per_table": _table,
    "experts_per_rank": _experts,
    "indexer_logits_buffer": _index_scores,
    "kv_pool_per_rank": _kv_pool,
}


# --- KV pool ----------------------------------------------------------------------------------


def _tokens(model: Model, case: Case) -> Size | None:
    """Tokens of a pool of a stated size, counted as the engine prints them."""
    if case.workload.pool_gib is None or case.workload.item != "kv_tokens":
        return None
    report = _report(model, case)
    pool, held = report.pool, int(case.workload.pool_gib * GIB)
    notes = [f"rows of layout {pool.layout}"]
    if pool.window.kind == "per_request":
        length = case.policy.max_length or model.max_context
        notes.append(f"concurrency times the longest context of {length} tokens")
        return Size(value=float(pool.concurrency(held, length) * length), assumptions=tuple(notes))
    notes.append("windows of one running request")
    return Size(value=float(pool.tokens_for(held, 1)), assumptions=tuple(notes))
