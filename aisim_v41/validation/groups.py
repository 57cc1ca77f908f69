"""Which operators a measured group of kernels holds for certain.

Profilers sort kernels by name, and sources draw the lines between groups differently: a projection
may count as indexer, compressor or dense GEMM. So each group has two sets: the operators that are
in it whoever sorted (its floor), and the family of operators that reports call by that name (its
graph bound).
"""

from __future__ import annotations

from dataclasses import dataclass

from aisim_v41.ops.operator import Family

FIRST_LAYER = (0,)
ENGRAM_OWNERS = (2, 8, 14)
"""Full layers of ratio 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """Operators behind one measured sum of kernel times.

    Attributes:
        operators: elementary operators that are certainly inside.
        families: families whose kernels, fused as the policy fuses, are compared in graph form.
        names: of these, only kernels that do the work of one of these operators; empty: all.
        layers: layers that count; empty: all.
        each: the value is one layer's, the mean over ``layers``.
    """

    operators: frozenset[str]
    families: frozenset[Family]
    names: frozenset[str] = frozenset()
    layers: tuple[int, ...] = ()
    each: bool = False


def _group(
    operators: str,
    *families: Family,
    names: str = "",
    layers: tuple[int, ...] = (),
    each: bool = False,
) -> KernelGroup:
    return KernelGroup(
        operators=frozenset(operators.split()),
        families=frozenset(families),
        names=frozenset(names.split()),
        layers=layers,
        each=each,
    )


RATIO_2_OWNERS, LAST_OWNER, REINDEX = (2, 8, 14), (20,), (24, 28, 32, 36)
_DENSE = "q_down q_up kv_down o_up"
_SCORE = "index_score"
_ALL_INDEX = "index_query index_query_rope index_weights index_score index_select"

GROUPS: dict[str, KernelGroup | None] = {
    "sum": None,
    "target_graph": None,
    # The shared expert may be sorted under dense GEMM, the router's GEMM too.
    "moe": _group("routed_experts", Family.EXPERTS, names="routed_experts"),
    "moe_layer": _group(
        "routed_experts", Family.EXPERTS, names="routed_experts", layers=FIRST_LAYER
    ),
    "dense_gemm": _group(_DENSE, Family.PROJECTION),
    "sparse_attention": _group("sparse_attention", Family.ATTENTION),
    "attention_incl_indexer": _group(
        f"{_DENSE} o_down sparse_attention {_SCORE}",
        Family.PROJECTION, Family.ATTENTION, Family.INDEXER, Family.COMPRESSOR,
    ),
    "mhc": _group("mhc_statistics mhc_collapse mhc_expand", Family.HYPER_CONNECTIONS),
    "engram": _group("engram_project engram_gate", Family.ENGRAM),
    # Its projections may be sorted under dense GEMM.
    "compressor": _group("compress_pool main_store index_key_store", Family.COMPRESSOR),
    "comm": _group("all_reduce_attention all_reduce_experts", Family.COLLECTIVE),
    "indexer": _group(_SCORE, Family.INDEXER),
    "indexer_score": _group(_SCORE, Family.INDEXER, names=_SCORE),
    "indexer_select": _group("", Family.INDEXER, Family.ELEMENTWISE, names="index_select"),
}  # fmt: skip
"""By the name after ``kernel_ms:``. None: every kernel of the step."""

for _suffix, _layers in (
    ("l2_8_14_each", RATIO_2_OWNERS),
    ("l20", LAST_OWNER),
    ("l24_28_32_36_each", REINDEX),
):
    for _name in ("indexer", "indexer_score", "indexer_select"):
        _whole = GROUPS[_name]
        assert _whole is not None
        GROUPS[f"{_name}_{_suffix}"] = KernelGroup(
            operators=_whole.operators,
            families=_whole.families,
            names=_whole.names,
            layers=_layers,
            each=True,
        )

UNNAMED = frozenset({"other", "rest"})
DRAFT = frozenset({"sampling_draft", "draft_graph"})
WITHOUT_WORK = frozenset({"norm_rope_quant"})
"""Groups of elementwise kernels: their tensors may stay in a cache."""

SHARED_FUSED = KernelGroup(
    operators=frozenset({"routed_experts", "shared_expert"}),
    families=frozenset({Family.EXPERTS}),
    names=frozenset({"routed_experts", "shared_expert"}),
    layers=FIRST_LAYER,
)
"""A MoE layer that runs the shared expert as one more routed one."""
