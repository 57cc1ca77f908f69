"""The pictures of docs/pictures.md are of today's data, small, and all shown."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from PIL import Image

from aisim_v41 import pictures
from aisim_v41.pictures.canvas import CAPTION
from aisim_v41.units import KIB
from tests.pictures.gallery import DOTS_PER_INCH, FOLDER, GALLERY, digest


@lru_cache
def drawn(name: str):
    with pictures.look("light"):
        return GALLERY[name]()


PAGE = FOLDER.parent / "pictures.md"


@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_shows_what_the_library_says_today(name: str):
    with Image.open(FOLDER / f"{name}.png") as kept:
        told = kept.info["Description"]
    assert digest(drawn(name)) == told, "run: python -m tests.pictures.gallery"


@pytest.mark.parametrize("dpi", [72, DOTS_PER_INCH, 200])
@pytest.mark.parametrize("name", GALLERY)
def test_nothing_is_cut_off(name: str, dpi: int):
    """Labels, key and caption lie inside the figure."""
    ax = drawn(name)
    figure = ax.get_figure(root=True)
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    (caption,) = (text for text in ax.texts if text.get_gid() == CAPTION)
    for box in (ax.get_tightbbox(), caption.get_window_extent()):
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
        assert box.y1 <= figure.bbox.y1


def test_pictures_are_small():
    assert {path.name for path in FOLDER.glob("*.png") if path.stat().st_size > 100 * KIB} == set()


def test_the_page_shows_every_picture_and_names_every_function():
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"\(pictures/(\w+)\.png\)", text)) == set(GALLERY)
    assert {path.stem for path in FOLDER.iterdir()} == set(GALLERY)
    assert [name for name in pictures.__all__ if f"pictures.{name}(" not in text] == []


def test_a_changed_number_changes_the_digest():
    ax = GALLERY["capacity_terms"]()
    before = digest(ax)
    bar = ax.patches[1]
    bar.set_width(1.01 * bar.get_width())
    assert digest(ax) != before
