"""``aisim-v41 engram``: residencies, one of them in detail, and the rows of a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import inside

STEP = ("--decode", "64x8k", "--gpu", "b200", "--tp", "4")


def answer(*arguments: str):
    done = inside("engram", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments: str) -> str:
    done = inside("engram", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    return done.stderr


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "ids.txt"
    path.write_text(" ".join(["17"] * 96) + "\n\n[5, 6, 7, 8]\n")
    return path


def test_residencies_side_by_side():
    found = answer(*STEP)["residencies"]
    assert [row["residency"] for row in found] == ["hbm", "host_sharded", "host_shared"]
    assert found[0]["gpu_bytes"] > 50e9
    assert found[2]["link_bytes"] == 64 * 48 * 264
    with_disk = answer(*STEP, "--disk-gb-per-s", "6")["residencies"]
    assert with_disk[3]["disk_bytes"] == 64 * 48 / 4 * 8192
    shown = inside("engram", *STEP).stdout
    assert "host_sharded" in shown
    assert "beside the layers before" in shown


def test_one_residency_and_its_break_even():
    chosen = ("--set", "engram_residency=host_shared", "--engine", "vllm")
    found = answer(*STEP, *chosen, "--break-even", "--method", "sol")
    assert found["transfer"]["prefetch"] == "none"
    assert found["transfer"]["exposed_ms"] == pytest.approx(found["transfer"]["transfer_ms"])
    assert found["break_even_times"] == 1
    shown = inside("engram", *STEP, *chosen, "--break-even", "--prefetch", "step").stdout
    assert "layers before us" in shown
    assert "no multiple of these requests" in shown


def test_a_text_is_counted_and_priced(text: Path):
    alone = answer("--text", str(text), "--chunk", "32", "--cache-mib", "1")
    assert set(alone) == {"text"}
    assert alone["text"]["lookups"] == 100 * 48
    found = answer("--text", str(text), "--chunk", "32", "--cache-mib", "1", *STEP)
    shares = {row["distinct_share"] for row in found["residencies"]}
    assert shares == {alone["text"]["distinct_share"]}
    assert found["residencies"][2]["hit_share"] == alone["text"]["cache"]["hit_share"]
    given = answer("--text", str(text), *STEP, "--set", "engram_distinct_share=0.5")
    assert given["residencies"][0]["distinct_share"] == 0.5


def test_classes_of_a_tokenizer(text: Path, tmp_path: Path):
    table = tmp_path / "classes.txt"
    table.write_text(" ".join(str(item % 99_092) for item in range(129_280)))
    assert answer("--text", str(text), "--classes", str(table))["text"]["mapped"] is True
    table.write_text("1 2 3")
    assert "one a token id" in refused("--text", str(text), "--classes", str(table))


def test_what_cannot_be_answered(text: Path, tmp_path: Path):
    assert "no requests" in refused()
    assert "give one" in refused("--cache-mib", "10", *STEP)
    assert "asks about one residency" in refused(*STEP, "--break-even")
    assert "must be on or off" in refused(*STEP, "--decoder-replay", "both")
    assert "needs --disk-gb-per-s" in refused(*STEP, "--disk-reads-per-s", "1000")
    assert "'step', 'none', 'previous'" in refused(*STEP, "--prefetch", "soon")
    assert "auto, sol, op" in refused(*STEP, "--method", "fpm")
    assert "129280" in refused("--text", str(written(tmp_path, "1 129280 2")))
    assert "line 2: 'x' is no token id" in refused("--text", str(written(tmp_path, "1\nx")))
    assert "no token ids" in refused("--text", str(written(tmp_path, "\n")))
    assert "nothing.txt" in refused("--text", str(tmp_path / "nothing.txt"))


def written(folder: Path, content: str) -> Path:
    path = folder / "text.txt"
    path.write_text(content)
    return path
