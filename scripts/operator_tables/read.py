"""CSV files of the open data to frames of ours, with what was left out and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.tables import peer
from aisim_v41.tables.schema import ANY, FAMILIES

HOPPER = ("h100", "h200")
HEADS = 64
"""Of V4-Flash and GLM-5; a row with fewer is one rank of several."""
OLD_VERSIONS = {"sglang": "0.5.14", "vllm": "0.24.0", "trtllm": "1.3.0rc20"}
OLD_ATTENTION_VERSIONS = {**OLD_VERSIONS, "trtllm": "1.3.0rc23"}
"""Of the older files that have no version column (PEER_DATA.md, "Engines")."""
MEGA_MOE_VERSION = "0.5.10"
ROW_VERSIONS = {
    ("gb200", "nccl 2.23"): "2.27.7",
    ("gb200", "sglang 0.5.14"): "0.5.17",
    ("gb300", "megamoe"): "0.5.11",
}
"""Releases that the source's rows name where their folder names an older one."""
NOT_RECORDED = peer.ENGINE_CHOICE

EXPERT_KERNELS = {
    ("sglang", "0.5.14", "fp8_block"): "sglang_fused_moe_triton",
    ("sglang", "0.5.14", "w4a8_mxfp4_mxfp8"): "sglang_mxfp4_flashinfer_trtllm_moe",
    ("sglang", "0.5.14", "w4a16_mxfp4"): "sglang_fused_moe_triton",
    ("sglang", "0.5.20", "fp8_block"): "sglang_flashinfer_trtllm_moe",
    ("trtllm", "1.3.0rc20", "fp8_block"): "deepgemm",
    ("trtllm", "1.3.0rc20", "w4a16_mxfp4"): "moe_torch_flow",
    ("trtllm", "1.3.0rc23", "w4a8_mxfp4_mxfp8"): "moe_torch_flow",
    ("vllm", "0.25.0", "fp8_block"): "vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmodular",
    ("vllm", "0.25.0", "w4a8_mxfp4_mxfp8"): (
        "vllm_mxfp4moe_flashinfer_trtllm_mxfp4_mxfp8_trtllmmxfp4expertsmodular"
    ),
    ("vllm", "0.31.0", "fp8_block"): "vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmonolithic",
}
"""Kernel of a series where the source has one for all of it on Blackwell."""
VLLM_MARLIN = "vllm_compressedtensorsw4a4mxfp4moe_marlin_marlinexperts_situ_as_silu"
VLLM_TRITON = "vllm_gptossmxfp4moe_triton_oaitritonmxfp4expertsmonolithic"
HOPPER_KERNELS = {
    ("sglang", "0.5.20", "fp8_block"): "sglang_fused_moe_triton",
    ("trtllm", "1.3.0rc20", "fp8_block"): "moe_torch_flow_cutlass",
    ("vllm", "0.25.0", "fp8_block"): NOT_RECORDED,
    ("vllm", "0.31.0", "fp8_block"): NOT_RECORDED,
}
"""What differs on Hopper; vLLM has two kernels there by cut."""


@dataclass
class Rows:
    """Rows of one family, all GPUs.

    Attributes:
        frame: our columns and ``gpu``.
        dropped: rows left out: gpu, source, reason; one line a row.
    """

    frame: pd.DataFrame
    dropped: list[tuple[str, str, str]] = field(default_factory=list)


def read_csv(data: Path, name: str, needed: tuple[str, ...]) -> pd.DataFrame:
    """One file, with its name as ``source``.

    Raises:
        MissingProfileError: it is not there.
        SchemaError: a column is missing.
    """
    path = data / name
    if not path.is_file():
        raise MissingProfileError(f"no {name} in the data folder; it needs all of the open data")
    frame = pd.read_csv(path, dtype={"tp": str, "version": str}, keep_default_na=True)
    missing = [column for column in needed if column not in frame]
    if missing:
        raise SchemaError(f"{name}: no column {', '.join(missing)}")
    return frame.assign(source=name)


def newer_first(rows: Rows, older: pd.DataFrame, family: str) -> Rows:
    """Add the older rows whose key no newer row has."""
    varies = {"engine_version"} | ({"kernel_source"} if family != "attention" else set())
    same = [
        name
        for name in (*FAMILIES[family].identity_names, *FAMILIES[family].axes)
        if name not in varies  # attention: the two top-k kernels share their keys
    ]
    again = _keys(older, ["gpu", *same], family).isin(_keys(rows.frame, ["gpu", *same], family))
    reason = "a newer engine, or the same measurement, is in the newer file"
    for gpu, source in older.loc[again, ["gpu", "source"]].itertuples(index=False):
        rows.dropped.append((gpu, source, reason))
    joined = peer.stacked([rows.frame, older[~again]])
    return Rows(joined, rows.dropped)


def _keys(frame: pd.DataFrame, names: list[str], family: str) -> pd.MultiIndex:
    axes = FAMILIES[family].axes
    columns = {
        name: pd.to_numeric(frame[name]).astype(float).fillna(-1.0) if name in axes else frame[name]
        for name in names
    }
    return pd.MultiIndex.from_frame(pd.DataFrame(columns))


def without_zeros(raw: pd.DataFrame) -> tuple[pd.DataFrame, list[tuple[str, str, str]]]:
    """Rows that are times, and those that are none."""
    zero = raw["us"] < peer.SMALLEST_US
    reason = "0 us: with 512 visible entries or fewer nothing is selected and nothing was timed"
    dropped = [
        (gpu, source, reason)
        for gpu, source in raw.loc[zero, ["gpu", "source"]].itertuples(index=False)
    ]
    return raw[~zero], dropped


def gemm(data: Path) -> Rows:
    """Products; the older file adds precisions and sizes that the newer one lacks."""
    columns = ("gpu", "engine", "gemm_dtype", "m", "n", "k", "us")
    new = read_csv(data, "peer_graph_tables_gemm.csv", (*columns, "version"))
    old = read_csv(data, "peer_gb200_gb300_gemm.csv", columns)
    old = old.assign(version=old["engine"].map(OLD_VERSIONS))
    rows = Rows(peer.gemm(new).assign(gpu=new["gpu"]))
    return newer_first(rows, peer.gemm(old).assign(gpu=old["gpu"]), "gemm")


def experts(data: Path) -> Rows:
    """Routed experts of both files, and the fused kernel of the older one."""
    columns = ("gpu", "engine", "version", "moe_dtype", "hidden_size", "inter_size", "topk",
               "num_experts", "moe_tp_size", "moe_ep_size", "distribution", "num_tokens",
               "us")  # fmt: skip
    new = _with_kernels(read_csv(data, "peer_graph_tables_moe.csv", columns))
    old = _with_kernels(read_csv(data, "peer_gb200_gb300_moe.csv", columns))
    rows = Rows(peer.experts(new).assign(gpu=new["gpu"]))
    rows = newer_first(rows, peer.experts(old).assign(gpu=old["gpu"]), "experts")
    fused = read_csv(data, "peer_gb200_gb300_megamoe.csv", ("gpu", "num_max_tokens_per_rank"))
    version = [ROW_VERSIONS.get((gpu, "megamoe"), MEGA_MOE_VERSION) for gpu in fused["gpu"]]
    fused = fused.assign(engine="sglang", version=version, kernel="deepgemm_megamoe")
    keys = ["gpu", "kernel", "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk",
            "num_experts", "moe_ep_size", "distribution", "num_max_tokens_per_rank"]  # fmt: skip
    fused = peer.merge_repeats(fused, keys, "mean")  # one kernel, timed in both phases
    mega = peer.mega_moe(fused).assign(gpu=fused["gpu"])
    return Rows(peer.stacked([rows.frame, mega]), rows.dropped)


def collectives(data: Path) -> Rows:
    """The newest library of every collective; graph and eager apart."""
    columns = ("gpu", "src", "kernel_source", "op", "dt", "num_gpus", "bytes", "us")
    raw = read_csv(data, "peer_graph_tables_comm.csv", columns)
    split = raw["src"].str.split(" ", n=1, expand=True)
    version = [
        ROW_VERSIONS.get((gpu, src), release)
        for gpu, src, release in zip(raw["gpu"], raw["src"], split[1], strict=True)
    ]
    raw = raw.assign(engine=split[0], version=version, kernel=raw["kernel_source"])
    parts = [peer.collectives(part, gpu=gpu).assign(gpu=gpu) for gpu, part in raw.groupby("gpu")]
    return Rows(peer.stacked(parts))


def hyper_connections(data: Path) -> Rows:
    """mHC; the older file holds nothing that the newer one lacks."""
    columns = ("gpu", "engine", "op_name", "num_sites", "hc_mult", "hidden_size", "num_tokens",
               "us")  # fmt: skip
    new = read_csv(data, "peer_graph_tables_mhc.csv", (*columns, "version"))
    old = read_csv(data, "peer_gb200_gb300_mhc.csv", columns)
    old = old.assign(version=old["engine"].map(OLD_VERSIONS))
    rows = Rows(peer.hyper_connections(new).assign(gpu=new["gpu"]))
    older = peer.hyper_connections(old).assign(gpu=old["gpu"])
    return newer_first(rows, older, "hyper_connections")


def attention(data: Path) -> Rows:
    """Modules at four ranks and kernels at all heads; more lengths from the older file."""
    columns = ("gpu", "engine", "table", "num_heads", "batch_size", "isl", "step",
               "compress_ratio", "us")  # fmt: skip
    new = read_csv(data, "peer_graph_tables_attention.csv", (*columns, "version"))
    old = read_csv(data, "peer_gb200_gb300_dsv4_attention.csv", columns)
    old = old.assign(version=old["engine"].map(OLD_ATTENTION_VERSIONS))
    frames, dropped = [], []
    for raw in (new, old):
        timed, zeros = without_zeros(raw)
        timed = timed.assign(tp_size=HEADS // timed["num_heads"])
        frames.append(peer.attention(timed).assign(gpu=timed["gpu"]))
        dropped += zeros
    return newer_first(Rows(frames[0], dropped), frames[1], "attention")


def quantise(data: Path) -> Rows:
    """BF16 to FP8."""
    raw = read_csv(data, "peer_graph_tables_quantize.csv",
                   ("gpu", "engine", "version", "m", "k", "us"))  # fmt: skip
    return Rows(peer.quantise(raw).assign(gpu=raw["gpu"]))


def v41_modules(data: Path) -> Rows:
    """V4.1's modules, every campaign."""
    raw = read_csv(data, "dsv41_modules.csv",
                   ("gpu", "source_table", "tp", "decoder_replay", "component", "module", "phase",
                    "batch_size", "prefix_tokens", "x", "bounded_prefill", "latency_ms",
                    "sample_count", "kernel_source"))  # fmt: skip
    raw = _campaign(raw)
    return Rows(peer.v41_modules(raw).assign(gpu=raw["gpu"]))


def v41_dense(data: Path) -> Rows:
    """V4.1's gate, head, experts and all-reduce, every campaign."""
    raw = read_csv(data, "dsv41_comm_moe_gemm.csv",
                   ("gpu", "source_table", "tp", "decoder_replay", "op", "dtype", "m_tokens", "n",
                    "k", "num_gpus", "bytes", "latency_ms", "sample_count",
                    "kernel_source"))  # fmt: skip
    raw = _campaign(raw).assign(m=raw["m_tokens"])
    reduce = raw["op"] == "all_reduce"
    version = raw["kernel_source"].str.rpartition("_")[2]
    raw = raw.assign(
        engine=reduce.map({True: "nccl", False: "sglang"}),
        version=version.where(reduce, peer.SGLANG_V41),
        kernel=raw["kernel"].mask(reduce, "torch_all_reduce"),
    )
    parts = [peer.v41_dense(part, gpu=gpu).assign(gpu=gpu) for gpu, part in raw.groupby("gpu")]
    return Rows(peer.stacked(parts))


def _campaign(raw: pd.DataFrame) -> pd.DataFrame:
    return raw.assign(
        campaign=raw["source_table"],
        kernel=raw["kernel_source"],
        us=(raw["latency_ms"] * 1000.0).round(6),
        samples=raw["sample_count"],
        tp=raw["tp"].replace({"any": ANY}).astype(int),
    )


def _with_kernels(raw: pd.DataFrame) -> pd.DataFrame:
    def kernel(gpu: str, engine: str, version: str, dtype: str, experts: int) -> str:
        if gpu in HOPPER and dtype == "w4a16_mxfp4":
            if experts == 896 and engine == "sglang":
                return "sglang_marlin_moe_situ_as_silu"
            if engine == "vllm":
                return VLLM_MARLIN if experts == 896 else VLLM_TRITON
        series = (engine, version, dtype)
        if gpu in HOPPER and series in HOPPER_KERNELS:
            return HOPPER_KERNELS[series]
        return EXPERT_KERNELS.get(series, NOT_RECORDED)

    columns = raw[["gpu", "engine", "version", "moe_dtype", "num_experts"]]
    return raw.assign(kernel=[kernel(*row) for row in columns.itertuples(index=False)])


READERS: dict[str, Callable[[Path], Rows]] = {
    "gemm": gemm,
    "experts": experts,
    "collectives": collectives,
    "hyper_connections": hyper_connections,
    "attention": attention,
    "quantise": quantise,
    "v41_modules": v41_modules,
    "v41_dense": v41_dense,
}
