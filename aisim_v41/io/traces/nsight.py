"""Nsight Systems' SQLite export (``nsys export --type sqlite``).

Tables that are read: CUPTI_ACTIVITY_KIND_KERNEL, StringIds, CUPTI_ACTIVITY_KIND_RUNTIME and
NVTX_EVENTS where there are such; times are nanoseconds (Nsight Systems, "SQLite Schema Reference").
A range of NVTX is one of the host: its kernels are those that were launched inside it.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.io.traces.kernels import KernelTrace, Range, TracedKernel, checked_kernels

KERNELS, STRINGS = "CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"
RUNTIME, RANGES = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
NANOSECONDS = 1000.0
"""In a microsecond."""
MAX_RANGES = 100_000


def read_nsight(path: str | os.PathLike[str]) -> KernelTrace:
    """Kernels of an export.

    Raises:
        MissingProfileError: no such file.
        SchemaError: not such an export; names the table or column that is missing.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingProfileError(f"{file}: no such file")
    try:
        base = sqlite3.connect(f"file:{file.resolve().as_posix()}?mode=ro", uri=True)
        try:
            return _read(base, file.name)
        finally:
            base.close()
    except (sqlite3.Error, OverflowError) as bad:
        raise SchemaError(f"{file}: not an SQLite export of Nsight Systems ({bad})") from None


def _read(base: sqlite3.Connection, where: str) -> KernelTrace:
    columns = _columns(base, KERNELS)
    if not columns:
        raise SchemaError(f"{where}: no table {KERNELS}: export with `nsys export --type sqlite`")
    name = next((one for one in ("demangledName", "shortName") if one in columns), None)
    missing = [one for one in ("start", "end") if one not in columns]
    if name is None or missing or not _columns(base, STRINGS):
        lost = ", ".join([*missing, *(["demangledName"] if name is None else [])]) or STRINGS
        raise SchemaError(f"{where}: {KERNELS} without {lost}: another form of export")
    optional = {one: (one if one in columns else "0")
                for one in ("deviceId", "streamId", "correlationId")}  # fmt: skip
    rows = base.execute(
        f"SELECT s.value, k.start, k.end, {', '.join(optional.values())} "  # noqa: S608 - own names
        f"FROM {KERNELS} k JOIN {STRINGS} s ON s.id = k.{name}"
    )
    found = [
        TracedKernel(str(text), _number(start) / NANOSECONDS,
                     (_number(end) - _number(start)) / NANOSECONDS, int(device), int(stream),
                     int(launch) if "correlationId" in columns else -1)
        for text, start, end, device, stream, launch in rows
    ]  # fmt: skip
    kernels = checked_kernels(found, where)
    return KernelTrace(source=f"{where} (Nsight Systems)", kernels=kernels,
                       ranges=_ranges(base, kernels))  # fmt: skip


def _ranges(base: sqlite3.Connection, kernels: tuple[TracedKernel, ...]) -> tuple[Range, ...]:
    """Ranges of the host, moved to where their kernels ran."""
    own, runtime = _columns(base, RANGES), _columns(base, RUNTIME)
    if not {"start", "end"} <= own or not {"start", "correlationId"} <= runtime:
        return ()
    text = "n.text" if "text" in own else "NULL"
    joined = f"LEFT JOIN {STRINGS} s ON s.id = n.textId" if "textId" in own else ""
    name = f"COALESCE({text}, s.value)" if joined else text
    rows = base.execute(
        f"SELECT {name}, n.start, n.end FROM {RANGES} n {joined} "  # noqa: S608
        f"WHERE n.end IS NOT NULL ORDER BY n.start LIMIT {MAX_RANGES}"
    ).fetchall()
    if not rows:
        return ()
    launches = base.execute(
        f"SELECT start, correlationId FROM {RUNTIME} ORDER BY start"  # noqa: S608
    ).fetchall()
    spans: dict[int, tuple[float, float]] = {}
    for kernel in kernels:
        low, high = spans.get(kernel.launch, (kernel.start_us, kernel.start_us))
        end = kernel.start_us + kernel.duration_us
        spans[kernel.launch] = (min(low, kernel.start_us), max(high, end))
    found = []
    for text_of, start, end in rows:
        inside = [spans[launch] for at, launch in launches if start <= at < end and launch in spans]
        if text_of and inside:
            found.append(Range(str(text_of), min(low for low, _ in inside),
                               max(high for _, high in inside)))  # fmt: skip
    return tuple(found)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in base.execute(f"PRAGMA table_info({table})")}


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)):
        raise SchemaError(f"a time that is no number: {value!r:.40}")
    return float(value)
