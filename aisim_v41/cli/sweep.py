"""``aisim-v41 sweep``: every point of a space, as a Parquet data set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from aisim_v41.cli.options import JsonOption
from aisim_v41.cli.output import print_json, print_table, print_text
from aisim_v41.sweeps.dataset import SweepData

SHOWN = 12
"""Rows that are printed where nothing is asked."""


def sweep(
    space: Annotated[Path, typer.Argument(help="YAML or JSON file of the space (docs/sweeps.md).")],
    folder: Annotated[Path, typer.Argument(help="Folder of the data set; goes on where one is.")],
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; -1 for all cores.")] = 1,
    backend: Annotated[
        str | None, typer.Option("--backend", help="Of joblib: loky, threading, dask, ray.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", help="SQL over the table `sweep` (needs DuckDB).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Times of every combination of plans, policies, mappings and GPUs of a space."""
    from aisim_v41.sweeps.run import sweep as run

    data = run(space, folder, jobs=jobs, backend=backend, progress=_progress())
    if query is not None:
        _print_frame(data.query(query), "", json)
    elif json:
        print_json(_summary(data))
    else:
        _print_summary(data)


def _progress() -> Any:
    """Parts done, on a terminal's error stream."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, parts: int) -> None:
        sys.stderr.write(f"\r{done} of {parts} parts{chr(10) if done == parts else ''}")
        sys.stderr.flush()

    return show


def _summary(data: SweepData) -> dict[str, Any]:
    frames = data.frames(["status", "reason"])
    counts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for frame in frames:
        for name, number in frame["status"].value_counts().items():
            counts[str(name)] = counts.get(str(name), 0) + int(number)
        for name, number in frame["reason"].value_counts().items():
            reasons[str(name)] = reasons.get(str(name), 0) + int(number)
    frequent = dict(sorted(reasons.items(), key=lambda one: -one[1])[:SHOWN])
    return {
        "folder": str(data.folder),
        "files": len(data.files),
        "points": data.points,
        "rows": sum(counts.values()),
        "status": {name: number for name, number in counts.items() if number},
        "reasons": {name: number for name, number in frequent.items() if number},
    }


def _print_summary(data: SweepData) -> None:
    found = _summary(data)
    rows = ", ".join(f"{number:,} {name}" for name, number in found["status"].items())
    print_text(f"{found['rows']:,} rows of {found['points']:,} points: {rows}")
    print_text(f"{found['files']} Parquet files: {data.pattern}")
    for reason, number in found["reasons"].items():
        print_text(f"  {number:,} x {reason}")
    first = next(data.frames()).dropna(axis="columns", how="all").head(SHOWN)
    varying = [name for name in first if first[name].nunique(dropna=False) > 1]
    _print_frame(first[varying or list(first)], f"first {len(first)} rows", json=False)


def _print_frame(frame: Any, title: str, json: bool) -> None:
    plain = frame.astype(object).where(frame.notna(), None)
    if json:
        print_json(plain.to_dict("records"))
        return
    print_table(title, [str(name) for name in plain], plain.to_numpy().tolist())
