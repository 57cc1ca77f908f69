"""A sweep cut into parts: which points each holds, and its rows as Parquet."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aisim_v41.sweeps.evaluate import BLOCK_POINTS, STATUSES, Answers, evaluate
from aisim_v41.sweeps.grid import Column, Grid
from aisim_v41.sweeps.settings import Combination
from aisim_v41.sweeps.space import Group, Space
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pyarrow as pa

PART_POINTS: Final = 1 << 19
"""Points of a part, unless it is told otherwise: a few MB of Parquet."""
_LARGEST_WHOLE: Final = np.iinfo(np.int64).max
_MEASURED: Final = ("latency_ms", "tokens_per_s_per_gpu")


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring points of one combination: ``first`` to ``last - 1`` of its grid."""

    combination: int
    first: int
    last: int


@dataclass(frozen=True)
class Cut:
    """A space cut into parts of whole blocks.

    Attributes:
        space: what is cut.
        part_points: points of a part, rounded up to whole blocks.
    """

    space: Space
    part_points: int = PART_POINTS

    @cached_property
    def combinations(self) -> tuple[int, ...]:
        """Numbers of the combinations of which conditions leave anything."""
        space = self.space
        return tuple(place for place, one in enumerate(space.combinations) if space.possible(one))

    @property
    def blocks_of_combination(self) -> int:
        """Blocks of each combination."""
        return -(-self.space.grid.points // BLOCK_POINTS)

    @property
    def blocks_of_part(self) -> int:
        """Blocks of each part but the last."""
        block = min(BLOCK_POINTS, self.space.grid.points)
        return -(-self.part_points // block)

    @property
    def parts(self) -> int:
        """How many parts there are: one without rows where conditions leave nothing."""
        return max(
            1, -(-len(self.combinations) * self.blocks_of_combination // self.blocks_of_part)
        )

    def runs(self, part: int) -> Iterator[Run]:
        """What a part is made of, in order."""
        points, each = self.space.grid.points, self.blocks_of_combination
        block = part * self.blocks_of_part
        end = min(block + self.blocks_of_part, len(self.combinations) * each)
        while block < end:
            place, inside = divmod(block, each)
            taken = min(end - block, each - inside)
            yield Run(
                self.combinations[place],
                inside * BLOCK_POINTS,
                min(points, (inside + taken) * BLOCK_POINTS),
            )
            block += taken

    def work(self, part: int) -> Work:
        """Everything that someone needs to make a part."""
        runs = tuple(self.runs(part))
        space = self.space
        grids = tuple(space.grid.cut(run.first, run.last) for run in runs)
        settings = tuple(space.combinations[run.combination] for run in runs)
        light = replace(space, combinations=(), grid=Grid(()))
        return Work(light, space.grid.points, runs, settings, grids, self.schema)

    @cached_property
    def schema(self) -> Schema:
        """Of the rows of every part."""
        return Schema.of(self.space)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One part, to be made anywhere.

    Attributes:
        space: the space without its combinations and its grid.
        grid_points: points of the whole grid.
        runs, settings, grids: what is evaluated: ranges, their combinations and numbers.
        schema: of the rows.
    """

    space: Space
    grid_points: int
    runs: tuple[Run, ...]
    settings: tuple[Combination, ...]
    grids: tuple[Grid, ...]
    schema: Schema

    def table(self) -> pa.Table:
        """The rows of the part."""
        import pyarrow as pa

        found = []
        for run, combination, grid in zip(self.runs, self.settings, self.grids, strict=True):
            offset = run.combination * self.grid_points
            for first in range(run.first, run.last, BLOCK_POINTS):
                last = min(run.last, first + BLOCK_POINTS)
                answers = evaluate(self.space, combination, grid, first, last, offset)
                found.append(self.schema.batch(answers, combination, self.space))
        return pa.Table.from_batches(found, self.schema.arrow)

    def parquet(self) -> bytes:
        """The rows of the part as a Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(
            self.table(),
            sink,
            compression="snappy",
            use_dictionary=[n for n in self.schema.names if n not in ("point", *_MEASURED)],
        )
        return bytes(sink.getvalue())


@dataclass(frozen=True)
class Schema:
    """Columns of a sweep and their types.

    Attributes:
        kinds: "bool", "int64", "double" or "text" of every column, in order.
    """

    kinds: dict[str, str]

    @classmethod
    def of(cls, space: Space) -> Schema:
        """The schema of a space: the same for every part."""
        kinds = {"point": "int64"}
        for name in space.settings:
            kinds[name] = _kind([one.values.get(name) for one in space.combinations])
        constants = space.constants
        arrays = {n: v for axis in space.grid.axes for n, v in axis.columns.items()}
        for name in space.columns[len(space.settings) :]:
            sample = [constants[name]] if name in constants else arrays[name][:1].tolist()
            kinds[name] = _kind(sample)
        kinds |= {"status": "text", "reason": "text"} | dict.fromkeys(_MEASURED, "double")
        if space.memory:
            kinds |= {"fits": "bool", "short_bytes": "int64"}
        return cls(kinds)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.kinds)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema in Arrow's words."""
        import pyarrow as pa

        text = pa.dictionary(pa.int32(), pa.string())
        types = {"bool": pa.bool_(), "int64": pa.int64(), "double": pa.float64(), "text": text}
        return pa.schema([(name, types[kind]) for name, kind in self.kinds.items()])

    def batch(self, answers: Answers, combination: Combination, space: Space) -> pa.RecordBatch:
        """Rows of a block."""
        rows = len(answers.point)
        latency = answers.latency_ms
        given: dict[str, Any] = {
            "point": answers.point,
            "status": np.array(STATUSES, object)[answers.status],
            "reason": answers.reason,
            "latency_ms": latency,
            "tokens_per_s_per_gpu": _throughput(answers, combination, space.groups),
        } | answers.columns
        if answers.short_bytes is not None:
            short = answers.short_bytes
            fits = [None if math.isnan(one) else one == 0 for one in short.tolist()]
            given |= {"short_bytes": short, "fits": fits}
        import pyarrow as pa

        constants = space.constants
        columns = []
        for field in self.arrow:
            if field.name in given:
                columns.append(_array(given[field.name], field.type))
            else:
                known = constants.get(field.name, combination.values.get(field.name))
                columns.append(_repeated(known, rows, field.type))
        return pa.record_batch(columns, schema=self.arrow)


def _kind(values: list[Any]) -> str:
    """The type that holds all values of a column."""
    known = {type(value) for value in values if value is not None}
    if known == {bool}:
        return "bool"
    if not known or not known <= {int, float}:
        return "text"
    largest = max(abs(value) for value in values if type(value) is int) if int in known else 0
    if known == {int} and largest <= _LARGEST_WHOLE:
        return "int64"
    return "double" if largest <= sys.float_info.max else "text"


def _repeated(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_dictionary(kind):
        if value is not None and pa.types.is_floating(kind):
            value = float(value)  # Arrow takes no whole number beyond 64 bits
        return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
    if value is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string()))
    text = value if isinstance(value, str) else json.dumps(value)
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        if isinstance(values, np.ndarray):
            values = [v if isinstance(v, str) else json.dumps(v) for v in values.tolist()]
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    return pa.array(values, kind, from_pandas=True)  # nan is no value


def _throughput(answers: Answers, combination: Combination, groups: tuple[Group, ...]) -> Column:
    """New tokens a second and GPU [1/s]."""
    tokens = np.zeros(len(answers.point))
    for group in groups:
        own = {field: answers.columns[name] for name, field in group.fields.items()}
        own |= dict(group.constants)
        tokens = tokens + np.multiply(own["new_tokens"], own.get("count", 1), dtype=np.float64)
    seconds = answers.latency_ms * MILLISECOND * combination.values.get("gpus", 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Column = np.where(seconds > 0, tokens / seconds, np.nan)
    return found
