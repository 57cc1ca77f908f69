"""What an operator table holds: families, operators, columns, units, ranges, flags.

One table is one GPU and one family, a Parquet file with a sidecar beside it. A row is one measured
time. Its *identity* (engine, precision, execution, campaign, ...) says what was measured and is
never a coordinate; its *axes* are physical sizes and may be interpolated over. Every operator
declares its own axes; an axis that an operator does not have is null in its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

SCHEMA_VERSION = 1
GPUS = ("gb200", "gb300", "b200", "b300", "h200", "h100")
"""GPUs with packaged tables; a user's folder may hold others."""

Kind = Literal["text", "whole", "real"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        name: as in the file; a size carries its unit in the name or counts what the name says.
        kind: ``text``, ``whole`` (64-bit integer) or ``real`` (64-bit float).
        unit: of the values; ``1`` for counts, ``name`` for text.
        lowest, highest: of numbers, inclusive, in that unit.
        words: the only text values, or None where any short name may stand.
        nullable: a row may have none.
        meaning: what it is.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    lowest: float = 0
    highest: float = 0
    words: tuple[str, ...] | None = None
    nullable: bool = False


def _text(name: str, meaning: str, *words: str) -> Column:
    return Column(name=name, kind="text", unit="name", meaning=meaning, words=words or None)


def _real(name: str, lowest: float, highest: float, meaning: str, unit: str = "1") -> Column:
    return Column(
        name=name, kind="real", unit=unit, lowest=lowest, highest=highest, meaning=meaning,
        nullable=True,
    )  # fmt: skip


def _whole(name: str, lowest: int, highest: int, meaning: str, unit: str = "1") -> Column:
    return Column(
        name=name, kind="whole", unit=unit, lowest=lowest, highest=highest, meaning=meaning
    )


NONE = "none"
"""Text of an identity that an operator does not have."""
ANY = 0
"""Whole number of an identity that does not matter: the row holds for every width."""

COMMON_IDENTITY = (
    _text("operator", "what was timed; one of the family's operators"),
    _text("engine", "sglang, vllm, trtllm, or the library nccl"),
    _text("engine_version", "release, or source revision of a development build"),
    _text("kernel_source", "kernel or method; engine_choice where the engine picks one by size"),
    _text("dtype", "operands; block scales carry their width, as in fp8_block128"),
    _text("execution", "replayed in a CUDA graph, or issued call by call", "graph", "eager"),
    _text("cache_state", "operands in L2 when the clock starts", "cold", "warm", "unknown"),
    _text("decoder_replay", "replay mode of the whole model around it", "off", "on", NONE),
    _text("campaign", "runs that share a method and a level; levels of two are not comparable"),
    _text("model_shapes", "whose sizes", "v4.1_exact", "v4_family", "other_model"),
)

_SIZES = {
    column.name: column
    for column in (
        _whole("tensor_parallel", 0, 1024, "ranks that share the operator; 0: any"),
        _whole("expert_parallel", 0, 1024, "ranks that the experts are spread over; 0: none"),
        _whole("heads", 0, 4096, "query heads on the rank; 0: none"),
        _whole("compress_ratio", 0, 4096, "tokens an entry of the global cache stands for"),
        _whole("sites_per_timing", 0, 16, "residual sites of a layer inside one timing; 0: none"),
        _whole("streams", 1, 64, "residual streams of the hyper-connections"),
        _text("expert_load", "how the rows choose experts"),
        _text("reach", "links that join the ranks", "one_tray", "across_trays", "one_board",
              "across_boards", NONE),
        _text("score_pattern", "index scores that the selection saw: all equal, in order, or drawn",
              "equal", "ordered", "random", "not_stated", NONE),
        _text("phase", "pass that the module ran in", "prefill", "decode", "any"),
        _text("prefill_rows", "rows kept: all, or the tail that decoder replay keeps",
              "all", "bounded"),
        _whole("rows", 1, 1 << 24, "rows of the activation matrix"),
        _whole("outputs", 1, 1 << 24, "columns of the result"),
        _whole("inputs", 1, 1 << 24, "length of the inner product"),
        _whole("tokens", 1, 1 << 26, "tokens of all ranks together"),
        _whole("hidden", 1, 1 << 20, "width of the residual stream"),
        _whole("expert_width", 1, 1 << 20, "inner width of one expert before it is cut"),
        _whole("experts_routed", 1, 1 << 16, "experts of the layer, all ranks"),
        _whole("experts_per_token", 1, 1 << 10, "experts that a token visits"),
        _whole("rank_capacity_tokens", 1, 1 << 24, "tokens a rank's exchange buffer is sized for"),
        _whole("message_bytes", 1, 1 << 40, "all_reduce: the tensor of one rank; others: the "
               "buffer of all ranks, as nccl-tests counts it", unit="byte"),
        _whole("ranks", 2, 1 << 16, "GPUs that take part"),
        _whole("batch", 1, 1 << 20, "requests"),
        _whole("new_tokens_per_request", 1, 1 << 24, "rows a request computes"),
        _whole("prefix_tokens", 0, 1 << 24, "positions of a request already in the cache"),
        _whole("groups", 1, 1024, "products side by side"),
        _whole("rows_per_request", 0, 1 << 30, "rows that read one request's keys; 0: the usual"),
        _whole("entries", 0, 1 << 30, "global entries of a request; 0: the usual"),
        _whole("keys", 0, 1 << 30, "index keys of a request; 0: the usual"),
        _whole("top_k", 1, 1 << 20, "entries that a row selects"),
        _whole("candidate_blocks", 1, 1 << 20, "blocks that a row keeps"),
        _whole("ratio", 1, 4096, "tokens that an entry stands for"),
        _whole("vocabulary", 1, 1 << 24, "rows of the embedding on the GPU"),
        _whole("ranks_of_table", 1, 1024, "GPUs that share an Engram table"),
        _whole("table_rows", 1, 1 << 32, "rows of the table that was timed"),
        _whole("width_multiple", 1, 1 << 12, "a slice of an expert is padded to it"),
        _whole("calls", 1, 1 << 30, "calls that a sample is divided by"),
        _whole("nodes", 2, 1 << 24, "kernels of a graph"),
        _real("keys_per_row", 0, 1 << 24, "cached rows that a row attends to, on average"),
        _real("positions_per_row", 0, 1 << 30, "index keys that a row scores, on average"),
        _real("touched", 0, 1 << 16, "distinct experts that were visited"),
        _text("layout", "bytes of a cached row"),
        _text("form", "index scores of all keys, or of candidates", "dense", "candidates", NONE),
        _text("key_format", "index keys", "fp4", "fp8", NONE),
        _text("score_format", "index scores", "bf16", "fp32", NONE),
        _text("row_locality", "how rows of a table or cache are spread"),
        _text("operand", "activations of a product as they arrive", "bf16", "quantised", NONE),
        _text("library", "of a collective"),
        _text("call", "what the host calls", "framework", "bare", "python", NONE),
        _text("timer", "clock: cupti, graph (events around a graph), events, cpu, or a trace"),
    )
}  # fmt: skip

MEASURED = (
    Column(
        name="latency_us",
        kind="real",
        unit="microsecond",
        lowest=0.1,
        highest=1e7,
        meaning="time of one call",
    ),
    Column(
        name="samples",
        kind="whole",
        unit="1",
        lowest=1,
        highest=1 << 30,
        nullable=True,
        meaning="timings behind the value",
    ),
    Column(
        name="spread_relative",
        kind="real",
        unit="1",
        lowest=0,
        highest=100,
        nullable=True,
        meaning="slowest over fastest of those, minus 1",
    ),
    Column(
        name="resolution_us",
        kind="real",
        unit="microsecond",
        lowest=0,
        highest=1e4,
        nullable=True,
        meaning="step of the clock, where the values show one",
    ),
    _text("flag", "why the row is suspect; empty: it is not"),
    _text("caveat", "what to know about a sound row; empty: nothing"),
    _text("source", "file that the row came from, an id of the sidecar's sources"),
)

SAMPLES = (
    _real("p10_us", 0, 1e7, "a tenth of the samples is below", unit="microsecond"),
    _real("p90_us", 0, 1e7, "a tenth of the samples is above", unit="microsecond"),
    _real("min_us", 0, 1e7, "the fastest sample", unit="microsecond"),
)
"""What tables say of their samples where they were kept."""

FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "noisy": "samples spread too widely, and did so again when it was timed once more",
        "weight_packing": "the timed call packs the weights: a floor of 150 us and more",
        "noisy_minimum": "the lower of two noisy runs; far from its siblings at this size",
        "slow_quantise": "a Python-level path at a tenth of the memory's rate",
        "slow_without_prefix": "1.05 to 2.6 times a sibling GPU, only for one request without past",
        "equal_scores": "holds a top-k over equal scores, 60 us slower than over ordered ones",
        "warm_up": "a warm-up is inside: 1.5 times the rows around it",
        "faulty_node": "measured on a node that was slow and uneven at this size",
        "host_ahead": "the host was ahead: GPU time in a table of host time",
        "falls_with_size": "more than 1.3 times the next larger size of its own series",
    }
)
CAVEATS: Mapping[str, str] = MappingProxyType(
    {
        "weights_may_stay_in_l2": "the six rotated copies of the weights fit the GPU's L2",
        "other_library_above": "above this size the engine hands the message to NCCL",
        "no_pair_completes": "one new token without past: the compressor does not run",
        "copy_kernel": "a plain copy at .17 to .37 of HBM: no streaming rate",
        "topk_inside": "holds a top-k, whose time depends on scores that are not stated",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Columns of one family of tables.

    Attributes:
        name: of the files.
        identity: identity columns beside the common ones.
        operators: axes of each operator.
        about: what it covers.
        more: columns of what was measured, beside the common ones.
    """

    name: str
    identity: tuple[Column, ...]
    operators: Mapping[str, tuple[str, ...]]
    about: str
    more: tuple[Column, ...] = ()

    @property
    def identity_names(self) -> tuple[str, ...]:
        """Every identity column, common ones first."""
        return tuple(column.name for column in (*COMMON_IDENTITY, *self.identity))

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis of any operator, in the order of the file."""
        return tuple(dict.fromkeys(axis for axes in self.operators.values() for axis in axes))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the file, in order: identity, axes, what was measured."""
        axes = tuple(_nullable(_SIZES[axis]) for axis in self.axes)
        return (*COMMON_IDENTITY, *self.identity, *axes, *MEASURED, *self.more)


def _nullable(column: Column) -> Column:
    return Column(
        name=column.name,
        kind=column.kind,
        unit=column.unit,
        meaning=column.meaning,
        lowest=column.lowest,
        highest=column.highest,
        nullable=True,
    )


def _family(
    name: str,
    about: str,
    identity: tuple[str, ...],
    operators: Mapping[str, tuple[str, ...]],
    more: tuple[Column, ...] = (),
) -> Family:
    return Family(
        name=name,
        about=about,
        more=more,
        identity=tuple(_SIZES[column] for column in identity),
        operators=MappingProxyType(dict(operators)),
    )


PRODUCT = ("rows", "outputs", "inputs")
EXPERTS = ("tokens", "hidden", "expert_width", "experts_routed", "experts_per_token")
MESSAGE = ("message_bytes", "ranks")
REQUESTS = ("batch", "new_tokens_per_request", "prefix_tokens")
ATTENTION_MODULES = ("swa", "full_r2", "reuse_r2", "full_r1", "reuse_r1", "reindex_r1")
ROWS_HIDDEN = ("rows", "hidden")
ROWS_INPUTS = ("rows", "inputs")
HEADS = ("rows", "inputs", "heads")
SCORED = ("rows", "positions_per_row", "rows_per_request")
COLLECTED: Mapping[str, tuple[str, ...]] = {
    "gemm": ("rows", "outputs", "inputs", "groups"),
    "routed_experts": ("rows", "hidden", "expert_width", "tensor_parallel", "experts_routed",
                       "experts_per_token", "width_multiple", "touched"),
    "router_select": ("rows", "experts_routed", "experts_per_token"),
    "sparse_attention": ("rows", "keys_per_row", "heads", "rows_per_request", "entries"),
    "index_score": (*SCORED, "keys"),
    "index_select": (*SCORED, "top_k"),
    "index_select_pool": (*SCORED, "top_k", "candidate_blocks"),
    **dict.fromkeys(("compress_pool", "compress_store", "main_store"), ("rows", "ratio")),
    **dict.fromkeys(("kv_store", "index_key_store", "engram_hash"), ("rows",)),
    **dict.fromkeys(("mhc_statistics", "mhc_collapse", "head_collapse", "mhc_post", "mhc_pre",
                     "mhc_fused", "mhc_post_collapse", "combine_norm", "final_collapse_norm",
                     "post_combine_norm", "mega_mhc", "engram_gate"), ROWS_HIDDEN),
    **dict.fromkeys(("site_norm", "final_norm", "q_norm", "site_quantise", "shared_expert",
                     "expert_sum", "stream_copy", "small_kernel"), ROWS_INPUTS),
    **dict.fromkeys(("q_rope", "inverse_rope", "index_query_rope"), HEADS),
    "embedding": ("rows", "inputs", "vocabulary"),
    "engram_lookup": ("rows", "ranks_of_table", "table_rows"),
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), MESSAGE),
    "host_launch": ("calls",),
    "graph_gap": ("nodes",),
}  # fmt: skip
"""Operators of the collectors and their axes (docs/collectors-operators.md)."""
COLLECTED_OPTIONS = (
    "layout", "form", "key_format", "score_format", "score_pattern", "row_locality",
    "expert_load", "operand", "library", "call", "timer",
)  # fmt: skip
TOKEN_MODULES = ("shared_gate_up", "shared_down", "engram_layer_1", "engram_layer_14", "mhc")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            _family("gemm", "Matrix products; those in 8 bits and less quantise their input.",
                    (), {"gemm": PRODUCT}),
            _family("experts", "Routed experts; mega_moe holds both exchanges as well.",
                    ("tensor_parallel", "expert_parallel", "expert_load"),
                    {"routed_experts": EXPERTS,
                     "mega_moe": (*EXPERTS, "rank_capacity_tokens")}),
            _family("collectives", "Collectives over NVLink, and across trays.",
                    ("reach",),
                    dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
                                  MESSAGE)),
            _family("hyper_connections", "mHC in two passes (V4), and the copies around it.",
                    ("sites_per_timing", "streams"),
                    dict.fromkeys(("pre", "post", "fused_post_pre", "expand", "contract"),
                                  ("tokens", "hidden"))),
            _family("attention", "V4's CSA and HCA modules, and kernels of sparse attention.",
                    ("tensor_parallel", "heads", "compress_ratio", "score_pattern"),
                    dict.fromkeys(("csa_prefill", "csa_decode", "hca_prefill", "hca_decode",
                                   "attention_kernel", "index_logits_prefill",
                                   "index_logits_decode", "index_topk"), REQUESTS)),
            _family("quantise", "BF16 activations to 8 bits.", (),
                    {"quantise": ("rows", "inputs")}),
            _family("v41_modules", "V4.1's own modules at their exact shapes, eager.",
                    ("tensor_parallel", "phase", "prefill_rows", "sites_per_timing"),
                    {**dict.fromkeys(ATTENTION_MODULES, REQUESTS),
                     **dict.fromkeys(TOKEN_MODULES, ("tokens",))}),
            _family("v41_dense", "V4.1's router gate, head, experts and all-reduce, eager.",
                    ("tensor_parallel", "expert_parallel", "expert_load", "reach"),
                    {"router_gate": PRODUCT, "head": PRODUCT, "routed_experts": EXPERTS,
                     "all_reduce": MESSAGE}),
            _family("v41_kernels", "V4.1's kernels as the collectors time them; one's own.",
                    COLLECTED_OPTIONS, COLLECTED, SAMPLES),
        )
    }
)  # fmt: skip
