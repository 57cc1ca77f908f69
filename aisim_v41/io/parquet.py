"""Columns of other people's Parquet files, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aisim_v41.errors import SchemaError, nearest
from aisim_v41.tables.arrow import arrow, open_parquet, parquet_errors

MAX_ROWS = 200_000
_WHAT = "a table of forwards"


def parquet_columns(
    raw: bytes, needed: Sequence[str], optional: Sequence[str] = (), *, where: str
) -> dict[str, list[Any]]:
    """Columns by name as plain values; an optional one that is absent holds None everywhere.

    Args:
        raw: Bytes of the file.
        needed: Columns that it must have.
        optional: Columns that it may have.
        where: Name of the file for messages.

    Raises:
        SchemaError: not Parquet, beyond the bounds, or a column is missing, repeated, or holds
            neither text nor numbers.
    """
    with parquet_errors(where):
        file = open_parquet(raw, where=where, what=_WHAT)
        if file.metadata.num_rows > MAX_ROWS:
            raise SchemaError(f"{where}: more than {MAX_ROWS} rows; split it")
        names = list(file.schema_arrow.names)
        missing = [name for name in needed if name not in names]
        if missing:
            raise SchemaError(
                f"{where}: no column {', '.join(missing)}; {nearest(missing[0], names)}"
            )
        wanted = [name for name in (*needed, *optional) if name in names]
        for name in wanted:
            _check_column(names, name, file.schema_arrow, where)
        table = file.read(columns=wanted, use_threads=False)
        table.validate(full=True)
        found = {name: table.column(name).to_pylist() for name in wanted}
        rows: int = table.num_rows
    return {name: found.get(name, [None] * rows) for name in (*needed, *optional)}


def _check_column(names: list[str], name: str, schema: Any, where: str) -> None:
    if names.count(name) > 1:
        raise SchemaError(f"{where}: column {name} occurs twice")
    kinds = arrow()[0].types
    found = schema.field(name).type
    kind = found.value_type if kinds.is_dictionary(found) else found
    plain = (kinds.is_string, kinds.is_large_string, kinds.is_integer, kinds.is_floating,
             kinds.is_boolean, kinds.is_null)  # fmt: skip
    if not any(is_of(kind) for is_of in plain):
        raise SchemaError(f"{where}: column {name} holds {found}, not text or numbers")
