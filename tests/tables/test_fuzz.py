"""Broken tables: whatever is wrong with one, loading says so in a typed error, or it is sound.

Seeded. Where the change is a defect by construction the error must come and name the file; where
random bytes may have hit something that no reader looks at, a table that passes every check may
come back instead, and nothing else.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.tables import FAMILIES, OperatorTable, read_table
from aisim_v41.tables.columns import check_columns
from aisim_v41.tables.sidecar import FIELDS, digest
from tests.tables.conftest import edit, rehash, write_small

FAMILY = FAMILIES["v41_dense"]
TEXT = [column.name for column in FAMILY.columns if column.kind == "text"]
NUMBERS = [column.name for column in FAMILY.columns if column.kind != "text"]
FIXED_WORDS = [column.name for column in FAMILY.columns if column.words]
SEED = 20261130


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("sound"))


class Copies:
    """A fresh copy of the sound table for every mutation."""

    def __init__(self, sound: Path, folder: Path) -> None:
        self.raw = sound.read_bytes()
        self.sidecar = sound.with_suffix(".json").read_text()
        self.folder = folder
        self.made = 0

    def new(self, raw: bytes | None = None, sidecar: str | None = None, gpu: str = "gb200") -> Path:
        self.made += 1
        path = self.folder / str(self.made) / gpu / "op" / "v41_dense.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(self.raw if raw is None else raw)
        path.with_suffix(".json").write_text(self.sidecar if sidecar is None else sidecar)
        return path


@pytest.fixture
def copies(sound: Path, tmp_path: Path) -> Copies:
    return Copies(sound, tmp_path)


def refused(path: Path) -> str:
    """The message of the error, which must be typed and name the file or its sidecar."""
    with pytest.raises((SchemaError, MissingProfileError)) as error:
        read_table(path)
    said = str(error.value)
    assert path.stem in said
    assert "Traceback" not in said
    assert len(said) < 2000
    return said


def refused_or_sound(path: Path) -> bool:
    """True if refused; else the table must pass every check again."""
    try:
        table = read_table(path)
    except (SchemaError, MissingProfileError) as error:
        return path.stem in str(error) or pytest.fail(str(error))
    assert isinstance(table, OperatorTable)
    check_columns(table.columns, FAMILY, where="again")
    return False


def garbled(raw: bytes, dice: random.Random) -> bytes:
    """Bytes with one kind of damage."""
    kind = dice.randrange(6)
    at = dice.randrange(len(raw))
    if kind == 0:
        return raw[:at]
    if kind == 1:
        return raw[at:]
    if kind == 2:
        return raw[:at] + dice.randbytes(dice.randrange(1, 64)) + raw[at:]
    if kind == 3:
        length = dice.randrange(1, 128)
        return raw[:at] + bytes(min(length, len(raw) - at)) + raw[at + length :]
    if kind == 4:
        changed = bytearray(raw)
        for _ in range(dice.randrange(1, 9)):
            changed[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
        return bytes(changed)
    end = dice.randrange(at, len(raw)) + 1
    return raw[:at] + raw[at:end][::-1] + raw[end:]


def test_damaged_bytes_do_not_match_their_digest(copies: Copies):
    dice = random.Random(SEED)
    for _ in range(150):
        raw = garbled(copies.raw, dice)
        if raw != copies.raw:
            said = refused(copies.new(raw))
            assert digest(raw) in said
            assert "SHA-256" in said


def test_damaged_bytes_with_a_fitting_digest(copies: Copies):
    dice = random.Random(SEED + 1)
    caught = 0
    for _ in range(250):
        path = copies.new(garbled(copies.raw, dice))
        rehash(path)
        caught += refused_or_sound(path)
    assert caught > 200


def test_damaged_sidecars(copies: Copies):
    dice = random.Random(SEED + 2)
    caught = 0
    for _ in range(150):
        path = copies.new()
        path.with_suffix(".json").write_bytes(garbled(copies.sidecar.encode(), dice))
        caught += refused_or_sound(path)
    assert caught > 130


def strange(dice: random.Random) -> Any:
    return dice.choice(
        [None, -1, 0, 10**30, "", " ", "x" * 5000, [], {}, [[]], {"a": {}}, True, 1.5, "\u0000"]
    )


def test_sidecars_with_a_strange_field(copies: Copies):
    dice = random.Random(SEED + 3)
    allowed = {"licence": str, "notice": str}
    for _ in range(120):
        path = copies.new()
        field, value = dice.choice(sorted(FIELDS)), strange(dice)
        empty = value in ([], {}) and field in ("dropped", "changed", "remarks", "caveats")
        if empty or (isinstance(value, allowed.get(field, type(None))) and str(value).strip()):
            continue
        edit(path, **{field: value})
        refused(path)


def test_sidecars_that_lack_or_add_a_field(copies: Copies):
    whole = json.loads(copies.sidecar)
    for field in FIELDS:
        said = refused(copies.new(sidecar=json.dumps({**whole, field: None})))
        assert field in said
        part = {name: value for name, value in whole.items() if name != field}
        assert f"missing: {field}" in refused(copies.new(sidecar=json.dumps(part)))
    assert "mood" in refused(copies.new(sidecar=json.dumps({**whole, "mood": "good"})))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sha256": "0" * 64}, "SHA-256"),
        ({"sha256": "abc"}, "64 hexadecimal"),
        ({"schema_version": 2}, "convert the table"),
        ({"schema_version": True}, "whole number"),
        ({"kind": "forward_table"}, "must be 'operator_table'"),
        ({"gpu": "gb300"}, "folder of its GPU"),
        ({"family": "gemm"}, "name of its family"),
        ({"rows": 13}, "another table"),
        ({"rows": -1}, "at least one"),
        ({"identity": ["operator"]}, "identity"),
        ({"axes": {}}, "operators in axes"),
        ({"axes": {"head": ["rows"]}}, "axes.head"),
        ({"flags": {}}, "flags"),
        ({"flags": {"faulty_node": {"rows": 1, "meaning": "other"}}}, "meaning"),
        ({"flags": {"ugly": {"rows": 1, "meaning": "other"}}}, "meaning"),
        ({"caveats": {"copy_kernel": {"rows": 1}}}, "caveats.copy_kernel"),
        ({"sources": [{"id": "mine.csv"}]}, "sources"),
        ({"timing": {"method": "m"}}, "timing"),
        ({"dropped": [{"rows": "many"}]}, "dropped"),
        ({"changed": [{"column": "a", "change": 1}]}, "changed"),
        ({"remarks": [1]}, "remarks"),
        ({"units": {}}, "units.operator"),
    ],
)
def test_sidecars_of_something_else(copies: Copies, fields: dict[str, Any], said: str):
    path = copies.new()
    edit(path, **fields)
    assert said in refused(path)


def test_every_wrong_unit_is_named(copies: Copies):
    units = json.loads(copies.sidecar)["units"]
    for column in units:
        path = copies.new()
        edit(path, units={**units, column: "millisecond"})
        said = refused(path)
        assert f"units.{column}" in said
        assert "convert the values" in said


def test_sources_must_be_counted(copies: Copies):
    (source,) = json.loads(copies.sidecar)["sources"]
    for wrong in ({"rows": 11}, {"id": "yours.csv"}, {"rows": "12"}, {"version": ""}):
        path = copies.new()
        edit(path, sources=[{**source, **wrong}])
        refused(path)


def test_another_folder_another_name_no_sidecar(copies: Copies, tmp_path: Path):
    assert "folder of its GPU" in refused(copies.new(gpu="h100"))
    path = copies.new()
    other = path.with_name("gemm.parquet")
    other.write_bytes(copies.raw)
    other.with_suffix(".json").write_text(copies.sidecar)
    assert "name of its family" in refused(other)
    path.with_suffix(".json").unlink()
    refused(path)
    path.unlink()
    refused(path)
    path.mkdir()
    path.with_suffix(".json").write_text(copies.sidecar)
    refused(path)


# --- rows that lie, in a file whose digest is right -----------------------------------------------


def replaced(table: pa.Table, name: str, values: list[Any], kind: pa.DataType | None) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array(values, type=kind))


def lies(dice: random.Random) -> Iterator[tuple[Callable[[pa.Table], pa.Table], tuple[str, ...]]]:
    """Changes of rows, and words that the message must hold."""
    row = dice.randrange(12)

    def put(name: str, value: Any, kind: pa.DataType | None = None) -> Callable[..., pa.Table]:
        def change(table: pa.Table) -> pa.Table:
            values = table.column(name).to_pylist()
            values[row] = value
            default = pa.string() if name in TEXT else table.schema.field(name).type
            return replaced(table, name, values, kind or default)

        return change

    for value in (math.nan, math.inf, -math.inf, -1.0, 0.0, 0.05, 1e9):
        yield put("latency_us", value), (f"row {row}", "column latency_us")
    yield put("latency_us", None), (f"row {row}", "column latency_us", "no value")
    for name in dice.sample(TEXT, 6):
        yield put(name, None), (f"row {row}", f"column {name}")
        yield put(name, "\u202ebad"), (f"row {row}", f"column {name}")
        yield put(name, "w" * 500), (f"row {row}", f"column {name}")
    for name in FIXED_WORDS:
        yield put(name, "something"), (f"row {row}", f"column {name}", "is none of")
    yield put("operator", "conv"), (f"row {row}", "column operator", "known")
    yield put("flag", "ugly"), (f"row {row}", "column flag")
    yield put("source", "yours.csv"), ("rows of each source",)
    for name in ("tensor_parallel", "samples", *FAMILY.axes):
        yield put(name, -5), ("column ",)
        yield put(name, 1 << 62), ("column ",)
    text, whole = pa.string(), pa.int64()
    for name in dice.sample(NUMBERS, 6):
        yield (lambda t, n=name: replaced(t, n, ["7"] * 12, text)), (f"column {name}", "must hold")
    for name in dice.sample(TEXT, 4):
        yield (lambda t, n=name: replaced(t, n, [7] * 12, whole)), (f"column {name}", "must hold")
    yield (lambda t: replaced(t, "latency_us", [1.0] * 12, pa.float32())), ("must hold double",)
    yield (lambda t: replaced(t, "ranks", [None] * 12, pa.int32())), ("must hold int64",)
    for name in dice.sample([*TEXT, *NUMBERS], 6):
        yield (lambda t, n=name: t.drop_columns([n])), (f"missing {name}",)
        yield (
            (
                lambda t, n=name: t.rename_columns(
                    [f"{c}_ms" if c == n else c for c in t.column_names]
                )
            ),
            (f"missing {name}", f"not known {name}_ms"),
        )
    yield (lambda t: t.append_column("mood", pa.array(["good"] * 12))), ("not known mood",)
    yield (lambda t: t.append_column("engine", t.column("engine"))), ("twice engine",)
    yield (lambda t: t.select(t.column_names[::-1])), ("another order",)
    yield (lambda t: pa.concat_tables([t, t.slice(row, 1)])), (f"rows {row} and 12", "identity")
    yield (lambda t: t.slice(0, row)), ("rows",)
    axis = dice.choice(FAMILY.axes)
    yield (lambda t: replaced(t, axis, [4] * 12, pa.int64())), (f"column {axis}", "the axes of")
    yield (lambda t: replaced(t, axis, [None] * 12, pa.int64())), (f"column {axis}", "no value")


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_lie_are_refused_by_row_and_column(copies: Copies, seed: int):
    dice = random.Random(SEED + 10 + seed)
    sound_table = pq.read_table(copies.new())
    for change, words in lies(dice):
        path = copies.new()
        pq.write_table(change(sound_table), path)
        rehash(path)
        said = refused(path)
        for word in words:
            assert word in said, (said, words)
    assert copies.made == 90


def test_a_bomb_is_refused_before_it_is_unpacked(copies: Copies):
    many = 1_000_001
    nulls = pa.table({c.name: pa.nulls(many, pa.int64()) for c in FAMILY.columns})
    path = copies.new()
    pq.write_table(nulls, path)
    rehash(path)
    assert "rows and" in refused(path)


def test_plain_text_columns_are_as_good_as_dictionaries(copies: Copies):
    path = copies.new()
    table = pq.read_table(path)
    for name in TEXT:
        table = replaced(table, name, table.column(name).to_pylist(), pa.large_string())
    pq.write_table(table, path, row_group_size=5)
    rehash(path)
    assert read_table(path).to_frame().equals(read_table(copies.new()).to_frame())
