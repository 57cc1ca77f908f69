"""A table in memory: rows parted by identity, so that two identities cannot mix.

`OperatorTable.select` returns the rows of exactly one identity, or says which fields still differ.
Suspect rows are left out unless they are asked for by their flag.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aisim_v41.errors import InvalidInputError, MissingProfileError, nearest
from aisim_v41.tables.columns import Columns, Whole, row_codes
from aisim_v41.tables.schema import FAMILIES, FLAGS, Family

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]
Names = NDArray[np.object_]
Identity = Mapping[str, str | int]
_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured row.

    Attributes:
        key: size along each axis.
        latency_us: time of one call [us].
        samples: timings behind it; None: not stated.
        spread_relative: slowest over fastest of those, minus 1; None: not stated.
        flag: why it is suspect; empty: it is not.
        caveat: what to know about it; empty: nothing.
        source: file that it came from.
    """

    key: Mapping[str, int]
    latency_us: float
    samples: int | None
    spread_relative: float | None
    flag: str
    caveat: str
    source: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Partition:
    """Rows of one identity, in the order of their axes; every array is read-only.

    Attributes:
        gpu, family: of the table.
        identity: value of every identity field.
        axes: names of the axes of its operator.
        sizes: size of each row along each axis.
        latency_us: [us]; samples: -1 where not stated; spread_relative, resolution_us [us]: NaN
            where not stated; flag, caveat, source: text.
    """

    gpu: str
    family: str
    identity: Identity
    axes: tuple[str, ...]
    sizes: Mapping[str, Whole]
    latency_us: Floats
    samples: Whole
    spread_relative: Floats
    resolution_us: Floats
    flag: Names
    caveat: Names
    source: Names

    def __len__(self) -> int:
        return len(self.latency_us)

    def exact(self, **key: int) -> Row | None:
        """The measured row at a point; None if there is none.

        Args:
            key: a size for every axis.

        Raises:
            InvalidInputError: an axis is missing or not one of the operator's.
        """
        if set(key) != set(self.axes):
            raise InvalidInputError(
                f"{self.identity['operator']} has the axes {', '.join(self.axes)}; "
                f"found {', '.join(sorted(key)) or 'none'}"
            )
        place = self._places.get(tuple(key[axis] for axis in self.axes))
        return None if place is None else self.row(place)

    def row(self, place: int) -> Row:
        """The row at a place of the arrays."""
        samples, spread = int(self.samples[place]), float(self.spread_relative[place])
        return Row(
            key={axis: int(self.sizes[axis][place]) for axis in self.axes},
            latency_us=float(self.latency_us[place]),
            samples=None if samples < 0 else samples,
            spread_relative=None if np.isnan(spread) else spread,
            flag=self.flag[place],
            caveat=self.caveat[place],
            source=self.source[place],
        )

    def where(self, **sizes: int) -> Partition:
        """The rows that have these sizes along these axes, such as one cut of a grid.

        Raises:
            InvalidInputError: not an axis of the operator.
        """
        keep = np.ones(len(self), dtype=bool)
        for axis, size in sizes.items():
            if axis not in self.axes:
                raise InvalidInputError(
                    f"{self.identity['operator']} has no axis {axis!r}; {nearest(axis, self.axes)}"
                )
            keep &= self.sizes[axis] == size
        return self._taken(np.flatnonzero(keep))

    def _taken(self, places: Whole) -> Partition:
        return Partition(
            gpu=self.gpu,
            family=self.family,
            identity=self.identity,
            axes=self.axes,
            sizes=MappingProxyType({a: _frozen(v[places]) for a, v in self.sizes.items()}),
            **{name: _frozen(getattr(self, name)[places]) for name in _MEASURED},
        )

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        keys = zip(*(self.sizes[axis].tolist() for axis in self.axes), strict=True)
        return {key: place for place, key in enumerate(keys)}


_MEASURED = (
    "latency_us",
    "samples",
    "spread_relative",
    "resolution_us",
    "flag",
    "caveat",
    "source",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorTable:
    """Measured operators of one GPU and family.

    Attributes:
        gpu, family: of the table.
        origin: file, or package and version, that it was read from.
        sidecar: what it says about itself.
        columns: as in the file.
    """

    gpu: str
    family: str
    origin: str
    sidecar: Mapping[str, Any]
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["latency_us"].data)

    @property
    def schema(self) -> Family:
        """Columns and operators of the family."""
        return FAMILIES[self.family]

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """Every identity in the table, in the order of the file."""
        return tuple(MappingProxyType(dict(identity)) for identity, _ in self._groups)

    def matching(self, **identity: str | int) -> tuple[Identity, ...]:
        """The identities that have these values.

        Raises:
            InvalidInputError: not an identity field of the family.
        """
        self._check_fields(identity)
        return tuple(self.identities[place] for place in self._matching(identity))

    def select(self, *, flags: Collection[str] = (), **identity: str | int) -> Partition:
        """Rows of the one identity that has these values.

        Args:
            flags: suspect rows to keep, by flag; ``aisim_v41.tables.FLAGS`` keeps all of them.
            identity: values of identity fields; fields that do not differ may be left out.

        Raises:
            InvalidInputError: not an identity field, not a flag, or values that several
                identities have; the message shows the fields in which they differ.
            MissingProfileError: no identity has these values; the message shows what there is.
        """
        self._check_fields(identity)
        unknown = sorted(set(flags) - set(FLAGS))
        if unknown:
            raise InvalidInputError(f"no flag {unknown[0]!r}; {nearest(unknown[0], FLAGS)}")
        found = self._matching(identity)
        if not found:
            raise MissingProfileError(self._nothing_matches(identity))
        if len(found) > 1:
            raise InvalidInputError(self._several_match(identity, found))
        return self._partition(found[0], flags)

    def to_frame(self) -> pandas.DataFrame:
        """All rows, suspect ones too, one column a column; a size that is not there is -1."""
        import pandas

        return pandas.DataFrame({name: v.decoded() for name, v in self.columns.items()})

    @cached_property
    def _groups(self) -> tuple[tuple[Identity, Whole], ...]:
        names = self.schema.identity_names
        codes = row_codes((self.columns[name] for name in names), len(self))
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        members = sorted(np.split(order, starts[1:]), key=lambda rows: int(rows[0]))
        return tuple((self._identity_of(int(rows[0])), rows) for rows in members if len(rows))

    def _identity_of(self, row: int) -> Identity:
        values = {name: self.columns[name] for name in self.schema.identity_names}
        return {
            name: column.words[column.data[row]] if column.words else int(column.data[row])
            for name, column in values.items()
        }

    def _matching(self, identity: Mapping[str, str | int]) -> list[int]:
        return [
            place
            for place, (known, _) in enumerate(self._groups)
            if all(known[name] == value for name, value in identity.items())
        ]

    def _check_fields(self, identity: Mapping[str, str | int]) -> None:
        for name in identity:
            if name not in self.schema.identity_names:
                raise InvalidInputError(
                    f"{self.family} tables have no identity field {name!r}; "
                    f"{nearest(name, self.schema.identity_names)}"
                )

    def _nothing_matches(self, identity: Mapping[str, str | int]) -> str:
        """What to change: the first field whose value does not occur with those before it."""
        kept: dict[str, str | int] = {}
        for name, value in identity.items():
            if self._matching({**kept, name: value}):
                kept[name] = value
                continue
            values = sorted({str(self.identities[place][name]) for place in self._matching(kept)})
            with_these = f" with {_spelled(kept)}" if kept else ""
            return (
                f"{self.gpu}, {self.family}: no rows with {name}={value!r}{with_these}; there are "
                f"{', '.join(values)}. Choose one of them, or add a table "
                '(docs/tables.md, "Adding tables").'
            )
        raise AssertionError("some field matches nothing")

    def _several_match(self, identity: Mapping[str, str | int], found: list[int]) -> str:
        differing = {
            name: values
            for name in self.schema.identity_names
            if len(values := sorted({str(self.identities[place][name]) for place in found})) > 1
        }
        fields = "; ".join(
            f"{name}: {', '.join(values[:_SHOWN])}{' ...' if len(values) > _SHOWN else ''}"
            for name, values in differing.items()
        )
        return (
            f"{self.gpu}, {self.family}: {_spelled(identity) or 'no field'} leaves {len(found)} "
            f"identities, which must not be mixed. They differ in {fields}. Give a value for one "
            "field after the other."
        )

    def _partition(self, place: int, flags: Collection[str]) -> Partition:
        identity, rows = self._groups[place]
        flag = self.columns["flag"]
        assert flag.words is not None
        kept = np.array([not word or word in flags for word in flag.words])
        rows = rows[kept[flag.data[rows]]]
        axes = self.schema.operators[str(identity["operator"])]
        sizes = {axis: self.columns[axis].data[rows] for axis in axes}
        order = np.lexsort([sizes[axis] for axis in reversed(axes)])
        rows = rows[order]
        return Partition(
            gpu=self.gpu,
            family=self.family,
            identity=MappingProxyType(dict(identity)),
            axes=axes,
            sizes=MappingProxyType({axis: _frozen(v[order]) for axis, v in sizes.items()}),
            **{name: _frozen(self._taken(name, rows)) for name in _MEASURED},
        )

    def _taken(self, name: str, rows: Whole) -> NDArray[Any]:
        values = self.columns[name]
        valid = None if values.valid is None else values.valid[rows]
        return type(values)(values.data[rows], valid, values.words).decoded()


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _spelled(identity: Mapping[str, str | int]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in identity.items())
