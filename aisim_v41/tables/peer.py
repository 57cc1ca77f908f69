"""Frames of the peer's tables, in its words, to frames of ours.

The peer is ``aisimulate`` (and its predecessor ``aiconfigurator-core``), Apache-2.0, NVIDIA. Its
column names are the ones read here: ``m, n, k`` of a product, ``isl`` and ``step`` of a request,
``moe_tp_size``. Times come in as ``us`` [us], engines as ``engine`` and ``version``; ``samples``,
``spread`` and ``source`` may be there. What the sources get wrong about an axis is put right here;
rows that are suspect are marked in `aisim_v41.tables.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from aisim_v41.tables.schema import ANY, FAMILIES, NONE

if TYPE_CHECKING:
    import pandas

ENGINE_CHOICE = "engine_choice"
GRAPH_TABLES = "graph_tables"
SGLANG_V41 = "1aa0e962b206"
"""Source revision of SGLang behind every V4.1 campaign (shared by all their sidecars)."""
TRAY_GPUS, BOARD_GPUS = 4, 8
SMALLEST_US = 0.1

DTYPES = {
    "bfloat16": "bf16",
    "half": "fp16",
    "fp8": "fp8_per_token",
    "fp8_block": "fp8_block128",
    "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8",
    "w4a16_mxfp4": "mxfp4_bf16",
    "w4a16_mxfp4_cutlass": "mxfp4_bf16",
    "w4a16_mxfp4_humming": "mxfp4_bf16",
}
"""Peer's name to ours; one that is not here keeps the peer's."""

V4_EXPERTS = {(4096, 2048, 256, 6), (7168, 3072, 384, 6)}
"""Hidden, expert width, experts, experts a token: V4-Flash and V4-Pro."""
V41_EXPERTS = (5120, 2304, 384, 6)

ATTENTION_TABLES: dict[str, tuple[str, str, str]] = {
    "dsv4_csa_context_module": ("csa_prefill", "fp8_block128", "v4_family"),
    "dsv4_csa_generation_module": ("csa_decode", "fp8_block128", "v4_family"),
    "dsv4_hca_context_module": ("hca_prefill", "fp8_block128", "v4_family"),
    "dsv4_hca_generation_module": ("hca_decode", "fp8_block128", "v4_family"),
    "dsv4_hca_attn_module": ("attention_kernel", "bf16", "v4_family"),
    "dsv4_paged_mqa_logits_module": ("index_logits", "fp8", "v4_family"),
    "dsv4_csa_topk": ("index_topk", "fp32", "v4_family"),
    "glm5_dsa_attn_module": ("attention_kernel", "bf16", "other_model"),
    "glm5_mqa_logits_module": ("index_logits", "fp8", "other_model"),
}
"""Operator, operands and shapes of each attention table."""

ATTENTION_KERNELS: dict[tuple[str, str], str] = {
    ("dsv4_hca_attn_module", "vllm"): "FLASHMLA_SPARSE_DSV4",
    ("dsv4_paged_mqa_logits_module", "sglang"): "deep_gemm.fp8_paged_mqa_logits",
    ("dsv4_paged_mqa_logits_module", "vllm"): "vllm.utils.deep_gemm.fp8_fp4_paged_mqa_logits",
    ("glm5_dsa_attn_module", "sglang"): "flash_mla_sparse_fwd",
    ("glm5_mqa_logits_module", "sglang"): "deep_gemm.fp8_mqa_logits",
}
"""Kernel of each kernel table; modules have the engine's one path, named below."""
MODULE_PATHS = {
    "sglang": "compressed_flashmla",
    "vllm": "FLASHMLA_SPARSE_DSV4",
    "trtllm": "DeepseekV4TrtllmAttention",
}
TOPK_KERNELS = {"v1": "topk_transform_v1", "v2": "topk_transform_v2"}
SCORE_PATTERNS = {"flat": "equal", "top_last": "ordered"}


def merge_repeats(
    frame: pandas.DataFrame, keys: Sequence[str], how: Literal["min", "mean"]
) -> pandas.DataFrame:
    """One row a key: minimum or mean of its repeats, their number and their spread.

    Rows of less than 0.1 us are no times (a top-k that selects nothing is written as 0).
    """
    import pandas

    timed = frame.loc[~(frame["us"] < SMALLEST_US)]
    by = ["engine", "version", "source", *keys]
    grouped = timed.groupby(by, as_index=False, dropna=False)["us"]
    merged = pandas.DataFrame(grouped.agg(us=how, least="min", most="max", samples="size"))
    single = merged["samples"] == 1
    merged["spread"] = (merged["most"] / merged["least"] - 1).mask(single)
    merged["samples"] = merged["samples"].astype("float64").mask(single)
    return merged


def stacked(frames: Sequence[pandas.DataFrame]) -> pandas.DataFrame:
    """Frames of one family below each other; a column that none of them fills stays empty."""
    import pandas

    filled = [frame.dropna(axis=1, how="all") for frame in frames]
    return pandas.concat(filled, ignore_index=True).reindex(columns=frames[0].columns)


def dtype_of(name: str) -> str:
    """Our name of a precision."""
    return DTYPES.get(name, name)


def gemm(raw: pandas.DataFrame) -> pandas.DataFrame:
    """``gemm_dtype, m, n, k``. Engines choose kernels by size, so the kernel is no identity."""
    return _frame(
        "gemm", raw, operator="gemm", dtype=raw["gemm_dtype"].map(dtype_of),
        model_shapes="v4_family", rows=raw["m"], outputs=raw["n"], inputs=raw["k"],
    )  # fmt: skip


def experts(raw: pandas.DataFrame) -> pandas.DataFrame:
    """``moe_dtype``, sizes, ``moe_tp_size, moe_ep_size, distribution``; tokens of all ranks."""
    return _frame(
        "experts", raw, operator="routed_experts", dtype=raw["moe_dtype"].map(dtype_of),
        tokens=raw["num_tokens"], **_expert_sizes(raw),
    )  # fmt: skip


def mega_moe(raw: pandas.DataFrame) -> pandas.DataFrame:
    """Fused dispatch, experts and combine. ``num_tokens`` is a rank's: the axis holds them all."""
    return _frame(
        "experts", raw.assign(moe_tp_size=1), operator="mega_moe",
        dtype=raw["moe_dtype"].map(dtype_of), tokens=raw["num_tokens"] * raw["moe_ep_size"],
        rank_capacity_tokens=raw["num_max_tokens_per_rank"], **_expert_sizes(raw, tp=1),
    )  # fmt: skip


def collectives(raw: pandas.DataFrame, *, gpu: str) -> pandas.DataFrame:
    """``op, dt, num_gpus, bytes``; the name of the kernel says which all-reduces are eager."""
    eager = raw["kernel"].str.endswith("eager")
    return _frame(
        "collectives", raw, operator=raw["op"].replace({"alltoall": "all_to_all"}),
        dtype=raw["dt"].map(dtype_of), model_shapes="other_model",
        execution=eager.map({True: "eager", False: "graph"}),
        reach=raw["num_gpus"].map(lambda ranks: reach_of(gpu, ranks)),
        message_bytes=raw["bytes"], ranks=raw["num_gpus"],
    )  # fmt: skip


def hyper_connections(raw: pandas.DataFrame) -> pandas.DataFrame:
    """``op_name, num_sites, hc_mult, hidden_size, num_tokens``: two sites are one timing."""
    return _frame(
        "hyper_connections", raw, operator=raw["op_name"], dtype="bf16",
        model_shapes="v4_family", sites_per_timing=raw["num_sites"], streams=raw["hc_mult"],
        tokens=raw["num_tokens"], hidden=raw["hidden_size"],
    )  # fmt: skip


def attention(raw: pandas.DataFrame) -> pandas.DataFrame:
    """``table, num_heads`` (of a rank), ``tp_size, batch_size, isl`` (new), ``step`` (past)."""
    named = raw["table"].str.partition(" ")
    table, kind = named[0], named[2]
    operator = table.map(lambda name: ATTENTION_TABLES[name][0])
    logits = operator == "index_logits"
    decode = raw["isl"] == 1
    operator = operator.mask(logits & decode, "index_logits_decode")
    operator = operator.mask(logits & ~decode, "index_logits_prefill")
    topk = table == "dsv4_csa_topk"
    score = kind.str.partition("_")[2].map(SCORE_PATTERNS).where(topk, NONE)
    score = score.mask(operator.str.startswith("csa_"), "not_stated")
    score = score.mask((operator == "csa_decode") & (raw["engine"] == "sglang"), "equal")
    return _frame(
        "attention", raw.assign(kernel=[_kernel(*row) for row in zip(
            table, raw["engine"], kind, strict=True)]),
        operator=operator, dtype=table.map(lambda name: ATTENTION_TABLES[name][1]),
        model_shapes=table.map(lambda name: ATTENTION_TABLES[name][2]),
        cache_state=(operator == "index_logits_decode").map({True: "warm", False: "unknown"}),
        tensor_parallel=raw["tp_size"], heads=raw["num_heads"],
        compress_ratio=raw["compress_ratio"], score_pattern=score, batch=raw["batch_size"],
        new_tokens_per_request=raw["isl"], prefix_tokens=raw["step"],
    )  # fmt: skip


def quantise(raw: pandas.DataFrame) -> pandas.DataFrame:
    """``m, k`` of BF16 to FP8."""
    return _frame("quantise", raw, operator="quantise", dtype="fp8", model_shapes="v4_family",
                  rows=raw["m"], inputs=raw["k"])  # fmt: skip


def v41_modules(raw: pandas.DataFrame) -> pandas.DataFrame:
    """V4.1's modules: ``module, phase, batch_size, prefix_tokens, x``, eager.

    A decode row of the source gives its length including the token itself and a prefix of 0: here
    the prefix is that length less one. A bounded row already holds the kept rows and the prefix
    moved by the rows cut, as the kernel sees them.
    """
    decode = raw["phase"] == "decode"
    attention = raw["component"] == "attention"
    dtypes = {"attention": "fp8_block32", "linear": "fp8_block32", "engram": "fp8_block32",
              "mhc": "bf16"}  # fmt: skip
    return _frame(
        "v41_modules", raw.assign(engine="sglang", version=SGLANG_V41),
        operator=raw["module"], dtype=raw["component"].map(dtypes), execution="eager",
        decoder_replay=raw["decoder_replay"], campaign=raw["campaign"], model_shapes="v4.1_exact",
        tensor_parallel=raw["tp"], phase=raw["phase"],
        prefill_rows=raw["bounded_prefill"].map({True: "bounded"}).fillna("all"),
        sites_per_timing=(raw["component"] == "mhc").map({True: 2, False: ANY}),
        batch=raw["batch_size"].where(attention), tokens=raw["x"].where(~attention),
        new_tokens_per_request=raw["x"].mask(decode, 1).where(attention),
        prefix_tokens=raw["prefix_tokens"].mask(decode, raw["x"] - 1).where(attention),
    )  # fmt: skip


def v41_dense(raw: pandas.DataFrame, *, gpu: str) -> pandas.DataFrame:
    """V4.1's gate, head (``m, n, k``), experts and all-reduce (``bytes, num_gpus``), eager."""
    moe, reduce = raw["op"] == "routed_experts", raw["op"] == "all_reduce"
    product = ~moe & ~reduce
    hidden, width, routed, per_token = V41_EXPERTS
    return _frame(
        "v41_dense", raw, operator=raw["op"], dtype=raw["dtype"].map(dtype_of),
        execution="eager", decoder_replay=raw["decoder_replay"], campaign=raw["campaign"],
        model_shapes="v4.1_exact", tensor_parallel=raw["tp"].mask(reduce, ANY),
        expert_parallel=moe.map({True: 1, False: ANY}),
        expert_load=moe.map({True: "uniform", False: NONE}),
        reach=raw["num_gpus"].map(lambda ranks: reach_of(gpu, ranks)).where(reduce, NONE),
        rows=raw["m"].where(product), outputs=raw["n"].where(product),
        inputs=raw["k"].where(product), tokens=raw["m"].where(moe),
        hidden=moe.map({True: hidden}), expert_width=moe.map({True: width}),
        experts_routed=moe.map({True: routed}), experts_per_token=moe.map({True: per_token}),
        message_bytes=raw["bytes"].where(reduce), ranks=raw["num_gpus"].where(reduce),
    )  # fmt: skip


def reach_of(gpu: str, ranks: float) -> str:
    """Links between ``ranks`` GPUs: a Grace tray holds 4, an HGX board 8."""
    if gpu.startswith("gb"):
        return "one_tray" if ranks <= TRAY_GPUS else "across_trays"
    return "one_board" if ranks <= BOARD_GPUS else "across_boards"


def _expert_sizes(raw: pandas.DataFrame, tp: int | None = None) -> dict[str, Any]:
    columns = ["hidden_size", "inter_size", "num_experts", "topk"]
    shapes = [tuple(row) for row in raw[columns].itertuples(index=False)]
    return {
        "model_shapes": ["v4_family" if shape in V4_EXPERTS else "other_model" for shape in shapes],
        "tensor_parallel": raw["moe_tp_size"] if tp is None else tp,
        "expert_parallel": raw["moe_ep_size"],
        "expert_load": raw["distribution"],
        "hidden": raw["hidden_size"],
        "expert_width": raw["inter_size"],
        "experts_routed": raw["num_experts"],
        "experts_per_token": raw["topk"],
    }


def _kernel(table: str, engine: str, kind: str) -> str:
    if table == "dsv4_csa_topk":
        return TOPK_KERNELS[kind.partition("_")[0]]
    return ATTENTION_KERNELS.get((table, engine)) or MODULE_PATHS[engine]


def _frame(family: str, raw: pandas.DataFrame, **given: Any) -> pandas.DataFrame:
    """All columns of the family; what a table does not say has its neutral value."""
    import pandas

    neutral: dict[str, Any] = {
        "engine": raw["engine"],
        "engine_version": raw["version"],
        "kernel_source": raw.get("kernel", ENGINE_CHOICE),
        "execution": "graph",
        "cache_state": "unknown",
        "decoder_replay": NONE,
        "campaign": GRAPH_TABLES,
        "latency_us": raw["us"],
        "samples": raw.get("samples"),
        "spread_relative": raw.get("spread"),
        "resolution_us": None,
        "flag": "",
        "caveat": "",
        "source": raw["source"],
    }
    columns = {column.name: None for column in FAMILIES[family].columns}
    return pandas.DataFrame({**columns, **neutral, **given}, index=raw.index)
