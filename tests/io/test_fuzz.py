"""Broken files: whatever is wrong with one, reading says so in a typed error or lists it."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aisim_v41.errors import AisimError, SchemaError
from aisim_v41.forwards.records import StepRecord
from aisim_v41.io import IMPORTERS, Imported, sniff
from tests.io import pairs
from tests.io.files import load, measured, message, point, rank_file
from tests.io.test_sglang_bench import line
from tests.io.test_vllm_latency import saved as vllm_file
from tests.io.test_vllm_latency import twin

SEED = 20261201
FAST = settings(max_examples=60, deadline=None,
                suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip

FPM_LINES = [
    message(load(1, 512, 1024, 0, 0)),
    message(load(2, 600, 128, 3, 3000, prompts=8.0, contexts=200.0), counter_id=2),
    message(load(1, 64, 10, 2, 1100, contexts=202500.0,
                 extend_lengths=[1, 64, 1], past_kv_lengths=[1000, 10, 100]), counter_id=3),
    message(load(0, 0, 0, 0, 0), 0.0, counter_id=4),
]  # fmt: skip
RESULTS = [
    measured(point(1, "prefill", 2, 96, 48), 0.030),
    measured(point(2, "decode", 4, 0, 4096), 0.010, kv_seed_regime="real_kv"),
]
GROUPS = [{"benchmark_id": 1, "complete": True, "wall_time": 0.030}]
CSV = (
    "new_tokens,prefix_tokens,kind,count,latency_ms,samples_us,run,order\n"
    '64;64,"0;8",prefill,1,5.0,"5000;5001",a,1\n'
    "1,2048,decode,8,,11000,a,2\n"
)


def tried(name: str, path: Path) -> Imported | None:
    """What was read, if anything; no other error than ours."""
    try:
        imported = IMPORTERS[name].read(path)
    except AisimError:
        return None
    assert isinstance(imported, Imported)
    assert all(type(record) is StepRecord for record in imported.records)
    assert all(entry.place and entry.reason for entry in imported.skipped)
    return imported


def lines_of(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def sound(folder: Path) -> dict[str, Path]:
    """One good file of each format."""
    (folder / "fpm").write_text(lines_of(FPM_LINES))
    (folder / "sglang").write_text(lines_of([line(), line(batch=8)]))
    (folder / "csv").write_text(CSV)
    return {
        "dynamo_fpm": folder / "fpm",
        "self_benchmark": rank_file(folder / "benchmark.json", RESULTS, iteration_groups=GROUPS),
        "sglang_bench": folder / "sglang",
        "aisimulate_fpm": pairs.saved(folder),
        "vllm_latency": vllm_file(folder, twin()),
        "csv": folder / "csv",
    }


def test_the_files_are_sound(tmp_path: Path):
    for name, path in sound(tmp_path).items():
        imported = IMPORTERS[name].read(path)
        assert imported.records
        assert [e.reason for e in imported.skipped] == (
            ["heartbeat of an idle scheduler"] if name == "dynamo_fpm" else []
        )


@pytest.mark.parametrize("name", IMPORTERS)
@FAST
@given(content=st.binary(max_size=400))
def test_any_bytes(tmp_path: Path, name: str, content: bytes):
    path = tmp_path / "benchmark.json"
    path.write_bytes(content)
    tried(name, path)
    with suppress(AisimError):
        assert sniff(path) in IMPORTERS


def broken(content: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut, moved or repeated in a few places."""
    raw = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(raw) + 1)
        other = chance.randrange(len(raw) + 1)
        low, high = min(place, other), min(max(place, other), min(place, other) + 40)
        kind = chance.randrange(5)
        if kind == 0 and place < len(raw):
            raw[place] = chance.randrange(256)
        elif kind == 1:
            raw[place:place] = chance.choice([b"{", b"]", b'"', b",", b"-", b"\n", b"9" * 30, b";"])
        elif kind == 2:
            del raw[low:high]
        elif kind == 3:
            raw[place:place] = raw[low:high]
        else:
            del raw[place:]
    return bytes(raw)


@pytest.mark.parametrize("name", IMPORTERS)
def test_broken_bytes(tmp_path: Path, name: str):
    path = sound(tmp_path)[name]
    content = path.read_bytes()
    chance = random.Random(SEED)
    read = 0
    for _ in range(600):
        path.write_bytes(broken(content, chance))
        if name == "aisimulate_fpm":  # a sidecar that names the broken file
            sidecar = path.with_suffix(".metadata.json")
            document = json.loads(sidecar.read_text())
            digest = sha256(path.read_bytes()).hexdigest()
            sidecar.write_text(json.dumps({**document, "parquet_sha256": digest}))
        read += tried(name, path) is not None
    assert read < 600


ODD = [
    None, True, False, 0, 1, -1, 2, 1 << 40, 1 << 61, 0.5, -0.5, 1e-300, 1e300, "", "x", "decode",
    "\ud800", [], [1], [[]], {}, {"a": {}}, [None], "9" * 400,
]  # fmt: skip


def changed(document: Any, chance: random.Random) -> Any:
    """A document with one value replaced, or one key or entry left out."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            places.append((value, key))
            if isinstance(inner, (dict, list)):
                walk(inner)

    walk(document)
    if not places:
        return document
    holder, key = chance.choice(places)
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = deepcopy(chance.choice(ODD))
    return document


@pytest.mark.parametrize("name", ["dynamo_fpm", "sglang_bench"])
def test_changed_lines(tmp_path: Path, name: str):
    path = sound(tmp_path)[name]
    rows = path.read_text().splitlines()
    chance = random.Random(SEED)
    for _ in range(2000):
        found = [json.loads(row) for row in rows]
        for _ in range(chance.randint(1, 2)):
            found = changed(found, chance)
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
        imported = tried(name, path)
        if imported is not None:  # nothing is lost
            places = {entry.place for entry in imported.skipped}
            places |= {record.source for record in imported.records}
            assert len(places) == len(found)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("self_benchmark", ""),
        ("vllm_latency", ""),
        ("vllm_latency", ".pytorch.json"),
        ("aisimulate_fpm", ".metadata.json"),
    ],
)
def test_changed_documents(tmp_path: Path, name: str, beside: str):
    path = sound(tmp_path)[name]
    file = path.with_suffix(beside) if beside else path
    content = file.read_text()
    chance = random.Random(SEED)
    for _ in range(2000):
        document = json.loads(content)
        for _ in range(chance.randint(1, 2)):
            document = changed(document, chance)
        file.write_text(json.dumps(document))
        tried(name, path)


def test_changed_tables(tmp_path: Path):
    chance = random.Random(SEED)
    odd = [None, -1, 0, 1.5, "", "x", True, float("nan"), float("inf"), 1 << 62]
    kept = 0
    for _ in range(150):
        rows = [dict(row) for row in pairs.ROWS]
        column = chance.choice(list(rows[0]))
        value = chance.choice(odd)
        for row in rows if chance.random() < 0.5 else rows[:1]:
            row[column] = value
        try:
            table = pa.Table.from_pylist(rows)
        except (pa.ArrowException, OverflowError):
            continue  # a column of two types is no table
        file = pairs.saved(tmp_path, table)
        kept += tried("aisimulate_fpm", file) is not None
    assert 0 < kept < 150


def test_deep_and_large_documents_are_refused(tmp_path: Path):
    deep = '{"scheduled_requests": ' + '{"a": ' * 5000 + "1" + "}" * 5001
    (tmp_path / "benchmark.json").write_text(deep)
    for name in ("dynamo_fpm", "sglang_bench", "self_benchmark", "vllm_latency"):
        with pytest.raises(SchemaError, match=r"benchmark\.json.*nested"):
            IMPORTERS[name].read(tmp_path / "benchmark.json")
    (tmp_path / "long").write_bytes(b"{" + b" " * (5 << 20))
    for name in ("dynamo_fpm", "sglang_bench"):
        with pytest.raises(SchemaError, match="long:1: a line longer than 4194304 bytes"):
            IMPORTERS[name].read(tmp_path / "long")
