"""Writing a table: frame in, checked Parquet and sidecar out, both or neither.

What is written has passed every check that loading makes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aisim_v41.errors import SchemaError
from aisim_v41.tables.columns import Columns, Values, check_columns
from aisim_v41.tables.load import COMING, INNER, TABLE_SUFFIX, family_named
from aisim_v41.tables.parquet import decode, encode
from aisim_v41.tables.schema import CAVEATS, FLAGS, SCHEMA_VERSION, Column, Family
from aisim_v41.tables.sidecar import (
    KIND,
    SUFFIX,
    check_against_rows,
    check_sidecar,
    counts_of,
    digest,
    schema_echo,
)
from aisim_v41.writing import replace_file

if TYPE_CHECKING:
    import pandas


def write_table(
    frame: pandas.DataFrame,
    *,
    gpu: str,
    family: str,
    folder: str | os.PathLike[str],
    licence: str,
    notice: str,
    sources: Sequence[Mapping[str, Any]],
    timing: Mapping[str, str],
    dropped: Sequence[Mapping[str, Any]] = (),
    changed: Sequence[Mapping[str, str]] = (),
    remarks: Iterable[str] = (),
) -> Path:
    """Write ``<folder>/<gpu>/op/<family>.parquet`` and its sidecar; the path of the table.

    Whenever the process dies, who reads the table finds what was there before or the new one.

    Args:
        frame: one column for each of the family; ``samples``, ``spread_relative``,
            ``resolution_us``, ``flag`` and ``caveat`` may be left out.
        gpu: as in ``hardware/``.
        family: one of `aisim_v41.tables.FAMILIES`.
        folder: a ``profiles`` folder.
        licence: of the numbers, as an SPDX name.
        notice: copyright notice that goes with them.
        sources: of the rows: id, package, version, path, date, note; rows are counted here.
        timing: method, statistic, environment.
        dropped: rows left out: source, rows, reason.
        changed: values that are not as in the source: column, change.
        remarks: what a reader should know.

    Raises:
        MissingProfileError: no such family.
        SchemaError: a column is missing or unknown, or a value cannot be right.
    """
    known = family_named(family)
    where = f"{gpu}/{INNER}/{family}"
    columns = columns_of(frame, known, where=where)
    check_columns(columns, known, where=where)
    raw = encode(columns, known)
    counts = dict(zip(*np.unique(columns["source"].decoded(), return_counts=True), strict=True))
    sidecar = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "gpu": gpu,
        "family": family,
        "sha256": digest(raw),
        "rows": len(columns["latency_us"].data),
        "licence": licence,
        "notice": notice,
        "sources": [{**entry, "rows": int(counts.get(entry["id"], 0))} for entry in sources],
        "timing": dict(timing),
        **schema_echo(known, columns["operator"].words or ()),
        "flags": counts_of(columns, "flag", FLAGS),
        "caveats": counts_of(columns, "caveat", CAVEATS),
        "dropped": [dict(entry) for entry in dropped],
        "changed": [dict(entry) for entry in changed],
        "remarks": list(remarks),
    }
    check_sidecar(sidecar, gpu=gpu, family=known, where=where)
    check_against_rows(sidecar, decode(raw, known, where=where), where=where)
    target = Path(folder) / gpu / INNER / f"{family}{TABLE_SUFFIX}"
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(sidecar, indent=1, ensure_ascii=False) + "\n"
    coming = target.with_suffix(COMING)
    replace_file(coming, raw)
    replace_file(target.with_suffix(SUFFIX), text.encode())  # from here on the new table is read
    os.replace(coming, target)
    return target


def columns_of(
    frame: pandas.DataFrame, family: Family, *, where: str, in_order: bool = True
) -> Columns:
    """Columns of a frame, sorted by identity and axes unless ``in_order`` is False.

    Raises:
        SchemaError: a column is missing or not known, or holds another kind of value.
    """
    optional = {"samples": None, "spread_relative": None, "resolution_us": None}
    unknown = dict.fromkeys([*family.axes, *(column.name for column in family.more)], None)
    defaults = {**optional, "flag": "", "caveat": "", **unknown}
    names = [column.name for column in family.columns]
    extra = [str(name) for name in frame.columns if name not in names]
    missing = [name for name in names if name not in frame.columns and name not in defaults]
    if extra or missing or not len(frame):
        raise SchemaError(
            f"{where}: columns missing: {', '.join(missing) or 'none'}; not known: "
            f"{', '.join(extra) or 'none'}; {len(frame)} rows"
        )
    whole = frame.assign(**{n: v for n, v in defaults.items() if n not in frame.columns})
    if in_order:
        whole = whole.sort_values([*family.identity_names, *family.axes], kind="stable")
    return {column.name: _values(whole[column.name], column, where) for column in family.columns}


def _values(series: pandas.Series[Any], column: Column, where: str) -> Values:
    if column.kind == "text":
        codes, words = series.factorize(use_na_sentinel=False)
        if not all(isinstance(word, str) for word in words):
            raise SchemaError(f"{where}: column {column.name} must hold text in every row")
        return Values(codes.astype(np.int64), words=tuple(words))
    present = series.notna().to_numpy(dtype=bool)
    kind: type[np.generic] = np.int64 if column.kind == "whole" else np.float64
    if any(isinstance(value, (str, bool)) for value in series[present].head(1)):
        raise SchemaError(f"{where}: column {column.name} must hold numbers")
    try:
        plain = series[present].to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{where}: column {column.name} must hold numbers ({error})") from None
    if column.kind == "whole" and (np.abs(plain) >= 2.0**53).any() | (plain % 1 != 0).any():
        raise SchemaError(f"{where}: column {column.name} must hold whole numbers")
    data = np.zeros(len(series), dtype=kind)
    data[present] = plain.astype(kind)
    return Values(data, None if present.all() else present)
