"""``aisim-v41 fpm``: from a table to its report and to predictions; once as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aisim_v41.forwards.store import read_table
from tests.cli.conftest import inside
from tests.cli.test_shell import shell

EAGER = ("--set", "decode_execution=eager")


def answer(*arguments: str, **environment: str):
    done = inside("fpm", *arguments, "--json", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


# --- list, fit, report ----------------------------------------------------------------------------


def test_list_names_every_identity(root: Path, table: Path):
    told = answer("list", "gb300", AISIM_V41_PATH=str(root))
    (own,) = (one for one in told if one["slug"] == table.name)
    assert own["runs"] == ["one", "two"]
    assert own["records"] == 50
    assert {one["gpu"] for one in told} == {"gb300"}
    assert len(told) >= 3
    everything = inside("fpm", "list")
    assert everything.returncode == 0
    for gpu in ("gb200", "gb300"):
        assert gpu in everything.stdout
    assert table.name not in everything.stdout


def test_a_folder_is_one_identity(table: Path):
    for verb in ("fit", "report"):
        told = inside("fpm", verb, str(table), "--identity", "another", "--json")
        assert (told.returncode, told.stdout) == (2, "")
        assert told.stderr.startswith("aisim-v41: --identity another: ")


def test_fit_tells_terms_noise_and_errors(table: Path):
    told = inside("fpm", "fit", str(table))
    assert told.returncode == 0, told.stderr
    for part in (
        "term ", "host", "noise (standard deviations)", "errors with the site left out",
        "errors with the run left out", "constant per phase", "flagged: none",
    ):  # fmt: skip
        assert part in told.stdout
    document = answer("fit", str(table))
    assert "points" not in document
    names = [term["name"] for term in document["terms"]]
    assert names[:3] == ["floor", "host, decode", "host, prefill"]
    # Two runs, 3 % apart: each is off by as much as the other.
    (row,) = (row for row in document["errors"]["run"]
              if (row["method"], row["phase"]) == ("fpm", "all"))  # fmt: skip
    assert row["cases"] == 48
    assert row["mean"] == pytest.approx(0.03, abs=0.004)


def test_report_as_text_json_and_figure(table: Path, tmp_path: Path):
    figure = tmp_path / "report.png"
    told = shell("fpm", "report", str(table), "--figure", str(figure))
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"gb300, {table.name}\n50 records (48 ok, 2 out_of_memory)")
    for part in ("coverage", "engine_build", "position in its run", "data: licence not stated"):
        assert part in told.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")
    document = answer("report", str(table))
    assert len(document["points"]) == 48
    assert {one["by"] for one in document["left_out"]} == {"site", "run"}
    assert sum(one["points"] for one in document["coverage"]) == 48
    assert document["identity"] == read_table(table).identity.to_dict()


def test_a_figure_that_cannot_be_is_refused_before_the_work(table: Path, tmp_path: Path):
    told = inside("fpm", "report", str(table), "--figure", str(tmp_path / "report.bmp"))
    assert told.returncode == 2
    assert told.stdout == ""
    assert ".png, .svg, .pdf" in told.stderr


# --- predict --------------------------------------------------------------------------------------


def predicted(root: Path, table: Path, *step: str):
    return answer("predict", *step, "--gpu", "gb300", "--engine", "sglang", *EAGER,
                  "--decoder-replay", "off", "--identity", table.name,
                  AISIM_V41_PATH=str(root))  # fmt: skip


def test_a_measured_step_comes_back(root: Path, table: Path):
    told = predicted(root, table, "--decode", "1x1024")
    assert told["source"] == "measured"
    # 154 ms in one run and 3 % more in the other.
    assert told["latency_ms"] == pytest.approx(154 * 1.015, abs=1e-3)
    assert {record["run"] for record in told["measured"]} == {"one", "two"}
    assert told["band_ms"][0] < 154 < told["latency_ms"] < told["band_ms"][1]


def test_between_and_beyond_measured_steps(root: Path, table: Path):
    told = predicted(root, table, "--decode", "2x700")
    assert (told["source"], told["domain"]["verdict"]) == ("interpolated", "inside")
    assert 150 < told["latency_ms"] < 165
    step = ("fpm", "predict", "--prefill", "65536", *EAGER, "--decoder-replay", "off",
            "--identity", table.name)  # fmt: skip
    refused = inside(*step, AISIM_V41_PATH=str(root))
    assert refused.returncode == 2
    assert "outside the measured forwards" in refused.stderr
    wide = predicted(root, table, "--prefill", "65536", "--extrapolate")
    assert (wide["source"], wide["domain"]["verdict"]) == ("extrapolated", "outside")
    assert wide["domain"]["axis"]
    text = inside(*step, "--extrapolate", AISIM_V41_PATH=str(root)).stdout
    assert f"decoder replay off: {table.name}" in text
    assert "outside what was measured" in text


def test_packaged_campaigns_answer_both_replay_settings():
    on, off = answer("predict", "--decode", "1x700", *EAGER)
    assert (on["decoder_replay"], off["decoder_replay"]) == ("on", "off")
    assert 140 < on["latency_ms"] < 175
    assert 140 < off["latency_ms"] < 175
    assert on["slug"] != off["slug"]


def test_estimate_asks_the_same_forwards():
    plan = ("--gpu", "gb300", "--tp", "4", "--engine", "sglang", *EAGER, "--decoder-replay", "off")
    near, far = ("--decode", "1x700"), ("--decode", "1x40000")

    def estimate(*arguments: str):
        return inside("estimate", *plan, "--method", "fpm", "--json", *arguments)

    told = json.loads(estimate(*near).stdout)
    assert told["method"] == "fpm"
    assert told["latency_ms"] == answer("predict", *plan, *near)["latency_ms"]
    assert told["source_share"] == {"interpolated": 1.0}
    assert estimate(*near, "--no-extrapolate").returncode == 0
    refused = estimate(*far)
    assert refused.returncode == 2
    assert "outside the measured forwards" in refused.stderr
    assert json.loads(estimate(*far, "--extrapolate").stdout)["beyond"]
    table = inside("estimate", *plan[:-2], "--decoder-replay", "both", "--method", "fpm", *near)
    on, off = (line for line in table.stdout.splitlines() if line.startswith((" on ", " off ")))
    assert on.split()[3:5] == off.split()[3:5] == ["-", "-"]


def test_two_regimes_wait_for_a_choice():
    step = ("predict", "--gpu", "gb200", "--engine", "vllm", "--decoder-replay", "off",
            "--decode", "1x700")  # fmt: skip
    fields = answer("list", "gb200")[0]["identity"]["execution"]
    eager = [word for name in ("prefill_execution", "decode_execution")
             for word in ("--set", f"{name}={fields[name]}")]  # fmt: skip
    refused = inside("fpm", *step, *eager)
    assert refused.returncode == 2
    assert "2 regimes" in refused.stderr
    slow = answer(*step, *eager, "--regime", "historical_2026_09_10")
    assert slow["latency_ms"] > 600


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["report", "gb301"], ["gb301", "gb300"]),
        (["report", "h200"], ["no whole forward of h200", "fpm import"]),
        (["report", "gb300", "--identity", "sglang-tp8"], ["no table 'sglang-tp8'", "known"]),
        (["report", "gb300"], ["name one", "decoder_replay"]),
        (["predict"], ["no requests"]),
        (["predict", "--decode", "9", "--engine", "atom"], ["asked | nearest measured"]),
        (["import", "nowhere.csv"], ["--out FOLDER"]),
        (["import", "nowhere.csv", "--dry-run"], ["no such file: nowhere.csv"]),
        (["import", "README.md", "--dry-run"], ["of no known format"]),
        (["import", "README.md", "--format", "exel", "--dry-run"], ["no format 'exel'"]),
        (["import", "README.md", "--option", "x", "--dry-run"], ["must be NAME=VALUE"]),
        (["list", "gb301"], ["gb301", "gb300"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_told(arguments: list[str], parts: list[str]):
    done = inside("fpm", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert [part for part in parts if part not in done.stderr] == []


def test_help_lists_the_verbs():
    told = inside("fpm", "--help")
    assert told.returncode == 0
    for verb in ("list", "import", "fit", "report", "predict"):
        assert verb in told.stdout
