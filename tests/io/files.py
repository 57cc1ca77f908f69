"""Files in the formats of others, made here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

COUNTS = ("num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens",
          "num_decode_requests", "sum_decode_kv_tokens")  # fmt: skip


def load(
    *counts: int, prompts: float | None = 0.0, contexts: float | None = 0.0, **more: Any
) -> Any:
    """``scheduled_requests`` with the counts in the order of `COUNTS`."""
    variances = {"var_prefill_length": prompts, "var_decode_kv_tokens": contexts}
    said = {name: value for name, value in variances.items() if value is not None}
    return {**dict(zip(COUNTS, counts, strict=True)), **said, **more}


def message(scheduled: Any, seconds: float = 0.01, **more: Any) -> dict[str, Any]:
    """A message of version 1."""
    return {
        "version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": 1, "wall_time": seconds,
        "scheduled_requests": scheduled, "queued_requests": {}, **more,
    }  # fmt: skip


def json_lines(path: Path, rows: Iterable[Any]) -> Path:
    """A file of one row a line; text is written as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def point(number: int, kind: str, batch: int, new: int, kv: int, **more: Any) -> dict[str, Any]:
    """A point of the self-benchmark."""
    return {
        "point_type": kind, "benchmark_id": number, "batch_size": batch,
        "total_prefill_tokens": new, "total_kv_read_tokens": kv,
        "expected_cudagraph_mode": "NONE", "expected_capture_size": None, "sample_reasons": [],
        **more,
    }  # fmt: skip


def measured(entry: Mapping[str, Any], seconds: float, **more: Any) -> dict[str, Any]:
    """A result: the point and its one message."""
    batch, new, kv = (entry[name] for name in ("batch_size", "total_prefill_tokens",
                                               "total_kv_read_tokens"))  # fmt: skip
    prefill = entry["point_type"] == "prefill"
    scheduled = load(*((batch, new, kv, 0, 0) if prefill else (0, 0, 0, batch, kv)),
                     prompts=None, contexts=None)  # fmt: skip
    return {"point": dict(entry), "fpms": [message(scheduled, seconds)], **more}


def rank_file(
    path: Path, results: list[dict[str, Any]], rank: int = 0, ranks: int = 1, **more: Any
) -> Path:
    """A rank file of the self-benchmark."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "schema_version": 2, "artifact_type": "rank", "status": "complete", "valid": True,
        "usable": True, "timing_valid": True, "stop_reason": None, "error": None,
        "run_id": "run-1", "grid_digest": "grid", "dp": {"rank": rank, "size": ranks},
        "coverage": {"expected_points": len(results), "completed_points": len(results)},
        "results": results, "iteration_groups": [], "skipped_points": [], **more,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path
