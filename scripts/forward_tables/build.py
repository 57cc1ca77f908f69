"""CSV files to tables of forwards."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from aisim_v41 import Parallel, Request, load_hardware, load_model, policy
from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable
from aisim_v41.model.description import Model
from scripts.forward_tables.notes import (
    CAMPAIGNS,
    GB200,
    GB200_REMARKS,
    GB200_SOURCES,
    GB300,
    GB300_REMARKS,
    GB300_SOURCES,
    LICENCE,
    NOTICE,
)

MODEL = "deepseek-v4.1-flash"
HISTORICAL = "historical_2026_09_10"
"""Regime of the first GB200 campaign, and the name of its one run."""
EAGER = {"prefill_execution": "eager", "decode_execution": "eager", "engram_residency": "hbm"}
_STEP = (
    "phase", "batch_size", "new_tokens_per_request", "past_tokens_per_request", "tp_size",
    "decoder_replay", "execution_mode", "latency_ms", "source_file", "source_commit",
)  # fmt: skip


def tables(data: Path) -> Iterator[StepTable]:
    """Every packaged table, from a folder with the CSV files.

    Raises:
        MissingProfileError: a file is not there.
        SchemaError: a file lacks a column, or a row is none.
    """
    yield from gb300(data)
    yield gb200(data)


def gb300(data: Path) -> Iterator[StepTable]:
    """SGLang on GB300: decoder replay off, then on."""
    points = _rows(data / "gb300_forward_points.csv", *_STEP, "campaign", "run_order", "point_id",
                   "samples_per_point", "timer")  # fmt: skip
    samples: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for row in _rows(data / "gb300_forward_repeats.csv", "campaign", "point_id", "decoder_replay",
                     "repeat_index", "latency_ms"):  # fmt: skip
        samples.setdefault(_point(row), []).append(
            (int(row["repeat_index"]), float(row["latency_ms"]))
        )
    for replay in ("off", "on"):
        chosen = [
            row
            for row in points
            if row["decoder_replay"] == replay and row["campaign"] in CAMPAIGNS
        ]
        _require(chosen, tp_size="4", execution_mode="eager", timer=GB300.timer)
        yield StepTable(
            identity=_identity("gb300", "sglang", GB300, decoder_replay=replay == "on"),
            records=tuple(
                StepRecord(
                    step=_step(row),
                    latency_ms=float(row["latency_ms"]),
                    samples_ms=tuple(value for _, value in sorted(samples[_point(row)])),
                    samples=int(row["samples_per_point"]),
                    run=row["campaign"],
                    order=int(row["run_order"]),
                    point=row["point_id"],
                    source=_source(row),
                )
                for row in sorted(chosen, key=lambda row: (row["campaign"], int(row["run_order"])))
            ),
            licence=LICENCE,
            notice=NOTICE,
            sources=GB300_SOURCES[replay],
            remarks=GB300_REMARKS,
        )


def gb200(data: Path) -> StepTable:
    """vLLM on GB200: the campaign of 10 September, and the diagnostic that contradicts it."""
    points = _rows(data / "gb200_forward_points.csv", *_STEP, "point_id", "split",
                   "measurement_regime", "samples_per_point")  # fmt: skip
    diagnostic = _rows(
        data / "gb200_forward_diagnostic.csv", *_STEP, "path", "geometry_id", "repeat_index",
        "role", "status", "failure", "measurement_regime",
    )  # fmt: skip
    chosen = [row for row in points if row["split"] == "calibration"]
    alike = {"tp_size": "4", "execution_mode": "eager", "decoder_replay": "off"}
    _require(chosen, measurement_regime=HISTORICAL, samples_per_point="1", **alike)
    _require(diagnostic, **alike)
    historical = [
        StepRecord(
            step=_step(row),
            latency_ms=float(row["latency_ms"]),
            samples_ms=(float(row["latency_ms"]),),
            run=HISTORICAL,
            regime=HISTORICAL,
            point=row["point_id"],
            source=_source(row),
        )
        for row in chosen
    ]
    return StepTable(
        identity=_identity("gb200", "vllm", GB200, decoder_replay=False),
        records=(*historical, *_repeats(diagnostic)),
        licence=LICENCE,
        notice=NOTICE,
        sources=GB200_SOURCES,
        remarks=GB200_REMARKS,
    )


def _repeats(rows: Sequence[Mapping[str, str]]) -> Iterator[StepRecord]:
    """One record a path and geometry: its measured repeats without the warm-up."""
    groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in rows:
        if row["role"] == "measurement":
            groups.setdefault((row["path"], row["geometry_id"]), []).append(row)
    for (path, geometry), found in groups.items():
        first = found[0]
        measured = [row for row in found if row["status"] == "measured"]
        if measured and len(measured) != len(found):
            raise SchemaError(f"{path} {geometry}: some repeats are missing and some are not")
        common: dict[str, Any] = {
            "step": _step(first),
            "run": path,
            "regime": first["measurement_regime"],
            "point": geometry,
            "source": _source(first),
        }
        if not measured:
            yield StepRecord(status="missing", note=first["failure"], **common)
            continue
        in_order = sorted(measured, key=lambda row: int(float(row["repeat_index"])))
        samples = tuple(float(row["latency_ms"]) for row in in_order)
        yield StepRecord(latency_ms=median(samples), samples_ms=samples, **common)


def _identity(gpu: str, preset: str, build: Any, *, decoder_replay: bool) -> Identity:
    model = load_model(MODEL)
    assert isinstance(model, Model)
    runtime = policy(preset, decoder_replay=decoder_replay, **EAGER)
    return Identity.of(model, load_hardware(gpu), Parallel(tp=4), runtime, build)


def _step(row: Mapping[str, str]) -> tuple[Request, ...]:
    """Equal requests; a decoded token is not in the past of its row."""
    return (
        Request(
            new_tokens=int(row["new_tokens_per_request"]),
            prefix_tokens=int(row["past_tokens_per_request"]),
            kind=row["phase"],  # type: ignore[arg-type]
            count=int(row["batch_size"]),
        ),
    )


def _point(row: Mapping[str, str]) -> tuple[str, ...]:
    return row["campaign"], row["point_id"], row["decoder_replay"]


def _source(row: Mapping[str, str]) -> str:
    return f"{row['source_file']}@{row['source_commit'][:8]}"


def _rows(path: Path, *columns: str) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise MissingProfileError(f"no {path.name} in the data folder") from None
    for column in columns:
        if not rows or column not in rows[0]:
            raise SchemaError(f"{path.name}: no column {column}")
    return rows


def _require(rows: Iterable[Mapping[str, str]], **wanted: str) -> None:
    """What the identity says of all rows must be true of each."""
    for row in rows:
        for column, value in wanted.items():
            if row[column] != value:
                raise SchemaError(f"{column} is {row[column]!r}, the identity says {value!r}")
