"""``aisim-v41 sweep``: rows, reasons and queries, from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aisim_v41 as aisim
from tests.cli.conftest import inside

SPACE = """
hardware: gb300
parallel: {tp: [4, 3]}
method: sol
requests: {new_tokens: [8, 8192], count: {range: [1, 3], step: 1}}
where: count < 3
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


def test_what_became_of_the_points(space: Path, tmp_path: Path):
    done = inside("sweep", str(space), str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["points"], found["rows"], found["files"]) == (12, 8, 1)
    assert found["status"] == {"ok": 4, "refused": 4}
    assert list(found["reasons"].values()) == [4]
    again = inside("sweep", str(space), str(tmp_path / "out"), "--jobs", "2")
    assert "8 rows of 12 points: 4 ok, 4 refused" in again.stdout
    assert "part-*.parquet" in again.stdout
    assert "tp = 3" in again.stdout


def test_a_query(space: Path, tmp_path: Path):
    sql = "select new_tokens, max(latency_ms) as ms from sweep where status = 'ok' group by all"
    done = inside("sweep", str(space), str(tmp_path / "out"), "--query", sql, "--json")
    rows = {row["new_tokens"]: row["ms"] for row in json.loads(done.stdout)}
    step = aisim.compile(
        aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300"),
        parallel=aisim.Parallel(tp=4), method="sol",
    )  # fmt: skip
    for tokens, latency_ms in rows.items():
        expected = step([aisim.Request(new_tokens=tokens, count=2)]) * 1e3
        assert latency_ms == pytest.approx(expected, rel=1e-12)
    assert set(rows) == {8, 8192}
    text = inside("sweep", str(space), str(tmp_path / "out"), "--query", sql)
    assert "8,192" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.yaml", "out"), "no such file"),
        (("space.yaml", "out", "--jobs", "0"), "jobs"),
        (("space.yaml", "out", "--backend", "nobody"), "backend"),
        (("space.yaml", "space.yaml"), "cannot be written"),
        (("space.yaml", "out", "--query", "select * from nothing"), "nothing"),
    ],
)
def test_bad_calls_say_why(
    space: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
):
    monkeypatch.chdir(space.parent)
    done = inside("sweep", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
