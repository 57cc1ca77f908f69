"""Tables in folders: they come back as they were, and whole whenever the writer dies."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.forwards import store
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.parquet import decode, encode
from aisim_v41.forwards.records import STATUSES, StepRecord
from aisim_v41.forwards.sidecar import FIELDS
from aisim_v41.forwards.store import add_to_table, find_tables, publish_table, read_table
from aisim_v41.forwards.table import StepTable
from tests.forwards.publisher import tables, whole_tables
from tests.forwards.worlds import build, identity, records

ROOT = Path(__file__).resolve().parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- round trips ----------------------------------------------------------------------------------


@given(st.lists(records(), max_size=8))
def test_rows_come_back_as_they_were(found):
    raw = encode(found)
    assert decode(raw, where="here") == tuple(found)
    assert encode(decode(raw, where="here")) == raw


@given(st.lists(records(), min_size=1, max_size=4, unique_by=lambda r: (r.run, r.point, r.order,
                                                                      r.step)))  # fmt: skip
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_come_back_as_they_were(tmp_path, found):
    table = StepTable(
        identity=identity(topology="zwei Gehäuse"),
        records=found,
        licence="MIT",
        notice="© someone",
        sources=({"file": "a.csv", "commit": "1"},),
        remarks=("one", "two"),
    )
    folder = publish_table(table, tmp_path)
    again = read_table(folder)
    assert again == table
    assert again.path == folder


@pytest.mark.parametrize("status", STATUSES)
def test_statuses_come_back(tmp_path, status):
    latency_ms = 1.0 if status == "ok" else None
    record = StepRecord(step=(Request(new_tokens=1),), status=status, latency_ms=latency_ms)
    table = StepTable(identity=identity(), records=[record])
    again = read_table(publish_table(table, tmp_path))
    assert again.statuses() == {status: 1}
    assert again.records == (record,)


def test_where_a_table_lies(tmp_path):
    table = tables()[0]
    folder = publish_table(table, tmp_path)
    assert folder == tmp_path / "profiles/gb300/fpm" / table.identity.slug()
    sidecar = json.loads((folder / "table.json").read_text())
    assert set(sidecar) == set(FIELDS)
    assert names(folder) == [".lock", sidecar["file"], "table.json"]
    assert sidecar["file"] == f"steps-{sidecar['sha256'][:12]}.parquet"
    assert sidecar["rows"] == 40


def test_the_same_table_gives_the_same_bytes(tmp_path):
    one, other = (publish_table(tables()[0], tmp_path / name) for name in "ab")
    assert names(one) == names(other)
    assert all((one / n).read_bytes() == (other / n).read_bytes() for n in names(one))


def test_publishing_replaces_and_adding_merges(tmp_path):
    first, second = tables()
    later = replace(second, records=[replace(r, run="later") for r in second.records])
    folder = publish_table(first, tmp_path)
    assert add_to_table(later, tmp_path) == folder
    assert read_table(folder).records == (*first.records, *later.records)
    assert len(names(folder)) == 3
    publish_table(second, tmp_path)
    assert read_table(folder) == second
    with pytest.raises(InvalidInputError, match="two records of run 'run'"):
        add_to_table(first, tmp_path)
    assert read_table(folder) == second


def test_adding_where_nothing_is(tmp_path):
    assert read_table(add_to_table(tables()[0], tmp_path)) == tables()[0]


# --- finding --------------------------------------------------------------------------------------


def test_users_tables_are_found_first(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.setenv("AISIM_V41_PATH", f"{here}{os.pathsep}{there}")
    packaged = find_tables("gb300")
    first, second = tables()
    publish_table(second, there)
    assert find_tables("gb300")[0] == second
    publish_table(first, here)
    assert find_tables("gb300") == (first, *packaged)
    assert find_tables("gb301") == ()


@pytest.mark.parametrize("gpu", ["", "../gb300", "a/b", None, 3, "x" * 80])
def test_names_that_no_gpu_has(gpu):
    with pytest.raises(InvalidInputError, match="not a GPU's name"):
        find_tables(gpu)


def test_a_table_is_read_once_until_it_is_replaced(tmp_path):
    first, second = tables()
    folder = publish_table(first, tmp_path)
    assert read_table(folder) is read_table(folder)
    publish_table(second, tmp_path)
    assert read_table(folder) == second


def test_no_table(tmp_path):
    for path in (tmp_path, tmp_path / "none", "\0"):
        with pytest.raises((MissingProfileError, SchemaError)):
            read_table(path)


def test_a_table_without_records_is_none(tmp_path):
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        publish_table(StepTable(identity=identity(), records=[]), tmp_path)


# --- writers that die, wait or cannot write -------------------------------------------------------


class Publisher:
    """A process that starts publishing children."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.forwards.publisher", str(root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self.said() == "ready"

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return int(self.said())

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        assert self.said() == "gone"

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture
def publisher(tmp_path):
    one = Publisher(tmp_path)
    yield one
    one.close()


def test_killed_writers_leave_the_old_table_or_the_new_one(tmp_path, publisher):
    """Fifty writers that publish and import, each killed at a moment of its own.

    On a busy machine writers get further only if they live longer, so later ones do.
    """
    may_be_found = whole_tables()
    new = may_be_found[1]
    folder = store.folder_of(new, tmp_path)
    moments = random.Random(20261201)
    seen, killed = set(), 0
    while killed < 50 or (len(seen) < 4 and killed < 200):
        child = publisher.start()
        time.sleep(moments.uniform(0.0, 0.1 + 0.01 * max(0, killed - 25)))
        publisher.kill(child)
        found = read_table(folder)
        seen.add(may_be_found.index(found))
        killed += 1
    assert seen == {0, 1, 2, 3}
    publish_table(new, tmp_path)
    assert read_table(folder) == new
    assert len(names(folder)) == 3


def test_readers_see_a_whole_table_while_it_is_replaced(tmp_path, publisher):
    may_be_found = whole_tables()
    folder = store.folder_of(may_be_found[0], tmp_path)
    child = publisher.start()
    last, changes = read_table(folder), 0
    while changes < 30:
        found = read_table(folder)
        assert found in may_be_found
        changes += found != last
        last = found
    publisher.kill(child)


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_leaves_the_old_table(tmp_path, monkeypatch, call, place, number):
    old, new = tables()
    folder = publish_table(old, tmp_path)
    calls, real = iter(range(100)), getattr(os, call)

    def failing(*args):
        if next(calls) == place:
            raise OSError(number, os.strerror(number))
        return real(*args)

    monkeypatch.setattr(store.os, call, failing)
    if place > {"fsync": 3, "replace": 1}[call]:
        publish_table(new, tmp_path)
    else:
        with pytest.raises(InvalidInputError, match=f"cannot be written .*{os.strerror(number)}"):
            publish_table(new, tmp_path)
    monkeypatch.undo()
    assert read_table(folder) in (old, new)
    assert not [name for name in names(folder) if name.startswith(".unfinished")]
    publish_table(new, tmp_path)
    assert read_table(folder) == new
    assert len(names(folder)) == 3


def test_a_root_that_cannot_be_written(tmp_path):
    (tmp_path / "profiles").write_text("a file")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        publish_table(tables()[0], tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        publish_table(tables()[0], "\0")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_leave_to_write(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(InvalidInputError, match=r"cannot be written .*[Pp]ermission"):
        publish_table(tables()[0], tmp_path)


def test_a_second_writer_waits(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    table = tables()[0]
    folder = publish_table(table, tmp_path)
    monkeypatch.setattr(store, "WAIT_S", 0.05)
    with (folder / store.LOCK).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InvalidInputError, match="another process has been writing it"):
            publish_table(table, tmp_path)
    assert publish_table(table, tmp_path) == folder


@pytest.mark.parametrize(
    "changes",
    [{"gpu": "../../evil"}, {"gpu": "/evil"}, {"gpu": "a" * 300}, {"tp": "../../../../evil"}],
    ids=repr,
)
@pytest.mark.parametrize("write", [publish_table, add_to_table])
def test_nothing_is_written_beside_the_root(tmp_path, changes, write):
    root = tmp_path / "inside" / "root"
    changes = {name: v.replace("/evil", f"{tmp_path}/evil") if v == "/evil" else v
               for name, v in changes.items()}  # fmt: skip
    made_up = Identity(build(), {**identity().execution, **changes})
    step = StepRecord(step=(Request(new_tokens=8),), latency_ms=1.0)
    with pytest.raises(InvalidInputError, match="is not"):
        write(StepTable(identity=made_up, records=(step,)), root)
    assert list(tmp_path.iterdir()) == []
