"""A small table to break, and the place where it lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aisim_v41.tables.sidecar import digest
from aisim_v41.tables.write import write_table

SOURCE = {
    "id": "mine.csv",
    "package": "none",
    "version": "1",
    "path": "mine.csv",
    "date": "2026-11",
    "note": "made for a test",
}
TIMING = {"method": "a stop watch", "statistic": "median", "environment": "none"}
SIDECAR = {
    "licence": "Apache-2.0",
    "notice": "Copyright (c) nobody",
    "sources": [SOURCE],
    "timing": TIMING,
}


def dense_frame() -> pd.DataFrame:
    """Twelve rows of v41_dense: three operators with other axes, one of them flagged."""
    common = {
        "engine": "sglang",
        "engine_version": "1",
        "kernel_source": "k",
        "dtype": "bf16",
        "execution": "eager",
        "cache_state": "unknown",
        "decoder_replay": "off",
        "campaign": "c",
        "model_shapes": "v4.1_exact",
        "tensor_parallel": 4,
        "expert_parallel": 0,
        "expert_load": "none",
        "reach": "none",
        "source": "mine.csv",
    }
    rows: list[dict[str, Any]] = []
    for n, rows_of in enumerate((1, 16, 128, 1024)):
        size = {"rows": rows_of, "outputs": 384, "inputs": 5120}
        rows.append({**common, "operator": "router_gate", **size, "latency_us": 20.0 + n})
        size = {"message_bytes": 10240 * rows_of, "ranks": 4}
        rows.append({**common, "operator": "all_reduce", "engine": "nccl", "reach": "one_tray",
                     **size, "latency_us": 30.0 + n, "samples": 5})  # fmt: skip
        size = {"tokens": rows_of, "hidden": 5120, "expert_width": 2304, "experts_routed": 384,
                "experts_per_token": 6}  # fmt: skip
        rows.append({**common, "operator": "routed_experts", "expert_load": "uniform", **size,
                     "latency_us": 300.0 + n, "flag": "faulty_node" if n == 2 else ""})  # fmt: skip
    return pd.DataFrame(rows).fillna({"flag": ""})


def write_small(folder: Path, frame: pd.DataFrame | None = None, **changes: Any) -> Path:
    """The small table under ``folder``, as a GPU of its own."""
    return write_table(
        dense_frame() if frame is None else frame,
        folder=folder,
        **{"gpu": "gb200", "family": "v41_dense", **SIDECAR, **changes},
    )


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows behind the writer's back, digest and all."""
    pq.write_table(change(pq.read_table(path)), path)
    rehash(path)


def rehash(path: Path) -> None:
    """Make the sidecar agree with the bytes again."""
    edit(path, sha256=digest(path.read_bytes()))


def edit(path: Path, **fields: Any) -> None:
    """Overwrite fields of the sidecar."""
    companion = path.with_suffix(".json")
    companion.write_text(json.dumps({**json.loads(companion.read_text()), **fields}))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_small(tmp_path / "profiles")
