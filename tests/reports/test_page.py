"""docs/fpm.md: its errors are those of the reports, its shell lines run.

``python -m tests.reports.test_page`` rewrites the errors.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aisim_v41.estimators.fpm.tables import load_fpm
from aisim_v41.reports.fpm.build import report_of
from aisim_v41.validation.forwards import errors_text
from tests.cli.conftest import inside

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/fpm.md"
QUOTED = (
    ("gb300", "sglang-tp4-replay_off", None, "run"),
    ("gb300", "sglang-tp4-replay_on", None, "run"),
    ("gb200", None, "historical_2026_09_10", "site"),
)
"""GPU, identity, regime, and what is left out."""
REMEDY = "run: python -m tests.reports.test_page"
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d)?)%")
_ERRORS = re.compile(r"(?<=<!-- fpm errors: begin -->\n).*?(?=<!-- fpm errors: end -->)", re.DOTALL)


def errors_block() -> str:
    """Errors of the packaged forwards, as the page has them."""
    blocks = []
    for gpu, identity, regime, by in QUOTED:
        report = report_of(load_fpm(gpu, identity=identity, regime=regime))
        options = f" --identity {identity}" if identity else ""
        options += f" --regime {regime}" if regime else ""
        lines = "\n".join(line.rstrip() for line in errors_text(report.errors[by]).splitlines())
        blocks.append(f"# aisim-v41 fpm fit {gpu}{options}: the {by} left out\n{lines}")
    return "```\n" + "\n\n".join(blocks) + "\n```\n"


def fenced(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return block


def test_errors_are_those_of_the_reports():
    """To a tenth of a percent: the last digit may depend on how a machine adds."""
    found = _ERRORS.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, "docs/fpm.md has lost the markers of its errors"
    said, told = found[0], errors_block()
    assert _NUMBER.sub("#", said) == _NUMBER.sub("#", told), REMEDY
    numbers = [[float(n) for n in _NUMBER.findall(text)] for text in (said, told)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.11), REMEDY


def test_the_shell_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(fenced("yaml"))
    lines = ["new_tokens,prefix_tokens,kind,count,latency_ms,order"]
    for count in (1, 2, 4, 8):
        for context in (128, 512, 1024, 2048, 4096):
            latency = 150 + count + context / 1024
            lines.append(f"1,{context},decode,{count},{latency},{len(lines)}")
    Path("monday.csv").write_text("\n".join(lines))
    environment: dict[str, str] = {}
    told = []
    for line in fenced("sh").splitlines():
        program, *words = shlex.split(line)
        if program == "export":
            name, _, value = words[0].partition("=")
            environment[name] = value
            continue
        assert program == "aisim-v41"
        key = next(iter(Path("measured/profiles/gb300/fpm").glob("*")), Path()).name
        done = inside(*(key if word == "KEY" else word for word in words), **environment)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    dry, written, listed, report, predicted = told
    assert "nothing written; the table would hold 20 records" in dry
    assert "which holds 20 records" in written
    assert "20 records of monday" in listed
    assert "20 measured steps of 1 process run" in report
    assert Path("report.png").exists()
    assert ", interpolated, inside what was measured" in predicted


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_ERRORS.sub(lambda _: errors_block(), page), encoding="utf-8")
