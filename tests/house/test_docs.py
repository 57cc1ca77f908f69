"""The documents say what the code does: links, headings, names, and tables that cannot drift.

``python tests/house/test_docs.py`` rewrites the generated tables of docs/policies.md.
"""

from __future__ import annotations

import json
import re
import sys
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import aisim_v41 as aisim
from aisim_v41.arithmetic import Arithmetic
from aisim_v41.estimators.resources import Resource
from aisim_v41.model.layers import LayerKind
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.ops.operator import MUST_CROSS_HBM, Traffic
from aisim_v41.plan.conflicts import CONFLICTS
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names
from aisim_v41.plan.spans import Region
from aisim_v41.reading import read_mapping
from tests.house.test_imports import EXCEPTIONS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROOMS = ("aisim_v41", "hardware", "profiles", "collectors", "notebooks", "benchmarks", "docs")
PRESETS = ("paper", "sglang", "vllm", "atom", "trtllm")
"""In the order of the table."""
POLICY_FIELDS = [f.name for f in fields(RuntimePolicy) if f.name not in ("name", "revision")]
MAY_BE_ZERO = ("expert_locality", "engram_hit_share")
"""Shares that may be 0."""
RULES = [f.name for f in fields(ShardingRules)]

ROOT_PAGES = ("README.md", "CHANGELOG.md", "DATA_SOURCES.md")
PAGES = sorted(
    [
        *DOCS.glob("*.md"),
        *(ROOT / name for name in ROOT_PAGES),
        *(ROOT / room / "README.md" for room in ROOMS if (ROOT / room / "README.md").exists()),
    ]
)
SOURCES = sorted([*(ROOT / "aisim_v41").rglob("*.py"), *(ROOT / "profiles").rglob("*.yaml")])

_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_REFERENCE = re.compile(r'docs/([\w-]+\.md)(?:`{0,2},? "([^"]+)")?')
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return [match[2] for match in _HEADING.finditer(_FENCE.sub("", text))]


def anchor(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    plain = re.sub(r"[`*_]", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def section(text: str, heading: str) -> str:
    """Text under a heading, up to the next one of the same level or above."""
    found = next(m for m in _HEADING.finditer(text) if m[2] == heading)
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}}\s", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table_rows(text: str) -> list[list[str]]:
    """Cells of every table row, without header rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [place for place, line in enumerate(lines) if set(line) <= set("|-: ")]
    heads = {place - 1 for place in rules} | set(rules)
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for place, line in enumerate(lines)
        if place not in heads
    ]


def joined(text: str) -> str:
    """Prose with comment marks and line breaks taken out, so that references may wrap."""
    return re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)


def references(paths: list[Path]) -> Iterator[tuple[Path, str, str]]:
    """Pages of docs/ that files name, and headings ('' for the whole page)."""
    for path in paths:
        for name, heading in _REFERENCE.findall(joined(path.read_text(encoding="utf-8"))):
            yield path, name, heading


# --- links and headings ---------------------------------------------------------------------------


def test_every_page_that_code_names_exists():
    named = {(shown(path), name) for path, name, _ in references(SOURCES)}
    assert len({name for _, name in named}) >= 3
    assert [(path, name) for path, name in named if not (DOCS / name).exists()] == []


def test_every_heading_that_code_names_exists():
    missing = [
        (shown(path), name, heading)
        for path, name, heading in references(SOURCES)
        if heading and heading not in headings(page(name))
    ]
    assert missing == []


def test_assumptions_are_linked_from_code():
    """Every section of the page is named by the code that relies on it (STYLE 31)."""
    text = page("assumptions.md")
    named = {heading for _, name, heading in references(SOURCES) if name == "assumptions.md"}
    elsewhere = {"Validation", "Not modelled"}  # a package that says so itself, and what is absent
    assert set(headings(text)[1:]) - elsewhere - named == set()


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_files_that_are_named_exist(path: Path):
    """Paths in code spans that begin with a folder of this repository."""
    for span in _CODE_SPAN.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        first, slash, _ = span.partition("/")
        if slash and first in (*ROOMS, "tests") and not set(span) & set("<>*{} "):
            assert (ROOT / span).exists(), span


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_names_of_the_library_exist(path: Path):
    """Dotted names in code spans, and names of the public surface in examples."""
    text = path.read_text(encoding="utf-8")
    for dotted in re.findall(r"`(aisim_v41(?:\.\w+)+)`", text):
        base = ROOT.joinpath(*dotted.split("."))
        assert base.is_dir() or base.with_suffix(".py").exists(), dotted
    for name in re.findall(r"\baisim\.(\w+)", text):
        assert name in aisim.__all__, name


def test_imports_go_one_way_as_the_page_says():
    rows = table_rows(section(page("architecture.md"), "Layers of the code"))
    order = [cells[0].strip("`").removeprefix("aisim_v41.") for cells in rows]
    packages = [
        path.name for path in (ROOT / "aisim_v41").iterdir() if (path / "__init__.py").exists()
    ]
    assert sorted(order) == sorted(packages)
    for place, name in enumerate(order):
        for path in (ROOT / "aisim_v41" / name).rglob("*.py"):
            used = set(re.findall(r"\baisim_v41\.(\w+)[\w.]* import", path.read_text("utf-8")))
            known = {target for file, target in EXCEPTIONS if shown(path) == f"aisim_v41/{file}"}
            assert used & set(order[place + 1 :]) - known == set(), shown(path)


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_examples_run(path: Path):
    names: dict[str, object] = {}
    for example in _PYTHON.findall(path.read_text(encoding="utf-8")):
        exec(compile(example, shown(path), "exec"), names)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# --- nomenclature ---------------------------------------------------------------------------------


def test_nomenclature_gives_every_count_a_formula():
    rows = table_rows(section(page("nomenclature.md"), "Ledger counts"))
    assert [cells[0] for cells in rows] == list(dict.fromkeys(cells[0] for cells in rows))
    assert {cells[0].strip("`") for cells in rows} == {str(count) for count in Count}
    assert all(len(cells) == 3 and all(cells) for cells in rows)


def test_nomenclature_names_every_kind():
    text = page("nomenclature.md")
    for choices in (Arithmetic, Resource, LayerKind):
        assert [name for name in choices if f"`{name}`" not in text] == []
    regions = {cells[0].strip("*") for cells in table_rows(section(text, "Regions"))}
    assert regions == {str(region) for region in Region} | {"head"}


def test_nomenclature_says_which_bytes_must_cross_memory():
    rows = table_rows(section(page("nomenclature.md"), "Work of an operator"))
    said = {cells[0].strip("`"): cells[2].startswith("yes") for cells in rows}
    assert said == {str(kind): kind in MUST_CROSS_HBM for kind in Traffic}


# --- policies -------------------------------------------------------------------------------------


def described_fields() -> dict[str, list[str]]:
    rows = table_rows(section(page("policies.md"), "Fields"))
    names = [cells[0].strip("`") for cells in rows]
    assert len(names) == len(set(names))
    return dict(zip(names, rows, strict=True))


def test_every_policy_field_is_described():
    described = described_fields()
    assert set(described) == {*POLICY_FIELDS, *RULES}
    assert all(len(cells) == 4 and all(cells) for cells in described.values())


@pytest.mark.parametrize("name", POLICY_FIELDS)
def test_the_values_of_a_field_are_those_of_the_code(name: str):
    kind = typing.get_type_hints(RuntimePolicy)[name]
    values = described_fields()[name][1]
    listed = tuple(_CODE_SPAN.findall(values))
    if typing.get_origin(kind) is typing.Literal:
        assert listed == typing.get_args(kind)
    elif kind is bool:
        assert listed == ("True", "False")
    elif kind is int:
        assert re.fullmatch(r"whole number from [01]", values)
    elif kind is float:
        zero = name in MAY_BE_ZERO
        assert values == ("from 0 to 1" if zero else "above 0, at most 1")


@pytest.mark.parametrize("name", RULES)
def test_the_values_of_a_sharding_rule_are_those_of_the_code(name: str):
    kind = typing.get_type_hints(ShardingRules)[name]
    if kind is not int:
        listed = _CODE_SPAN.findall(described_fields()[name][1])
        assert sorted(listed) == sorted(choice.value for choice in kind)


def test_presets_are_described_with_their_revision():
    rows = table_rows(section(page("policies.md"), "Presets").split("<!--")[0])
    assert sorted(PRESETS) == sorted(preset_names())
    assert [cells[0].strip("`") for cells in rows] == list(PRESETS)
    assert [cells[1] for cells in rows] == [policy(name).revision for name in PRESETS]


def presets_table() -> str:
    """Values that presets set, from policies.yaml, beside the defaults of the code."""
    raw = read_mapping(ROOT / "profiles/deepseek-v4.1-flash/policies.yaml")["presets"]
    lines = [
        f"| field | default | {' | '.join(f'`{name}`' for name in PRESETS)} |",
        "|---" * (2 + len(PRESETS)) + "|",
    ]
    for owner in (RuntimePolicy, ShardingRules):
        for f in fields(owner):
            if f.name in ("name", "revision", "sharding"):
                continue
            assert f.default is not MISSING
            cells = [str(raw[name]["fields"].get(f.name, f.default)) for name in PRESETS]
            set_here = ["" if cell == str(f.default) else cell for cell in cells]
            lines.append(f"| `{f.name}` | {f.default} | {' | '.join(set_here)} |")
    return "\n".join(lines)


def conflicts_table() -> str:
    """Combinations that are refused, from the code, with the revision that refuses."""
    lines = [
        "| one side | the other | refused for | revision | what to do |",
        "|---|---|---|---|---|",
    ]
    for conflict in CONFLICTS:
        engines = ", ".join(f"`{name}`" for name in conflict.engines) or "all"
        engines += f" on {conflict.where}" if conflict.where else ""
        revision = (
            "; ".join(policy(name).revision for name in conflict.engines) or "that of the preset"
        )
        reason = conflict.reason[0].upper() + conflict.reason[1:]
        lines.append(
            f"| {conflict.first} | {conflict.second} | {engines} | {revision} | {reason}. |"
        )
    return "\n".join(lines)


GENERATED = {"presets": presets_table, "conflicts": conflicts_table}


def _between(text: str, name: str) -> re.Match[str]:
    pattern = rf"(<!-- {name}: begin -->\n)(.*?)(<!-- {name}: end -->)"
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, f"docs/policies.md has lost the markers of {name}"
    return found


@pytest.mark.parametrize("name", GENERATED)
def test_generated_tables_are_up_to_date(name: str):
    found = _between(page("policies.md"), name)[2]
    assert found.strip() == GENERATED[name](), "run: python tests/house/test_docs.py"


def test_the_table_is_what_presets_really_are():
    """The file says what the loaded presets have, field by field."""
    raw = read_mapping(ROOT / "profiles/deepseek-v4.1-flash/policies.yaml")["presets"]
    for name in PRESETS:
        loaded, given = policy(name), raw[name]["fields"]
        assert set(given) <= {*POLICY_FIELDS, *RULES}
        for field, value in given.items():
            holder = loaded if field in POLICY_FIELDS else loaded.sharding
            assert getattr(holder, field) == value


# --- data sources ---------------------------------------------------------------------------------


def test_every_data_file_is_listed():
    text = (ROOT / "DATA_SOURCES.md").read_text(encoding="utf-8")
    listed = set(_CODE_SPAN.findall(section(text, "Files")))
    files = [p for p in (ROOT / "profiles").rglob("*") if p.is_file() and p.suffix != ".md"]
    for suffix in (".json", ".jsonl", ".csv", ".yaml"):
        files += (ROOT / "tests").rglob(f"*{suffix}")
    assert sorted(shown(path) for path in files if shown(path) not in listed) == []


def test_every_source_of_a_hardware_figure_is_listed():
    text = joined((ROOT / "DATA_SOURCES.md").read_text(encoding="utf-8"))
    listed = {
        cells[0]: set(_CODE_SPAN.findall(cells[1]))
        for cells in table_rows(section((ROOT / "DATA_SOURCES.md").read_text("utf-8"), "Hardware"))
    }
    names = {path.stem for path in (ROOT / "hardware").glob("*.yaml")}
    found: dict[str, set[str]] = {}
    for name in sorted(names):
        for figure in aisim.load_hardware(ROOT / "hardware" / f"{name}.yaml").figures:
            for source in figure.source.split("; "):
                found.setdefault(source, set()).add(name)
    assert listed == {source: set() if where == names else where for source, where in found.items()}
    assert "NVIDIA CORPORATION & AFFILIATES" in text


def test_every_row_of_a_validation_case_has_a_source():
    text = section((ROOT / "DATA_SOURCES.md").read_text(encoding="utf-8"), "Validation cases")
    known: set[str] = set()
    for cells in table_rows(text):
        for part in cells[1].split(", "):
            first, _, last = part.partition("-")
            numbers = range(int(first[1:]), int(last or first[1:]) + 1)
            known |= {f"{first[0]}{number:04}" for number in numbers}
    lines = (ROOT / "profiles/deepseek-v4.1-flash/validation_cases.jsonl").read_text("utf-8")
    rows = {row for line in lines.splitlines() for row in json.loads(line)["rows"]}
    single = {row for row in rows if ":" not in row}
    assert single - known == set()
    assert {row.partition(":")[0] for row in rows - single} <= set(_CODE_SPAN.findall(text))


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_pages_hold_nothing_of_a_machine(path: Path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(?:work|home|root|tmp|Users|mnt)/", text)


def rewrite() -> None:
    path = DOCS / "policies.md"
    text = path.read_text(encoding="utf-8")
    for name, table in GENERATED.items():
        found = _between(text, name)
        text = f"{text[: found.end(1)]}{table()}\n{text[found.start(3) :]}"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
