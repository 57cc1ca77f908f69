"""Tables out of another package: a made-up one in its form, with its traps."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.tables import FAMILIES, load_table
from aisim_v41.tables import aisimulate as reader
from aisim_v41.tables.checkout import ENGINE_TABLES

PACKAGE = reader.PACKAGE
LABELS = {"framework": "SGLang", "device": "NVIDIA GB200"}
REVISION = "dev-1aa0e962b206102b7c439a4a0c4981cfec6e87bc"


def put(root: Path, place: str, rows: list[dict[str, Any]]) -> Path:
    path = root / PACKAGE / "systems" / f"{place}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
    return path


def gemm(root: Path) -> None:
    def row(latency: float, dtype: str = "bfloat16", m: int = 1, version: str = "0.5.20"):
        return {**LABELS, "version": version, "op_name": "gemm", "kernel_source": f"k{m}",
                "gemm_dtype": dtype, "m": m, "n": 512, "k": 1024, "latency": latency}  # fmt: skip

    put(root, "data/gb200/gemm/sglang/0.5.20/gemm_perf",
        [row(0.004), row(0.003), row(0.005, m=16), row(0.006, "fp8_block")])  # fmt: skip
    put(root, "data/gb200/gemm/vllm/0.24.0/gemm_perf", [row(0.3, "fp8_block", version="0.24.0")])
    put(root, f"data/gb200/gemm/sglang/{REVISION}/gemm_perf", [
        {"gemm_dtype": "bfloat16", "m": 1, "n": n, "k": 5120, "latency": 0.05,
         "kernel_source": "x", "sample_count": 20} for n in (384, 64640, 32320)])  # fmt: skip


def experts(root: Path) -> None:
    sizes = {"num_tokens": 64, "hidden_size": 4096, "inter_size": 2048, "topk": 6,
             "num_experts": 256, "moe_tp_size": 4, "moe_ep_size": 1,
             "distribution": "balanced"}  # fmt: skip
    row = {**LABELS, "version": "0.5.14", "op_name": "moe", "kernel_source": "kk",
           "moe_dtype": "w4a8_mxfp4_mxfp8", **sizes}  # fmt: skip
    put(root, "data/gb200/moe/sglang/0.5.14/moe_perf",
        [{**row, "latency": 0.150}, {**row, "latency": 0.152}])  # fmt: skip
    fused = {**row, "version": "0.5.11", "phase": "context", "moe_ep_size": 4,
             "num_max_tokens_per_rank": 512}  # fmt: skip
    put(root, "data/gb200/moe/sglang/0.5.10/dsv4_megamoe_module_perf",
        [{**fused, "latency": 0.7}])  # fmt: skip
    own = {key: row[key] for key in ("kernel_source", "moe_dtype", *sizes)}
    put(root, f"data/gb200/moe/sglang/{REVISION}/moe_perf",
        [{**own, "latency": 0.4, "sample_count": 20, "distribution": "uniform"}])  # fmt: skip


def collectives(root: Path) -> None:
    row = {**LABELS, "op_name": "all_reduce", "allreduce_dtype": "bfloat16", "num_gpus": 4}
    put(root, "data/gb200/comm/sglang/0.5.20/custom_allreduce_perf", [
        {**row, "version": "0.5.20", "kernel_source": f"SGLang_CustomAllReduce_{mode}",
         "message_size": 128, "latency": 0.004 if mode == "graph" else 0.08}
        for mode in ("graph", "eager")])  # fmt: skip
    nccl = {**LABELS, "op_name": "alltoall", "kernel_source": "NCCL", "nccl_dtype": "half",
            "num_gpus": 8, "message_size": 256}  # fmt: skip
    put(root, "data/gb200/comm/nccl/2.29.2/nccl_perf",
        [{**nccl, "version": "2.29.2", "latency": 0.009}])  # fmt: skip
    put(root, "data/gb200/comm/nccl/2.23/nccl_perf", [
        {**nccl, "version": "2.29.2", "latency": 0.010},
        {**nccl, "version": "2.27.7", "latency": 0.011}])  # fmt: skip
    put(root, "data/gb200/comm/nccl/2.30.7/nccl_perf", [
        {"op_name": "all_reduce", "nccl_dtype": "half", "num_gpus": 4, "message_size": 5120,
         "wire_dtype": "bfloat16", "latency": 0.12, "kernel_source": "torch", "sample_count": 20}
    ])  # fmt: skip


def attention(root: Path) -> None:
    row = {**LABELS, "model": "sgl-project/DeepSeek-V4-Flash-FP8", "gemm_type": "fp8_block",
           "num_heads": 16, "batch_size": 1, "isl": 1, "tp_size": 4, "compress_ratio": 4,
           "version": "0.5.14", "kernel_source": "compressed_flashmla"}  # fmt: skip
    place = "data/gb200/sparse_attention/sglang/0.5.14"
    put(root, f"{place}/dsv4_csa_generation_module_perf", [
        {**row, "step": step, "latency": 0.06} for step in (1024, 8192)]
        + [{**row, "step": 1024, "latency": 9.0, "gemm_type": "bfloat16"},
           {**row, "step": 1024, "latency": 9.0, "model": "DeepSeek-V4-Pro"}])  # fmt: skip
    put(root, f"{place}/dsv4_csa_topk_calib_perf", [
        {**row, "num_heads": 64, "tp_size": 1, "step": step, "latency": latency,
         "score_mode": mode, "version": "kernel-level"}
        for step, latency, mode in ((64, 0.0, "v2_flat"), (8192, 0.063, "v2_flat"),
                                    (8192, 0.004, "v2_top_last"))])  # fmt: skip


def v41(root: Path) -> None:
    def row(component: str, geometry: dict[str, Any], x: int, **more: Any) -> dict[str, Any]:
        return {"component": component, "geometry": json.dumps(geometry), "batch_size": 1,
                "prefix": 0, "x": x, "latency": 1.5, "sample_count": 5,
                "execution_profile": "full", **more}  # fmt: skip

    full = {"role": "full", "compress_ratio": 1, "num_heads": 16, "is_context": False,
            "bounded_prefill": False}  # fmt: skip
    reuse = {**full, "role": "reuse", "is_context": True, "bounded_prefill": True}
    put(root, f"data/gb200/dsv41/sglang/{REVISION}/dsv41_module_perf", [
        row("attention", full, 1025), row("linear", {"k": 576, "n": 5120}, 8),
        row("linear", {"k": 5120, "n": 2304}, 8),
        row("engram", {"num_embeddings": 384016682, "tp_size": 2}, 8), row("mhc", {}, 8),
        row("attention", reuse, 128, prefix=384, execution_profile="decoder_bounded")])  # fmt: skip
    put(root, "profiles/dsv41/tp2/full/data/gb200/dsv41/sglang/dev-800/dsv41_module_perf",
        [row("mhc", {}, 8)])  # fmt: skip


def others(root: Path) -> None:
    put(root, "data/gb200/mhc/sglang/0.5.20/mhc_module_perf", [
        {**LABELS, "version": "0.5.20", "op_name": name, "num_tokens": 64, "num_sites": sites,
         "hc_mult": 4, "hidden_size": 4096, "latency": 0.02}
        for name, sites in (("pre", 2), ("expand", 1))])  # fmt: skip
    put(root, "data/gb200/quantize/sglang/0.5.14/scale_matrix_perf", [
        {**LABELS, "version": "0.5.14", "m": 64, "k": 4096, "latency": 0.02}])  # fmt: skip


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder that can be found, and fails if it is imported."""
    for make in (gemm, experts, collectives, attention, v41, others):
        make(tmp_path)
    (tmp_path / PACKAGE / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    reader._read.cache_clear()
    yield tmp_path
    reader._read.cache_clear()
    assert PACKAGE not in sys.modules


@pytest.mark.parametrize("family", ENGINE_TABLES)
def test_every_family_reads_into_the_same_form(package: Path, family: str):
    table = load_table("gb200", family, source="aisimulate")
    assert "aisimulate" in table.origin
    assert set(table.columns) == {column.name for column in FAMILIES[family].columns}
    assert sum(len(table.select(flags=table_flags(), **i)) for i in table.identities) == len(table)


def table_flags():
    from aisim_v41.tables import FLAGS

    return FLAGS


def test_products(package: Path):
    table = load_table("gb200", "gemm", source="aisimulate")
    row = table.select(engine="sglang", dtype="bf16").exact(rows=1, outputs=512, inputs=1024)
    assert row.latency_us == pytest.approx(3)
    assert row.samples == 2
    assert row.spread_relative == pytest.approx(1 / 3)
    assert row.caveat == "weights_may_stay_in_l2"
    assert len(table.select(engine="vllm")) == 0  # packs its weights
    assert len(table.select(engine="vllm", flags=["weight_packing"])) == 1
    assert len(table) == 4  # V4.1's own rows are not among them


def test_experts(package: Path):
    table = load_table("gb200", "experts", source="aisimulate")
    part = table.select(operator="routed_experts")
    assert part.latency_us.tolist() == [pytest.approx(151)]
    assert part.identity["kernel_source"] == "kk"
    fused = table.select(operator="mega_moe")
    assert fused.sizes["tokens"].tolist() == [256]
    assert fused.identity["engine_version"] == "0.5.11"


def test_collectives(package: Path):
    table = load_table("gb200", "collectives", source="aisimulate")
    part = table.select(operator="all_reduce", execution="graph")
    assert part.exact(message_bytes=256, ranks=4).latency_us == pytest.approx(4)
    assert part.identity["reach"] == "one_tray"
    far = {i["engine_version"] for i in table.matching(operator="all_to_all")}
    assert far == {"2.29.2", "2.29.2_in_2.23", "2.27.7"}
    assert {i["reach"] for i in table.matching(engine="nccl")} == {"across_trays"}


def test_attention(package: Path):
    table = load_table("gb200", "attention", source="aisimulate")
    assert table.select(operator="csa_decode").sizes["prefix_tokens"].tolist() == [1024]
    assert len(table.select(operator="csa_decode", flags=["equal_scores"])) == 2
    topk = table.select(operator="index_topk", score_pattern="equal")
    assert topk.sizes["prefix_tokens"].tolist() == [8192]
    assert topk.identity["engine_version"] == "0.5.14"


def test_v41(package: Path):
    table = load_table("gb200", "v41_modules", source="aisimulate")
    decode = table.select(operator="full_r1")
    assert decode.exact(batch=1, new_tokens_per_request=1, prefix_tokens=1024).samples == 5
    assert decode.identity["tensor_parallel"] == 4
    bounded = table.select(operator="reuse_r1")
    assert bounded.identity["prefill_rows"] == "bounded"
    assert bounded.exact(batch=1, new_tokens_per_request=128, prefix_tokens=384)
    mhc = {i["campaign"]: i["tensor_parallel"] for i in table.matching(operator="mhc")}
    assert mhc == {"data-gb200": 0, "profile-tp2-full-gb200": 2}
    assert table.select(operator="shared_gate_up").identity["tensor_parallel"] == 2
    assert table.select(operator="shared_down").identity["tensor_parallel"] == 4
    assert table.select(operator="engram_layer_14").identity["tensor_parallel"] == 2
    dense = load_table("gb200", "v41_dense", source="aisimulate")
    assert dense.select(operator="all_reduce").sizes["message_bytes"].tolist() == [10240]
    assert dense.select(operator="head", tensor_parallel=4).sizes["outputs"].tolist() == [32320]
    assert dense.select(operator="routed_experts").sizes["hidden"].tolist() == [5120]


def test_absent_things_are_said(package: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(MissingProfileError, match="no table under"):
        load_table("h100", "gemm", source="aisimulate")
    with pytest.raises(MissingProfileError, match="has no 'rtx_4090'"):
        load_table("rtx_4090", "gemm", source="aisimulate")
    monkeypatch.setattr(reader, "PACKAGE", "aisimulate_core_that_is_not_there")
    with pytest.raises(MissingProfileError, match="not installed; `pip install aisimulate`"):
        load_table("gb200", "gemm", source="aisimulate")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="k"), "no column k"),
        (lambda f: f.drop(columns="latency"), "no column latency"),
        (lambda f: f.assign(latency="fast"), "column latency must hold a number"),
        (lambda f: f.assign(m=None), "column m must hold a number"),
        (lambda f: f.assign(latency=-f["latency"]), "no table under"),
        (lambda f: f.assign(latency=math.inf), "column latency_us"),
        (lambda f: f.assign(n=0), "column outputs"),
        (lambda f: f.assign(m=1.5), "whole numbers"),
    ],
)
def test_a_release_of_another_form_is_refused(package: Path, change, said: str):
    folder = package / PACKAGE / "systems" / "data" / "gb200" / "gemm"
    path = folder / "sglang" / "0.5.20" / "gemm_perf.parquet"
    (folder / "vllm" / "0.24.0" / "gemm_perf.parquet").unlink()
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises((SchemaError, MissingProfileError)) as error:
        load_table("gb200", "gemm", source="aisimulate")
    assert said in str(error.value)


def test_damage_is_refused(package: Path):
    folder = package / PACKAGE / "systems" / "data" / "gb200"
    (folder / "mhc" / "sglang" / "0.5.20" / "mhc_module_perf.parquet").write_bytes(b"PAR1")
    with pytest.raises(SchemaError, match="not readable as Parquet"):
        load_table("gb200", "hyper_connections", source="aisimulate")
    path = folder / "dsv41" / "sglang" / REVISION / "dsv41_module_perf.parquet"
    rows = pd.read_parquet(path)
    for geometry in ("{", "[]", "{}", '{"num_embeddings": 3, "tp_size": 2}'):
        rows.assign(geometry=geometry, component="engram").to_parquet(path)
        with pytest.raises(SchemaError, match=r"is not one of V4\.1"):
            load_table("gb200", "v41_modules", source="aisimulate")
