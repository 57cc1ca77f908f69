"""A plain CSV file, one measured step a row (docs/io.md, "csv", lists the columns).

A cell may hold a list, its entries parted by semicolons: ``64;64`` new tokens are two requests.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from aisim_v41.errors import AisimError, SchemaError, nearest
from aisim_v41.forwards.records import StepRecord
from aisim_v41.io.imported import Imported, Skipped
from aisim_v41.plan.request import Request
from aisim_v41.reading import read_bytes
from aisim_v41.units import MIB, MICROSECOND, MILLISECOND

MAX_FILE_BYTES = 64 * MIB
MAX_LIST = 1 << 16
"""Most entries of a cell."""
_UNITS = {"_ms": 1.0, "_s": 1 / MILLISECOND, "_us": MICROSECOND / MILLISECOND}
"""Ending of a column's name to the milliseconds in one of its units."""

COLUMNS: Final[Mapping[str, str]] = {
    "new_tokens": "tokens that a request computes in the step",
    "prefix_tokens": "tokens before them; 0 where there is no such column",
    "kind": "prefill, decode or verify; prefill where there is no such column",
    "count": "requests alike; 1 where there is no such column",
    "prompt_tokens": "length of the whole prompt, where it goes on after the step",
    "image_tokens": "new tokens that belong to images; 0 where there is no such column",
    "latency_ms": "time of the step [ms]",
    "latency_s": "time of the step [s]",
    "latency_us": "time of the step [us]",
    "samples_ms": "single times [ms], a list; without a latency its median is taken",
    "samples_s": "single times [s]",
    "samples_us": "single times [us]",
    "samples": "how many measurements stand behind the latency",
    "run": "process run; the name of the file where there is no such column",
    "order": "position in the run",
    "regime": "label of the conditions",
    "point": "name of the point",
    "status": "how the measurement ended; ok where there is no such column",
    "note": "anything else",
}
NEVER_EMPTY = ("new_tokens", "prefix_tokens", "kind", "count", "image_tokens", "run")
"""What a row must say where the file has the column: the default is for files that have not."""
REQUEST_COLUMNS = (
    "new_tokens", "prefix_tokens", "kind", "count", "prompt_tokens", "image_tokens",
)  # fmt: skip


def read_csv_steps(
    path: str | os.PathLike[str], *, run: str | None = None, regime: str = ""
) -> Imported:
    """Records of a CSV file with a header.

    Args:
        path: The file.
        run: Name of the process run where no column gives it; by default that of the file.
        regime: Label for the conditions where no column gives it.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: not UTF-8 CSV, or a header with missing, unknown or repeated columns.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "steps.csv"
        ...     _ = file.write_text("new_tokens,prefix_tokens,latency_ms\\n64;64,0;1024,25.5\\n")
        ...     read_csv_steps(file).records[0].step
        (Request(new_tokens=64), Request(new_tokens=64, prefix_tokens=1024))
    """
    file = Path(path)
    records: list[StepRecord] = []
    skipped: list[Skipped] = []
    for line, row in _rows(file):
        place = f"{file.name}:{line}"
        if isinstance(row, str):
            skipped.append(Skipped(place, row))
            continue
        try:
            defaults = {"run": run or file.stem, "regime": regime}
            records.append(_record({**defaults, **row}, place))
        except AisimError as bad:
            skipped.append(Skipped(place, str(bad)))
    return Imported(records=tuple(records), skipped=tuple(skipped), build_hints={}, remarks=())


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, str] | str]]:
    """Line and cells of every row that is not blank; cells that are empty are left out."""
    try:
        content = read_bytes(file, most=MAX_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        raise SchemaError(f"{file}: not UTF-8 text ({bad.reason} at byte {bad.start})") from None
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, file)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                yield reader.line_num, f"{len(cells)} cells under {len(header)} columns"
                continue
            row = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
            empty = [name for name in NEVER_EMPTY if row.get(name) == ""]
            if empty:
                yield reader.line_num, f"{', '.join(empty)} is empty"
                continue
            yield reader.line_num, {name: cell for name, cell in row.items() if cell}
    except csv.Error as bad:
        raise SchemaError(f"{file}:{reader.line_num}: not CSV ({bad})") from None


def _check_header(header: list[str], file: Path) -> None:
    for name in header:
        if name not in COLUMNS:
            raise SchemaError(f"{file}:1: no column {name!r:.60}; {nearest(name[:60], COLUMNS)}")
    twice = [name for name, times in Counter(header).items() if times > 1]
    units = [name for name in header if name.startswith("latency_")]
    lists = [name for name in header if name.startswith("samples_")]
    if twice or len(units) > 1 or len(lists) > 1:
        raise SchemaError(f"{file}:1: one column each, found {', '.join(twice or units + lists)}")
    if "new_tokens" not in header or not units + lists:
        raise SchemaError(
            f"{file}:1: needs new_tokens, and a time such as latency_ms; found "
            f"{', '.join(header)[:200] or 'nothing'}"
        )


def _record(row: Mapping[str, str], place: str) -> StepRecord:
    latency, samples = _times(row)
    status = row.get("status", "ok")
    if status == "ok" and latency is None:
        raise SchemaError("no time, and no status that says why")
    step = _step(row)
    if status == "ok" and not any(request.count * request.new_tokens for request in step):
        raise SchemaError("a time of a step that computes nothing")
    return StepRecord(
        step=step,
        status=status,  # type: ignore[arg-type]  # the record checks it
        latency_ms=latency,
        samples_ms=samples,
        samples=_whole(row["samples"], "samples") if "samples" in row else 1,
        run=row["run"],
        order=_whole(row["order"], "order") if "order" in row else None,
        regime=row["regime"],
        point=row.get("point", ""),
        source=place,
        note=row.get("note", ""),
    )


def _times(row: Mapping[str, str]) -> tuple[float | None, tuple[float, ...]]:
    latency: float | None = None
    samples: tuple[float, ...] = ()
    for ending, factor in _UNITS.items():
        if f"latency{ending}" in row:
            latency = _number(row[f"latency{ending}"], f"latency{ending}") * factor
        if f"samples{ending}" in row:
            name = f"samples{ending}"
            samples = tuple(_number(cell, name) * factor for cell in _listed(row[name], name))
    if samples and latency is None:
        latency = median(samples)
    return latency, samples


def _step(row: Mapping[str, str]) -> tuple[Request, ...]:
    """One request an entry; a cell with one entry holds for all."""
    cells = {name: _listed(row[name], name) for name in REQUEST_COLUMNS if name in row}
    length = max(len(entries) for entries in cells.values())
    for name, entries in cells.items():
        if len(entries) not in (1, length):
            raise SchemaError(f"{name} has {len(entries)} entries, another column has {length}")
    spread = {name: entries * (length // len(entries)) for name, entries in cells.items()}
    return tuple(_request({name: spread[name][k] for name in spread}) for k in range(length))


def _request(cells: Mapping[str, str]) -> Request:
    prompt = cells.get("prompt_tokens")
    return Request(
        new_tokens=_whole(cells["new_tokens"], "new_tokens"),
        prefix_tokens=_whole(cells.get("prefix_tokens", "0"), "prefix_tokens"),
        kind=cells.get("kind", "prefill"),  # type: ignore[arg-type]  # the request checks it
        count=_whole(cells.get("count", "1"), "count"),
        prompt_tokens=None if prompt is None else _whole(prompt, "prompt_tokens"),
        image_tokens=_whole(cells.get("image_tokens", "0"), "image_tokens"),
    )


def _listed(cell: str, name: str) -> list[str]:
    if cell.count(";") >= MAX_LIST:
        raise SchemaError(f"{name}: more than {MAX_LIST} entries")
    return [entry.strip() for entry in cell.split(";")]


def _whole(cell: str, name: str) -> int:
    if not (cell.isascii() and cell.isdigit()) or len(cell) > 18:
        raise SchemaError(f"{name} = {cell!r:.40}: must be a whole number")
    return int(cell)


def _number(cell: str, name: str) -> float:
    try:
        value = float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SchemaError(f"{name} = {cell!r:.40}: must be a finite number")
    return value
