"""Records of forwards as Parquet bytes, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

from aisim_v41.errors import InvalidInputError, SchemaError
from aisim_v41.forwards.columns import ADDED, COLUMNS, MEASURED, REQUESTS, SUMS, Column
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.plan.request import Request
from aisim_v41.tables.arrow import arrow, check_names, open_parquet, parquet_bytes, parquet_errors

_LEVEL = 9
_WHAT = "a table of forwards"
_REQUEST_NAMES = tuple(column.name for column in REQUESTS)
_SUM_NAMES = tuple(column.name for column in SUMS)
_MEASURED_NAMES = tuple(column.name for column in MEASURED)
_MAY_BE_NONE = {column.name for column in (*COLUMNS, *ADDED) if column.nullable}
_DEFAULTS = {field.name: field.default for field in fields(Request)}


def columns_of(records: Sequence[StepRecord]) -> tuple[Column, ...]:
    """Columns of a file of these records: of `ADDED` those that say something."""
    said = [
        column
        for column in ADDED
        if any(
            getattr(request, column.name) != _DEFAULTS[column.name]
            for record in records
            if not isinstance(record.step, StepTotals)
            for request in record.step
        )
    ]
    return (*COLUMNS, *said)


def encode(records: Sequence[StepRecord]) -> bytes:
    """Parquet bytes; the same records give the same bytes with the same pyarrow."""
    pyarrow, _ = arrow()
    steps = [() if isinstance(r.step, StepTotals) else r.step for r in records]
    sums = [r.step if isinstance(r.step, StepTotals) else None for r in records]
    requests = list(chain.from_iterable(steps))
    step_ends = [0, *accumulate(map(len, steps))]
    arrays = []
    columns = columns_of(records)
    for column in columns:
        of = attrgetter(column.name)
        kind = _type(pyarrow, column)
        if column in REQUESTS or column in ADDED:
            values = pyarrow.array(list(map(of, requests)), type=kind.value_type)
            ends = pyarrow.array(step_ends, type=pyarrow.int32())
            arrays.append(pyarrow.ListArray.from_arrays(ends, values))
        elif column in SUMS:
            arrays.append(pyarrow.array([None if s is None else of(s) for s in sums], type=kind))
        else:
            arrays.append(pyarrow.array(list(map(of, records)), type=kind))
    names = [column.name for column in columns]
    return parquet_bytes(pyarrow.Table.from_arrays(arrays, names=names), level=_LEVEL)


def decode(raw: bytes, *, where: str) -> tuple[StepRecord, ...]:
    """The records of a table.

    Raises:
        SchemaError: not Parquet, other columns or types, or a row that no record can be; the
            message names the file and the row.
    """
    pyarrow, _ = arrow()
    with parquet_errors(where):
        file = open_parquet(raw, where=where, what=_WHAT)
        names = list(file.schema_arrow.names)
        present = (*COLUMNS, *(column for column in ADDED if column.name in names))
        check_names(names, [column.name for column in present], where=where, what=_WHAT)
        for column in present:
            found, wanted = file.schema_arrow.field(column.name).type, _type(pyarrow, column)
            if found != wanted:
                raise SchemaError(
                    f"{where}: column {column.name} holds {found}, must hold {wanted}"
                )
        table = file.read(use_threads=False)
        table.validate(full=True)
        columns = {
            column.name: _values(pyarrow, column, table.column(column.name), where)
            for column in present
        }
    return _records(columns, where)


def _type(pyarrow: Any, column: Column) -> Any:
    kinds = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "real": pyarrow.float64(),
        "flag": pyarrow.bool_(),
    }
    if column.kind in kinds:
        return kinds[column.kind]
    return pyarrow.list_(kinds[column.kind.removesuffix("s")])


def _values(pyarrow: Any, column: Column, chunks: Any, where: str) -> list[Any]:
    """One value a row; of a list the (lengths, entries)."""
    array = chunks.combine_chunks()
    if isinstance(array, pyarrow.ChunkedArray):  # no rows at all
        array = pyarrow.array([], type=_type(pyarrow, column))
    if not pyarrow.types.is_list(array.type):
        _require_values(column, array, where)
        values: list[Any] = array.to_pylist()
        return values
    if array.null_count:
        raise SchemaError(
            f"{where}: column {column.name}: a row has no list; an empty one is meant"
        )
    entries = array.flatten()
    _require_values(column, entries, where)
    ends = array.offsets.to_numpy()
    return [(ends[1:] - ends[:-1]).tolist(), entries.to_pylist()]


def _require_values(column: Column, array: Any, where: str) -> None:
    if array.null_count and column.name not in _MAY_BE_NONE:
        raise SchemaError(f"{where}: column {column.name} has {array.null_count} rows without one")


def _records(columns: dict[str, list[Any]], where: str) -> tuple[StepRecord, ...]:
    lengths, _ = columns[_REQUEST_NAMES[0]]
    names = (*_REQUEST_NAMES, *(column.name for column in ADDED if column.name in columns))
    for name in names:
        for row, (found, wanted) in enumerate(zip(columns[name][0], lengths, strict=True)):
            if found != wanted:
                raise SchemaError(
                    f"{where}: row {row}: {name} has {found} entries, {_REQUEST_NAMES[0]} "
                    f"{wanted}; there is one for each request"
                )
    rows = zip(*(columns[name][1] for name in names), strict=True)
    entries = list(rows)
    sums = list(zip(*(columns[name] for name in _SUM_NAMES), strict=True))
    sample_counts, samples = columns["samples_ms"]
    measured = {name: columns[name] for name in _MEASURED_NAMES if name != "samples_ms"}
    known: dict[tuple[Any, ...], Request] = {}
    records: list[StepRecord] = []
    place = taken = 0
    for row, length in enumerate(lengths):
        try:
            records.append(
                StepRecord(
                    step=_step(names, entries[place : place + length], sums[row], known),
                    samples_ms=tuple(samples[taken : taken + sample_counts[row]]),
                    **{name: values[row] for name, values in measured.items()},
                )
            )
        except InvalidInputError as error:
            raise SchemaError(f"{where}: row {row}: {error}") from None
        place, taken = place + length, taken + sample_counts[row]
    return tuple(records)


def _step(
    names: Sequence[str],
    entries: Sequence[tuple[Any, ...]],
    sums: tuple[Any, ...],
    known: dict[Any, Request],
) -> tuple[Request, ...] | StepTotals:
    """Requests of a row, equal ones made once; or its sums."""
    has_sums = any(value is not None for value in sums)
    if has_sums == bool(entries):
        raise InvalidInputError(
            "a row has requests or sums, and not both"
            if entries
            else "a row has requests or sums; this one has neither"
        )
    if has_sums:
        return StepTotals(**dict(zip(_SUM_NAMES, sums, strict=True)))
    requests = []
    for entry in entries:
        request = known.get(entry)
        if request is None:
            request = known[entry] = Request(**dict(zip(names, entry, strict=True)))
        requests.append(request)
    return tuple(requests)
