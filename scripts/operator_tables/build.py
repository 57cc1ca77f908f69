"""Frames to tables: one GPU and family after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from aisim_v41.tables import GPUS, write_table
from aisim_v41.tables.rules import mark
from scripts.operator_tables.notes import CHANGED, LICENCE, NOTICE, REMARKS, SOURCES, TIMING
from scripts.operator_tables.read import READERS, Rows


def build(
    data: Path, out: Path, *, families: Sequence[str] | None = None
) -> Iterator[tuple[Path, int]]:
    """Write the tables of every GPU that the data has; yields each path and its rows."""
    for family in families or READERS:
        rows = READERS[family](data)
        present = set(rows.frame["gpu"])
        for gpu in (*GPUS, *sorted(present - set(GPUS))):
            if gpu in present:
                yield _write(rows, gpu, family, out)


def _write(rows: Rows, gpu: str, family: str, out: Path) -> tuple[Path, int]:
    frame = rows.frame[rows.frame["gpu"] == gpu].drop(columns="gpu")
    frame = mark(frame, family=family, gpu=gpu)
    dropped = Counter((source, reason) for at, source, reason in rows.dropped if at == gpu)
    used = [name for name in SOURCES if name in set(frame["source"])]
    path = write_table(
        frame,
        gpu=gpu,
        family=family,
        folder=out,
        licence=LICENCE,
        notice=NOTICE,
        sources=[{"id": name, **SOURCES[name]} for name in used],
        timing=TIMING[family],
        dropped=[
            {"source": source, "rows": count, "reason": reason}
            for (source, reason), count in sorted(dropped.items())
        ],
        changed=[{"column": column, "change": change} for column, change in CHANGED[family]],
        remarks=REMARKS[family],
    )
    return path, len(frame)
