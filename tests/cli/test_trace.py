"""``aisim-v41 trace``: files of one step and of several."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import inside


def test_a_step(tmp_path: Path):
    file = tmp_path / "step.json"
    done = inside("trace", str(file), "--decode", "32x8k", "--engine", "sglang", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    document = json.loads(file.read_text())
    assert said["latency_ms"] == document["otherData"]["latency_ms"]
    assert said["events"] == sum(event["ph"] == "X" for event in document["traceEvents"])
    estimate = inside("estimate", "--decode", "32x8k", "--engine", "sglang", "--json")
    answer = json.loads(estimate.stdout)
    assert said["latency_ms"] == pytest.approx(answer["latency_ms"])


def test_chunks_of_a_prompt(tmp_path: Path):
    file = tmp_path / "chunks.json.gz"
    done = inside("trace", str(file), "--prefill", "6000", "--chunk", "2k", "--method", "sol")
    assert done.returncode == 0, done.stderr
    assert "3 step(s)" in done.stdout
    assert "ui.perfetto.dev" in done.stdout
    document = json.loads(gzip.decompress(file.read_bytes()))
    steps = [event for event in document["traceEvents"] if event.get("cat") == "step"]
    assert [step["name"] for step in steps] == ["step 0", "step 1", "step 2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t.json",), "no requests"),
        (("t.txt", "--decode", "5"), "must end in"),
        (("nowhere/t.json", "--decode", "5"), "cannot be written"),
        (("t.json", "--decode", "5", "--chunk", "2k"), "--chunk"),
        (("t.json", "--prefill", "50", "--chunk", "x"), "whole number"),
        (("t.json", "--prefill", "50", "--chunk", "0"), ">= 1"),
        (("t.json", "--prefill", "100000", "--chunk", "10"), "10000 steps, at most 512"),
        (("t.json", "--prefill", "50", "--decoder-replay", "both"), "on or off"),
        (("t.json", "--prefill", "50", "--method", "best"), "method"),
    ],
)
def test_bad_calls_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
):
    monkeypatch.chdir(tmp_path)
    done = inside("trace", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []
