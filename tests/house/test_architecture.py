"""The picture in docs/architecture.md shows the imports as they are.

``python tests/house/test_architecture.py`` draws it anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.house.test_imports import (
    BASE,
    HARDWARE,
    MODULES,
    SURFACE,
    VERSION,
    imported,
    part_of,
    shown,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
_PICTURE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_ARROW = re.compile(r"^    (\w+) --> (.+)$", re.MULTILINE)
ANSWERS = {("estimators", "memory"), ("estimators", "pictures")}
"""An estimate carries the memory verdict of its step and draws itself: arrows that are left out."""


def room_of(part: str) -> str:
    return "hardware" if part in HARDWARE else part


def imports() -> dict[str, set[str]]:
    """Packages that each package imports, without the small modules that everyone may use."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        if shown(path) == SURFACE or part_of(path) in BASE:
            continue
        own = room_of(part_of(path))
        targets = found.setdefault(own, set())
        for name in imported(path):
            first, _, rest = name.partition(".")
            target = room_of(rest.partition(".")[0])
            if (first == "aisim_v41" and target in {own, VERSION, *BASE}) or first != "aisim_v41":
                continue
            if (own, target) not in ANSWERS:
                targets.add(target)
    return found


def below(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    """Everything that can be reached from a package."""
    seen: set[str] = set()
    ahead = list(arrows.get(start, ()))
    while ahead:
        place = ahead.pop()
        if place not in seen:
            seen.add(place)
            ahead += arrows.get(place, ())
    return seen


def shortest(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that no longer way implies."""
    return {
        own: {
            target
            for target in targets
            if not any(target in below(arrows, other) for other in targets - {target})
        }
        for own, targets in arrows.items()
    }


def drawn() -> dict[str, set[str]]:
    picture = _PICTURE.search(PAGE.read_text(encoding="utf-8"))
    assert picture
    return {own: set(targets.split(" & ")) for own, targets in _ARROW.findall(picture[1])}


def picture() -> str:
    arrows = shortest(imports())
    downwards = sorted(arrows, key=lambda own: (-len(below(arrows, own)), own))
    lines = [f"    {own} --> {' & '.join(sorted(arrows[own]))}" for own in downwards if arrows[own]]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"])


def test_no_package_is_above_itself():
    arrows = imports()
    assert [own for own in arrows if own in below(arrows, own)] == []


def test_the_picture_shows_every_import_and_no_other():
    assert drawn() == {own: targets for own, targets in shortest(imports()).items() if targets}


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_PICTURE.sub(lambda _: picture(), text), encoding="utf-8")
