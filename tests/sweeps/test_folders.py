"""Sweeps on disk: stopped, killed, mixed up and queried."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import pyarrow.parquet as pq
import pytest

import aisim_v41 as aisim
from aisim_v41.sweeps.dataset import MANIFEST, SweepData, open_sweep
from tests.sweeps.cases import RAGGED, same


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path, ragged: pd.DataFrame):
    data = aisim.sweep(RAGGED, tmp_path, part_points=1)
    assert data.complete
    kept = data.files[0].stat().st_mtime_ns
    for path in data.files[1::2]:
        path.unlink()
    assert not open_sweep(tmp_path).complete
    calls: list[tuple[int, int]] = []
    again = aisim.sweep(RAGGED, tmp_path, part_points=1, progress=lambda *one: calls.append(one))
    assert [done for done, _ in calls] == list(range(again.parts // 2 + 1, again.parts + 1))
    assert again.files[0].stat().st_mtime_ns == kept
    same(again.frame(), ragged)
    assert open_sweep(tmp_path) == again


KILLED = """
import sys, time, aisim_v41 as aisim
from tests.sweeps.cases import RAGGED
from aisim_v41.sweeps import run
slow = run.replace_file
def wait(*given):
    time.sleep(0.05)
    slow(*given)
run.replace_file = wait
print("begun", flush=True)
aisim.sweep(RAGGED, sys.argv[1], part_points=1)
"""


@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6])
def test_a_killed_sweep_leaves_whole_parts(tmp_path: Path, ragged: pd.DataFrame, after_s: float):
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(root)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + 60
        while not list(tmp_path.glob("part-*")) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
    left = sorted(tmp_path.glob("part-*.parquet"))
    assert len(left) > 0
    for path in left:
        assert pq.read_table(path).num_rows > 0
    same(aisim.sweep(RAGGED, tmp_path, part_points=1).frame(), ragged)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"hardware": "b200"}, "another space"),
        ({"where": "new_tokens > 5"}, "another space"),
        ({"requests": {"new_tokens": [1, 2]}}, "another space"),
        ({"memory": True}, "another space"),
    ],
)
def test_a_folder_of_another_sweep_is_refused(tmp_path: Path, other: dict[str, Any], words: str):
    space = {"hardware": "gb300", "method": "sol", "requests": {"new_tokens": [1, 3]}}
    aisim.sweep(space, tmp_path)
    with pytest.raises(aisim.InvalidInputError, match=words):
        aisim.sweep(space | other, tmp_path)
    assert open_sweep(tmp_path).frame()["new_tokens"].tolist() == [1, 3]


def test_rows_of_a_table_are_not_their_product(tmp_path: Path):
    space = {"hardware": "gb300", "method": "sol"}
    rows = [{"new_tokens": 5, "prefix_tokens": 0}, {"new_tokens": 6, "prefix_tokens": 9}]
    aisim.sweep(space | {"requests": {"table": rows}}, tmp_path, part_points=1)
    product = {"new_tokens": [5, 6], "prefix_tokens": [0, 9]}
    with pytest.raises(aisim.InvalidInputError, match="another space"):
        aisim.sweep(space | {"requests": product}, tmp_path, part_points=1)


@pytest.mark.parametrize("where", ["tp == 8", "new_tokens > 5"])
def test_a_sweep_of_nothing_has_no_rows(tmp_path: Path, where: str):
    space = {"hardware": "gb300", "method": "sol", "parallel": {"tp": 4}, "where": where,
             "requests": {"new_tokens": [1, 3]}}  # fmt: skip
    found = aisim.sweep(space, tmp_path)
    assert found.complete
    frame = found.frame()
    assert len(frame) == 0
    assert frame.columns[0] == "point"
    assert frame["latency_ms"].dtype == float
    pytest.importorskip("duckdb")
    assert found.query("select count(*) as n from sweep")["n"].tolist() == [0]


def test_other_tables_are_another_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    space = {"hardware": "gb300", "method": "sol", "requests": {"new_tokens": 3}}
    aisim.sweep(space, tmp_path / "out")
    own = tmp_path / "own" / "hardware"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("name: mine\n")
    monkeypatch.setenv("AISIM_V41_PATH", str(own.parent))
    with pytest.raises(aisim.InvalidInputError, match="other tables or hardware files"):
        aisim.sweep(space, tmp_path / "out")


def test_workers_read_the_folders_of_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also workers that began before: what they compile lies in the caller's folders."""
    space = {"hardware": "gb300", "parallel": {"tp": 4}, "method": "op",
             "requests": {"new_tokens": [5, 9]}}  # fmt: skip
    with joblib.parallel_config("loky", n_jobs=2):
        first = aisim.sweep(space, part_points=1).frame()
        own = tmp_path / "profiles" / "gb300" / "op"
        own.mkdir(parents=True)
        (own / "calibration.yaml").write_text("schema_version: 999\n")
        monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))
        second = aisim.sweep(space, part_points=1).frame()
    assert set(first["status"]) == {"ok"}
    assert set(second["status"]) == {"refused"}
    assert second["reason"].str.contains("calibration.yaml").all()


def test_folders_that_are_none(tmp_path: Path):
    space = {"hardware": "gb300", "method": "sol", "requests": {"new_tokens": 3}}
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(aisim.InvalidInputError, match="cannot be written"):
        aisim.sweep(space, file / "inside")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "mine.parquet").write_bytes(b"")
    with pytest.raises(aisim.InvalidInputError, match="no sweep's"):
        aisim.sweep(space, strange)
    with pytest.raises(aisim.MissingProfileError):
        open_sweep(tmp_path)
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(aisim.SchemaError, match="no manifest"):
        open_sweep(tmp_path)
    with pytest.raises(aisim.MissingProfileError, match="no part"):
        SweepData(tmp_path, 1, 1).frame()


def test_a_temporary_folder_goes_with_the_answer():
    data = aisim.sweep({"hardware": "gb300", "method": "sol", "requests": {"new_tokens": 3}})
    folder = data.folder
    assert data.frame()["latency_ms"].notna().all()
    del data
    assert not folder.exists()


def test_duckdb_reads_it_in_place(ragged: pd.DataFrame):
    pytest.importorskip("duckdb")
    data = aisim.sweep(RAGGED, part_points=1)
    best = data.query(
        "select hardware, tp, max(tokens_per_s_per_gpu) as rate from sweep "
        "where method = 'op' group by hardware, tp order by hardware, tp"
    )
    own = ragged[ragged.method == "op"].groupby(["hardware", "tp"], observed=True)
    expected = own["tokens_per_s_per_gpu"].max()
    assert best["rate"].tolist() == expected.sort_index().tolist()
    with pytest.raises(aisim.InvalidInputError, match="nothing_here"):
        data.query("select nothing_here from sweep")
    with pytest.raises(aisim.InvalidInputError, match="SELECT"):
        data.query("")
    with pytest.raises(aisim.InvalidInputError, match="no column"):
        data.frame(["nothing_here"])
    assert list(data.frame(["point", "tp"])) == ["point", "tp"]
