"""Broken tables of forwards: reading says what is wrong in a typed error, or the table is sound.

Seeded. Where a change is a defect by construction the error must come and name the folder; where
random bytes may have hit something that no reader looks at, a table that passes every check may
come back instead, and nothing else.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aisim_v41 import Request
from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.forwards.columns import COLUMNS, MEASURED, REQUESTS
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.parquet import decode
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.forwards.sidecar import FIELDS, file_name
from aisim_v41.forwards.store import publish_table, read_table
from aisim_v41.forwards.table import StepTable
from aisim_v41.tables.sidecar import digest
from tests.forwards.worlds import identity
from tests.tables.test_fuzz import garbled

SEED = 20261201
NAMES = [column.name for column in COLUMNS]
LISTS = [column.name for column in (*REQUESTS, *MEASURED) if column.kind.endswith("s")]


def sound_table() -> StepTable:
    step = (
        Request(new_tokens=64, prefix_tokens=256, window="cached"),
        Request(new_tokens=32, prompt_tokens=99),
        Request(new_tokens=1, prefix_tokens=7, kind="decode", count=2),
    )
    sums = StepTotals(prefill_requests=2, prefill_tokens=9, decode_requests=1, decode_kv_tokens=4)
    records = [
        StepRecord(step=step, latency_ms=2.0, samples_ms=(1.9, 2.0, 2.5), order=0, point="a"),
        StepRecord(step=step[:1], latency_ms=1.0, order=1, run="other", regime="cold"),
        StepRecord(step=sums, latency_ms=3.0, samples=4, source="log", note="sums"),
        StepRecord(step=step[1:], status="out_of_memory", order=2),
    ]
    return StepTable(
        identity=identity(decoder_replay=True), records=records, licence="MIT", notice="me",
        sources=({"file": "a.csv"},), remarks=("one",),
    )  # fmt: skip


class Copies:
    """A fresh copy of a sound table for every change."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = publish_table(sound_table(), folder / "sound")
        self.sidecar = json.loads((self.folder / "table.json").read_text())
        self.raw = (self.folder / self.sidecar["file"]).read_bytes()
        self.made = 0

    def new(
        self,
        raw: bytes | None = None,
        text: str | None = None,
        *,
        named: bool = True,
        **fields: Any,
    ) -> Path:
        """A table with other rows, whose digest fits if ``named``, or another sidecar."""
        self.made += 1
        content = self.raw if raw is None else raw
        sidecar = dict(self.sidecar)
        if named:
            sidecar |= {"sha256": digest(content), "file": file_name(digest(content))}
        sidecar |= fields
        folder = self.root / str(self.made) / "gb300" / "fpm" / self.folder.name
        folder.mkdir(parents=True)
        (folder / "table.json").write_text(json.dumps(sidecar) if text is None else text)
        name = self.sidecar["file"] if not named else file_name(digest(content))
        (folder / name).write_bytes(content)
        return folder

    def rows(self) -> Any:
        return pq.read_table(pa.BufferReader(self.raw))


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path)


def parquet(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def refused(folder: Path) -> str:
    """The message of the error, which must be typed and name the folder."""
    with pytest.raises((SchemaError, MissingProfileError)) as error:
        read_table(folder)
    said = str(error.value)
    assert folder.name in said
    assert len(said) < 2000
    return said


def refused_or_sound(read: Callable[[], Any], where: str) -> Any:
    """What was read; None if it was refused, in a typed error that names the place."""
    try:
        return read()
    except (SchemaError, MissingProfileError) as error:
        return None if where in str(error) else pytest.fail(str(error))


def changed(rows: Any, name: str, row: int, value: Any) -> bytes:
    """The rows with one value changed, in the column's own type."""
    values = rows.column(name).to_pylist()
    values[row] = value
    array = pa.array(values, type=rows.schema.field(name).type)
    return parquet(rows.set_column(rows.schema.get_field_index(name), name, array))


def test_the_sound_table_is_sound(copies: Copies):
    assert read_table(copies.new()) == sound_table()
    assert read_table(copies.new(parquet(copies.rows()))) == sound_table()


# --- bytes ----------------------------------------------------------------------------------------


def test_damaged_rows_do_not_match_their_digest(copies: Copies):
    dice = random.Random(SEED)
    for _ in range(60):
        raw = garbled(copies.raw, dice)
        if raw != copies.raw:
            assert "SHA-256" in refused(copies.new(raw, named=False))


def test_damaged_rows_with_a_fitting_digest(copies: Copies):
    dice = random.Random(SEED + 1)
    caught = 0
    for _ in range(250):
        raw = garbled(copies.raw, dice)
        found = refused_or_sound(lambda raw=raw: decode(raw, where="here"), "here")
        caught += found is None
        assert found is None or all(isinstance(record, StepRecord) for record in found)
    assert caught > 200


def test_damaged_sidecars(copies: Copies):
    dice = random.Random(SEED + 2)
    text = json.dumps(copies.sidecar).encode()
    for _ in range(150):
        folder = copies.new()
        (folder / "table.json").write_bytes(garbled(text, dice))
        refused_or_sound(lambda folder=folder: read_table(folder), folder.name)


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"PAR1PAR1", b"\0" * 4096, b"{}" * 999])
def test_no_parquet_at_all(copies: Copies, raw: bytes):
    assert "not readable as Parquet" in refused(copies.new(raw))


def test_files_that_are_none(copies: Copies):
    folder = copies.new()
    (folder / copies.sidecar["file"]).unlink()
    assert "no such file" in refused(folder)
    (folder / copies.sidecar["file"]).mkdir()
    assert "not a regular file" in refused(folder)
    (folder / "table.json").unlink()
    assert "no such file" in refused(folder)
    (folder / "table.json").mkdir()
    assert "not a regular file" in refused(folder)


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_other_names_order_or_type(copies: Copies, name: str):
    rows = copies.rows()
    place = rows.schema.get_field_index(name)
    column = rows.column(name)
    assert f"missing {name}" in refused(copies.new(parquet(rows.drop_columns([name]))))
    more = rows.append_column(f"{name}_2", column)
    assert f"not known {name}_2" in refused(copies.new(parquet(more)))
    first = rows.select([name, *(n for n in NAMES if n != name)])
    if place:
        assert "another order" in refused(copies.new(parquet(first)))
    kind = column.type
    for other in (pa.string(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(),
                  pa.list_(pa.int32()), pa.list_(pa.string()), pa.large_list(pa.int64()),
                  pa.binary(), pa.date32()):  # fmt: skip
        if other != kind:
            empty = rows.set_column(place, name, pa.nulls(len(rows), other))
            assert f"column {name} holds" in refused(copies.new(parquet(empty)))


IMAGES = StepTable(
    identity=identity(modality="image"),
    records=[StepRecord(step=(Request(new_tokens=64, image_tokens=40),), latency_ms=2.0)],
    sources=({"file": "a.csv"},),
)


def test_a_column_that_came_later_is_there_where_it_says_something(tmp_path: Path, copies: Copies):
    assert copies.rows().column_names == NAMES
    folder = publish_table(IMAGES, tmp_path / "images")
    assert read_table(folder) == IMAGES
    file = json.loads((folder / "table.json").read_text())["file"]
    rows = pq.read_table(folder / file)
    assert rows.column_names == [*NAMES, "image_tokens"]
    assert rows.column("image_tokens").to_pylist() == [[40]]


def test_rows_of_images_are_not_read_as_text(copies: Copies):
    """A column that the sidecar does not name, and one that only the sidecar names."""
    entries = [[0] * len(counts) for counts in copies.rows().column("count").to_pylist()]
    entries[0][0] = 5
    rows = copies.rows().append_column("image_tokens", pa.array(entries, pa.list_(pa.int64())))
    assert "units" in refused(copies.new(parquet(rows)))
    units = {**copies.sidecar["units"], "image_tokens": "token"}
    assert "units" in refused(copies.new(units=units))
    assert "units" in refused(copies.new(parquet(rows), units={**units, "image_tokens": "row"}))
    [first, *_] = read_table(copies.new(parquet(rows), units=units)).records
    assert first.step[0].image_tokens == 5
    for wrong in ([[5, 0]] * 4, [[None, 0, 0], *entries[1:]], [[99, 0, 0], *entries[1:]]):
        column = pa.array(wrong, pa.list_(pa.int64()))
        changed = copies.rows().append_column("image_tokens", column)
        assert "image_tokens" in refused(copies.new(parquet(changed), units=units))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_values_that_are_not_there(copies: Copies, column):
    said = copies.new(changed(copies.rows(), column.name, 0, None))
    if column.kind.endswith("s"):
        assert "a row has no list" in refused(said)
    elif column.nullable and column.name not in {"latency_ms"}:
        read_table(said)
    else:
        refused(said)


@pytest.mark.parametrize("name", LISTS)
def test_entries_that_are_not_there(copies: Copies, name: str):
    entries = copies.rows().column(name).to_pylist()[0]
    folder = copies.new(changed(copies.rows(), name, 0, [None, *entries[1:]]))
    if name == "prompt_tokens":
        assert read_table(folder) == sound_table()  # the first had none
    else:
        assert f"column {name}" in refused(folder)


@pytest.mark.parametrize("column", REQUESTS, ids=lambda column: column.name)
@pytest.mark.parametrize("shorter", [True, False])
def test_lists_of_different_length(copies: Copies, column, shorter: bool):
    entries = copies.rows().column(column.name).to_pylist()[0]
    other = entries[:-1] if shorter else [*entries, entries[-1]]
    said = refused(copies.new(changed(copies.rows(), column.name, 0, other)))
    assert "row 0" in said
    assert "there is one for each request" in said


# --- values ---------------------------------------------------------------------------------------

HUGE = (1 << 62, (1 << 63) - 1, -(1 << 63))


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("new_tokens", 0, [-1, 32, 1], "Request.new_tokens = -1"),
        ("prefix_tokens", 0, [-9, 0, 7], "Request.prefix_tokens = -9"),
        *(("new_tokens", 0, [huge, 32, 1], "Request.new_tokens") for huge in HUGE),
        *(("count", 0, [huge, 1, 2], "Request.count") for huge in HUGE),
        ("kind", 0, ["prefill", "prefill", "dekode"], "Request.kind = 'dekode'"),
        ("kind", 0, ["prefill", "decode", "decode"], "computes one token"),
        ("prompt_tokens", 0, [None, 3, None], "below prefix_tokens"),
        ("window", 0, ["cached", "cached", "running"], "needs a prefix"),
        ("window", 0, ["", "running", "running"], "Request.window = ''"),
        ("window_start", 0, [9, 0, 0], "needs a prefix and no window_start"),
        ("prompt_logprobs", 0, [False, False, True], "belong to prefill"),
        ("prefill_requests", 0, 1, "requests or sums, and not both"),
        ("decode_kv_variance", 2, -1.0, "StepTotals.decode_kv_variance = -1.0"),
        ("decode_kv_variance", 2, float("nan"), "StepTotals.decode_kv_variance = nan"),
        ("prefill_tokens", 2, 1, "each computes at least one token"),
        ("prefill_tokens", 2, None, "StepTotals.prefill_tokens = None"),
        ("status", 0, "fine", "StepRecord.status = 'fine'"),
        ("status", 0, "missing", "only 'ok' has a time"),
        ("status", 3, "ok", "StepRecord.latency_ms = None"),
        ("latency_ms", 0, float("nan"), "latency_ms = nan"),
        ("latency_ms", 0, float("inf"), "latency_ms = inf"),
        ("latency_ms", 0, -2.0, "latency_ms = -2.0"),
        ("latency_ms", 0, 0.0, "latency_ms = 0.0"),
        ("latency_ms", 0, 1e300, "at most 1e+09"),
        ("latency_ms", 0, 9.0, "outside its samples"),
        ("latency_ms", 3, 1.0, "only 'ok' has a time"),
        ("samples_ms", 0, [1.0, float("nan"), 2.0], "samples_ms[1] = nan"),
        ("samples_ms", 0, [1.0, -1.0, 2.0], "samples_ms[1] = -1.0"),
        ("samples_ms", 0, [1.0, 2.0], "samples_ms has 2"),
        ("samples_ms", 3, [1.0], "only 'ok' has a time"),
        ("samples", 1, 0, "at least one"),
        ("samples", 1, -1, "StepRecord.samples = -1"),
        *(("samples", 1, huge, "StepRecord.samples") for huge in HUGE),
        *(("order", 0, huge, "StepRecord.order") for huge in HUGE),
        ("run", 0, "", "StepRecord.run = ''"),
        ("note", 0, "x" * 100_000, "of 0 to 4096 characters"),
    ],
)  # fmt: skip
def test_rows_that_no_record_can_be(copies: Copies, name: str, row: int, value, message: str):
    said = refused(copies.new(changed(copies.rows(), name, row, value)))
    assert f"row {row}" in said
    assert message in said


def test_a_row_of_nothing(copies: Copies):
    rows = copies.rows()
    for column in REQUESTS:
        raw = changed(rows, column.name, 0, [])
        rows = pq.read_table(pa.BufferReader(raw))
    assert "row 0: a row has requests or sums; this one has neither" in refused(copies.new(raw))


def test_duplicate_rows(copies: Copies):
    rows = copies.rows()
    twice = copies.new(parquet(pa.concat_tables([rows, rows.slice(0, 1)])), rows=5)
    assert "have the same step" in refused(twice)


def test_rows_that_the_sidecar_does_not_count(copies: Copies):
    rows = copies.rows()
    assert "rows is 4, must be 3" in refused(copies.new(parquet(rows.slice(0, 3))))
    assert "rows is 4, must be 0" in refused(copies.new(parquet(rows.slice(0, 0))))
    said = refused(copies.new(statuses={"ok": 4}))
    assert "statuses is {'ok': 4}, must be {'ok': 3, 'out_of_memory': 1}" in said


# --- sidecars -------------------------------------------------------------------------------------

JUNK = (None, True, 0, -1, 1.5, "", " ", "x", [], [1], [""], {}, {"a": 1}, [[]], [None], "x" * 9000)


@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_are_missing_or_of_another_form(copies: Copies, name: str):
    without = {key: value for key, value in copies.sidecar.items() if key != name}
    assert f"fields missing: {name}" in refused(copies.new(text=json.dumps(without)))
    free = {"licence": 2, "preset": 2, "notice": 4, "remarks": 1, "sources": 1}
    folders = [copies.new(**{name: junk}) for junk in JUNK]
    found = [refused_or_sound(lambda at=at: read_table(at), at.name) for at in folders]
    assert sum(table is not None for table in found) == free.get(name, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"more": 1}, "not known: more"),
        ({"kind": "operator_table"}, "this is the sidecar of something else"),
        ({"schema_version": 2}, "use the release of aisim_v41 that wrote it"),
        ({"schema_version": True}, "schema_version must be a whole number"),
        ({"gpu": "gb200"}, "the identity was measured on 'gb300'"),
        ({"sha256": "0" * 64}, "file is"),
        ({"sha256": "../" * 8}, "64 hexadecimal digits"),
        ({"file": "../../../secret.parquet"}, "named by its digest"),
        ({"identity_sha256": "0" * 64}, "the identity was changed by hand"),
        ({"units": {}}, "convert the values"),
        ({"sources": [{"commit": "1"}]}, "must be a mapping that names its file"),
        ({"remarks": [3]}, "StepTable.remarks = 3"),
    ],
)
def test_sidecars_of_something_else(copies: Copies, fields, message: str):
    assert message in refused(copies.new(**fields))


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"kind": 1, "kind": 2}', '{"kind": NaN}', "a: 1", "\0",
             "[" * 10_000, '{"a":' * 100 + "1" + "}" * 100, "1" * 500]
)  # fmt: skip
def test_sidecars_that_are_no_mapping(copies: Copies, text: str):
    refused(copies.new(text=text))


def changed_identity(copies: Copies, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A table whose identity was changed, with the digest and folder that fit."""
    content = json.loads(json.dumps(copies.sidecar["identity"]))
    change(content)
    try:
        other = Identity.from_dict(content)
    except SchemaError:
        return copies.new(identity=content)
    folder = copies.new(identity=content, identity_sha256=other.sha256)
    return folder.rename(folder.with_name(other.slug()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i["execution"].pop("tp"), "execution: tp is missing"),
        (lambda i: i["execution"].pop("gpu"), "measured on ''"),
        (lambda i: i["execution"].pop("fusion"), "execution: fusion is missing"),
        (lambda i: i["execution"].update(fusion="none such"), "policy field fusion"),
        (lambda i: i["execution"].update(tp=0), "Parallel.tp = 0"),
        (lambda i: i["execution"].update(tp="4"), "Parallel.tp = '4'"),
        (lambda i: i["execution"].update(decoder_replay=False), "does not act under this policy"),
        (lambda i: i["execution"].update(build="of nobody"), "no build named 'of nobody'"),
        (lambda i: i["execution"].update(build="vllm-2026-09-20"), "is one of vllm, the policy is"),
        (lambda i: i["execution"].update(config_sha256="abc"), "64 hexadecimal digits"),
        (lambda i: i["execution"].update(wo_a="wide"), "ShardingRules.wo_a = 'wide'"),
        (lambda i: i["build"].pop("timer"), "build: timer is missing"),
        (lambda i: i["build"].update(timer="watch"), "Build.timer = 'watch'"),
        (lambda i: i["build"].update(settings=[]), "Build.settings"),
        (lambda i: i.update(more={}), "no field 'more'"),
    ],
)
def test_identities_that_no_plan_has(copies: Copies, change, message: str):
    assert message in refused(changed_identity(copies, change))


def test_an_identity_in_the_folder_of_another(copies: Copies):
    folder = changed_identity(copies, lambda i: i["build"].update(timer="http"))
    assert read_table(folder).identity.build.timer == "http"
    moved = folder.rename(folder.with_name(copies.folder.name))
    assert "this table lies at gb300/fpm/" in refused(moved)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner,
                                                                 max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.sampled_from([*FIELDS, "more"]), plain)
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_field(copies: Copies, name: str, value):
    folder = copies.new(**{name: value})
    table = refused_or_sound(lambda: read_table(folder), folder.name)
    assert table is None or table.records == sound_table().records
