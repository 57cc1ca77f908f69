"""JSON lines within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from aisim_v41.errors import SchemaError
from aisim_v41.io import lines
from aisim_v41.io.imported import Skipped
from aisim_v41.io.lines import first_line, json_lines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n  {"a": 2}  \nno\n{"a": 3}')
    return path


def test_blank_lines_count_and_say_nothing(file: Path):
    assert list(json_lines(file)) == [
        (1, {"a": 1}),
        (3, {"a": 2}),
        (4, Skipped("file:4", "not a JSON object")),
        (5, {"a": 3}),
    ]
    assert first_line(file) == b'{"a": 1}'
    file.write_bytes(b"\n \n")
    assert list(json_lines(file)) == []
    assert first_line(file) == b""


@pytest.mark.parametrize(
    ("bound", "at", "told"),
    [
        ("MAX_FILE_BYTES", 38, "larger than 37 bytes"),
        ("MAX_LINE_BYTES", 13, "file:1: a line longer than 12 bytes"),
        ("MAX_LINES", 5, "more than 4 lines"),
    ],
)
def test_bounds(file: Path, monkeypatch: pytest.MonkeyPatch, bound: str, at: int, told: str):
    assert file.stat().st_size == 38
    monkeypatch.setattr(lines, bound, at)
    assert len(list(json_lines(file))) == 4
    monkeypatch.setattr(lines, bound, at - 1)
    with pytest.raises(SchemaError) as caught:
        list(json_lines(file))
    assert told in str(caught.value)
