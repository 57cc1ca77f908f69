"""A picture with sliders, for notebooks: only the data of its lines change when one is moved.

Needs ipywidgets, the extra ``notebooks``, when the widget is asked for; the picture of the first
values is there without it, so that a notebook reads well where nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import AisimError, InvalidInputError, MissingProfileError
from aisim_v41.pictures.canvas import CAPTION, PLAIN, SMALL, axes, plain_ticks, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Callable[..., Mapping[str, npt.ArrayLike]]
"""Values of every control to one line of y values a name; the names never change."""
LINES = ({"linewidth": 2.2}, {"linewidth": 1.4}, {"linewidth": 1.2, "linestyle": "--"},
         {"linewidth": 1.2, "linestyle": ":"})  # fmt: skip
DOTS_PER_INCH = 100
SIZE_INCHES = (7.0, 4.2)
MARGIN = 1.5
"""How far axes go beyond the data, so that a small move leaves them where they are."""
LETTERS = 100
"""Width of the line below."""
SLACK = 8.0
"""Top of the axis over the data from which it is fitted anew."""


class Sliders:
    """Lines over one axis, and the controls that move them.

    Args:
        x: places of the lines' points.
        curves: called with a value of every control.
        controls: values of each; the first is where it starts. Two truth values make a box to
            tick, others a slider.
        xlabel, ylabel, title: of the picture; units in square brackets.
        note: called with the same values: the line below.
        log: whether both axes are logarithmic.
        ax: where it is drawn.

    Raises:
        InvalidInputError: no control, or one without values.
        MissingProfileError: matplotlib is not installed.
    """

    def __init__(
        self,
        x: npt.ArrayLike,
        curves: Curves,
        controls: Mapping[str, Sequence[Any]],
        *,
        xlabel: str,
        ylabel: str,
        title: str,
        note: Callable[..., str] | None = None,
        log: bool = True,
        ax: Axes | None = None,
    ) -> None:
        if not controls or not all(len(values) for values in controls.values()):
            raise InvalidInputError("sliders: give controls, each with its values")
        self.x = np.asarray(x, np.float64)
        self.curves, self.controls, self.note = curves, dict(controls), note
        self.values = {name: values[0] for name, values in self.controls.items()}
        self.ax = _own_axes() if ax is None else axes(ax, *SIZE_INCHES)
        self.figure: Any = self.ax.get_figure(root=True)
        self._canvas: Any = None
        self._drawn: Any = None
        self.lines = {
            name: self.ax.plot(self.x, np.asarray(y), label=name, **LINES[place % len(LINES)])[0]
            for place, (name, y) in enumerate(curves(**self.values).items())
        }
        if log:
            self.ax.set_xscale("log", base=2)
            self.ax.set_yscale("log")
            self.ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            plain_ticks(self.ax.yaxis)
        self.ax.set(xlabel=xlabel, ylabel=ylabel)
        self.ax.set_title(title, loc="left", fontsize=PLAIN + 1)
        self.ax.spines[["top", "right"]].set_visible(False)
        self.ax.grid(linewidth=0.5)
        self.ax.legend(frameon=False, loc="upper left", fontsize=PLAIN - 1)
        self.ax.tick_params(labelsize=PLAIN - 1)
        below: dict[str, Any] = {"xycoords": ("axes fraction", self.ax.xaxis.label), "va": "top"}
        self.caption = self.ax.annotate(
            "", (0.0, 0.0), xytext=(0.0, -5.0), textcoords="offset points", fontsize=SMALL,
            alpha=0.75, gid=CAPTION, annotation_clip=False, **below,
        )  # fmt: skip
        self.set()

    def set(self, **values: Any) -> None:
        """Move controls, and the lines with them. A setting that cannot run leaves no line.

        Raises:
            InvalidInputError: no such control, or a value that it does not have.
        """
        for name, value in values.items():
            if name not in self.controls or value not in self.controls[name]:
                raise InvalidInputError(f"sliders: no {name} = {value!r}")
        self.values |= values
        try:
            found: Mapping[str, npt.ArrayLike] = self.curves(**self.values)
            said = self.note(**self.values) if self.note is not None else self._told()
        except AisimError as error:
            found, said = {}, str(error)
        for name, line in self.lines.items():
            line.set_ydata(np.asarray(found.get(name, np.full(len(self.x), np.nan))))
        self._fit()
        self.caption.set_text(fill(said, LETTERS))

    def _told(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values.items())

    def _fit(self) -> None:
        """Move the axis upwards where lines leave it, or would use little of it."""
        ys = np.concatenate([np.asarray(line.get_ydata(), float) for line in self.lines.values()])
        ys = ys[np.isfinite(ys)]
        if not len(ys):
            return
        low, high = self.ax.get_ylim()
        fits = low <= ys.min() and ys.max() <= high and ys.max() * SLACK >= high
        if self._drawn is None or not fits:
            self.ax.set_ylim(ys.min() / MARGIN, ys.max() * MARGIN)
            self._drawn = None

    def png(self) -> bytes:
        """The picture as it is now; axes are drawn anew only where they have moved."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        canvas: Any = FigureCanvasAgg(self.figure) if self._canvas is None else self._canvas
        self._canvas = canvas
        moving = [*self.lines.values(), self.caption]
        if self._drawn is None:
            for artist in moving:
                artist.set_animated(True)
            canvas.draw()
            self._drawn = canvas.copy_from_bbox(self.figure.bbox)
            for artist in moving:
                artist.set_animated(False)
        canvas.restore_region(self._drawn)
        for artist in moving:
            self.figure.draw_artist(artist)
        file = BytesIO()
        Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(file, "png")
        return file.getvalue()

    def widget(self) -> Any:
        """The picture under its controls, for Jupyter.

        Raises:
            MissingProfileError: ipywidgets is not installed.
        """
        try:
            import ipywidgets
        except ImportError:
            raise MissingProfileError(
                "sliders need ipywidgets, which is missing; pip install 'aisim-v41[notebooks]'"
            ) from None
        picture = ipywidgets.Image(value=self.png(), format="png")
        handles = []
        for name, values in self.controls.items():
            if set(map(repr, values)) == {"True", "False"}:
                handle = ipywidgets.Checkbox(value=values[0], description=name)
            else:
                handle = ipywidgets.SelectionSlider(
                    options=list(values), value=values[0], description=name,
                    continuous_update=False,
                )  # fmt: skip

            def moved(change: Any, name: str = name) -> None:
                self.set(**{name: change["new"]})
                picture.value = self.png()

            handle.observe(moved, names="value")
            handles.append(handle)
        return ipywidgets.VBox([ipywidgets.HBox(handles[:3]), *handles[3:], picture])


def _own_axes() -> Axes:
    """Axes whose place in the figure is fixed: laying out takes longer than drawing."""
    require()
    from matplotlib import pyplot

    figure, ax = pyplot.subplots(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH)
    figure.subplots_adjust(left=0.11, right=0.97, top=0.92, bottom=0.2)
    return ax
