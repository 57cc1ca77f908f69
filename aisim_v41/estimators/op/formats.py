"""Kernels that OP prices in a number format in which none of their kind was measured.

The law keeps its efficiency at the bytes and the peak of the format that is asked for; the answer
says so ("rescaled"), and its error grows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aisim_v41.model.description import Model
from aisim_v41.model.precision import AS_STORED, Precision
from aisim_v41.ops.operator import Task
from aisim_v41.plan.spans import Region

OPERATORS: Final = {
    "main_kv": ("sparse_attention",),
    "window_kv": ("sparse_attention",),
    "index_key": ("index_score",),
    "expert_weights": ("routed_experts",),
    "expert_activations": ("routed_experts",),
    "dense": (
        "q_down", "q_up", "kv_down", "o_down", "o_up", "index_query", "shared_expert",
        "engram_project",
    ),
    "wo_a": ("o_down",),
    "engram_rows": ("engram_lookup",),
    "draft": ("q_down", "q_up", "kv_down", "o_down", "o_up", "shared_expert", "routed_experts"),
    "head": ("output_head",),
}  # fmt: skip
"""Elementary operators that read what a role stores. Stores and conversions are priced by bytes."""
_DRAFT: Final = (Region.DRAFT, Region.DRAFT_CONTEXT, Region.DRAFT_CHAIN)
_PRODUCTS: Final = ("dense", "wo_a", "head", "draft")
"""Roles of ordinary products, which have laws in BF16 and FP8."""


def foreign_format(task: Task, model: Model) -> str:
    """What a task's law was not measured in; empty where it was, or no format was set."""
    formats = model.formats.roles
    if formats is AS_STORED:
        return ""
    drafts = task.rows.region in _DRAFT
    for role, operators in OPERATORS.items():
        given: Precision | None = getattr(formats, role)
        own = drafts == (role == "draft") or role in ("window_kv", "head")
        if given is None or not own or not set(operators) & set(task.replaces):
            continue
        routed = "routed_experts" in task.replaces
        if role in _PRODUCTS and given.bits >= 8 and not routed:
            continue
        stored = replace(model.formats.experts, name=str(given))
        if role != "expert_activations" and given.matrix() == stored and routed:
            continue
        return f"{role}={given}: no kernel of this format was measured; its law is rescaled"
    return ""
