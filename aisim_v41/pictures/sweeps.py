"""Pictures of many steps: fronts that no point beats, and latency over two sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aisim_v41.errors import InvalidInputError
from aisim_v41.pictures import canvas
from aisim_v41.pictures.about import constants_text, frame_text
from aisim_v41.pictures.palette import EVIDENCE, FAMILIES, OWNERS, nth
from aisim_v41.reports.surface import BEND, grid, knees
from aisim_v41.sweeps.best import pareto as front_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_CELLS = 300
"""Cells up to which each shows its number."""
KNEES = {"bend": FAMILIES["collective"], "jump": EVIDENCE["rescaled"]}
MOST_TICKS = 16


def pareto(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    *,
    low: str = "latency_ms",
    high: str = "tokens_per_s_per_gpu",
    by: str | Sequence[str] = (),
    label: str = "",
    about: str = "",
) -> Axes:
    """Every point, and the front of each group: points that none of the group beats.

    Points that do not fit (``fits`` is False) are crossed and on no front; those without a value
    are left out. The caption says how many.

    Args:
        frame: such as of `aisim_v41.sweep`.
        ax: where to draw; a new figure where left out.
        low: column across, of which less is better.
        high: column upwards, of which more is better.
        by: column or columns whose values make groups, at most as many as there are colours.
        label: column whose value is written beside the points of the fronts.
        about: what the frame is of; by default the columns that have one value.

    Raises:
        InvalidInputError: no frame, a column that is not there or holds no numbers, or too many
            groups.
        MissingProfileError: matplotlib is not installed.
    """
    keys = [by] if isinstance(by, str) else by
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, str) for key in keys):
        raise InvalidInputError(f"by = {by!r:.80}: must be a column or a list of columns")
    import pandas as pd

    about = about or (frame_text(frame) if hasattr(frame, "attrs") else "")
    frame = canvas.checked(
        frame, "a frame with such columns", numbers=[low, high],
        others=[*keys, *([label] if label else [])],
    )  # fmt: skip
    known = frame[frame[low].notna() & frame[high].notna()]
    if known.empty:
        raise InvalidInputError(f"pareto: no row has both {low} and {high}")
    fits = known["fits"].isin([True]) if "fits" in known.columns else known[low].notna()
    for key in keys:
        if not known[key].map(pd.api.types.is_hashable).all():
            raise InvalidInputError(f"pareto: column {key} holds lists or the like; no groups")
    groups = list(known[keys].drop_duplicates().itertuples(index=False)) if keys else [()]
    if len(groups) > len(OWNERS):
        raise InvalidInputError(
            f"pareto: {', '.join(keys)} make {len(groups)} groups, and there are {len(OWNERS)} "
            "colours; keep fewer"
        )
    ax = canvas.axes(ax, 9.0, 5.6)
    named: dict[str, str] = {}
    on_front: list[pd.DataFrame] = []
    for place, group in enumerate(groups):
        mine = np.ones(len(known), bool)
        for key, value in zip(keys, group, strict=True):
            same = known[key].isna() if pd.isna(value) else known[key] == value
            mine &= same.to_numpy(bool)
        name = ", ".join(_named(key, value) for key, value in zip(keys, group, strict=True))
        colour = named[name or "points"] = nth(place)
        own, not_fitting = known[mine & fits], known[mine & ~fits]
        ax.scatter(own[low], own[high], s=14, color=colour, alpha=0.45, linewidths=0,
                   gid=f"points {name}")  # fmt: skip
        if len(not_fitting):
            ax.scatter(not_fitting[low], not_fitting[high], s=18, color=colour, alpha=0.6,
                       marker="x", linewidths=1.0, gid=f"not fitting {name}")  # fmt: skip
        front = front_of(own, low=low, high=high).sort_values(low)
        ax.plot(front[low], front[high], drawstyle="steps-post", color=colour, linewidth=1.6,
                marker="o", markersize=4.5, gid=f"front {name}")  # fmt: skip
        on_front.append(front)
    _wide_axes(ax, known, low, high)
    if label:
        _label(ax, on_front, low, high, label)
    ax.set_xlabel(canvas.axis_text(low))
    ax.set_ylabel(canvas.axis_text(high))
    if keys:
        canvas.legend_of(ax, named)
    told = about or constants_text(known, but=(low, high, *keys, label))
    without, crossed = len(frame) - len(known), int((~fits).sum())
    lines = [
        f"{told}." if told else "",
        f"Lines: points of a group that none of it beats; {len(known):,} points"
        + (f", {crossed:,} of them do not fit (crossed)" if crossed else "")
        + (f"; {without:,} without a value are left out" if without else "")
        + (f". Numbers: {label.replace('_', ' ')}" if label else "")
        + ".",
        canvas.NO_BAND,
    ]
    return canvas.finish(
        ax,
        title="What no other point beats in both",
        caption="\n".join(line for line in lines if line),
        grid="both",
    )


def surface(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str = "count",
    y: str = "prefix_tokens",
    z: str = "latency_ms",
    about: str = "",
) -> Axes:
    """Latency over two sizes, a cell a point, with its knees along ``x``.

    A yellow line stands where time begins to grow with x, a red one where it jumps
    (`aisim_v41.reports.surface.knees`).

    Args:
        frame: such as of `CompiledStep.sweep`, with one row a pair of x and y.
        ax: where to draw; a new figure where left out.
        x, y, z: columns across, upwards, and drawn.
        about: what the frame is of; by default the columns that have one value.

    Raises:
        InvalidInputError: a column that is not there or holds no numbers, or nothing to draw.
        SchemaError: several rows at one place.
        MissingProfileError: matplotlib is not installed.
    """
    about = about or (frame_text(frame) if hasattr(frame, "attrs") else "")
    frame = canvas.checked(frame, "a frame with such columns", numbers=[x, y, z])
    table = grid(frame, x, y, z)
    values = table.to_numpy(np.float64)
    drawn = values[np.isfinite(values) & (values > 0)]
    if not drawn.size:
        raise InvalidInputError(f"surface: {z} has no value above 0")
    ax = canvas.axes(ax, 10.0, max(3.4, 1.9 + 0.36 * min(len(table), 24)))
    from matplotlib.colors import LogNorm

    scale = LogNorm(drawn.min(), max(drawn.max(), 1.001 * drawn.min()))
    mesh = ax.pcolormesh(
        np.arange(table.shape[1] + 1) - 0.5, np.arange(len(table) + 1) - 0.5,
        np.ma.masked_invalid(values), norm=scale, cmap="cividis", gid="cells",
    )  # fmt: skip
    if values.size <= MOST_CELLS:
        _numbers(ax, values, mesh)
    found = knees(frame, x, y, z)
    across = {float(value): place for place, value in enumerate(table.columns)}
    upwards = {value: place for place, value in enumerate(table.index)}
    for knee in found.to_dict(orient="records"):
        at = (across[knee["before"]] + across[knee["after"]]) / 2
        row = upwards[knee["at"]]
        ax.plot(
            [at, at], [row - 0.5, row + 0.5], color=KNEES[knee["kind"]], linewidth=3.2,
            solid_capstyle="butt", gid=f"{knee['kind']} {knee['at']:g}",
        )  # fmt: skip
    _ticks(ax.xaxis, table.columns.tolist())
    _ticks(ax.yaxis, table.index.tolist())
    ax.set_xlabel(canvas.axis_text(x))
    ax.set_ylabel(canvas.axis_text(y))
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.015)
    bar.set_label(canvas.axis_text(z), fontsize=canvas.PLAIN)
    canvas.plain_ticks(bar.ax.yaxis)
    bar.ax.tick_params(labelsize=canvas.PLAIN - 1)
    told = about or constants_text(frame, but=(x, y, z))
    blank = int(values.size - drawn.size)
    said = (
        f"Yellow: from here on doubling {x} takes the time times {2**BEND:.2f} or more; red: the "
        f"time grows faster than {x}." + (f" {blank} cells have no value." if blank else "")
    )
    canvas.finish(
        ax,
        title=f"{canvas.axis_text(z)} from {drawn.min():,.3g} to {drawn.max():,.3g}, and its knees",
        caption="\n".join([*([f"{told}."] if told else []), said, canvas.NO_BAND]),
    )
    ax.tick_params(length=0)
    return ax


def _named(key: str, value: object) -> str:
    """A value that speaks for itself, or with its column."""
    if value is None or value != value:
        return f"no {key}"
    return str(value) if isinstance(value, str) else f"{key} {value}"


def _wide_axes(ax: Axes, frame: pd.DataFrame, low: str, high: str) -> None:
    """Logarithmic axes where values differ much."""
    for name, axis, scale in ((low, ax.xaxis, ax.set_xscale), (high, ax.yaxis, ax.set_yscale)):
        values = frame[name]
        if len(values) and values.min() > 0 and values.max() > canvas.WIDE * values.min():
            scale("log")
            canvas.plain_ticks(axis)


def _label(ax: Axes, fronts: list[pd.DataFrame], low: str, high: str, label: str) -> None:
    """The value of a column beside the points of fronts, the outermost first."""
    told, across, up = [], [], []
    for front in sorted(fronts, key=lambda front: -float(front[high].max() if len(front) else 0)):
        told += [canvas.short(value) for value in front[label].tolist()]
        across += front[low].tolist()
        up += front[high].tolist()
    if told:
        canvas.name_points(ax, told, across, up)


def _numbers(ax: Axes, values: Any, mesh: Any) -> None:
    """The value of each cell in it, dark on bright and bright on dark."""
    for row, column in np.argwhere(np.isfinite(values)):
        value = values[row, column]
        red, green, blue, _ = mesh.cmap(mesh.norm(value))
        bright = 0.299 * red + 0.587 * green + 0.114 * blue
        ax.text(
            column, row, canvas.short(float(value)),
            ha="center", va="center", fontsize=canvas.SMALL,
            color="#000000" if bright > 0.5 else "#ffffff",
        )  # fmt: skip


def _ticks(axis: Any, values: Sequence[Any]) -> None:
    every = max(1, -(-len(values) // MOST_TICKS))
    places = range(0, len(values), every)
    axis.set_ticks(list(places), [f"{values[place]:,.10g}" for place in places])
