"""Journals: nothing finished is lost, nothing torn is kept, nothing foreign is joined."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.errors import CollectorError, ConflictError, InputError, WriteError
from collectors.journal import Journal, difference, read_journal
from collectors.writing import replace_file

HEADER = {"kind": "op", "machine": {"gpu": "h200", "driver": "1"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def written(path: Path, number: int) -> None:
    with Journal.resume(path, HEADER) as journal:
        for place in range(number):
            journal.append({"n": place})


def test_lines_come_back(path: Path):
    written(path, 3)
    header, records = read_journal(path)
    assert header["machine"] == HEADER["machine"]
    assert records == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_torn_last_line_is_cut_off(path: Path):
    written(path, 3)
    whole = path.read_bytes()
    for size in range(len(whole) - 8, len(whole)):
        path.write_bytes(whole[:size])
        with Journal.resume(path, HEADER) as journal:
            assert [record["n"] for record in journal.records] == [0, 1]
            journal.append({"n": 9})
        assert [record["n"] for record in read_journal(path)[1]] == [0, 1, 9]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_wherever_a_file_ends_whole_lines_are_kept(data: st.DataObject):
    folder = Path(data.draw(st.just(os.environ.get("TMPDIR", "/tmp"))))
    path = folder / f"journal-{os.getpid()}.jsonl"
    path.unlink(missing_ok=True)
    written(path, 4)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[first:cut].count(b"\n")
    with Journal.resume(path, HEADER) as journal:
        assert len(journal.records) == kept
    path.unlink()


def test_damage_in_the_middle_is_an_error(path: Path):
    written(path, 3)
    lines = path.read_bytes().split(b"\n")
    for damage in (b"{", b"[1]", b"null", b'"x"', b"\xff"):
        path.write_bytes(b"\n".join([lines[0], damage, *lines[2:]]))
        with pytest.raises(InputError, match="line 2: damaged"):
            read_journal(path)


def test_another_identity_is_refused_by_name(path: Path):
    written(path, 1)
    other = {**HEADER, "machine": {"gpu": "h200", "driver": "2"}}
    with pytest.raises(ConflictError, match=r"machine.driver is '1' there and '2' here"):
        Journal.resume(path, other)
    assert read_journal(path)[1] == [{"n": 0}]


def test_two_runs_never_share_a_file(path: Path):
    with Journal.resume(path, HEADER), pytest.raises(ConflictError, match="another run"):
        Journal.resume(path, HEADER)
    Journal.resume(path, HEADER).close()


def test_runs_that_begin_at_once_do_not_replace_each_other(path: Path):
    first = Journal.resume(path, HEADER)
    with pytest.raises(ConflictError):
        Journal.resume(path, {**HEADER, "kind": "other"})
    first.append({"n": 1})
    first.close()
    assert read_journal(path)[1] == [{"n": 1}]


@pytest.mark.parametrize("text", ["", '{"format": "aisim'])
def test_a_file_that_was_never_begun_is_begun(path: Path, text: str):
    path.write_text(text)
    with pytest.raises(InputError):
        read_journal(path)
    written(path, 1)
    assert read_journal(path)[1] == [{"n": 0}]


@pytest.mark.parametrize("text", ["{}\n", "not json\n", '{"format": "other"}\n'])
def test_other_files_are_refused(path: Path, text: str):
    path.write_text(text)
    with pytest.raises(InputError):
        read_journal(path)
    with pytest.raises(CollectorError):
        Journal.resume(path, HEADER)
    assert path.read_text() == text


def test_another_version_is_refused(path: Path):
    written(path, 1)
    first, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(first), "version": 99}) + "\n" + rest)
    with pytest.raises(InputError, match="version 99"):
        read_journal(path)


def test_a_folder_that_is_gone_or_closed(tmp_path: Path):
    with pytest.raises(WriteError, match="cannot be written"):
        Journal.resume(tmp_path / "gone" / "r.jsonl", HEADER)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="Not a directory"):
        replace_file(tmp_path / "file" / "x", b"")
    with pytest.raises(InputError, match="cannot be read"):
        read_journal(tmp_path / "gone.jsonl")


FULL = """
import resource, signal, sys
from pathlib import Path
from collectors.errors import WriteError
from collectors.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
with Journal.resume(Path(sys.argv[1]), {"kind": "op"}) as journal:
    try:
        for place in range(1000):
            journal.append({"n": place, "pad": "x" * 90})
    except WriteError as error:
        print(len(journal.records), error)
"""


def test_a_full_disk_loses_no_line(path: Path):
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True,
                          cwd=root, check=True)  # fmt: skip
    number, _, said = done.stdout.partition(" ")
    assert "are safe" in said
    assert len(read_journal(path)[1]) == int(number) > 5
    assert path.read_bytes().endswith(b"\n")
    with Journal.resume(path, {"kind": "op"}) as journal:
        journal.append({"n": -1})
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_replacing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "x"
    replace_file(target, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match="No space left"):
        replace_file(target, b"new")
    assert target.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_the_first_difference_is_named():
    assert difference({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ("a.c", 2, 3)
    assert difference({"a": 1}, {"a": 1, "b": None}) is None
    assert difference({"a": 1}, {"a": [1]}) == ("a", 1, [1])
