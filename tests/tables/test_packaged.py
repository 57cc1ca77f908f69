"""The packaged tables: all there, all sound, and the numbers of the open data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aisim_v41.hardware import load_hardware
from aisim_v41.resources import data_root
from aisim_v41.tables import FLAGS, GPUS, available_tables, load_table
from aisim_v41.tables.checkout import ENGINE_TABLES
from aisim_v41.tables.load import _read

ROWS = {
    "gemm": (9368, 9368, 3528, 3528, 3528, 3528),
    "experts": (4603, 4809, 2214, 2618, 1809, 1809),
    "collectives": (658, 628, 597, 597, 597, 597),
    "hyper_connections": (594, 595, 489, 595, 594, 587),
    "attention": (5497, 5497, 1672, 1672, 1468, 1468),
    "quantise": (336, 336, 336, 336, 336, 336),
    "v41_modules": (2395, 1796, 2395, 4028, 2395, 2395),
    "v41_dense": (135, 160, 135, 460, 135, 135),
}
"""In the order of GPUS."""
ALL = [(gpu, family) for family in ENGINE_TABLES for gpu in GPUS]
FOLDER = data_root() / "profiles"


@pytest.mark.parametrize(("gpu", "family"), ALL)
def test_every_table_loads_with_its_rows(gpu: str, family: str):
    table = load_table(gpu, family)
    assert len(table) == ROWS[family][GPUS.index(gpu)]
    parts = [table.select(flags=FLAGS, **identity) for identity in table.identities]
    assert sum(map(len, parts)) == len(table)
    assert sum(entry["rows"] for entry in table.sidecar["flags"].values()) + sum(
        len(table.select(**identity)) for identity in table.identities
    ) == len(table)


def test_nothing_else_is_packaged():
    assert sorted(ALL) == sorted(available_tables())
    files = [path for path in FOLDER.glob("*/op/*") if path.suffix in (".parquet", ".json")]
    assert {path.stem for path in files} == set(ENGINE_TABLES)
    assert len(files) == 2 * len(ALL)
    assert sum(path.stat().st_size for path in files) < 1.5e6
    assert set(GPUS) <= {path.stem for path in (data_root() / "hardware").glob("*.yaml")}


@pytest.mark.parametrize(("gpu", "family"), ALL)
def test_sidecars_carry_the_notice_and_nothing_of_a_machine(gpu: str, family: str):
    text = (FOLDER / gpu / "op" / f"{family}.json").read_text("utf-8")
    sidecar = json.loads(text)
    assert sidecar["licence"] == "Apache-2.0"
    assert "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES" in sidecar["notice"]
    assert "SGLang Team and contributors" in sidecar["notice"]
    raw = (FOLDER / gpu / "op" / f"{family}.parquet").read_bytes()
    for said in (text, raw.decode("latin-1")):
        assert not re.search(r"/(?:work|home|root|tmp|Users|mnt)/", said)


def of(**fields):
    return fields


# Hand-picked lines of the CSV files: identity, key, microseconds.
KNOWN = [
    ("gb200", "gemm", of(engine="sglang", engine_version="0.5.20", dtype="bf16"),
     of(rows=1, outputs=512, inputs=5120), 5.9),
    ("gb300", "gemm", of(engine="sglang", engine_version="0.5.20", dtype="fp8_block128"),
     of(rows=128, outputs=5120, inputs=2048), 8.01),
    ("gb300", "gemm", of(engine="sglang", dtype="nvfp4"),
     of(rows=128, outputs=5120, inputs=2048), 5.91),
    ("gb200", "gemm", of(engine="trtllm", dtype="fp8_block128"),
     of(rows=8192, outputs=51200, inputs=5120), 1425.6),
    ("gb200", "gemm", of(engine="sglang", engine_version="0.5.14", dtype="fp8_block128"),
     of(rows=1024, outputs=16384, inputs=5120), 58.34),
    ("h200", "gemm", of(engine="vllm", dtype="bf16"),
     of(rows=1024, outputs=4096, inputs=5120), 57.24),
    ("b200", "experts", of(engine="sglang", dtype="mxfp4_mxfp8", expert_load="balanced",
                             model_shapes="v4_family", tensor_parallel=4, expert_parallel=1),
     of(tokens=64, hidden=4096, expert_width=2048, experts_routed=256, experts_per_token=6),
     150.89),
    ("h200", "experts", of(engine="vllm", engine_version="0.25.0", dtype="fp8_block128",
                             model_shapes="v4_family", tensor_parallel=4, expert_parallel=1),
     of(tokens=64, hidden=4096, expert_width=2048, experts_routed=256, experts_per_token=6),
     394.09),
    ("gb200", "experts", of(engine="vllm", engine_version="0.24.0", tensor_parallel=8,
                              expert_load="power_law_1.2", dtype="mxfp4_mxfp8"),
     of(tokens=64, hidden=4096, expert_width=2048, experts_routed=256, experts_per_token=6),
     74.82),
    ("gb300", "experts", of(operator="mega_moe", expert_parallel=4, expert_load="balanced"),
     of(tokens=4096, hidden=7168, expert_width=3072, experts_routed=384, experts_per_token=6,
          rank_capacity_tokens=1024), (706.42 + 705.52) / 2),
    ("gb300", "collectives", of(kernel_source="SGLang_CustomAllReduce_graph",
                                  reach="one_tray"),
     of(message_bytes=16777216, ranks=4), 46.56),
    ("gb300", "collectives", of(kernel_source="SGLang_CustomAllReduce_eager",
                                  reach="one_tray"),
     of(message_bytes=16777216, ranks=4), 104.75),
    ("h100", "collectives", of(engine="nccl", operator="all_to_all"),
     of(message_bytes=1048576, ranks=8), 15.61),
    ("gb200", "hyper_connections", of(operator="fused_post_pre"),
     of(tokens=64, hidden=4096), 24.9),
    ("h200", "hyper_connections", of(engine="sglang", engine_version="0.5.20",
                                       operator="post"),
     of(tokens=64, hidden=4096), 6.7),
    ("gb200", "attention", of(engine="vllm", engine_version="0.25.0", operator="csa_decode"),
     of(batch=1, new_tokens_per_request=1, prefix_tokens=8192), 67.4),
    ("gb200", "attention", of(engine="vllm", engine_version="0.24.0", operator="csa_decode"),
     of(batch=2, new_tokens_per_request=1, prefix_tokens=1024), 65.0),
    ("gb300", "attention", of(engine="sglang", operator="csa_prefill"),
     of(batch=4, new_tokens_per_request=1024, prefix_tokens=16384), 1370.8),
    ("b300", "attention", of(operator="attention_kernel", model_shapes="other_model"),
     of(batch=1, new_tokens_per_request=8192, prefix_tokens=8192), 3887.8),
    ("gb300", "quantise", of(engine="trtllm"), of(rows=1024, inputs=5120), 4.67),
    ("b200", "v41_modules", of(operator="full_r1", tensor_parallel=4, phase="decode"),
     of(batch=2, new_tokens_per_request=1, prefix_tokens=1024), 1616.8),
    ("gb200", "v41_modules", of(operator="mhc"), of(tokens=128), 511.376),
    ("gb300", "v41_modules", of(operator="reuse_r1", prefill_rows="bounded"),
     of(batch=1, new_tokens_per_request=128, prefix_tokens=384), 1574.82),
    ("h100", "v41_dense", of(operator="routed_experts", tensor_parallel=2),
     of(tokens=64, hidden=5120, expert_width=2304, experts_routed=384, experts_per_token=6),
     1384.06),
    ("h200", "v41_dense", of(operator="router_gate"), of(rows=32, outputs=384, inputs=5120),
     27.728),
    ("b200", "v41_dense", of(operator="all_reduce"), of(message_bytes=10240, ranks=4),
     39.984),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "family", "identity", "key", "latency_us"), KNOWN)
def test_known_rows_come_back_exactly(gpu, family, identity, key, latency_us):
    row = load_table(gpu, family).select(**identity).exact(**key)
    assert row is not None
    assert row.latency_us == pytest.approx(latency_us, rel=1e-12)
    assert row.key == key
    assert row.flag == ""


def test_samples_and_spread_of_repeats():
    fused = load_table("gb300", "experts").select(
        operator="mega_moe", expert_parallel=4, expert_load="balanced"
    )
    row = fused.exact(tokens=4096, hidden=7168, expert_width=3072, experts_routed=384,
                      experts_per_token=6, rank_capacity_tokens=1024)  # fmt: skip
    assert row.samples == 2
    assert row.spread_relative == pytest.approx(706.42 / 705.52 - 1)
    gate = load_table("h200", "v41_dense").select(operator="router_gate")
    assert gate.exact(rows=32, outputs=384, inputs=5120).samples == 20


def test_gpus_of_the_tables_are_gpus_of_the_library():
    for gpu in GPUS:
        assert load_hardware(gpu).name == gpu


def test_a_table_loads_in_a_blink():
    """Below 60 ms each, once pyarrow is there; the fastest of three, against a busy machine."""
    load_table("gb200", "gemm")
    for gpu, family in ALL:
        path = FOLDER / gpu / "op" / f"{family}.parquet"
        spent = []
        for _ in range(3):
            start = time.perf_counter()
            _read(path)
            spent.append(time.perf_counter() - start)
        assert min(spent) < 0.060, (gpu, family, spent)


def test_loading_twice_is_the_same_table():
    assert load_table("gb200", "gemm") is load_table("gb200", "gemm")


def test_importing_the_library_imports_no_table_reader():
    code = (
        "import sys, aisim_v41, aisim_v41.tables; "
        "print(sorted(m for m in ('pyarrow', 'pandas', 'aisimulate_core') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_user_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.tables.conftest import write_small

    write_small(tmp_path / "profiles")
    write_small(tmp_path / "profiles", gpu="gpu_of_mine")
    monkeypatch.setenv("AISIM_V41_PATH", os.pathsep.join(["", str(tmp_path)]))
    assert len(load_table("gb200", "v41_dense")) == 12
    assert len(load_table("gpu_of_mine", "v41_dense")) == 12
    assert ("gpu_of_mine", "v41_dense") in available_tables()
    assert len(load_table("gb200", "gemm")) == 9368
