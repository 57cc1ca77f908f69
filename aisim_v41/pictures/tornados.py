"""What a step's time depends on most: the tornado."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from aisim_v41.errors import InvalidInputError, SchemaError, nearest
from aisim_v41.pictures import canvas
from aisim_v41.pictures.about import METHODS, frame_text
from aisim_v41.pictures.palette import FAMILIES
from aisim_v41.reports.sensitivity import COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KINDS = {
    "hardware": FAMILIES["attention"],
    "mapping": FAMILIES["indexer"],
    "step": FAMILIES["experts"],
    "policy": FAMILIES["engram"],
}
OPACITY = {"low": 0.5, "high": 1.0}
WIDE = 3.0
"""Slowest over fastest time from which the axis is logarithmic."""
ROOM = 0.3
"""Share of the span that is left on both sides for numbers."""
LEAST = 1e-4
"""Share of the time below which a change has no effect."""


def tornado(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Bars from the time of the step to its time with one thing changed, the longest above.

    What was lowered or halved is drawn pale, what was raised or doubled full.

    Args:
        table: from `aisim_v41.reports.sensitivity.sensitivity`.
        ax: where to draw; a new figure where left out.

    Raises:
        InvalidInputError: no frame, or one without rows.
        SchemaError: another frame.
        MissingProfileError: matplotlib is not installed.
    """
    numbers = ("low_ms", "base_ms", "high_ms", "swing_ms")
    table = canvas.checked(table, "a frame of reports.sensitivity", numbers=numbers, others=COLUMNS)
    if not len(table):
        raise InvalidInputError("tornado: the frame has no rows")
    base = float(table["base_ms"].iloc[0])
    if not base > 0:
        raise InvalidInputError(f"tornado: the time of the step is {base} ms, not above 0")
    unknown = sorted(set(map(str, table["kind"])) - set(KINDS))
    if unknown:
        raise SchemaError(f"kind {unknown[0]!r}; {nearest(unknown[0], KINDS)}")
    moved = table[table["swing_ms"] > LEAST * base].sort_values("swing_ms", ascending=False)
    ax = canvas.axes(ax, 9.5, 2.1 + 0.36 * max(len(moved), 1))
    for place, row in enumerate(moved.to_dict(orient="records")):
        ends = [
            (float(row[f"{side}_ms"]), side)
            for side in ("low", "high")
            if isfinite(row[f"{side}_ms"]) and row[f"{side}_ms"] != base
        ]
        for time, side in sorted(ends, key=lambda end: -abs(end[0] - base)):
            ax.barh(
                place, time - base, left=base, height=0.62, color=KINDS[row["kind"]],
                alpha=OPACITY[side], gid=f"{side} {row['change']}",
            )  # fmt: skip
        for faster in (True, False):
            own = sorted((abs(time - base), time, side) for time, side in ends
                         if (time < base) == faster)  # fmt: skip
            if own:
                ax.annotate(
                    ", ".join(f"{time:,.3f} ({row[side]})" for _, time, side in own),
                    (own[-1][1], place), xytext=(-4 if faster else 4, 0), va="center",
                    textcoords="offset points", ha="right" if faster else "left",
                    fontsize=canvas.SMALL,
                )  # fmt: skip
    times = moved[["low_ms", "base_ms", "high_ms"]].to_numpy(np.float64)
    _scale(ax, float(np.nanmin(times, initial=base)), float(np.nanmax(times, initial=base)))
    ax.axvline(base, color=ax.xaxis.label.get_color(), linewidth=1.0, gid="base")
    ax.set_yticks(range(len(moved)), moved["change"].tolist())
    ax.set_ylim(len(moved) - 0.4, -0.6)
    ax.set_xlabel("time of the step [ms]")
    canvas.legend_of(ax, {n: c for n, c in KINDS.items() if n in set(moved["kind"])})
    return canvas.finish(
        ax,
        title=f"What {base:,.3f} ms depend on, one change at a time",
        caption=_said(table, base),
        grid="x",
    )


def _scale(ax: Axes, least: float, most: float) -> None:
    """An axis with room for the numbers at both ends; logarithmic where times differ much."""
    if least > 0 and most > WIDE * least:
        ax.set_xscale("log")
        room = (most / least) ** ROOM
        ax.set_xlim(least / room, most * room)
        canvas.plain_ticks(ax.xaxis)
    elif most > least:
        ax.set_xlim(max(0.0, least - ROOM * (most - least)), most + ROOM * (most - least))


def _said(table: pd.DataFrame, base: float) -> str:
    method, fixed = str(table.attrs.get("method", "")), float(table.attrs.get("fixed", 0.0))
    still = table[(table["swing_ms"] <= LEAST * base) & (table["note"] == "")]["change"].tolist()
    refused = table[table["note"] != ""]["change"].tolist()
    lines = [
        f"{frame_text(table)}. {METHODS.get(method, method)}.",
        "Pale: lowered, halved or switched off; full: raised, doubled or switched on.",
        f"{fixed:.0%} of the time rest on measured rows, which a changed ceiling does not change."
        if fixed
        else "",
        f"No effect: {', '.join(still)}." if still else "",
        f"Not possible in one direction: {', '.join(refused)}." if refused else "",
    ]
    return "\n".join(line for line in lines if line)
