"""The case of a kernel: its operator, options and sizes in the words of the collectors.

`aisim_v41.coverage` prints it as what to measure, and collected tables are asked by it. The words
are those of docs/collectors-operators.md; sizes that vary from step to step are forms of the
ledger, and what a row sees is a form over its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aisim_v41.estimators.op.laws import Binding, Feature
from aisim_v41.evidence.collected import Asked
from aisim_v41.evidence.laws import LawKind
from aisim_v41.model.cache_rows import CacheRows
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import padded
from aisim_v41.plan.draft import experts_of
from aisim_v41.plan.policy import RuntimePolicy

PER_ROW = {"keys_per_row": "pairs", "positions_per_row": "positions"}
"""Axis of what a row sees, and the feature that it is a share of."""
_NAMES = {"all_reduce_experts": "expert_sum", "all_reduce_mhc": "combine_norm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """What a kernel is, for tables and collectors.

    Attributes:
        operator: its name there.
        options: words.
        sizes: fixed ones.
        axes: that vary; features of the binding by the name of the axis, totals for what a row
            sees.
        library: of a collective; else empty.
    """

    operator: str
    options: Mapping[str, str]
    sizes: Mapping[str, float]
    axes: Mapping[str, Feature]

    def asked(self) -> Asked:
        """What to ask of a table."""
        return Asked(operator=self.operator, options=self.options, sizes=self.sizes,
                     axes=tuple(self.axes))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rank:
    """What is needed of a GPU's part of the model."""

    model: Model
    parallel: Parallel
    policy: RuntimePolicy
    rows: CacheRows


def case_of(binding: Binding, rank: Rank) -> KernelCase:
    """The case of a kernel."""
    rows = {"rows": binding.features["rows"]}
    kind = binding.kind
    if kind is LawKind.PRODUCT:
        return _product(binding, rank, rows)
    if kind is LawKind.EXPERTS:
        return _experts(binding, rank, rows)
    if kind is LawKind.ATTENTION:
        held = padded(rank.model, rank.parallel, rank.policy.sharding)
        return KernelCase(
            operator="sparse_attention", options={"layout": f"bytes{rank.rows.main_bytes}"},
            sizes={"heads": held.attention.heads // rank.parallel.tp},
            axes={**rows, "keys_per_row": binding.features["pairs"]},
        )  # fmt: skip
    if kind in (LawKind.SCORES, LawKind.SELECT):
        return _indexer(binding, rows)
    if kind is LawKind.COLLECTIVE:
        name, _, library = binding.key.partition(".")
        return KernelCase(
            operator=name, options={"library": library},
            sizes={"ranks": float(binding.ranks or 0)},
            axes={"message_bytes": binding.features["message_bytes"]},
        )  # fmt: skip
    if kind is LawKind.HYPER:
        return KernelCase(operator=_site(binding), options={},
                          sizes={"hidden": rank.model.hidden}, axes=rows)  # fmt: skip
    return _passing(binding, rank, rows)


def _product(binding: Binding, rank: Rank, rows: Mapping[str, Feature]) -> KernelCase:
    features = binding.features
    narrow = binding.key != "product.bf16"
    side_by_side = binding.task.replaces and "o_down" in binding.task.replaces
    held = padded(rank.model, rank.parallel, rank.policy.sharding)
    groups = held.attention.o_groups // rank.parallel.tp if side_by_side else 1
    options = {"dtype": "fp8_block32" if narrow else "bf16"}
    if narrow:
        options["operand"] = "quantised" if features.get("quantised") else "bf16"
    return KernelCase(
        operator="gemm", options=options,
        sizes={"outputs": float(features["outputs"]), "inputs": float(features["inputs"]),  # type: ignore[arg-type]
               "groups": float(groups)},
        axes=rows,
    )  # fmt: skip


def _experts(binding: Binding, rank: Rank, rows: Mapping[str, Feature]) -> KernelCase:
    experts = experts_of(rank.model, binding.task.rows.region)
    groups = rank.parallel.ep
    return KernelCase(
        operator="routed_experts", options={"dtype": binding.key.partition(".")[2]},
        sizes={
            "hidden": rank.model.hidden, "expert_width": experts.width,
            "tensor_parallel": rank.parallel.expert_slices,
            "experts_routed": experts.routed // groups,
            "experts_per_token": max(1, experts.top_k // groups),
        },
        axes=rows,
    )  # fmt: skip


def _indexer(binding: Binding, rows: Mapping[str, Feature]) -> KernelCase:
    axes = {**rows, "positions_per_row": binding.features["positions"]}
    pooled = any(column.pooled for column in binding.task.axes)
    if binding.kind is LawKind.SCORES:
        key = "fp4" if binding.key == "scores.fp4" else "fp8"
        form = "candidates" if pooled else "dense"
        return KernelCase(operator="index_score", options={"form": form, "key_format": key},
                          sizes={}, axes=axes)  # fmt: skip
    pool = "candidate_pool" in binding.task.replaces
    return KernelCase(operator="index_select_pool" if pool else "index_select", options={},
                      sizes={}, axes=axes)  # fmt: skip


def _site(binding: Binding) -> str:
    """A kernel over the residual streams, by what it does."""
    names = set(binding.task.replaces)
    part = binding.key.rpartition("_" if "swept" in binding.key else ".")[2]
    collapses = "mhc_collapse" in names
    if part == "pre":
        return "mhc_pre" if collapses else "mhc_statistics"
    if part == "post":
        alone = "mhc_statistics" not in names
        return "mhc_post_collapse" if collapses and alone else "mhc_post"
    return f"mhc_{part}"


def _passing(binding: Binding, rank: Rank, rows: Mapping[str, Feature]) -> KernelCase:
    """A kernel that passes over rows; one that no operator stands for is a small one."""
    task, model, tp = binding.task, rank.model, rank.parallel.tp
    if not binding.features["memory_s"] and not binding.features["compute_s"]:
        return KernelCase(operator="small_kernel", options={}, sizes={}, axes=rows)
    operator = _NAMES.get(task.name, task.name)
    held = padded(model, rank.parallel, rank.policy.sharding)
    options: dict[str, str] = {}
    sizes: dict[str, float] = {}
    if operator in ("site_norm", "site_quantise", "final_norm", "expert_sum", "stream_copy"):
        sizes = {"inputs": model.hidden}
    elif operator == "q_norm":
        sizes = {"inputs": model.attention.q_rank}
    elif operator in ("q_rope", "inverse_rope"):
        sizes = {"heads": held.attention.heads // tp, "inputs": model.attention.head_dim}
    elif operator == "index_query_rope" and model.indexer is not None:
        sizes = {"heads": model.indexer.heads, "inputs": model.indexer.head_dim}
    elif operator == "embedding":
        sizes = {"inputs": model.hidden, "vocabulary": model.vocab // tp}
    elif operator == "engram_lookup":
        sizes = {"ranks_of_table": tp}
    elif operator == "shared_expert":
        sizes = {"inputs": experts_of(model, task.rows.region).width // tp}
    elif operator == "router_select":
        experts = experts_of(model, task.rows.region)
        sizes = {"experts_routed": experts.routed, "experts_per_token": experts.top_k}
    elif operator in ("main_store", "compress_store", "compress_pool"):
        sizes = {"ratio": max((column.ratio for column in task.axes), default=0) or 1}
        if operator != "compress_pool":
            options = {"layout": f"bytes{rank.rows.main_bytes}"}
    elif operator == "kv_store":
        options = {"layout": f"bytes{rank.rows.window_bytes}"}
    elif operator == "index_key_store":
        options = {"key_format": "fp4" if rank.rows.index_bytes == _FP4_KEY_BYTES else "fp8"}
    elif operator in _STREAMS:
        sizes = {"hidden": model.hidden}
    return KernelCase(operator=operator, options=options, sizes=sizes, axes=rows)


_FP4_KEY_BYTES = 68
_STREAMS = ("mhc_collapse", "head_collapse", "combine_norm", "final_collapse_norm",
            "post_combine_norm", "engram_gate", "mhc_expand")  # fmt: skip
