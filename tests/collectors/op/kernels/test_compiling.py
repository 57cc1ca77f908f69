"""Kernels compile for GPUs that are not here: the interpreter lets pass what a compiler refuses."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@pytest.mark.skipif(platform.system() != "Linux", reason="triton compiles on Linux")
@pytest.mark.parametrize("capability", [90, pytest.param(100, marks=pytest.mark.long)])
def test_every_kernel_compiles(capability: int, tmp_path: Path):
    environment = {
        name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"
    } | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, str(HERE / "compiling.py"), str(capability)],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout) == 36
