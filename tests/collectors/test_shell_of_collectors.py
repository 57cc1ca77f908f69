"""The collectors as processes: from a checkout, a wheel, and a copied folder with Python 3.10."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "collectors").rglob("*.py"))
OTHERS = {"torch", "triton", "collectors", "cupti"}
PUBLISHES = {"aisim_v41", "pandas"}
NEWER = {"StrEnum", "tomllib", "ExceptionGroup", "BaseExceptionGroup", "TaskGroup", "Self"}
"""What Python 3.10 has not."""


def shell(*arguments: str, cwd: Path = ROOT, python: str = sys.executable, **environment: str):
    return subprocess.run(
        [python, "-m", "collectors.op", *arguments], capture_output=True, text=True, cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environment}, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_they_need_the_standard_library_and_torch_alone(path: Path):
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    at_top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
            assert not NEWER & {alias.name for alias in node.names}
        else:
            continue
        for name in names:
            first = name.partition(".")[0]
            lazily = PUBLISHES if id(node) not in at_top else set()
            assert first in sys.stdlib_module_names | OTHERS | lazily, name


def test_planning_needs_no_torch_and_no_library(tmp_path: Path):
    blocked = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] in ('torch', 'numpy', 'pandas', 'aisim_v41'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from collectors.main import main\n"
        "sys.exit(main(['op', 'plan', '--out', sys.argv[1], '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", blocked, str(tmp_path / "p.json")],
                          capture_output=True, text=True, cwd=ROOT, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.json").exists()


def test_a_plan_is_written_and_told(tmp_path: Path):
    done = shell("plan", "--gpu", "gb300", "--tp", "4", "--out", str(tmp_path / "p.json"), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["cases"] > 500
    assert 0.5 < told["value"] <= 1.0
    assert len(json.loads((tmp_path / "p.json").read_text())["cases"]) == told["cases"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "--gpu", "abacus"), "--gpu 'abacus'"),
        (("plan", "--tp", "7"), "--tp 7"),
        (("plan", "--config", "nowhere.json"), "nowhere.json"),
        (("run", "nowhere.json", "--device", "cpu"), "nowhere.json: cannot be read"),
        (("check", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        (("publish", "nowhere.jsonl", "--to", "x"), "nowhere.jsonl: cannot be read"),
        (("plan", "--coverage", "nowhere.json"), "cannot be read"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str):
    done = shell(*arguments, cwd=ROOT)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1


def python_of(version: str) -> str | None:
    found = shutil.which(f"python{version}")
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (*([found] if found else []), *map(str, places)):
        if not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode:
            return candidate
    return None


def test_a_copied_folder_runs_on_python_310(tmp_path: Path):
    python = python_of("3.10")
    if python is None:
        pytest.skip("no Python 3.10 here")
    shutil.copytree(ROOT / "collectors", tmp_path / "collectors")
    done = shell("plan", "--gpu", "cpu", "--scale", "small", cwd=tmp_path, python=python)
    assert done.returncode == 0, done.stderr
    assert "gemm" in done.stdout
    assert (tmp_path / "plan.json").exists()


def test_the_wheel_carries_them(tmp_path: Path):
    from hatchling.builders.wheel import WheelBuilder

    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(tmp_path / "site")
        names = set(wheel.namelist())
    assert "aisim_v41/data/collectors/op/run.py" in names
    assert not any(name.startswith("collectors/") for name in names)
    code = "import sys; from aisim_v41.collecting import run; sys.exit(run())"
    small = ["op", "plan", "--gpu", "cpu", "--scale", "small"]
    for arguments, said in ((["folder"], "aisim_v41/data/collectors"), (small, "gemm")):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
