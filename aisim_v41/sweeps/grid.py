"""The numeric points of a space, numbered: any range of them is made from its numbers alone.

A grid of a billion points takes no more memory than its axes. The last axis turns fastest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.plan.frames import FIELDS

if TYPE_CHECKING:
    import pandas as pd

Column = npt.NDArray[Any]
MAX_POINTS = 1 << 40
_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "kind": (str, "a text"),
    "window": (str, "a text"),
    "prompt_logprobs": (bool, "true or false"),
}
"""Fields that are no whole numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Columns that change together.

    Attributes:
        columns: values by name, all of one length; whole numbers, or texts as objects.
    """

    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The product of axes.

    Attributes:
        axes: the last one turns fastest.
        offset: number of the first point that the axes hold.
    """

    axes: tuple[Axis, ...]
    offset: int = 0

    @property
    def points(self) -> int:
        """How many points there are."""
        return prod(len(axis) for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(name for axis in self.axes for name in axis.columns)

    def columns(self, first: int, last: int) -> dict[str, Column]:
        """Columns of the points ``first`` to ``last - 1``."""
        numbers = np.arange(first - self.offset, last - self.offset)
        found: dict[str, Column] = {}
        for axis in reversed(self.axes):
            numbers, place = np.divmod(numbers, len(axis))
            found.update((name, values[place]) for name, values in axis.columns.items())
        return {name: found[name] for name in self.names}

    def cut(self, first: int, last: int) -> Grid:
        """The same points ``first`` to ``last - 1``, and no more than is needed to make them.

        A worker gets the rows of a long table that are its own, and axes as they are.
        """
        held = sum(len(axis) for axis in self.axes)
        if held <= last - first:
            return self
        return Grid((Axis(self.columns(first, last)),), first)


def read_table(name: str, given: Any) -> Axis:
    """Points of the user's own: requests, one a row.

    Args:
        name: of the field, for messages.
        given: a pandas frame, a list of mappings, or a path to a ``.csv`` or ``.parquet`` file.
            Columns are fields of `Request`.

    Raises:
        InvalidInputError: not a table, an empty one, or a column that is no field.
        MissingProfileError: no such file.
        SchemaError: a file that cannot be read.
    """
    import pandas as pd

    frame: Any = given
    if isinstance(given, (str, os.PathLike)):
        frame = _of_file(Path(given))
    elif isinstance(given, (list, tuple)) and all(isinstance(row, Mapping) for row in given):
        frame = pd.DataFrame(list(given))
    if not isinstance(frame, pd.DataFrame):
        raise InvalidInputError(
            f"{name}: must be a frame, a list of mappings or a path, not {type(given).__name__}"
        )
    if not len(frame):
        raise InvalidInputError(f"{name}: holds no row")
    for label in frame.columns:
        if label not in FIELDS:
            raise InvalidInputError(
                f"{name}: column {label!r} is no field of Request; known: {', '.join(FIELDS)}"
            )
    if not frame.columns.is_unique:
        raise InvalidInputError(f"{name}: a column occurs twice")
    return Axis({str(label): _plain(name, frame[label]) for label in frame.columns})


def _of_file(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise MissingProfileError(f"no such file: {path}")
    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, ImportError) as error:
        shown = " ".join(str(error).split())[:200]
        raise SchemaError(f"{path}: cannot be read as {path.suffix or 'csv'}: {shown}") from None


def _plain(name: str, column: pd.Series[Any]) -> Column:
    """Values as int64 where they are whole, as objects where they are texts or flags.

    Raises:
        InvalidInputError: a value of another type, named by its row.
    """
    if column.isna().any():
        place = int(column.isna().to_numpy().argmax())
        raise InvalidInputError(f"{name}: row {place}: {column.name} is empty")
    values = column.to_numpy()
    kind, must = _KINDS.get(str(column.name), (int, "a whole number"))
    if kind is not int or values.dtype.kind not in "iuf":
        # As Python's own, of which every one has its type.
        values = values.astype(object)
        for place, value in enumerate(values.tolist()):
            if not _is_a(kind, value):
                raise _refused(name, column, place, value, must)
        if kind is not int:
            return values
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    if not (whole == values).all():
        place = int((whole != values).argmax())
        raise _refused(name, column, place, values[place].item(), must)
    return whole


def _is_a(kind: type, value: Any) -> bool:
    if kind is int:
        return type(value) is int and abs(value) <= np.iinfo(np.int64).max
    return isinstance(value, kind)


def _refused(
    name: str, column: pd.Series[Any], place: int, value: Any, must: str
) -> InvalidInputError:
    return InvalidInputError(f"{name}: row {place}: {column.name} = {value!r:.80}: must be {must}")
