"""AISimulate's pairs of Parquet and sidecar, made here."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CELL: dict[str, Any] = {
    "cell_id": "c", "model_path": "m", "system": "b200_sxm", "backend": "vllm",
    "backend_version": "0.30.0", "weight_quantization": "fp8", "gemm_quant_mode": "fp8",
    "moe_quant_mode": "mxfp4", "fmha_quant_mode": "fp8", "comm_quant_mode": "half",
    "kv_cache_dtype": "fp8", "tp": 4, "pp": 1, "dp": 1, "moe_tp": 4, "moe_ep": 1, "cp": 1,
    "moe_backend": "auto", "attention_backend": "auto", "enable_wideep": False,
    "enable_eplb": False, "model_config_sha256": "", "execution_profile": "decoder_bounded",
    "engram_residency": "hbm_tp_sharded", "input_modality": "text",
    "partition_policy": "balanced_v1", "runtime_run_id": "r",
}  # fmt: skip
NEW_IN_7 = ("model_config_sha256", "execution_profile", "engram_residency", "input_modality")
NEW_IN_6 = ("moe_backend", "attention_backend", "enable_wideep", "enable_eplb")


def row(kind: str, batch: int, new: int, kv: int, ms: float, **change: Any) -> dict[str, Any]:
    """A row; decodes read computed KV."""
    seed = "real_kv" if kind == "decode" else "n/a"
    return {
        **CELL, "workload_kind": kind, "batch_size": batch, "total_prefill_tokens": new,
        "total_kv_read_tokens": kv, "latency_ms": ms, "kv_seed_regime": seed, **change,
    }  # fmt: skip


ROWS = [
    row("prefill", 1, 512, 0, 20.0),
    row("prefill", 2, 96, 3072, 24.0),
    row("decode", 4, 0, 4001, 9.5),
]


def saved(folder: Path, rows: list[dict[str, Any]] | pa.Table = ROWS, **sidecar: Any) -> Path:
    """A pair under its usual names, of rows or of a whole table."""
    file = folder / "fpm_forward_perf.parquet"
    pq.write_table(pa.Table.from_pylist(rows) if isinstance(rows, list) else rows, file)
    document = {
        "schema_name": "aic_fpm_forward_perf", "schema_version": 7,
        "coordinate_system": "iteration_totals_balanced_v1",
        "measurement_policy": "dynamo_native_single_sample_v1",
        "parquet_sha256": sha256(file.read_bytes()).hexdigest(), "row_count": len(rows),
        "system": "b200_sxm", "backend": "vllm", "backend_version": "0.30.0", **sidecar,
    }  # fmt: skip
    file.with_suffix(".metadata.json").write_text(json.dumps(document))
    return file
