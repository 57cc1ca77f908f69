"""The wheel: data folders travel inside, and the library works from it alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 15 * 10**6


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_every_data_file_is_inside(wheel: Path):
    inside = {
        name.removeprefix("aisim_v41/data/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("aisim_v41/data/")
    }
    wanted = {
        path.relative_to(ROOT).as_posix()
        for folder in ("hardware", "profiles", "collectors")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == wanted
    assert len(wanted) > 15


def test_types_licence_and_size(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert "aisim_v41/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/DATA_SOURCES.md") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/", "hardware/")) for name in names)
    assert wheel.stat().st_size < LIMIT_BYTES


def test_the_wheel_alone_answers(wheel: Path, tmp_path: Path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import aisim_v41 as a; model = a.load_model('deepseek-v4.1-flash'); "
        "plan = a.Plan(model, [a.Request(new_tokens=8192)], policy=a.policy('sglang')); "
        "print(a.__file__, a.ledger(plan).token_layers, "
        "a.estimate(plan, a.load_hardware('h200')).latency_ms > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    where, token_layers, positive = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path)
    assert (token_layers, positive) == ("327680", "True")
