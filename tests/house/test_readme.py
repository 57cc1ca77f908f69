"""What the README says works: its Python, its shell lines, its printed table."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest

from tests.cli.conftest import inside

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    """Contents of the fenced blocks of a language ("" for none)."""
    blocks: list[str] = []
    inside: str | None = None
    for line in README.splitlines(keepends=True):
        if not line.startswith("```"):
            if inside == language:
                blocks[-1] += line
        elif inside is None:
            inside = line.strip("`\n")
            if inside == language:
                blocks.append("")
        else:
            inside = None
    return blocks


def shell(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aisim_v41.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def collect(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from aisim_v41.collecting import run; raise SystemExit(run())",
         *words], capture_output=True, text=True, timeout=120, check=False, cwd=folder,
    )  # fmt: skip


def test_the_python_runs(capsys: pytest.CaptureFixture[str]):
    names: dict[str, object] = {}
    blocks = fenced("python")
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["answer"].latency_ms > 0
    assert 0 < names["seconds"] < 1
    assert list(names["times"]["latency_ms"] > 0) == [True, True]
    assert "layers 21-23" in capsys.readouterr().out


LINES = [line for block in fenced("") for line in block.splitlines() if "aisim-v41" in line]


@pytest.mark.parametrize("line", LINES)
def test_a_shell_line_answers(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)
    if words[0] == "aisim-v41-collect":
        done = collect(words[1:], tmp_path)
    else:
        assert words[0] == "aisim-v41"
        copy(ROOT / "docs" / "space.yaml", tmp_path)
        done = inside(*words[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_shell_lines():
    assert len(LINES) >= 13


def test_make_run_prints_the_table():
    recipe = re.search(r"^run:.*?\n((?:\t.*\n)+)", MAKEFILE, flags=re.MULTILINE).group(1)
    words = shlex.split(recipe.replace("\\\n", " "))
    assert words[0] == "$(BIN)/aisim-v41"
    printed = shell(words[1:]).stdout
    for setting in ("on", "off"):
        shown = next(line for line in README.splitlines() if line.startswith(f" {setting} "))
        told = next(line for line in printed.splitlines() if line.startswith(f" {setting} "))
        assert shown.split() == told.split()


def test_figures_of_claims_and_validation():
    from aisim_v41.claims import run_claims
    from aisim_v41.validation import run_floor_check

    claims = run_claims().to_text()
    published, reproduced, differ = re.search(
        r"recomputes (\d+); (\d+) reproduce, (\d+) do not", README
    ).groups()
    assert f"{published} published figures: {differ} not reproduced" in claims
    assert f"{reproduced}\nreproduced" in claims or f"{reproduced} reproduced" in claims
    checked, cases = re.search(r"turns (\d+) of (\d+)\s+public", README).groups()
    assert f"{checked} of {cases} cases checked, 0 below" in run_floor_check().to_text()


QUOTED = re.compile(r"`([^`]*(?:median \|error\||percentile over cases|90 % bands)[^`]*)`")
"""Lines of the error report that a page quotes: code spans that name one of its figures."""


def unfounded(page: str, report: str) -> list[str]:
    """Quoted lines of the error report that it does not say; line breaks do not count."""
    told = " ".join(report.split())
    return [quote for quote in QUOTED.findall(page) if " ".join(quote.split()) not in told]


def test_quoted_errors_are_those_of_the_report():
    from aisim_v41.validation import run_error_table

    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    quoting = [page for page in pages if QUOTED.search(page.read_text(encoding="utf-8"))]
    report = run_error_table().to_text() if quoting else ""
    for page in quoting:
        assert unfounded(page.read_text(encoding="utf-8"), report) == [], page.name


def test_a_wrong_quote_is_found():
    report = "GPUs: median |error| 7% (aim 8%)\n90 % bands hold 85%"
    assert unfounded("`median |error| 7%\n  (aim 8%)` and `90 % bands hold 85%`", report) == []
    assert unfounded("says `median |error| 6%`", report) == ["median |error| 6%"]
    assert unfounded("says `90 % bands hold 90%`", report) == ["90 % bands hold 90%"]
