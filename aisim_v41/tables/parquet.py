"""Columns of an operator table from Parquet bytes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from aisim_v41.errors import SchemaError
from aisim_v41.tables.arrow import arrow, check_names, open_parquet, parquet_bytes, parquet_errors
from aisim_v41.tables.columns import Columns, Values
from aisim_v41.tables.schema import Column, Family

_LEVEL = 19


def decode(raw: bytes, family: Family, *, where: str) -> Columns:
    """Columns of a table of ``family``.

    Raises:
        SchemaError: not Parquet, too large, or columns of other names, order or types.
    """
    pyarrow, _ = arrow()
    wanted = [column.name for column in family.columns]
    with parquet_errors(where):
        file = open_parquet(raw, where=where, what="an operator table")
        names = list(file.schema_arrow.names)
        check_names(names, wanted, where=where, what=f"a {family.name} table")
        for column in family.columns:
            _check_type(pyarrow, column, file.schema_arrow.field(column.name).type, where)
        table = file.read(use_threads=False)
        table.validate(full=True)
        return {
            column.name: _values(pyarrow, column, table.column(column.name).combine_chunks())
            for column in family.columns
        }


def encode(columns: Columns, family: Family) -> bytes:
    """Parquet bytes; the same columns give the same bytes with the same pyarrow."""
    pyarrow, _ = arrow()
    arrays = [_array(pyarrow, column, columns[column.name]) for column in family.columns]
    names = [column.name for column in family.columns]
    return parquet_bytes(pyarrow.Table.from_arrays(arrays, names=names), level=_LEVEL)


def _check_type(pyarrow: Any, column: Column, found: Any, where: str) -> None:
    kinds = pyarrow.types
    if column.kind == "text":
        inner = found.value_type if kinds.is_dictionary(found) else found
        good, wanted = kinds.is_string(inner) or kinds.is_large_string(inner), "text"
    elif column.kind == "whole":
        good, wanted = kinds.is_int64(found), "int64"
    else:
        good, wanted = kinds.is_float64(found), "double"
    if not good:
        raise SchemaError(f"{where}: column {column.name} holds {found}, must hold {wanted}")


def _values(pyarrow: Any, column: Column, array: Any) -> Values:
    if isinstance(array, pyarrow.ChunkedArray):  # no rows at all
        array = pyarrow.concat_arrays(array.chunks) if array.num_chunks else array
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    if column.kind != "text":
        filled = array if valid is None else array.fill_null(0)
        return Values(filled.to_numpy(zero_copy_only=False), valid)
    if not pyarrow.types.is_dictionary(array.type):
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


def _array(pyarrow: Any, column: Column, values: Values) -> Any:
    if values.words is not None:
        codes = pyarrow.array(values.data.astype(np.int32))
        return pyarrow.DictionaryArray.from_arrays(
            codes, pyarrow.array(values.words, pyarrow.string())
        )
    kind = pyarrow.int64() if column.kind == "whole" else pyarrow.float64()
    mask = None if values.valid is None else ~values.valid
    return pyarrow.array(values.data, type=kind, mask=mask)
