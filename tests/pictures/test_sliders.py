"""Sliders: what they draw is what they ask for, and moving one changes the picture."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

import aisim_v41 as aisim
from aisim_v41.pictures import Sliders
from aisim_v41.pictures.canvas import caption_of

mpl.use("agg")
X = [1, 2, 4, 8]


def curves(factor: int, bent: bool) -> dict[str, Any]:
    if factor == 7:
        raise aisim.OutOfRangeError("seven is too much")
    times = np.array([factor * x ** (2 if bent else 1) for x in X], float)
    return {"time": times, "half": times / 2}


@pytest.fixture
def sliders() -> Sliders:
    from matplotlib import pyplot

    made = Sliders(X, curves, {"factor": [1, 2, 7, 1000], "bent": [False, True]},
                   xlabel="x [tokens]", ylabel="time [ms]", title="A line",
                   note=lambda factor, bent: f"{factor} times, bent {bent}")  # fmt: skip
    yield made
    pyplot.close(made.figure)


def drawn(sliders: Sliders) -> dict[str, list[float]]:
    return {name: list(line.get_ydata()) for name, line in sliders.lines.items()}


def test_lines_are_what_the_curves_say(sliders: Sliders):
    assert drawn(sliders) == {"time": [1, 2, 4, 8], "half": [0.5, 1, 2, 4]}
    assert list(sliders.lines["time"].get_xdata()) == X
    sliders.set(factor=2, bent=True)
    assert drawn(sliders)["time"] == [2, 8, 32, 128]
    assert caption_of(sliders.ax) == "2 times, bent True"
    low, high = sliders.ax.get_ylim()
    assert low <= 1
    assert high >= 128
    for axis in (sliders.ax.get_xlabel(), sliders.ax.get_ylabel()):
        assert axis.endswith("]")


def pixels(raw: bytes) -> Any:
    return np.asarray(Image.open(BytesIO(raw)).convert("RGB"), int)


def test_a_picture_that_was_moved_is_the_picture_drawn_anew(sliders: Sliders):
    first = sliders.png()
    sliders.set(factor=2)
    second = sliders.png()
    assert (pixels(first) != pixels(second)).any()
    sliders.set(factor=1)
    assert (pixels(sliders.png()) == pixels(first)).all()
    sliders.set(factor=1000)  # another range: axes are drawn again
    sliders.set(factor=2)
    other = Sliders(X, curves, {"factor": [2], "bent": [False]}, xlabel="x [tokens]",
                    ylabel="time [ms]", title="A line",
                    note=lambda factor, bent: f"{factor} times, bent {bent}")  # fmt: skip
    assert drawn(other) == drawn(sliders)


def test_what_cannot_run_leaves_no_line_and_says_why(sliders: Sliders):
    sliders.set(factor=7)
    assert all(np.isnan(y).all() for y in drawn(sliders).values())
    assert caption_of(sliders.ax) == "seven is too much"
    sliders.set(factor=1)
    assert drawn(sliders)["time"] == [1, 2, 4, 8]


def test_a_long_reason_stays_inside(sliders: Sliders):
    sliders.note = lambda factor, bent: "many words " * 40
    sliders.set(factor=2)
    sliders.figure.canvas.draw()
    box = sliders.caption.get_window_extent()
    assert "\n" in sliders.caption.get_text()
    assert box.x1 <= sliders.figure.bbox.x1


def test_the_widget_moves_the_picture(sliders: Sliders):
    pytest.importorskip("ipywidgets")
    box = sliders.widget()
    controls, picture = box.children[0], box.children[-1]
    factor, bent = controls.children
    assert (factor.description, bent.description) == ("factor", "bent")
    before = bytes(picture.value)
    factor.value = 2
    assert drawn(sliders)["time"] == [2, 4, 8, 16]
    assert bytes(picture.value) != before
    bent.value = True
    assert drawn(sliders)["time"] == [2, 8, 32, 128]


def test_controls_that_are_none(sliders: Sliders):
    for values in ({"factor": 3}, {"other": 1}):
        with pytest.raises(aisim.InvalidInputError, match="no "):
            sliders.set(**values)
    with pytest.raises(aisim.InvalidInputError, match="give controls"):
        Sliders(X, curves, {}, xlabel="", ylabel="", title="")
