"""Measured against predicted, with the bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.pictures import canvas
from aisim_v41.pictures.about import frame_text
from aisim_v41.pictures.palette import NEUTRAL, OWNERS, PHASES, nth

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

COUNTED = "counted"
"""Standing of rows of `aisim_v41.validation` that say how far off the library is."""
MARKS = ("o", "s", "D", "^", "v", "P", "X")
"""One a group, beside its colour."""

ROOM, LOG_ROOM = 0.15, 2.5
"""What is shown beyond the points upwards: of their span, or times; bands may reach further."""


def predictions(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    *,
    by: str = "",
    unit: str = "ms",
    about: str = "",
) -> Axes:
    """Measured across, predicted upwards with its band; on the line both are equal.

    Rows that do not count (``standing``) or are in another unit (``unit``) are left out, where the
    frame has such columns. Bands that miss the measurement have no colour.

    Args:
        frame: with columns measured and predicted, and where there are bands low and high; such as
            ``run_error_table().to_frame()`` of `aisim_v41.validation.errors`.
        ax: where to draw; a new figure where left out.
        by: column whose values make groups, such as "gpu", "class" or "source".
        unit: of both axes.
        about: what the frame is of; by default what the frame says itself.

    Raises:
        InvalidInputError: no frame, nothing left to draw, or too many groups.
        SchemaError: a column is missing.
        MissingProfileError: matplotlib is not installed.
    """
    banded = hasattr(frame, "columns") and {"low", "high"} <= set(frame.columns)
    told = about or (frame_text(frame) if hasattr(frame, "attrs") else "")
    frame = canvas.checked(
        frame, "a frame with such columns", others=[by] if by else [],
        numbers=["measured", "predicted", *(["low", "high"] if banded else [])],
    )  # fmt: skip
    rows = frame[(frame["measured"] > 0) & (frame["predicted"] > 0)]
    if "standing" in rows.columns:
        rows = rows[rows["standing"] == COUNTED]
    if "unit" in rows.columns:
        units = rows["unit"].unique().tolist()
        rows = rows[rows["unit"] == unit]
        if rows.empty and units:
            raise InvalidInputError(f"predictions: no row in {unit!r}; {nearest(unit, units)}")
    if rows.empty:
        raise InvalidInputError("predictions: nothing to draw")
    groups = list(dict.fromkeys(rows[by].tolist())) if by else [""]
    if len(groups) > len(OWNERS):
        raise InvalidInputError(
            f"predictions: {by} has {len(groups)} values, and there are {len(OWNERS)} colours; "
            "keep fewer"
        )
    phases = set(map(str, groups)) <= set(PHASES)
    ax = canvas.axes(ax, 8.2, 6.4)
    for place, group in enumerate(groups):
        own = rows[rows[by] == group] if by else rows
        colour = PHASES[str(group)] if phases else nth(place)
        if banded:
            _bands(ax, own, colour, str(group))
        ax.scatter(
            own["measured"], own["predicted"], s=26, color=colour, marker=MARKS[place],
            edgecolor=canvas.paper(ax), linewidth=0.5, zorder=3, label=f"{group} ({len(own)})",
            gid=f"points {group}",
        )  # fmt: skip
    both = rows[["measured", "predicted"]].to_numpy(np.float64)
    ends = (float(both.min()), float(both.max()))
    room = ROOM * (ends[1] - ends[0])
    ax.set_ylim(ends[0] - room, ends[1] + room)
    ax.plot(ends, ends, color=NEUTRAL, linewidth=1.0, linestyle="--", zorder=1, gid="equal")
    if ends[1] > canvas.WIDE * ends[0]:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(ends[0] / LOG_ROOM, ends[1] * LOG_ROOM)
        for axis in (ax.xaxis, ax.yaxis):
            canvas.plain_ticks(axis)
    ax.set_xlabel(f"measured [{unit}]")
    ax.set_ylabel(f"predicted [{unit}]")
    if by:
        ax.legend(
            fontsize=canvas.PLAIN - 1, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    lines = [f"{told}." if told else "", _errors(rows, banded)]
    return canvas.finish(
        ax,
        title=f"{len(rows):,} measurements against their predictions",
        caption="\n".join(line for line in lines if line),
        grid="both",
    )


def _bands(ax: Axes, rows: pd.DataFrame, colour: str, group: str) -> None:
    """Bands upwards; without colour where they miss what was measured."""
    known = rows[rows["low"].notna() & rows["high"].notna()]
    inside = (known["low"] <= known["measured"]) & (known["measured"] <= known["high"])
    for own, ink, name in (
        (known[inside], colour, "hold"),
        (known[~inside], ax.xaxis.label.get_color(), "miss"),
    ):
        if len(own):
            ax.vlines(
                own["measured"], own["low"], own["high"], color=ink,
                linewidth=0.9, alpha=0.7, zorder=2, gid=f"bands {name} {group}",
            )  # fmt: skip


def _errors(rows: pd.DataFrame, banded: bool) -> str:
    """Errors of what is drawn, every row with one vote."""
    error = rows["predicted"] / rows["measured"] - 1.0
    told = (
        f"Of these, each with one vote: median |error| {error.abs().median():.0%}, 90th percentile "
        f"{error.abs().quantile(0.9):.0%}, bias {error.median():+.0%}"
    )
    if not banded:
        return f"{told}."
    known = rows[rows["low"].notna() & rows["high"].notna()]
    if known.empty:
        return f"{told}."
    inside = (known["low"] <= known["measured"]) & (known["measured"] <= known["high"])
    return f"{told}. Bands are of 90 %; they hold {inside.mean():.0%}; those without colour miss."
