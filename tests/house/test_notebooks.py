"""The notebooks run, say today what they were kept with, and read well where nothing runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from notebooks.run import FOLDER, executed, notebooks, tidy

BOOKS = notebooks()
CELLS_BEFORE_A_PICTURE = 10
MAX_BYTES = 200_000
SLIDERS = ("04-", "05-")
PARTS = (ast.For, ast.While, ast.FunctionDef, ast.ClassDef, ast.If)
CURVES = {"compiled", "curves"}
"""What a slider asks is a function of the notebook's own: two lines that look up and call."""


def named(path: Path) -> str:
    return path.stem


def code(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def texts(book: Any) -> list[str]:
    """Everything that is printed, cell by cell."""
    found = []
    for cell in code(book):
        for output in cell.outputs:
            if output.output_type == "stream":
                found.append(output.text)
            elif "image/png" not in output.data:
                found.append(output.data.get("text/plain", ""))
    return found


def kept(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", BOOKS, ids=named)
def test_it_runs_and_says_what_it_was_kept_with(path: Path):
    before = kept(path)
    after = tidy(executed(path))
    assert texts(after) == texts(before), "run: make notebooks"
    assert [cell.source for cell in after.cells] == [cell.source for cell in before.cells]
    pictures = [[o.output_type for o in cell.outputs] for cell in code(after)]
    assert pictures == [[o.output_type for o in cell.outputs] for cell in code(before)]


def test_there_are_eight_and_each_is_in_the_table():
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d\d-[\w-]+\.ipynb)\)", table) == [path.name for path in BOOKS]
    assert len(BOOKS) == 8


@pytest.mark.parametrize("path", BOOKS, ids=named)
def test_it_asks_one_question_and_answers_first(path: Path):
    first = kept(path).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith(f"# {int(path.name[:2])}. ")
    assert "**Answer.**" in first.source
    assert "../docs/" in first.source
    for link in re.findall(r"\]\((\.\./[^)#]+)", first.source):
        assert (FOLDER / link).exists(), link


@pytest.mark.parametrize("path", BOOKS, ids=named)
def test_it_reads_well_where_nothing_runs(path: Path):
    book = kept(path)
    assert path.stat().st_size < MAX_BYTES
    shown = [
        place
        for place, cell in enumerate(book.cells)
        if cell.cell_type == "code" and any("image/png" in o.get("data", {}) for o in cell.outputs)
    ]
    assert len(shown) >= 1
    assert shown[0] <= CELLS_BEFORE_A_PICTURE
    raw = path.read_text(encoding="utf-8")
    for word in ("widget-view", "/tmp/", "/home/", "Traceback", "Warning"):
        assert word not in raw
    for cell in code(book):
        assert cell.execution_count is None
        assert not any(output.output_type == "error" for output in cell.outputs)


@pytest.mark.parametrize("path", BOOKS, ids=named)
def test_it_holds_calls_and_no_formulas(path: Path):
    for cell in code(kept(path)):
        source = "\n".join(
            line for line in cell.source.splitlines() if not line.lstrip().startswith(("%", "!"))
        )
        assert len(source.splitlines()) <= 14
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                assert node.name in CURVES
            elif isinstance(node, PARTS):
                assert isinstance(node, ast.For)  # prints a line for each
                assert len(node.body) <= 2


@pytest.mark.parametrize("path", [path for path in BOOKS if path.name.startswith(SLIDERS)],
                         ids=named)  # fmt: skip
def test_sliders_move_over_every_setting(path: Path):
    """Each value of each control, from where the notebook starts, leaves lines that rise."""
    import numpy as np

    from benchmarks.slider_speed import sliders_of

    sliders = sliders_of(path.stem)
    assert any("sliders.widget()" in cell.source for cell in code(kept(path)))
    start = dict(sliders.values)
    for control, values in sliders.controls.items():
        for value in values:
            sliders.set(**start | {control: value})
            for name, line in sliders.lines.items():
                y = np.asarray(line.get_ydata(), float)
                assert np.isfinite(y).all(), (name, control, value)
                assert (np.diff(y) > -1e-9 * y[1:]).all(), (name, control, value)
            likely, bound = list(sliders.lines.values())[:2]
            assert likely.get_ydata()[-1] > 0
            assert bound.get_ydata()[-1] > 0
    assert sliders.png()
