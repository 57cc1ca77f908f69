"""Which importer reads a file: by name, or by what the file holds."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from aisim_v41.errors import InvalidInputError, SchemaError, nearest
from aisim_v41.io import (
    aisimulate_fpm,
    csv_steps,
    dynamo_fpm,
    self_benchmark,
    sglang_bench,
    vllm_latency,
)
from aisim_v41.io.forward_pass import SCHEDULED
from aisim_v41.io.imported import Imported
from aisim_v41.io.lines import first_line
from aisim_v41.reading import parse_mapping, read_bytes

_PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Importer:
    """A format: its name, what reads it, and how such a file is known."""

    name: str
    read: Callable[..., Imported]
    known_by: str


IMPORTERS: Final[Mapping[str, Importer]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Importer("dynamo_fpm", dynamo_fpm.read_dynamo_fpm, f"JSON lines with {SCHEDULED}"),
            Importer(
                "self_benchmark",
                self_benchmark.read_self_benchmark,
                f"a folder of {self_benchmark.PATTERN}, or one such file with artifact_type",
            ),
            Importer(
                "sglang_bench",
                sglang_bench.read_sglang_bench,
                f"JSON lines with {sglang_bench.PREFILL}",
            ),
            Importer(
                "aisimulate_fpm",
                aisimulate_fpm.read_aisimulate_fpm,
                f"a Parquet file, or a folder with {aisimulate_fpm.FILE_NAME}",
            ),
            Importer(
                "vllm_latency",
                vllm_latency.read_vllm_latency,
                "JSON with latencies and avg_latency",
            ),
            Importer("csv", csv_steps.read_csv_steps, "CSV with a column new_tokens"),
        )
    }
)
"""Every format by name."""


def read_steps(
    path: str | os.PathLike[str], source: str | None = None, /, **options: Any
) -> Imported:
    """Records of a file of any known format.

    Args:
        path: File or folder.
        source: Name of the format; by default what `sniff` finds.
        options: Arguments of that format's importer.

    Raises:
        InvalidInputError: no format of this name, or it has no such option.
        MissingProfileError, SchemaError: as `sniff` and the importer.
    """
    name = sniff(path) if source is None else source
    if name not in IMPORTERS:
        raise InvalidInputError(f"no format {name!r:.60}; {nearest(str(name)[:60], IMPORTERS)}")
    read = IMPORTERS[name].read
    known = set(inspect.signature(read).parameters) - {"path"}
    for option in options:
        if option not in known:
            raise InvalidInputError(
                f"{name} has no option {option!r:.60}; {nearest(option, known)}"
            )
    return read(path, **options)


def sniff(path: str | os.PathLike[str]) -> str:
    """Name of the format of a file, from what it holds and not from what it is called.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: of no known format; the message says how each is known.
    """
    file = Path(path)
    found = _folder(file) if file.is_dir() else _file(file)
    if found is None:
        if file.is_file() and _start(file) == _GZIP:
            raise SchemaError(f"{file}: compressed with gzip; unpack it first")
        known = "; ".join(f"{entry.name}: {entry.known_by}" for entry in IMPORTERS.values())
        raise SchemaError(f"{file}: of no known format. {known}")
    return found


def _start(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_GZIP))
    except OSError as error:
        raise SchemaError(f"{file}: cannot be read ({error})") from None


def _folder(folder: Path) -> str | None:
    if (folder / aisimulate_fpm.FILE_NAME).exists():
        return "aisimulate_fpm"
    return "self_benchmark" if next(folder.rglob(self_benchmark.PATTERN), None) else None


def _file(file: Path) -> str | None:
    try:
        line = first_line(file)
    except SchemaError:
        line = read_bytes(file, most=self_benchmark.MAX_FILE_BYTES)  # one line, or none
    if line.startswith(_PARQUET):
        return "aisimulate_fpm"
    if not line.startswith(b"{"):
        columns = [cell.strip().strip(b'"') for cell in line.split(b",")]
        return "csv" if len(columns) > 1 and b"new_tokens" in columns else None
    try:
        return _document(parse_mapping(line, where=str(file)))
    except SchemaError:
        pass  # a document of many lines, or none
    try:
        raw = read_bytes(file, most=self_benchmark.MAX_FILE_BYTES)
        return _document(parse_mapping(raw, where=str(file)))
    except SchemaError:
        return None


def _document(document: Mapping[str, Any]) -> str | None:
    if SCHEDULED in document:
        return "dynamo_fpm"
    if sglang_bench.PREFILL in document:
        return "sglang_bench"
    if "artifact_type" in document and "results" in document:
        return "self_benchmark"
    return "vllm_latency" if {"latencies", "avg_latency"} <= set(document) else None
