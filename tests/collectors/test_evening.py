"""An evening in small: plan, run, check and publish on this CPU, and the library uses the table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aisim_v41 as aisim
from aisim_v41.tables import read_table
from collectors.journal import read_journal
from collectors.op.kinds.registry import KINDS

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_A_GPU = {"graph_gap"}


def shell(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.run([sys.executable, "-m", "collectors.op", *arguments], cwd=folder,
                          capture_output=True, text=True, env=environment, check=False)  # fmt: skip


@pytest.fixture(scope="module")
def evening(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind at its smallest, once."""
    folder = tmp_path_factory.mktemp("evening")
    planned = shell(folder, "plan", "--gpu", "cpu", "--scale", "small", "--json")
    assert planned.returncode == 0, planned.stderr
    done = shell(folder, "run", "--device", "cpu", "--samples", "5", "--seconds", "0.02", "--quiet")
    assert done.returncode == 0, done.stderr
    return folder


def test_every_kind_runs_and_its_answer_is_right(evening: Path):
    _, records = read_journal(evening / "results.jsonl")
    by_kind: dict[str, set[str]] = {}
    for record in records:
        by_kind.setdefault(record["case"].split()[0], set()).add(record["status"])
    assert set(by_kind) == set(KINDS)
    assert {name for name, found in by_kind.items() if found != {"ok"}} == WITHOUT_A_GPU
    assert by_kind["graph_gap"] == {"unsupported"}
    checked = [record for record in records if record["difference"] is not None]
    assert len(checked) > 150
    ranks = {record["timing"]["ranks"] for record in records if record["timing"]}
    assert ranks == {1, 2}


def test_the_harness_says_what_it_takes_itself(evening: Path):
    _, records = read_journal(evening / "results.jsonl")
    timed = [r for r in records if r["timing"] and "host_launch" not in r["case"]]
    assert all(0 <= r["timing"]["empty_us"] < 100 for r in timed if r["timing"]["ranks"] == 1)
    assert all({"build", "check", "time"} <= set(r["seconds"]) for r in timed)


def test_the_check_finds_no_error(evening: Path):
    done = shell(evening, "check", "results.jsonl", "--plan", "plan.json", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == 0, findings[:3]
    assert {finding["severity"] for finding in findings} <= {"note"}


def test_it_goes_on_without_doing_anything_twice(evening: Path):
    before = (evening / "results.jsonl").read_bytes()
    again = shell(evening, "run", "--device", "cpu", "--samples", "5", "--seconds", "0.02")
    assert again.returncode == 0, again.stderr
    assert (evening / "results.jsonl").read_bytes() == before


def test_it_is_published_for_a_model_of_its_own(evening: Path):
    done = shell(evening, "publish", "results.jsonl", "--to", "own", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] > 180
    rows = read_table(evening / "own/profiles/cpu/op/v41_kernels.parquet")
    assert {dict(i)["model_shapes"] for i in rows.identities} == {"other_model"}


REAL = ("site_norm", "router_select", "outputs=512", "all_gather")
"""A few operators at V4.1's own sizes that a CPU can run."""


def cpu_file(folder: Path) -> Path:
    """A hardware file for this CPU: the H200's form with other figures."""
    text = (ROOT / "hardware" / "h200.yaml").read_text()
    text = text.replace("name: h200", "name: cpu").replace(
        "architecture: sm90", "architecture: cpu"
    )
    for figure, value in (("bf16_tflop_per_s", 1.0), ("fp32_tflop_per_s", 1.0),
                          ("tf32_tflop_per_s", 1.0), ("fp8_tflop_per_s", 1.0),
                          ("hbm_bandwidth_tb_per_s", 0.1),
                          ("hbm_bandwidth_achieved_tb_per_s", 0.09)):  # fmt: skip
        text = re.sub(rf"({figure}:\n    value: )[\d.]+", rf"\g<1>{value}", text)
    path = folder / "cpu.yaml"
    path.write_text(text)
    return path


def test_op_and_coverage_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    only = [part for name in REAL[:3] for part in ("--only", name)]
    few = ("--tp", "4", "--max-batch", "4", "--chunk", "4")
    planned = shell(tmp_path, "plan", "--gpu", "cpu", *few, *only)
    assert planned.returncode == 0, planned.stderr
    done = shell(
        tmp_path, "run", "--device", "cpu", "--samples", "5", "--seconds", "0.05", "--quiet"
    )
    assert done.returncode == 0, done.stderr
    published = shell(tmp_path, "publish", "results.jsonl", "--to", "own", "--with-noisy")
    assert published.returncode == 0, published.stderr
    model, cpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware(cpu_file(tmp_path))
    step = [aisim.Request(new_tokens=1, prefix_tokens=500, kind="decode", count=4)]
    own = aisim.policy("sglang", fusion="elementary")
    plan = aisim.Plan(model, step, parallel=aisim.Parallel(tp=4), policy=own)
    before = aisim.coverage(plan, cpu).set_index("operator")
    monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path / "own"))
    after = aisim.coverage(plan, cpu).set_index("operator")
    for operator in ("site_norm", "router_select", "kv_down"):
        assert before.loc[operator, "evidence"] != "portable"
        assert after.loc[operator, "evidence"] == "portable"
    _, records = read_journal(tmp_path / "results.jsonl")
    (timed,) = [r for r in records if r["case"] == "site_norm dtype=bf16 inputs=5120 rows=4"]
    row = after.loc["site_norm"]
    assert row["time_ms"] / row["calls"] * 1000 >= 0.999 * timed["timing"]["median_us"]
    answer = aisim.estimate(plan, cpu, method="op")
    assert answer.source_share["portable"] > 0
    assert answer.latency_ms >= answer.sol_ms
