"""``import``: tables of a checkout and traces, as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.tables.test_aisimulate import gemm, others

ROOT = Path(__file__).resolve().parents[2]


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", "from collectors.main import main; raise SystemExit(main())",
         "import", *arguments], capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip


def test_tables_of_a_checkout(tmp_path: Path):
    for make in (gemm, others):
        make(tmp_path / "checkout")
    given = ("aisimulate", str(tmp_path / "checkout"), "--gpu", "gb200", "--to", str(tmp_path))
    done = shell(*given, "--json")
    assert done.returncode == 0, done.stderr
    assert {one["family"] for one in json.loads(done.stdout)} == {
        "gemm", "hyper_connections", "quantise", "v41_dense",
    }  # fmt: skip
    again = shell(*given)
    assert again.returncode == 2
    assert "already" in again.stderr
    assert "Traceback" not in again.stderr


def test_a_trace_by_operator(tmp_path: Path):
    events = [{"ph": "X", "cat": "kernel", "name": name, "ts": place, "dur": 2.0,
               "args": {"device": 0, "stream": 1, "correlation": place}}
              for place, name in enumerate(("nvjet_x", "mhc_post_kernel", "odd"))]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    done = shell("trace", str(tmp_path / "t.json"))
    assert done.returncode == 0, done.stderr
    assert "product_bf16" in done.stdout
    assert "no operator is known for: odd" in done.stdout
    told = json.loads(shell("trace", str(tmp_path / "t.json"), "--json").stdout)
    assert told["steps"] == 1
    assert sum(row["time_us"] for row in told["operators"]) == 6.0


def test_bad_input_is_one_line(tmp_path: Path):
    (tmp_path / "t.json").write_text("{}")
    for arguments, said in ((("trace", str(tmp_path / "t.json")), "not a Chrome trace"),
                            (("trace", str(tmp_path / "nowhere")), "cannot be read"),
                            (("aisimulate", str(tmp_path), "--gpu", "gb200", "--to", "x"),
                             "no tables")):  # fmt: skip
        done = shell(*arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
