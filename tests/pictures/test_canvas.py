"""Pages, captions and files."""

from __future__ import annotations

import sys

import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex

import aisim_v41 as aisim
from aisim_v41.pictures import layer_map, look, save
from aisim_v41.pictures.canvas import CAPTION, axes


@pytest.mark.parametrize(("page", "paper"), [("light", "#ffffff"), ("dark", "#16181d")])
def test_pages(model, page: str, paper: str):
    with look(page):
        ax = layer_map(model)
    assert to_hex(ax.get_figure().get_facecolor()) == to_hex(ax.get_facecolor()) == paper
    (caption,) = (text for text in ax.texts if text.get_gid() == CAPTION)
    ink = int(to_hex(caption.get_color())[1:3], 16)
    assert (ink < 0x40) == (page == "light")
    assert pyplot.rcParams["axes.facecolor"] == "white"


def test_another_page_is_refused():
    with pytest.raises(aisim.InvalidInputError, match="look 'grey'"), look("grey"):
        pass


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_picture_is_the_same_file(tmp_path, model, kind: str):
    for name in ("one", "two"):
        with look("light"):
            save(layer_map(model), tmp_path / f"{name}.{kind}")
    one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two"))
    assert one.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    assert one == two


def test_names_that_cannot_be(tmp_path, model):
    ax = layer_map(model)
    with pytest.raises(aisim.InvalidInputError, match=r"\.png, \.svg, \.pdf"):
        save(ax, tmp_path / "map.bmp")
    with pytest.raises(aisim.InvalidInputError, match="there is no folder"):
        save(ax, tmp_path / "nowhere" / "map.png")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(aisim.MissingProfileError, match=r"aisim-v41\[plots\]"):
        axes(None, 4.0, 3.0)
