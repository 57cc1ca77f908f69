"""Parquet bytes to columns and back. pyarrow is imported here only, with the first table.

Bytes are bounded before they are parsed, pages carry checksums, and whatever the parser says is
wrong becomes one error that names the file.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from aisim_v41.errors import SchemaError
from aisim_v41.tables.columns import Columns, Values
from aisim_v41.tables.schema import Column, Family
from aisim_v41.units import GIB, MIB

MAX_FILE_BYTES = 32 * MIB
MAX_ROWS = 1_000_000
MAX_UNPACKED_BYTES = GIB
_THRIFT_BYTES = 8 * MIB
_THRIFT_ENTRIES = 1_000_000


@lru_cache(maxsize=1)
def _arrow() -> tuple[Any, Any]:
    return import_module("pyarrow"), import_module("pyarrow.parquet")


def decode(raw: bytes, family: Family, *, where: str) -> Columns:
    """Columns of a table of ``family``.

    Raises:
        SchemaError: not Parquet, too large, or columns of other names, order or types.
    """
    arrow, parquet = _arrow()
    if len(raw) > MAX_FILE_BYTES:
        raise SchemaError(f"{where}: larger than {MAX_FILE_BYTES} bytes, not an operator table")
    try:
        file = parquet.ParquetFile(
            arrow.BufferReader(raw),
            thrift_string_size_limit=_THRIFT_BYTES,
            thrift_container_size_limit=_THRIFT_ENTRIES,
            page_checksum_verification=True,
        )
        _check_size(file.metadata, where)
        _check_names(list(file.schema_arrow.names), family, where)
        for column in family.columns:
            _check_type(arrow, column, file.schema_arrow.field(column.name).type, where)
        table = file.read(use_threads=False)
        table.validate(full=True)
        return {
            column.name: _values(arrow, column, table.column(column.name).combine_chunks())
            for column in family.columns
        }
    except SchemaError:
        raise
    except (arrow.ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError) as bad:
        reason = " ".join(str(bad).split())[:300]
        raise SchemaError(
            f"{where}: not readable as Parquet ({type(bad).__name__}: {reason}). "
            "Copy the file again from where it came."
        ) from None


def encode(columns: Columns, family: Family) -> bytes:
    """Parquet bytes; the same columns give the same bytes with the same pyarrow."""
    arrow, parquet = _arrow()
    arrays = [_array(arrow, column, columns[column.name]) for column in family.columns]
    table = arrow.Table.from_arrays(arrays, names=[column.name for column in family.columns])
    sink = arrow.BufferOutputStream()
    parquet.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=19,
        use_dictionary=True,
        write_page_checksum=True,
        data_page_version="2.0",
        version="2.6",
    )
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def _check_size(metadata: Any, where: str) -> None:
    unpacked = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or not 0 <= unpacked <= MAX_UNPACKED_BYTES:
        raise SchemaError(
            f"{where}: {metadata.num_rows} rows, {unpacked} bytes unpacked; at most {MAX_ROWS} "
            f"rows and {MAX_UNPACKED_BYTES} bytes make an operator table"
        )


def _check_names(names: list[str], family: Family, where: str) -> None:
    wanted = [column.name for column in family.columns]
    if names == wanted:
        return
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted]
    twice = sorted({name for name in names if names.count(name) > 1})
    said = [
        f"{label} {', '.join(found)}"
        for label, found in (("missing", missing), ("not known", extra), ("twice", twice))
        if found
    ]
    raise SchemaError(
        f"{where}: the columns are not those of a {family.name} table "
        f"({'; '.join(said) or 'another order'}). Columns and their units are listed in "
        "aisim_v41/tables/schema.py."
    )


def _check_type(arrow: Any, column: Column, found: Any, where: str) -> None:
    kinds = arrow.types
    if column.kind == "text":
        inner = found.value_type if kinds.is_dictionary(found) else found
        good, wanted = kinds.is_string(inner) or kinds.is_large_string(inner), "text"
    elif column.kind == "whole":
        good, wanted = kinds.is_int64(found), "int64"
    else:
        good, wanted = kinds.is_float64(found), "double"
    if not good:
        raise SchemaError(f"{where}: column {column.name} holds {found}, must hold {wanted}")


def _values(arrow: Any, column: Column, array: Any) -> Values:
    if isinstance(array, arrow.ChunkedArray):  # no rows at all
        array = arrow.concat_arrays(array.chunks) if array.num_chunks else array
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    if column.kind != "text":
        filled = array if valid is None else array.fill_null(0)
        return Values(filled.to_numpy(zero_copy_only=False), valid)
    if not arrow.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return _with_used_words(codes, array.dictionary.to_pylist(), valid)


def _with_used_words(codes: Any, words: list[str | None], valid: Any) -> Values:
    """Each word once and used, whatever the file's own dictionary holds."""
    places: dict[str, int] = {}
    moved = np.zeros(max(len(words), 1), dtype=np.int64)
    for code in np.unique(codes):
        word = words[code]
        if word is None:
            valid = (np.ones(len(codes), dtype=bool) if valid is None else valid) & (codes != code)
            word = ""
        moved[code] = places.setdefault(word, len(places))
    return Values(moved[codes], valid, tuple(places))


def _array(arrow: Any, column: Column, values: Values) -> Any:
    if values.words is not None:
        codes = arrow.array(values.data.astype(np.int32))
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(values.words, arrow.string()))
    kind = arrow.int64() if column.kind == "whole" else arrow.float64()
    mask = None if values.valid is None else ~values.valid
    return arrow.array(values.data, type=kind, mask=mask)
