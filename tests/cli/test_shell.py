"""The shell, run as a process: text for people, JSON for programs, one line for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aisim_v41 as aisim


def shell(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aisim_v41.cli.main", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        text=True,
        timeout=120,
        check=False,
    )


def answer(*arguments: str):
    done = shell(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_main_question_in_one_line():
    on, off = answer(
        "estimate", "--gpu", "gb300", "--tp", "4", "--engine", "sglang",
        "--decoder-replay", "both", "--prefill", "8192", "--decode", "32x32768",
    )  # fmt: skip
    # 21 x 8192 + 19 x 128 rows of the prompt, 40 x 32 of the decodes (runtime-semantics #9).
    assert on["token_layers"] == 174_464 + 40 * 32
    assert off["token_layers"] == 40 * 8192 + 40 * 32
    assert on["memory"]["fits"] is True
    assert 0 < on["bounds_ms"]["resource"] <= on["bounds_ms"]["graph"] < off["bounds_ms"]["graph"]
    assert on["method"] == "op"
    assert on["bounds_ms"]["graph"] <= on["band_ms"][0] < on["latency_ms"] < on["band_ms"][1]
    model = aisim.load_model("deepseek-v4.1-flash")
    plan = aisim.Plan(
        model,
        [
            aisim.Request(new_tokens=8192),
            aisim.Request(new_tokens=1, prefix_tokens=32768, kind="decode", count=32),
        ],
        parallel=aisim.Parallel(tp=4),
        policy=aisim.policy("sglang", decoder_replay=True),
    )
    assert on["latency_ms"] == aisim.estimate(plan, aisim.load_hardware("gb300")).latency_ms


def test_the_same_as_text():
    done = shell("estimate", "--decode", "4x4k", "--decoder-replay", "both")
    assert done.returncode == 0, done.stderr
    for part in ("decoder replay on", "decoder replay off", "graph bound", "memory: fits", "side"):
        assert part in done.stdout


def test_layers_answer_who_owns_what():
    document = answer("layers")
    layer = document["layers"][29]
    assert (layer["kind"], layer["kv_owner"], layer["selection_producer"]) == ("reuse", 20, 28)
    assert document["revision"] == "fb2764a5cf321eaa5070ca8f9e892818f477c16d"
    text = shell("layers")
    assert text.returncode == 0
    assert "window_only" in text.stdout


def test_an_earlier_generation_is_compared_not_stepped():
    assert answer("layers", "--model", "deepseek-v4-flash")["kv_bytes_per_token"] == 3514.25
    refused = shell("estimate", "--model", "deepseek-v4-flash", "--decode", "100")
    assert refused.returncode == 2
    assert "comparison only" in refused.stderr


def test_ledger_rows_sum_to_token_layers():
    document = answer("ledger", "--prefill", "2x129@100", "--engine", "sglang")
    rows = sum(row["query_rows"] for row in document["rows"])
    assert rows == document["token_layers"] == 2 * (21 * 129 + 19 * 128)
    text = shell("ledger", "--prefill", "2x129@100", "--engine", "sglang")
    assert "rows [101, 229), window from 101" in text.stdout
    table = shell("ledger", "--prefill", "10", "--every-layer")
    assert table.returncode == 0
    assert "scored_positions" in table.stdout


def test_compare_and_coverage_show_the_evidence():
    step = ("--verify", "8x6@4k", "--gpu", "gb300", "--tp", "4", "--engine", "sglang")
    document = answer("compare", *step)
    *operators, whole = document["operators"]
    assert whole["operator"] == "whole step"
    bound = answer("estimate", *step, "--method", "sol")
    assert whole["sol_ms"] == bound["latency_ms"]
    assert bound["band_ms"][1] is None
    assert whole["op_ms"] == answer("estimate", *step)["latency_ms"]
    assert all(one["op_ms"] >= one["sol_ms"] * (1 - 1e-9) for one in operators)
    kernels = answer("coverage", *step)["kernels"]
    assert sum(kernel["share"] for kernel in kernels) == pytest.approx(1.0)
    assert any("dtype=fp8_block32" in kernel["collector_case"] for kernel in kernels)
    assert "routed_experts" in shell("compare", *step).stdout
    assert "experts.mxfp4" in shell("coverage", *step).stdout
    told = shell("estimate", *step, "--method", "op").stdout
    assert "time rests on: calibrated" in told


def test_sizes_beyond_the_evidence_are_in_the_document():
    document = answer("estimate", "--decode", "1x1048000", "--gpu", "gb300", "--tp", "4")
    assert document["beyond"]
    assert document["source_share"]["extrapolated"] > 0


def test_a_bound_has_no_paths_of_kernels_and_host():
    step = ("estimate", "--decode", "8x4096", "--decoder-replay", "both")
    (told,) = (line for line in shell(*step, "--method", "sol").stdout.splitlines()
               if line.startswith(" on "))  # fmt: skip
    assert told.split()[3:5] == ["-", "-"]
    (told,) = (line for line in shell(*step).stdout.splitlines() if line.startswith(" on "))
    assert float(told.split()[3]) > 0


def test_a_speculative_step_shows_its_draft():
    step = ("--verify", "8x6@4k", "--engine", "sglang", "--set", "speculation=dspark")
    document = answer("estimate", *step, "--gpu", "gb300", "--tp", "4")
    assert sum(document["parts_ms"].values()) == pytest.approx(document["latency_ms"])
    assert document["parts_ms"]["draft"] > 0
    told = shell("estimate", *step, "--gpu", "gb300", "--tp", "4").stdout
    assert ", then draft " in told
    names = {one["operator"] for one in answer("compare", *step, "--tp", "4")["operators"]}
    assert {"draft_routed_experts", "routed_experts"} <= names
    counted = answer("ledger", *step)
    assert {row["layer"] for row in counted["rows"] if row["kind"] == "draft"} == {41, 42, 43}
    assert "layers 41-43 (draft)" in shell("ledger", *step).stdout
    assert answer("layers")["draft"]["taps"] == [37, 38, 39]
    assert "in reports as layers 41-43" in shell("layers").stdout


def test_capacity_says_what_fails():
    fits = answer("capacity", "--gpu", "gb300", "--tp", "4")
    assert fits["starts"] is True
    assert fits["failing"] is None
    tight = answer(
        "capacity", "--gpu", "mi300x", "--tp", "2", "--engine", "vllm",
        "--set", "engram_residency=host_sharded", "--max-length", "1m",
    )  # fmt: skip
    assert tight["starts"] is False
    assert tight["short_bytes"] > 0
    assert tight["failing"]
    assert "frees most" in shell("capacity", "--gpu", "gb300", "--tp", "4").stdout


def test_policy_fields_from_the_shell():
    step = ("estimate", "--decode", "8x4096", "--engine", "sglang", "--method", "sol")
    plain, fewest = answer(*step), answer(*step, "--set", "expert_routing=fewest")
    assert fewest["latency_ms"] < plain["latency_ms"]
    assert fewest["policy_changed_fields"]["expert_routing"] == "fewest"


def test_a_model_and_a_gpu_by_path(tmp_path: Path):
    root = Path(__file__).parents[2]
    config = tmp_path / "config.json"
    config.write_text((root / "profiles/deepseek-v4.1-flash/config.json").read_text())
    gpu = tmp_path / "mine.yaml"
    gpu.write_text((root / "hardware/b200.yaml").read_text())
    ours = answer("estimate", "--decode", "64", "--model", str(config), "--gpu", str(gpu))
    packaged = answer("estimate", "--decode", "64", "--gpu", "b200")
    assert ours["latency_ms"] == packaged["latency_ms"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["estimate"], ["no requests", "--prefill"]),
        (["estimate", "--prefill", "ten"], ["--prefill", "'ten'", "8192"]),
        (["estimate", "--prefill", "10@"], ["--prefill", "''"]),
        (["estimate", "--decode", "4@4"], ["--decode", "32x32768"]),
        (["estimate", "--decode", "2m"], ["context", "1048576"]),
        (["estimate", "--decode", "9", "--gpu", "gb301"], ["gb301", "gb300"]),
        (["estimate", "--decode", "9", "--engine", "sglan"], ["sglan", "sglang"]),
        (["estimate", "--decode", "9", "--tp", "3"], ["tp = 3", "1, 2, 4, 8"]),
        (["estimate", "--decode", "9", "--decoder-replay", "maybe"], ["maybe", "on, off or both"]),
        (["estimate", "--decode", "9", "--set", "page=3"], ["page", "nearest"]),
        (["estimate", "--decode", "9", "--set", "chunk_tokens"], ["FIELD=VALUE"]),
        (["estimate", "--decode", "9", "--set", "memory_fraction=x"], ["memory_fraction"]),
        (["estimate", "--decode", "9", "--set", "decoder_replay=on"], ["use --decoder-replay"]),
        (["capacity", "--set", "decoder_replay=true"], ["use --decoder-replay"]),
        (["estimate", "--decode", "9", "--set", "name=x"], ["name=x", "use --engine"]),
        (["estimate", "--decode", "9", "--set", "revision=x"], ["revision=x", "use --engine"]),
        (["estimate", "--decode", "9", "--set", "sharding=x"], ["sharding"]),
        (["estimate", "--decode", "9", "--method", "guess"], ["guess", "sol"]),
        (["layers", "--model", "nowhere/config.json"], ["nowhere/config.json"]),
        (["capacity", "--max-length", "far"], ["--max-length", "128k"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line(arguments: list[str], parts: list[str]):
    done = shell(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert [part for part in parts if part not in done.stderr] == []


def test_help_lists_the_commands():
    done = shell("--help")
    assert done.returncode == 0
    for command in ("layers", "ledger", "estimate", "capacity", "fpm", "claims", "validate"):
        assert command in done.stdout


def test_the_version():
    done = shell("--version")
    assert (done.returncode, done.stdout) == (0, f"aisim-v41 {aisim.__version__}\n")


def test_overrides_are_echoed_in_text():
    changes = ("--set", "kv_layout=sglang_v4", "--set", "wo_a=checkpoint", "--engine", "sglang")
    for command in (["estimate", "--decode", "9"], ["ledger", "--decode", "9"]):
        told = shell(*command, *changes, "--decoder-replay", "off").stdout.splitlines()
        assert "changed: kv_layout=sglang_v4, wo_a=checkpoint" in told
    told = shell("capacity", *changes).stdout.splitlines()
    assert "changed: kv_layout=sglang_v4, wo_a=checkpoint" in told
    assert "changed: decoder_replay=on" in shell("ledger", "--decode", "9").stdout.splitlines()
    assert "changed" not in shell("ledger", "--decode", "9", "--decoder-replay", "off").stdout


ANSWERS = [
    ["layers"],
    ["ledger", "--prefill", "9"],
    ["estimate", "--decode", "9", "--decoder-replay", "both"],
    ["capacity"],
    ["estimate", "--decode", "9", "--json"],
]


@pytest.mark.parametrize("arguments", ANSWERS, ids=" ".join)
def test_an_ascii_terminal(arguments: list[str]):
    done = shell(*arguments, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [*ANSWERS, ["--help"]], ids=" ".join)
def test_a_full_disk_is_one_line(arguments: list[str]):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aisim_v41.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("aisim-v41: the answer could not be written: ")
    assert done.stderr.count("\n") == 1


def test_another_number_format_in_one_line():
    asked = ("estimate", "--gpu", "b200", "--tp", "4", "--engine", "sglang", "--method", "sol",
             "--decoder-replay", "off", "--decode", "64x8k")  # fmt: skip
    plain = answer(*asked)
    wide = answer(*asked, "--format", "main_kv=fp8_e4m3+32", "--format", "wo_a=fp8")
    plain, wide = (one[0] if isinstance(one, list) else one for one in (plain, wide))
    assert wide["policy_changed_fields"] == {
        "formats": "main_kv=fp8_e4m3+32,wo_a=fp8_e4m3", "wo_a": "checkpoint"
    }  # fmt: skip
    assert wide["latency_ms"] != plain["latency_ms"]
    wrong = shell(*asked, "--format", "main=fp8")
    assert wrong.returncode != 0
    assert "main_kv" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_custom_rules_in_one_line():
    asked = ("estimate", "--gpu", "b200", "--tp", "4", "--decoder-replay", "on", "--prefill", "8k",
             "--method", "sol", "--set", "prefill_execution=full_graph")  # fmt: skip
    refused = shell(*asked, "--engine", "sglang")
    assert refused.returncode != 0
    assert "exclude each other" in refused.stderr
    given = answer(*asked, "--engine", "custom", "--set", "base=sglang")
    given = given[0] if isinstance(given, list) else given
    assert any("a prefill graph" in warning for warning in given["warnings"])
    assert given["policy"] == "sglang"
