"""Names of the elementary operators: what inventories and kernels are written in.

The operators themselves are in `aisim_v41.ops`, each in the file of its family; a test compares the
names of a graph without fusion with these.
"""

from __future__ import annotations

from typing import Final

_BY_PLACE: Final = {
    "before the first layer and after the last": (
        "embedding", "all_reduce_embedding", "stream_copy", "head_collapse", "final_norm",
        "output_head", "gather_logits",
    ),
    "Engram": ("engram_lookup", "all_reduce_engram", "engram_project", "engram_gate"),
    "residual streams": (
        "mhc_statistics", "mhc_collapse", "site_norm", "site_quantise", "mhc_expand",
    ),
    "attention": (
        "q_down", "q_norm", "q_up", "q_rope", "kv_down", "kv_store", "sparse_attention",
        "inverse_rope", "o_down", "o_up", "all_reduce_attention",
    ),
    "compressor and indexer": (
        "compress_project", "compress_pool", "main_store", "index_key", "index_key_store",
        "index_query", "index_query_rope", "index_weights", "index_score", "all_reduce_scores",
        "index_select", "candidate_pool",
    ),
    "experts": (
        "router_gate", "router_select", "routed_experts", "shared_expert", "all_reduce_experts",
    ),
}  # fmt: skip
OPERATORS: Final[frozenset[str]] = frozenset(name for part in _BY_PLACE.values() for name in part)
"""Elementary operators of a forward of the target model."""
