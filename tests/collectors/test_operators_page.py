"""The page of operators says what the kinds say.

``python tests/collectors/test_operators_page.py`` rewrites its tables (PYTHONPATH=.).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aisim_v41.model.cache_rows import cache_rows
from aisim_v41.model.load import load_model
from collectors.case import Case
from collectors.op.kind import Kind
from collectors.op.kinds.layouts import MAIN, ROW_BYTES, WINDOW_BESIDE
from collectors.op.kinds.registry import KINDS, kind_of

PAGE = Path(__file__).parents[2] / "docs" / "collectors-operators.md"


def _options(kind: Kind) -> str:
    return "; ".join(f"`{name}`: {', '.join(words)}" for name, words in kind.options.items())


def operators() -> str:
    rows = ["| operator | one call | sizes | options |", "|---|---|---|---|"]
    for name in sorted(KINDS):
        kind = KINDS[name]
        sizes = ", ".join(f"`{rule.name}`" for rule in kind.sizes)
        rows.append(f"| `{name}` | {kind.about} | {sizes} | {_options(kind)} |")
    return "\n".join(rows)


def sizes() -> str:
    """Each size once, or once for each meaning."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name in sorted(KINDS):
        for rule in KINDS[name].sizes:
            default = "" if rule.default is None else f"{rule.default:g}"
            found.setdefault((rule.name, rule.meaning, default), []).append(name)
    rows = ["| size | meaning | default | of |", "|---|---|---|---|"]
    for (name, meaning, default), kinds in sorted(found.items()):
        of = ", ".join(f"`{kind}`" for kind in kinds) if len(kinds) <= 6 else f"{len(kinds)}"
        rows.append(f"| `{name}` | {meaning} | {default} | {of} |")
    return "\n".join(rows)


GENERATED: dict[str, Callable[[], str]] = {"operators": operators, "sizes": sizes}


def _between(text: str, name: str) -> re.Match[str]:
    found = re.search(rf"(<!-- begin {name} -->\n)(.*?)(<!-- end {name} -->)", text, re.DOTALL)
    assert found is not None
    return found


@pytest.mark.parametrize("name", GENERATED)
def test_tables_are_those_of_the_kinds(name: str):
    text = PAGE.read_text(encoding="utf-8")
    assert _between(text, name).group(2).strip() == GENERATED[name]()


def test_cases_of_the_page_are_complete_ones():
    (block,) = re.findall(r"```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines():
        kind_of(case := Case.from_text(line)).complete(case)


def test_layouts_of_the_page_have_the_bytes_of_the_librarys():
    model = load_model("deepseek-v4.1-flash")
    rows = re.findall(r"^\| `(bytes\d+)` .*\| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {layout for layout, _ in rows} == set(MAIN)
    for layout, names in rows:
        for name in re.findall(r"`(\w+)`", names):
            of = cache_rows(model, name)
            ours = ROW_BYTES[MAIN[layout]], ROW_BYTES[WINDOW_BESIDE[layout]]
            assert (of.main_bytes, of.window_bytes) == ours, name


def rewrite() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in GENERATED.items():
        found = _between(text, name)
        text = f"{text[: found.end(1)]}{table()}\n{text[found.start(3) :]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
