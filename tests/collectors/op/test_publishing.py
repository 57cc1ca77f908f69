"""Publishing: qualified rows alone, joined with what is there, the old table or the new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisim_v41.tables import read_table
from collectors.case import Case
from collectors.errors import ConflictError, InputError, WriteError
from collectors.journal import Journal
from collectors.op.publish import FAMILY, Publication, publish_results
from collectors.op.results import Result
from tests.collectors.fakes import MACHINE, timing

ROOT = Path(__file__).resolve().parents[3]
NORM = "site_norm dtype=bf16 inputs=5120"


def ok(text: str, us: float, **changed: Any) -> Result:
    return Result(Case.from_text(text), "ok", engine="sglang", kernel_source="fake",
                  engine_version="1", timing=timing(us, **changed), difference=0.0)  # fmt: skip


def put(path: Path, *results: Result, **machine: Any) -> Path:
    header = {"kind": "op", "machine": {**MACHINE, **machine}, "timing": {},
              "plan": {"model": "deepseek-v4.1-flash", "scale": "default"}}  # fmt: skip
    with Journal.resume(path, header) as journal:
        for result in results:
            journal.append(result.to_dict())
    return path


def times(published: Publication | Path) -> dict[int, float]:
    path = published if isinstance(published, Path) else published.table
    frame = read_table(path).to_frame()
    return dict(zip(frame["rows"], frame["latency_us"], strict=True))


def test_rows_say_what_was_measured(tmp_path: Path):
    results = put(tmp_path / "r.jsonl", ok(f"{NORM} rows=4", 5.0))
    done = publish_results([results], tmp_path / "own", campaign="evening", licence="CC0-1.0")
    assert done.table == tmp_path / "own" / "profiles" / "h200" / "op" / f"{FAMILY}.parquet"
    table = read_table(done.table)
    (identity,) = table.identities
    row = table.select(**dict(identity)).row(0)
    assert (row.latency_us, row.samples, row.source) == (5.0, 30, "r.jsonl")
    assert identity["campaign"] == "evening"
    assert identity["model_shapes"] == "v4.1_exact"
    assert (identity["engine"], identity["timer"]) == ("sglang", "graph")
    assert table.sidecar["licence"] == "CC0-1.0"
    assert "driver 1" in table.sidecar["sources"][0]["note"]
    frame = table.to_frame()
    assert frame["p90_us"].iloc[0] == pytest.approx(5.05)


def test_only_qualified_rows(tmp_path: Path):
    results = put(
        tmp_path / "r.jsonl", ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=2", 5.0, spread=0.4),
        Result(Case.from_text(f"{NORM} rows=3"), "oom"),
    )  # fmt: skip
    done = publish_results([results], tmp_path / "own")
    assert done.left_out == {"oom": 1}
    frame = read_table(done.table).to_frame().set_index("rows")
    assert frame["flag"].to_dict() == {1: "", 2: "noisy"}
    table = read_table(done.table)
    assert len(table.select(operator="site_norm")) == 1  # a flag leaves a row out
    sound = publish_results([results], tmp_path / "all", with_noisy=True)
    assert len(read_table(sound.table).select(operator="site_norm")) == 2


def test_errors_stop_it_unless_the_sound_rows_are_wanted(tmp_path: Path):
    results = put(tmp_path / "r.jsonl", ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=65536", 1.0))
    with pytest.raises(ConflictError, match="1 errors, such as bound"):
        publish_results([results], tmp_path / "own")
    assert not (tmp_path / "own").exists()
    done = publish_results([results], tmp_path / "own", despite_errors=True)
    assert times(done) == {1: 5.0}
    assert done.left_out == {"check finds an error": 1}


def test_nothing_qualified_is_an_error(tmp_path: Path):
    results = put(tmp_path / "r.jsonl", Result(Case.from_text(f"{NORM} rows=3"), "oom"))
    with pytest.raises(InputError, match="no qualified result"):
        publish_results([results], tmp_path / "own")


def test_results_join_what_is_there(tmp_path: Path):
    first = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=2", 6.0))
    second = put(tmp_path / "b.jsonl", ok(f"{NORM} rows=2", 6.3), ok(f"{NORM} rows=3", 7.0))
    publish_results([first], tmp_path / "own")
    done = publish_results([second], tmp_path / "own")
    assert times(done) == {1: 5.0, 2: 6.3, 3: 7.0}
    assert (done.rows, done.added) == (3, 2)
    assert {s["id"]: s["rows"] for s in read_table(done.table).sidecar["sources"]} == {
        "a.jsonl": 1, "b.jsonl": 2,
    }  # fmt: skip
    again = publish_results([second], tmp_path / "own", replace=True)
    assert times(again) == {1: 5.0, 2: 6.3, 3: 7.0}


def test_a_contradiction_is_refused_and_leaves_the_table(tmp_path: Path):
    first = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    second = put(tmp_path / "b.jsonl", ok(f"{NORM} rows=1", 9.0))
    table = publish_results([first], tmp_path / "own").table
    before = table.read_bytes()
    with pytest.raises(ConflictError, match=r"5\.00 us, now 9\.00"):
        publish_results([second], tmp_path / "own")
    assert table.read_bytes() == before
    assert times(publish_results([second], tmp_path / "own", replace=True)) == {1: 9.0}
    other = publish_results([first], tmp_path / "own", campaign="two")
    assert len(read_table(other.table)) == 2


def test_gpus_do_not_mix(tmp_path: Path):
    one = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    two = put(tmp_path / "b.jsonl", ok(f"{NORM} rows=2", 5.0), gpu="gb300")
    with pytest.raises(ConflictError, match="several GPUs"):
        publish_results([one, two], tmp_path / "own")


def test_what_is_there_must_be_a_table(tmp_path: Path):
    results = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    table = publish_results([results], tmp_path / "own").table
    table.write_bytes(b"x" + table.read_bytes())
    with pytest.raises(ConflictError, match="what is there is no table"):
        publish_results([results], tmp_path / "own")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path):
    results = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    (tmp_path / "own").mkdir(mode=0o500)
    with pytest.raises(WriteError):
        publish_results([results], tmp_path / "own")


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_wherever_it_dies_the_old_or_the_new_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
):
    """Every move of a file in turn is the last thing that happens, or the first that does not."""
    first = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    second = put(tmp_path / "b.jsonl", ok(f"{NORM} rows=2", 6.0))
    for after in (False, True):
        folder = tmp_path / f"own-{after}"
        table = publish_results([first], folder).table
        moves, move = 0, os.replace

        def dies(source: Any, target: Any, *, late: bool = after, how: Any = move) -> None:
            nonlocal moves
            moves += 1
            if moves == call and not late:
                raise KeyboardInterrupt
            how(source, target)
            if moves == call:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", dies)
            try:
                publish_results([second], folder)
            except KeyboardInterrupt:
                assert moves == call
        assert times(table) in ({1: 5.0}, {1: 5.0, 2: 6.0})
        assert times(publish_results([second], folder, replace=True)) == {1: 5.0, 2: 6.0}


def test_a_disk_that_fails_is_a_clean_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    table = publish_results([first], tmp_path / "own").table
    second = put(tmp_path / "b.jsonl", ok(f"{NORM} rows=2", 6.0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match="No space left"):
            publish_results([second], tmp_path / "own")
    assert times(table) == {1: 5.0}
    assert not [one for one in table.parent.iterdir() if "unfinished" in one.name]


KILLED = """
import sys
from pathlib import Path
from collectors.op.publish import publish_results
for turn in range(1000):
    publish_results([Path(sys.argv[1])], Path(sys.argv[2]), replace=True)
    print(turn, flush=True)
"""


@pytest.mark.long
def test_kill_at_random_moments_publishes_nothing_partial(tmp_path: Path):
    import random
    import time

    draw = random.Random(7)
    first = put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0))
    second = put(tmp_path / "b.jsonl", ok(f"{NORM} rows=2", 6.0))
    table = publish_results([first], tmp_path / "own").table
    for _ in range(50):
        command = [sys.executable, "-c", KILLED, str(second), str(tmp_path / "own")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        assert times(table) == {1: 5.0, 2: 6.0}
