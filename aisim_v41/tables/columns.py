"""Columns in memory, and what makes them a table: allowed values, unique keys.

Nothing here touches a file; the same checks run on a packaged table, on a user's, and on tables
read out of another package. Row numbers count from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_v41.errors import SchemaError, nearest
from aisim_v41.tables.schema import CAVEATS, FLAGS, Column, Family

Whole = NDArray[np.int64]
MAX_WORD = 160
MAX_CODE = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """One column.

    Attributes:
        data: numbers, or for text the place of each row's word in ``words``.
        valid: False where a row has none; None where every row has one.
        words: of text, each once.
    """

    data: NDArray[Any]
    valid: NDArray[np.bool_] | None = None
    words: tuple[str, ...] | None = None

    def decoded(self) -> NDArray[Any]:
        """Text as objects; numbers as they are, with -1 or NaN where a row has none."""
        if self.words is not None:
            named: NDArray[Any] = np.array(self.words, dtype=object)[self.data]
            return named
        if self.valid is None:
            return self.data
        missing = np.nan if self.data.dtype.kind == "f" else -1
        return np.where(self.valid, self.data, missing)


Columns = Mapping[str, Values]


def text_of(words: Iterable[str]) -> Values:
    """Text values, one a row."""
    places: dict[str, int] = {}
    codes = [places.setdefault(word, len(places)) for word in words]
    return Values(np.array(codes, dtype=np.int64), words=tuple(places))


def row_codes(columns: Iterable[Values], rows: int) -> Whole:
    """One whole number a row, the same exactly for rows that agree in every column."""
    codes = np.zeros(rows, dtype=np.int64)
    size = 1
    for column in columns:
        if column.words is not None:
            place, count = column.data, len(column.words)
        else:
            known, place = np.unique(column.decoded(), return_inverse=True)
            count = len(known)
        if count <= 1:
            continue
        if size > MAX_CODE // count:
            known, codes = np.unique(codes, return_inverse=True)
            size = len(known)
        codes = codes * count + place
        size *= count
    return codes


def check_columns(columns: Columns, family: Family, *, where: str) -> None:
    """Refuse values that no measurement can have, and keys that occur twice.

    Raises:
        SchemaError: naming ``where``, the row, the column and what to do.
    """
    for column in family.columns:
        values = columns[column.name]
        _check_presence(column, values, where)
        if column.kind == "text":
            _check_words(column, values, where)
        else:
            _check_range(column, values, where)
    _check_vocabulary("operator", columns["operator"], family.operators, where)
    _check_vocabulary("flag", columns["flag"], {"": "", **FLAGS}, where)
    _check_vocabulary("caveat", columns["caveat"], {"": "", **CAVEATS}, where)
    _check_axes(columns, family, where)
    check_unique(columns, family, where=where)


def check_unique(columns: Columns, family: Family, *, where: str) -> None:
    """Refuse two rows of one identity at the same point.

    Raises:
        SchemaError: naming both rows and their key.
    """
    names = (*family.identity_names, *family.axes)
    rows = len(columns["latency_us"].data)
    codes = row_codes((columns[name] for name in names), rows)
    known, counts = np.unique(codes, return_counts=True)
    if len(known) == rows:
        return
    code = known[np.argmax(counts > 1)]
    one, two = np.flatnonzero(codes == code)[:2]
    operator = _shown(columns["operator"], one)
    key = {axis: _shown(columns[axis], one) for axis in family.operators[operator]}
    raise SchemaError(
        f"{where}: rows {one} and {two} have the same identity and key {key} "
        f"({operator}, {_shown(columns['engine'], one)}). Keep one of them, or give the runs "
        "different campaigns."
    )


def _shown(values: Values, row: int) -> Any:
    if values.words is not None:
        return values.words[values.data[row]]
    if values.valid is not None and not values.valid[row]:
        return None
    return values.data[row].item()


def _check_presence(column: Column, values: Values, where: str) -> None:
    if values.valid is not None and not column.nullable and not values.valid.all():
        row = int(np.argmin(values.valid))
        raise SchemaError(
            f"{where}: row {row}, column {column.name}: no value; every row must have one"
        )


def _check_words(column: Column, values: Values, where: str) -> None:
    assert values.words is not None
    may_be_empty = column.name in ("flag", "caveat")
    for place, word in enumerate(values.words):
        if column.words is not None and word not in column.words:
            problem = f"{word[:MAX_WORD]!r} is none of {', '.join(column.words)}"
        elif not word.isprintable() or len(word) > MAX_WORD or word != word.strip():
            problem = f"{word[:MAX_WORD]!r} is not a short printable name"
        elif not word and not may_be_empty:
            problem = "the name is empty"
        else:
            continue
        row = int(np.argmax(values.data == place))
        raise SchemaError(f"{where}: row {row}, column {column.name}: {problem}")


def _check_range(column: Column, values: Values, where: str) -> None:
    data = values.data
    with np.errstate(invalid="ignore"):
        good = (data >= column.lowest) & (data <= column.highest)  # NaN compares as False
    if values.valid is not None:
        good |= ~values.valid
    if good.all():
        return
    row = int(np.argmin(good))
    raise SchemaError(
        f"{where}: row {row}, column {column.name}: {data[row].item()} is not within "
        f"{column.lowest:g} to {column.highest:g} [{column.unit}]. Check the unit, or drop the row."
    )


def _check_vocabulary(name: str, values: Values, known: Mapping[str, object], where: str) -> None:
    assert values.words is not None
    for place, word in enumerate(values.words):
        if word not in known:
            row = int(np.argmax(values.data == place))
            raise SchemaError(
                f"{where}: row {row}, column {name}: {word!r} is not known; "
                f"{nearest(word, [entry for entry in known if entry])}"
            )


def _check_axes(columns: Columns, family: Family, where: str) -> None:
    operators = columns["operator"]
    assert operators.words is not None
    for axis in family.axes:
        has = np.array([axis in family.operators[word] for word in operators.words], dtype=bool)
        wanted = has[operators.data] if len(has) else np.zeros(0, dtype=bool)
        valid = columns[axis].valid
        given = np.ones(len(wanted), dtype=bool) if valid is None else valid
        if (wanted != given).any():
            row = int(np.argmax(wanted != given))
            word = _shown(operators, row)
            need = ", ".join(family.operators[word])
            raise SchemaError(
                f"{where}: row {row}, column {axis}: "
                f"{'no value' if wanted[row] else 'a value'}, but the axes of {word} are {need}"
            )
