"""Columns of other people's Parquet files, within bounds; pyarrow loads with the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from aisim_v41.errors import SchemaError, nearest
from aisim_v41.units import GIB, MIB

MAX_FILE_BYTES = 128 * MIB
MAX_ROWS = 200_000
MAX_UNPACKED_BYTES = GIB
_THRIFT_BYTES = 8 * MIB
_THRIFT_ENTRIES = 1_000_000
_REASON_CHARACTERS = 300


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
        SchemaError: not Parquet, beyond the bounds, or a column is missing, repeated or nested.
    """
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(
            arrow.BufferReader(raw),
            thrift_string_size_limit=_THRIFT_BYTES,
            thrift_container_size_limit=_THRIFT_ENTRIES,
            page_checksum_verification=True,
        )
        _check_size(file.metadata, where)
        names = list(file.schema_arrow.names)
        missing = [name for name in needed if name not in names]
        if missing:
            raise SchemaError(
                f"{where}: no column {', '.join(missing)}; {nearest(missing[0], names)}"
            )
        wanted = [name for name in (*needed, *optional) if name in names]
        for name in wanted:
            _check_column(arrow, names, name, file.schema_arrow, where)
        table = file.read(columns=wanted, use_threads=False)
        table.validate(full=True)
        found = {name: table.column(name).to_pylist() for name in wanted}
        return {name: found.get(name) or [None] * table.num_rows for name in (*needed, *optional)}
    except SchemaError:
        raise
    except (arrow.ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError) as bad:
        reason = " ".join(str(bad).split())[:_REASON_CHARACTERS]
        raise SchemaError(
            f"{where}: not readable as Parquet ({type(bad).__name__}: {reason})"
        ) from None


def _check_size(metadata: Any, where: str) -> None:
    unpacked = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or not 0 <= unpacked <= MAX_UNPACKED_BYTES:
        raise SchemaError(
            f"{where}: {metadata.num_rows} rows, {unpacked} bytes unpacked; at most {MAX_ROWS} "
            f"rows and {MAX_UNPACKED_BYTES} bytes are read"
        )


def _check_column(arrow: Any, names: list[str], name: str, schema: Any, where: str) -> None:
    if names.count(name) > 1:
        raise SchemaError(f"{where}: column {name} occurs twice")
    kind = schema.field(name).type
    if arrow.types.is_nested(kind):
        raise SchemaError(f"{where}: column {name} holds {kind}, not single values")
