"""A sweep as a folder: ``sweep.json`` and a Parquet file a part, there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aisim_v41 import __version__
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError, nearest
from aisim_v41.reading import read_mapping
from aisim_v41.resources import search_roots
from aisim_v41.sweeps.evaluate import BLOCK_POINTS
from aisim_v41.sweeps.parts import Cut
from aisim_v41.sweeps.space import Space
from aisim_v41.writing import replace_file

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

MANIFEST: Final = "sweep.json"
SCHEMA_VERSION: Final = 1
UNITS: Final = {
    "point": "number of the point in the space",
    "gpus": "GPUs of one replica",
    "latency_ms": "time of one step [ms]",
    "tokens_per_s_per_gpu": "new tokens of the step a second and GPU [1/s]",
    "short_bytes": "by how much one rank's memory falls short [B]",
    "status": "ok, refused (no time: the reason says why), does_not_fit (the time holds, not the "
    "memory)",
}


@dataclass(frozen=True)
class SweepData:
    """The rows of a sweep, on disk.

    Attributes:
        folder: of the data set.
        points: rows that the whole space has, those that conditions leave out counted.
        parts: Parquet files of the whole.
    """

    folder: Path
    points: int
    parts: int
    held: Any = field(default=None, repr=False, compare=False)
    """What keeps a temporary folder as long as someone holds the answer."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The parts that are there, in order of their points."""
        return tuple(sorted(self.folder.glob("part-*.parquet")))

    @property
    def complete(self) -> bool:
        """Whether every part is there."""
        return len(self.files) == self.parts

    @property
    def pattern(self) -> str:
        """What DuckDB or any other reader of Parquet takes: ``FROM '<pattern>'``."""
        return str(self.folder / "part-*.parquet")

    def frame(self, columns: list[str] | None = None) -> pd.DataFrame:
        """All rows, in order of their points.

        Args:
            columns: names, by default all.

        Raises:
            InvalidInputError: no such column.
            MissingProfileError: no part is there yet.
        """
        import pyarrow as pa

        whole = pa.concat_tables(self._tables(columns)).unify_dictionaries()
        found: pd.DataFrame = whole.to_pandas()
        return found

    def frames(self, columns: list[str] | None = None) -> Iterator[pd.DataFrame]:
        """The same part by part, for sweeps larger than memory.

        Raises:
            InvalidInputError, MissingProfileError: as `frame`.
        """
        for table in self._tables(columns):
            yield table.unify_dictionaries().to_pandas()

    def _tables(self, columns: list[str] | None) -> Iterator[pa.Table]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.files:
            raise MissingProfileError(f"{self.folder}: holds no part of a sweep")
        for path in self.files:
            try:
                with pq.ParquetFile(path) as part:
                    known = part.schema_arrow.names
                    for name in columns or ():
                        if name not in known:
                            raise InvalidInputError(f"no column {name!r}; {nearest(name, known)}")
                    yield part.read(columns)
            except (OSError, pa.ArrowException) as error:
                raise SchemaError(f"{path}: cannot be read ({error})") from None

    def query(self, sql: str) -> pd.DataFrame:
        """Rows that DuckDB makes of the files, in place; the table is called ``sweep``.

        Raises:
            InvalidInputError: DuckDB cannot run it, or is not installed.
            MissingProfileError: no part is there yet.
        """
        try:
            import duckdb
        except ImportError:
            raise InvalidInputError(
                "queries need DuckDB: pip install 'aisim-v41[duckdb]'"
            ) from None
        if not self.files:
            raise MissingProfileError(f"{self.folder}: holds no part of a sweep")
        with duckdb.connect() as connection:
            connection.from_parquet([str(path) for path in self.files]).create_view("sweep")
            try:
                answer = connection.sql(sql)
                if answer is None:
                    raise InvalidInputError(f"{sql!r:.120}: has no rows; ask with SELECT")
                found: pd.DataFrame = answer.df()
            except duckdb.Error as error:
                raise InvalidInputError(f"{sql!r:.120}: {error}") from None
        return found


def open_sweep(folder: str | os.PathLike[str]) -> SweepData:
    """The rows that a sweep left in a folder, finished or not.

    Raises:
        MissingProfileError: the folder holds no sweep.
        SchemaError: its ``sweep.json`` is not one.
    """
    place = Path(folder)
    manifest = read_mapping(place / MANIFEST)
    return SweepData(place, _whole(place, manifest, "points"), _whole(place, manifest, "parts"))


def part_path(folder: Path, part: int) -> Path:
    """Where a part lies."""
    return folder / f"part-{part:06d}.parquet"


def prepare(folder: Path, cut: Cut, held: Any = None) -> SweepData:
    """The folder of a sweep, made or found again.

    Raises:
        InvalidInputError: the folder holds another sweep or other files, or cannot be written.
    """
    found = SweepData(folder, cut.space.points, cut.parts, held)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "library": f"aisim_v41 {__version__}",
        "digest": digest(cut.space),
        "data": data_digest(),
        "points": found.points,
        "combinations": len(cut.space.combinations),
        "points_of_a_combination": cut.space.grid.points,
        "part_blocks": cut.blocks_of_part,
        "block_points": BLOCK_POINTS,
        "parts": cut.parts,
        "where": [one.text for one in cut.space.conditions],
        "columns": cut.schema.kinds,
        "meanings": UNITS,
    }
    path = folder / MANIFEST
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if any(folder.glob("*.parquet")):
                raise InvalidInputError(f"{folder}: holds Parquet files that are no sweep's")
            replace_file(path, json.dumps(manifest, indent=2).encode())
            return found
    except OSError as error:
        raise InvalidInputError(f"{folder}: cannot be written ({error.strerror})") from None
    there = read_mapping(path)
    for name, meaning in (
        ("digest", "another space"),
        ("library", "another version of the library"),
        ("data", "other tables or hardware files"),
        ("part_blocks", "other part_points"),
        ("block_points", "other blocks, whose last bits differ"),
    ):
        if there.get(name) != manifest[name]:
            raise InvalidInputError(
                f"{folder}: holds a sweep of {meaning} ({name} {there.get(name)!r:.40}, now "
                f"{manifest[name]!r:.40}); take another folder, or delete it"
            )
    return found


def digest(space: Space) -> str:
    """SHA-256 of everything that rows depend on, tables of measurements left out."""
    found = sha256()
    for one in space.combinations:
        found.update(repr((sorted(one.values.items(), key=str), one.setting)).encode())
    for group in space.groups:
        found.update(repr((group.name, dict(group.fields), dict(group.constants))).encode())
    for axis in space.grid.axes:
        kinds = [(name, values.dtype.str, values.size) for name, values in axis.columns.items()]
        found.update(repr(kinds).encode())
        for values in axis.columns.values():
            content = values.tobytes() if values.dtype != object else repr(values.tolist()).encode()
            found.update(content)
    found.update(repr(([one.text for one in space.conditions], space.memory)).encode())
    return found.hexdigest()


def data_digest() -> str:
    """SHA-256 of all hardware files and profiles that estimates can read."""
    found = sha256()
    for root in search_roots():
        for path in sorted(
            p for room in ("hardware", "profiles") for p in root.glob(f"{room}/**/*")
        ):
            if path.is_file() and path.suffix in (".yaml", ".json", ".jsonl", ".csv", ".parquet"):
                found.update(path.relative_to(root).as_posix().encode())
                found.update(sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _whole(folder: Path, manifest: dict[str, Any], name: str) -> int:
    value = manifest.get(name)
    if type(value) is not int or value < 0 or manifest.get("schema_version") != SCHEMA_VERSION:
        raise SchemaError(f"{folder / MANIFEST}: no manifest of a sweep ({name} = {value!r:.40})")
    return value
