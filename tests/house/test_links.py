"""Links lead somewhere, and everything is two of them from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.test_docs import _FENCE, _LINK, PAGES, ROOT, anchor, headings, shown


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_relative_links_resolve(path: Path):
    for target in _LINK.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, wanted = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        assert ROOT in (file, *file.parents), f"{target} leaves the repository"
        if wanted:
            assert wanted in map(anchor, headings(file.read_text(encoding="utf-8"))), target


def test_all_is_reached_from_the_readme_in_two_steps():
    def linked(path: Path) -> set[Path]:
        if path.suffix != ".md":
            return set()
        found = _LINK.findall(path.read_text(encoding="utf-8"))
        named = {one.partition("#")[0] for one in found if not re.match(r"[a-z]+:", one)}
        return {(path.parent / name).resolve() for name in named if name}

    first = linked(ROOT / "README.md")
    second = {page for path in first for page in linked(path)}
    everything = {*PAGES, *(ROOT / "notebooks").glob("*.ipynb"), ROOT / "docs" / "space.yaml"}
    missing = {path for path in everything if path.name != "README.md"} - first - second
    assert {shown(path) for path in missing} == set()
