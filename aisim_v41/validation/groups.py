"""Which operators a measured group of kernels holds, for certain and as its source sorts them.

Profilers sort kernels by name, and sources draw the lines between groups differently: a projection
may count as indexer, compressor or dense GEMM. So each group has two sets: the operators that are
in it whoever sorted (its floor), and the kernels that the source calls by that name (its graph
bound, and what OP predicts for it). Where the rules of a source are public they are followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from aisim_v41.ops.backbone import Backbone, Step
from aisim_v41.ops.operator import Family, Task
from aisim_v41.plan.spans import Region

FIRST_LAYER = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """Operators behind one measured sum of kernel times.

    Attributes:
        operators: elementary operators that are certainly inside.
        families: families whose kernels, fused as the policy fuses, are compared in graph form.
        names: of these, only kernels that do the work of one of these operators; empty: all.
        layers: layers that count; empty: all.
        each: the value is one layer's, the mean over ``layers``.
        sums: collectives that count too, with what is fused to them.
        sorted_as: name of the group in `SORTED_BY_NAME`; ``families`` and ``names`` then do not
            count.
        drafts: kernels of the draft pass on drafted rows are meant, not those of the target; what
            fills the rings may run in the target's graph.
    """

    operators: frozenset[str]
    families: frozenset[Family] = frozenset()
    names: frozenset[str] = frozenset()
    layers: tuple[int, ...] = ()
    each: bool = False
    sums: frozenset[str] = frozenset()
    sorted_as: str = ""
    drafts: bool = False

    def steps(self, backbone: Backbone) -> Iterator[Step]:
        """Parts of a forward that it may hold kernels of.

        A profile that sorts by name does not know the draft pass from the target.
        """
        every = backbone.steps if self.sorted_as else (*backbone.chain, *backbone.beside)
        for step in backbone.draft if self.drafts else every:
            if not self.layers or step.layer in self.layers:
                yield step

    def holds(self, task: Task) -> bool:
        """Whether the source counts a kernel in this group."""
        if self.drafts and task.rows.region is Region.DRAFT_CONTEXT:
            return False
        if self.sorted_as:
            return kernel_group(task) == self.sorted_as
        if self.sums & set(task.replaces):
            return True
        named = not self.names or bool(self.names & set(task.replaces))
        return named and task.family in self.families


def _group(
    operators: str,
    *families: Family,
    names: str = "",
    layers: tuple[int, ...] = (),
    each: bool = False,
    drafts: bool = False,
) -> KernelGroup:
    return KernelGroup(
        operators=frozenset(operators.split()),
        families=frozenset(families),
        names=frozenset(names.split()),
        layers=layers,
        each=each,
        drafts=drafts,
    )


RATIO_2_OWNERS, LAST_OWNER, REINDEX = (2, 8, 14), (20,), (24, 28, 32, 36)
_DENSE = "q_down q_up kv_down o_up"
_SCORE = "index_score"
_ALL_INDEX = "index_query index_query_rope index_weights index_score index_select candidate_pool"

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
    "draft_graph": _group(
        "draft_q_down draft_q_up draft_kv_down draft_o_down draft_o_up draft_sparse_attention "
        "draft_routed_experts draft_shared_expert draft_output_head draft_markov_head",
        *Family, drafts=True,
    ),
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
        GROUPS[f"{_name}_{_suffix}"] = replace(_whole, layers=_layers, each=True)

UNNAMED = frozenset({"other", "rest", "sampling_draft"})
WITHOUT_WORK = frozenset({"norm_rope_quant"})
"""Groups of elementwise kernels: their tensors may stay in a cache."""

SHARED_FUSED = KernelGroup(
    operators=frozenset({"routed_experts", "shared_expert"}),
    families=frozenset({Family.EXPERTS}),
    names=frozenset({"routed_experts", "shared_expert"}),
    layers=FIRST_LAYER,
)
"""A MoE layer that runs the shared expert as one more routed one."""

SORTED_BY_NAME: dict[str, str] = {
    # Kernels with a name of their own.
    "sparse_attention": "sparse_attention",
    "index_score": "indexer",
    "index_select": "indexer",
    "candidate_pool": "indexer",
    "routed_experts": "moe",
    "mhc_statistics": "mhc",
    "mhc_collapse": "mhc",
    "mhc_expand": "mhc",
    "head_collapse": "mhc",
    "engram_fetch": "engram",
    "engram_lookup": "engram",
    "engram_gate": "engram",
    # Products: the name says "gemm", whoever calls it.
    "q_down": "dense_gemm",
    "kv_down": "dense_gemm",
    "q_up": "dense_gemm",
    "o_down": "dense_gemm",
    "o_up": "dense_gemm",
    "shared_expert": "dense_gemm",
    "router_gate": "dense_gemm",
    "index_query": "dense_gemm",
    "index_weights": "dense_gemm",
    "index_key": "dense_gemm",
    "compress_project": "dense_gemm",
    "engram_project": "dense_gemm",
    "output_head": "dense_gemm",
    "main_proj": "dense_gemm",
    "markov_head": "dense_gemm",
    # The rest, where it is a kernel of its own.
    "router_select": "moe",
    "index_query_rope": "indexer",
    "compress_pool": "compressor",
    "main_store": "compressor",
    "index_key_store": "compressor",
    "kv_store": "compressor",
    "q_norm": "norm_rope_quant",
    "q_rope": "norm_rope_quant",
    "inverse_rope": "norm_rope_quant",
    "site_norm": "norm_rope_quant",
    "site_quantise": "norm_rope_quant",
    "final_norm": "norm_rope_quant",
    "stream_copy": "norm_rope_quant",
    "embedding": "norm_rope_quant",
    "tap": "norm_rope_quant",
    "main_norm": "norm_rope_quant",
    "markov_embedding": "norm_rope_quant",
    "sample_target": "sampling_draft",
    "sample_draft": "sampling_draft",
    "confidence": "sampling_draft",
}
"""Operator -> group, where kernels are sorted by patterns on their names; of a fused kernel the
first operator of this order counts. Collectives are "comm".

Source: the patterns of ``dsv41/scripts/b200_tp4_1006/kernel_summary.py`` (kkHuang-amd/claude-skills
@2ec4bd32): "mla" or "fmhaSm100" are attention; "mqa_logits" and "topk" the indexer; "Cache",
"compress" and "kv_insert" the compressor; "bmm_", "moe::" and "routing" (of the fused MoE) are MoE;
"mhc" and "hc_" mHC, its product of statistics included; then "engram"; then "sample" and "argmax";
and any "gemm" left is dense, so that the shared expert, the router's gate and every projection of
indexer, compressor, Engram and draft are dense. Quantisation goes to the elementwise group before
all others.
"""


def kernel_group(task: Task) -> str:
    """Group of a kernel in a profile that sorts by name."""
    if task.family is Family.COLLECTIVE:
        return "comm"
    found = [group for name, group in SORTED_BY_NAME.items() if name in task.replaces]
    return found[0] if found else "other"


_MODULE_SPANS: dict[tuple[str, str], KernelGroup] = {
    ("gb10-res", "moe"): replace(
        _group("routed_experts", Family.EXPERTS), sums=frozenset({"all_reduce_experts"})
    ),
    ("gb10-res", "attention_incl_indexer"): replace(
        GROUPS["attention_incl_indexer"] or _group(""), sums=frozenset({"all_reduce_attention"})
    ),
}
"""Groups that are spans around a module, its sum over the ranks inside. In gb10-res attention,
experts, Engram and the rest make up the whole graph (35 + 90 + 9 + 6 = 140 ms): the 80 sums over
RoCE are in none of their own, and do not fit in the rest (51 us each at 8 KiB, before their bytes;
profiles/defaults/links.yaml)."""

_SORTING_SOURCES = frozenset({"b200-prof"})
"""Sources whose profiles follow `SORTED_BY_NAME`."""


def group_of(source: str, name: str) -> KernelGroup | None:
    """The group of a source's ``kernel_ms:name``; None: every kernel of the step.

    Raises:
        KeyError: no such group.
    """
    if (source, name) in _MODULE_SPANS:
        return _MODULE_SPANS[source, name]
    if source not in _SORTING_SOURCES or (name in GROUPS and GROUPS[name] is None):
        return GROUPS[name]
    whole = GROUPS.get(name)
    if whole is None and name not in SORTED_BY_NAME.values():
        raise KeyError(name)
    members = {operator for operator, group in SORTED_BY_NAME.items() if group == name}
    sure = frozenset[str]()
    if whole is not None:
        sure = whole.operators if name == "comm" else whole.operators & members
    return KernelGroup(operators=sure, sorted_as=name)
