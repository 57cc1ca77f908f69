"""A table of two runs, imported through the shell; the shell without a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from aisim_v41.cli import main
from tests.cli.test_shell import shell

BUILD = (
    "--gpu", "gb300", "--tp", "4", "--engine", "sglang", "--decoder-replay", "off",
    "--set", "decode_execution=eager", "--checkpoint", "published", "--engine-build", "1.2",
    "--image", "none", "--topology", "one node, 4 x GB300", "--timer", "sync_wall",
)  # fmt: skip


def inside(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `shell` does, in this process, where laws and tables are read once."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        redirect_stdout(out),
        redirect_stderr(errors),
        patch.object(sys, "argv", ["aisim-v41", *arguments]),
        patch.dict(os.environ, environment),
    ):
        try:
            main.run()
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


def csv(path: Path, run: str = "one", factor: float = 1.0) -> Path:
    """Twenty-four steps whose time grows with rows and context, and one that failed."""
    lines = ["new_tokens,prefix_tokens,kind,count,latency_ms,samples,run,order,status"]
    order = 0
    for count in (1, 2):
        for context in (64, 256, 512, 1024, 1536, 2048):
            latency = factor * (150 + 2 * count + context / 512)
            lines.append(f"1,{context},decode,{count},{latency:.3f},10,{run},{order},ok")
            latency = factor * (180 + 4 * count + context / 256)
            lines.append(f"128,{context},prefill,{count},{latency:.3f},10,{run},{order + 1},ok")
            order += 2
    lines.append(f"4096,0,prefill,1,,1,{run},{order},out_of_memory")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one identity, imported one after the other."""
    folder = tmp_path_factory.mktemp("fpm")
    for run, factor in (("one", 1.0), ("two", 1.03)):
        told = shell("fpm", "import", str(csv(folder / f"{run}.csv", run, factor)), *BUILD,
                     "--out", str(folder))  # fmt: skip
        assert told.returncode == 0, told.stderr
    return folder


@pytest.fixture(scope="module")
def table(root: Path) -> Path:
    (folder,) = (root / "profiles/gb300/fpm").iterdir()
    return folder
