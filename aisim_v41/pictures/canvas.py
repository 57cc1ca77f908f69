"""What all pictures share: where they are drawn, what stands below them, and how they are kept.

Needs matplotlib, the extra ``plots``; it is imported when something is drawn. Text and axes take
their colours from matplotlib's own settings, so that a picture fits the page that it is drawn for;
`look` sets them for a light or a dark one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = Literal["light", "dark"]
FORMATS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 130
SMALL, PLAIN = 7.0, 9.0
"""Sizes of text [points]."""
CAPTION = "caption"
"""Mark (``gid``) of the text that says what a picture assumes."""
_LETTER_POINTS = 0.57 * SMALL
"""Width of a letter of a caption, rather more than the mean [points]."""
WIDE = 4.0
"""Largest over smallest value from which an axis is logarithmic."""
THOUSAND = 1000
MOST = 1e30
"""Largest number that is drawn, and the inverse of the smallest."""
DECADES_WITH_PARTS = 3000.0
"""Largest over smallest value up to which a logarithmic axis shows 2 and 5 too."""
NO_BAND = "A sweep has no bands: ask aisim.estimate at the points that matter."
UNITS = {
    "_per_s_per_gpu": "1/s a GPU",
    "_gb_per_s": "GB/s",
    "_bytes_per_s": "B/s",
    "_per_s": "1/s",
    "_ms": "ms",
    "_us": "µs",
    "_s": "s",
    "_gib": "GiB",
    "_mib": "MiB",
    "_bytes": "B",
    "_tokens": "tokens",
    "_share": "share",
}
"""By the ending of a column's name, the longest first (docs/nomenclature.md, "Units")."""
COUNTED = {"count": "requests", "tp": "GPUs", "ep": "groups", "dp": "ranks", "cp": "ranks",
           "gpus": "GPUs"}  # fmt: skip
_PAPER = {"light": "#ffffff", "dark": "#16181d"}
_INK = {"light": "#1d2127", "dark": "#e4e7eb"}
_FAINT = {"light": "#dcdfe3", "dark": "#343941"}


def settings(look: Look) -> dict[str, Any]:
    """Settings of matplotlib for a page.

    Raises:
        InvalidInputError: neither light nor dark.
    """
    if look not in _PAPER:
        raise InvalidInputError(f"look {look!r}; {nearest(str(look), _PAPER)}")
    paper, ink = _PAPER[look], _INK[look]
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    papered = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    return {
        **dict.fromkeys(inked, ink),
        **dict.fromkeys(papered, paper),
        "grid.color": _FAINT[look],
        "svg.hashsalt": "aisim-v41",
        "svg.fonttype": "path",
    }


@contextmanager
def look(name: Look) -> Iterator[None]:
    """Pictures drawn inside are for a light or a dark page.

    Raises:
        InvalidInputError: neither.
        MissingProfileError: matplotlib is not installed.
    """
    chosen = settings(name)
    require()
    import matplotlib as mpl

    with mpl.rc_context(chosen):  # type: ignore[arg-type]
        yield


def require() -> None:
    """Say what to install where matplotlib is missing.

    Raises:
        MissingProfileError: it is.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingProfileError(
            "a picture needs matplotlib, which is not installed; pip install 'aisim-v41[plots]'"
        ) from None


def axes(given: Axes | None, width: float, height: float) -> Axes:
    """The axes to draw into: those given, or those of a new figure of pyplot [inches].

    Raises:
        InvalidInputError: what was given are no axes.
        MissingProfileError: matplotlib is not installed.
    """
    require()
    if given is None:
        from matplotlib import pyplot

        drawn, made = pyplot.subplots(
            figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained"
        )
        drawn.get_layout_engine().set(w_pad=0.1, h_pad=0.1)  # type: ignore[union-attr,call-arg]
        return made
    from matplotlib.axes import Axes

    if not isinstance(given, Axes):
        raise InvalidInputError(
            f"ax = {given!r}: must be axes of matplotlib, not {type(given).__name__}"
        )
    return given


def finish(ax: Axes, *, title: str, caption: str, grid: Literal["x", "y", "both", ""] = "") -> Axes:
    """Title, what is assumed, and a quiet frame."""
    ax.set_title(title, fontsize=PLAIN + 1, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    if grid:
        ax.grid(axis=grid, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=PLAIN - 1)
    ax.xaxis.label.set_fontsize(PLAIN)
    ax.yaxis.label.set_fontsize(PLAIN)
    write_caption(ax, caption)
    return ax


def write_caption(ax: Axes, caption: str) -> None:
    """Text below the label of the axis across, as wide as the axes and their key.

    Only its height counts in the layout: a text that begins at the axes would widen their margin.
    """
    letters = max(40, int(_room_points(ax) / _LETTER_POINTS))
    lines = [part for line in caption.split("\n") for part in textwrap.wrap(line, letters)]
    below: dict[str, Any] = {
        "xy": (0.0, 0.0), "xycoords": ("axes fraction", ax.xaxis.label), "xytext": (0.0, -5.0),
        "textcoords": "offset points", "va": "top", "fontsize": SMALL, "annotation_clip": False,
    }  # fmt: skip
    ax.annotate("\n".join(lines), alpha=0.75, gid=CAPTION, **below).set_in_layout(False)
    ax.annotate("\n".join("lp" for _ in lines), alpha=0.0, gid="room of the caption", **below)


def _room_points(ax: Axes) -> float:
    """From the left end of the axes to the edge of their part of the figure, about [points]."""
    figure = ax.get_figure(root=True)
    share = 1.0
    place = ax.get_subplotspec()
    if place is not None:
        place = place.get_topmost_subplotspec()  # a bar of colours takes a part of it
        grid = place.get_gridspec()
        share = (place.colspan.stop - place.colspan.start) / grid.ncols
    longest = max((len(text.get_text()) for text in ax.get_yticklabels()), default=0)
    left = 0.62 * PLAIN * longest + (2.2 * PLAIN if ax.get_ylabel() else 0.0)
    return 72.0 * share * figure.get_figwidth() - left - 24.0  # type: ignore[union-attr]


def caption_of(ax: Axes) -> str:
    """What a picture says that it assumes."""
    told = (text.get_text() for text in ax.texts if text.get_gid() == CAPTION)
    return " ".join(" ".join(told).split())


def legend_of(ax: Axes, colours: Mapping[str, str], **options: Any) -> None:
    """A key of coloured patches beside the axes, to the right."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=name) for name, colour in colours.items()]
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} | options
    ax.legend(handles=handles, fontsize=PLAIN - 1, frameon=False, **place)


def paper(ax: Axes) -> Any:
    """Colour behind the axes: edges of neighbours are drawn in it."""
    return ax.get_facecolor()


def check_path(path: Path) -> None:
    """Refuse a name under which no picture could be written, before any work is done for it.

    Raises:
        InvalidInputError: a name of another kind, or a folder that does not exist.
    """
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"figure {path}: its name must end in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise InvalidInputError(f"figure {path}: there is no folder {path.parent}")


def save(drawn: Axes | Figure, path: Path) -> None:
    """Write a picture; its format follows from the name.

    Raises:
        InvalidInputError: as `check_path`.
    """
    check_path(path)
    figure = drawn if hasattr(drawn, "savefig") else drawn.get_figure(root=True)
    # Without a date the same picture is the same file.
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    figure.savefig(path, metadata=dated)  # type: ignore[union-attr]


def axis_text(column: str) -> str:
    """A column as the label of an axis: its words, and the unit that its name ends in.

    >>> axis_text("latency_ms"), axis_text("tokens_per_s_per_gpu"), axis_text("prefix_tokens")
    ('latency [ms]', 'tokens [1/s a GPU]', 'prefix tokens [tokens]')
    """
    for ending, unit in UNITS.items():
        if column.endswith(ending):
            words = column.removesuffix(ending).replace("_", " ").strip()
            kept = f"{words} tokens".strip() if ending == "_tokens" else words
            return f"{kept or 'time'} [{unit}]"
    return f"{column.replace('_', ' ')} [{COUNTED.get(column, '1')}]"


def short(value: object) -> str:
    """A value in few letters: three digits of a number that is not whole."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3g}" if abs(value) < THOUSAND else f"{value:,.0f}"
    return f"{value:,.10g}" if isinstance(value, float | int) else str(value)


def plain_ticks(axis: Any) -> None:
    """Numbers as they are on a logarithmic axis with its data: 1, 2, 5, or tens of a wide one."""
    from matplotlib.ticker import LogLocator, NullFormatter

    wide = axis.get_data_interval()[1] > DECADES_WITH_PARTS * axis.get_minpos()
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=99))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(NullFormatter())


def checked(
    frame: Any, what: str, *, numbers: Sequence[str], others: Sequence[str] = ()
) -> pd.DataFrame:
    """The frame that a picture is drawn of, its numbers as floats; what is not finite is nan.

    Args:
        frame: of the user.
        what: what is asked for, in words.
        numbers: columns of numbers, some of which may be missing in a row.
        others: columns that must be there too.

    Raises:
        InvalidInputError: no frame, or a column of other things than numbers.
        SchemaError: it lacks a column, or has one twice.
    """
    if not hasattr(frame, "columns"):
        raise InvalidInputError(f"{what} is asked for, not {type(frame).__name__}")
    names = list(dict.fromkeys([*numbers, *others]))
    has = list(map(str, frame.columns))
    missing = [str(name) for name in names if name not in frame.columns]
    if missing:
        raise SchemaError(
            f"no column {', '.join(missing)}: {what} is asked for; it has {', '.join(has)}"
        )
    twice = [name for name in names if has.count(name) > 1]
    if twice:
        raise SchemaError(f"column {twice[0]} occurs {has.count(twice[0])} times")
    table: pd.DataFrame = frame.assign(**{name: _floats(frame[name], name) for name in numbers})
    return table


def _floats(column: Any, name: str) -> Any:
    import numpy as np

    if getattr(column.dtype, "kind", "O") in "iuf" and isinstance(column.dtype, np.dtype):
        found = column.to_numpy(np.float64)
    else:
        values = column.astype(object).where(column.notna(), None).tolist()
        for value in values:
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise InvalidInputError(f"column {name!r} holds {value!r}: must hold numbers")
        found = np.array([np.nan if value is None else float(value) for value in values])
    found = np.where(np.isfinite(found), found, np.nan)
    size = np.abs(found)
    beyond = (size > MOST) | ((size > 0) & (size < 1 / MOST))
    if beyond.any():
        raise InvalidInputError(
            f"column {name!r} holds {found[np.argmax(beyond)]:g}: no axis reaches there"
        )
    return found


def name_points(
    ax: Axes, names: Sequence[str], across: Sequence[float], up: Sequence[float]
) -> None:
    """Names beside the first points, each where it meets no other name and no point, if anywhere.

    The axes must have their scales and limits.
    """
    from matplotlib.patheffects import withStroke

    points = 72.0 / ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    places = ax.transData.transform(list(zip(across, up, strict=True))) * points
    taken = [(x - 4.0, y - 4.0, x + 4.0, y + 4.0) for x, y in places]
    halo = [withStroke(linewidth=2.0, foreground=paper(ax))]
    for name, x, y, at in zip(names, across, up, places, strict=False):
        wide, high = 0.62 * SMALL * len(name), 1.25 * SMALL
        for side, level in _PLACES:
            left = at[0] + (7.0 if side > 0 else -7.0 - wide)
            low = at[1] + level * high - high / 2
            box = (left, low, left + wide, low + high)
            if not any(
                box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
                for other in taken
            ):
                break
        else:
            continue  # no room: better no name than two on each other
        taken.append(box)
        ax.annotate(
            name, (x, y), xytext=(7.0 * side, level * high), textcoords="offset points",
            ha="left" if side > 0 else "right", va="center", fontsize=SMALL, path_effects=halo,
        )  # fmt: skip


_PLACES = [(side, level) for level in (0, 1, -1, 2, -2, 3, -3, 4) for side in (1, -1)]
"""Where a name may stand: side, and lines above its point."""
