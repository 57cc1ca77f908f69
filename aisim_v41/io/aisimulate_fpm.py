"""AISimulate's tables of whole forwards: Parquet with a JSON sidecar (docs/io.md).

A row is a balanced point: totals of a batch, one sample, the slowest rank's time. The sidecar is
the commit record: a Parquet file whose digest it does not name is half of an interrupted write.
A file may hold many cells, that is models, mappings and precisions; one is read at a time
(ai-dynamo/aisimulate, `perf_database/fpm_forward.rs`; Apache-2.0).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from aisim_v41.errors import (
    AisimError,
    InvalidInputError,
    MissingProfileError,
    SchemaError,
    nearest,
)
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.io.balanced import FAKE_KV, FAKE_REGIME, FakeKv, decode_point, prefill_point
from aisim_v41.io.fields import number, require_choice, require_size, text, whole
from aisim_v41.io.imported import Hint, Imported, Skipped
from aisim_v41.io.parquet import parquet_columns
from aisim_v41.plan.request import Request
from aisim_v41.reading import read_bytes, read_mapping
from aisim_v41.tables.arrow import MAX_FILE_BYTES

FILE_NAME = "fpm_forward_perf.parquet"
SIDECAR_SUFFIX = ".metadata.json"
SCHEMA_NAME = "aic_fpm_forward_perf"
SCHEMA_VERSIONS = (5, 6, 7)
COORDINATES = "iteration_totals_balanced_v1"
POLICY = "dynamo_native_single_sample_v1"
PARTITION = "balanced_v1"
TIMER = "scheduler_wall"
REAL_KV, NO_SEED = "real_kv", (None, "", "n/a")
GPUS: Mapping[str, str] = MappingProxyType(
    {"b200_sxm": "b200", "b300_sxm": "b300", "h200_sxm": "h200", "h100_sxm": "h100"}
)
"""Systems that have another name here."""
RESIDENCIES: Mapping[str, str] = MappingProxyType({"hbm_tp_sharded": "hbm"})
"""Places of the Engram tables that have another name here."""

_POINT = ("workload_kind", "batch_size", "total_prefill_tokens", "total_kv_read_tokens",
          "partition_policy", "latency_ms")  # fmt: skip
_TEXT = ("model_path", "system", "backend", "backend_version")
_CELL: Mapping[int, tuple[str, ...]] = {
    5: ("backend_axis", "backend_policy"),
    6: ("moe_backend", "attention_backend", "enable_wideep", "enable_eplb"),
    7: ("moe_backend", "attention_backend", "enable_wideep", "enable_eplb", "model_config_sha256",
        "execution_profile", "engram_residency", "input_modality"),
}  # fmt: skip
_SIZES = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
_PRECISIONS = ("weight_quantization", "gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode",
               "comm_quant_mode", "kv_cache_dtype")  # fmt: skip
_EXTRA = ("kv_seed_regime", "runtime_run_id")
_NAMES: Final[Mapping[str, str]] = {
    "model_path": "checkpoint",
    "system": "gpu",
    "backend": "engine",
    "backend_version": "engine_build",
    "input_modality": "modality",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "cp": "cp",
    "moe_ep": "ep",
}
_SHOWN = 8


def read_aisimulate_fpm(
    path: str | os.PathLike[str],
    *,
    cell: Mapping[str, str | int | bool] | None = None,
    block_tokens: int | None = None,
    fake_kv: FakeKv = "skip",
    regime: str = "",
) -> Imported:
    """Records of one cell of a table.

    Args:
        path: The Parquet file, or the folder that holds it.
        cell: Values of columns that choose one cell where the table has several.
        block_tokens: Size of a cache block, in which prefixes of a batch are spread [tokens];
            without it only prefixes that every usual size spreads alike become lengths.
        fake_kv: What becomes of rows that read KV which no model computed: "skip" lists them,
            "mark" keeps them under the regime "fake_kv".
        regime: Label for the conditions of the others.

    Raises:
        MissingProfileError: there is no such file, or no sidecar beside it.
        SchemaError: not such a table, of another version, or not the one its sidecar names.
        InvalidInputError: ``cell`` leaves several cells or none, or an argument has no such value.
    """
    require_choice("fake_kv", fake_kv, FAKE_KV)
    require_size("block_tokens", block_tokens)
    if cell is not None and not isinstance(cell, Mapping):
        raise InvalidInputError(f"cell = {cell!r:.60}: must map columns to values")
    file = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
    raw = read_bytes(file, most=MAX_FILE_BYTES)
    sidecar = _sidecar(file, raw)
    version = sidecar["schema_version"]
    identity = (*_TEXT, *_SIZES, *_PRECISIONS, *_CELL[version])
    columns = parquet_columns(raw, (*_POINT, *identity), _EXTRA, where=str(file))
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    if len(rows) != sidecar.get("row_count"):
        raise SchemaError(
            f"{file}: {len(rows)} rows, its sidecar says {sidecar.get('row_count')!r:.20}"
        )
    chosen, values = _cell(file, rows, identity, cell or {})
    records: list[StepRecord] = []
    skipped: list[Skipped] = []
    seen: dict[tuple[Any, ...], int] = {}
    for place, row in chosen:
        named = f"{file.name}: row {place}"
        point = tuple(row[name] for name in (*_POINT[:4], "runtime_run_id"))
        if point in seen:
            raise SchemaError(f"{file}: rows {seen[point]} and {place} are the same point")
        seen[point] = place
        try:
            records.append(_record(row, named, block_tokens, fake_kv, regime))
        except AisimError as bad:
            skipped.append(Skipped(named, str(bad)))
    remarks = ["one sample a point, the slowest rank's; contexts do not count the current token"]
    sums = sum(isinstance(record.step, StepTotals) for record in records)
    if sums:
        remarks.append(
            f"{sums} points read as sums: cache blocks of different sizes would spread them "
            "differently; block_tokens says which"
        )
    return Imported(
        records=tuple(records),
        skipped=tuple(skipped),
        build_hints=_hints(values),
        remarks=tuple(remarks),
    )


def _sidecar(file: Path, raw: bytes) -> Mapping[str, Any]:
    path = file.with_suffix(SIDECAR_SUFFIX)
    try:
        sidecar = read_mapping(path)
    except MissingProfileError:
        raise MissingProfileError(
            f"{file}: no sidecar {path.name} beside it; the two are one, copy both"
        ) from None
    for field, known in (
        ("schema_name", (SCHEMA_NAME,)),
        ("schema_version", SCHEMA_VERSIONS),
        ("coordinate_system", (COORDINATES,)),
        ("measurement_policy", (POLICY,)),
    ):
        value = sidecar.get(field)
        if isinstance(value, bool) or value not in known:
            raise SchemaError(
                f"{path}: {field} = {value!r:.60}; known: {', '.join(map(str, known))}"
            )
    if sidecar.get("parquet_sha256") != sha256(raw).hexdigest():
        raise SchemaError(
            f"{path}: its digest is not that of {file.name}: the pair is not one (an interrupted "
            "write?); copy both again"
        )
    return {**sidecar, "schema_version": int(sidecar["schema_version"])}


def _cell(
    file: Path,
    rows: list[dict[str, Any]],
    identity: tuple[str, ...],
    asked: Mapping[str, str | int | bool],
) -> tuple[list[tuple[int, dict[str, Any]]], Mapping[str, Any]]:
    """Rows of the one cell that has these values, with their places, and the cell's values."""
    for name in asked:
        if name not in identity:
            raise InvalidInputError(f"cell: no column {name!r:.60}; {nearest(name, identity)}")
    cells: dict[tuple[Any, ...], list[tuple[int, dict[str, Any]]]] = {}
    for place, row in enumerate(rows):
        if all(row[name] == value for name, value in asked.items()):
            cells.setdefault(tuple(row[name] for name in identity), []).append((place, row))
    if not rows:
        raise SchemaError(f"{file}: no rows")
    if not cells:
        there = {name: sorted({str(row[name]) for row in rows})[:_SHOWN] for name in asked}
        raise InvalidInputError(f"{file}: no cell with {dict(asked)!r:.300}; there are {there}")
    if len(cells) > 1:
        differing = "; ".join(
            f"{name}: {', '.join(values[:_SHOWN])}"
            for place, name in enumerate(identity)
            if len(values := sorted({str(key[place]) for key in cells})) > 1
        )
        raise InvalidInputError(
            f"{file}: {len(cells)} cells, which must not be mixed. They differ in {differing}. "
            "Choose with cell={column: value}, in the shell with --option cell.COLUMN=VALUE."
        )
    ((key, found),) = cells.items()
    return found, dict(zip(identity, key, strict=True))


def _record(
    row: Mapping[str, Any], place: str, block_tokens: int | None, fake_kv: str, regime: str
) -> StepRecord:
    if row["partition_policy"] != PARTITION:
        raise SchemaError(f"partition_policy = {row['partition_policy']!r:.40}: not {PARTITION}")
    kind, kv = text(row, "workload_kind"), whole(row, "total_kv_read_tokens")
    fake = _fake(row, kind, kv)
    if fake and fake_kv == "skip":
        raise SchemaError(fake)
    batch, new = whole(row, "batch_size", least=1), whole(row, "total_prefill_tokens")
    return StepRecord(
        step=_step(kind, batch, new, kv, block_tokens),
        latency_ms=number(row, "latency_ms"),
        run=text(row, "runtime_run_id", default="") or "run",
        regime=FAKE_REGIME if fake else regime,
        point=f"{kind}-b{batch}-n{new}-kv{kv}",
        source=place,
        note=fake,
    )


def _step(
    kind: str, batch: int, new: int, kv: int, block_tokens: int | None
) -> tuple[Request, ...] | StepTotals:
    if kind == "prefill":
        return prefill_point(batch, new, kv, block_tokens=block_tokens)
    if kind != "decode":
        raise SchemaError(f"workload_kind = {kind!r:.40}: must be prefill or decode")
    if new:
        raise SchemaError(f"a decode with {new} prefill tokens")
    if kv < batch:
        raise SchemaError(
            f"total_kv_read_tokens = {kv}: fewer than one for each of {batch} decodes"
        )
    return decode_point(batch, kv)


def _fake(row: Mapping[str, Any], kind: str, kv: int) -> str:
    """Why the KV that a row reads was not computed by a model; nothing where it was.

    Prefixes are computed by a forward before the step, so a prefill without a word is real; tables
    that name their config promise a word for each.
    """
    said = row["kv_seed_regime"]
    silent_prefill = kind == "prefill" and said in NO_SEED and not row.get("model_config_sha256")
    if not kv or said == REAL_KV or silent_prefill:
        return ""
    return f"the KV that it reads was not computed (kv_seed_regime {said or 'absent'!s:.60})"


def _hints(values: Mapping[str, Any]) -> dict[str, Hint]:
    hints: dict[str, Hint] = {"timer": TIMER}
    for name, value in values.items():
        if isinstance(value, (str, int, float, bool)) and value != "":
            hints[_NAMES.get(name, f"settings.{name}")] = value
    if isinstance(gpu := hints.get("gpu"), str):
        hints["gpu"] = GPUS.get(gpu, gpu)
    if isinstance(place := hints.get("settings.engram_residency"), str):
        hints["settings.engram_residency"] = RESIDENCIES.get(place, place)
    profile = hints.pop("settings.execution_profile", None)
    if profile in ("full", "decoder_bounded"):
        hints["decoder_replay"] = profile == "decoder_bounded"
    return hints
