"""How near operators come to what the GPU can do: the roofline, and the methods side by side."""

from __future__ import annotations

from math import atan2, degrees
from typing import TYPE_CHECKING, Literal

from aisim_v41.errors import InvalidInputError, SchemaError, nearest
from aisim_v41.estimators.result import Estimate
from aisim_v41.pictures import canvas
from aisim_v41.pictures.about import estimate_text, frame_text
from aisim_v41.pictures.palette import FAMILIES, METHODS, NEUTRAL
from aisim_v41.reports.roofline import roofline_points, roofs
from aisim_v41.units import GB_PER_S, TFLOP_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Of = Literal["operators", "whole"]
NAMED = 8
"""Operators that a roofline names: those that take longest."""
SHOWN = 14
"""Operators that are compared one by one: those that take longest."""
LARGEST_MARK = 700.0
"""Area of the mark of an operator that takes the whole step [points²]."""
WHOLE = "whole step"
"""Name of the last row of `aisim_v41.compare`."""


def roofline(estimate: Estimate, ax: Axes | None = None) -> Axes:
    """Operators by FLOP a byte and FLOP/s reached, under the roofs of the GPU.

    The area of a mark is its share of the operators' time. Operators without products, and
    collectives, have no place here; the caption says how long they take.

    Args:
        estimate: from `aisim_v41.estimate`.
        ax: where to draw; a new figure where left out.

    Raises:
        InvalidInputError: no estimate, or one whose operators compute nothing.
        MissingProfileError: matplotlib is not installed.
    """
    if not isinstance(estimate, Estimate):
        raise InvalidInputError(
            f"estimate = {estimate!r}: must be an Estimate, not {type(estimate).__name__}"
        )
    table = roofline_points(estimate)
    points = table.dropna(subset="flop_per_s")
    if points.empty:
        raise InvalidInputError("roofline: no operator of this step computes anything")
    ax = canvas.axes(ax, 9.0, 6.0)
    bandwidth = estimate.hardware.hbm_bandwidth_bytes_per_s
    low, high = 0.5 * points["flop_per_byte"].min(), 4.0 * points["flop_per_byte"].max()
    peaks = roofs(estimate)
    highest = max(peaks.values())
    high = max(high, 4.0 * highest / bandwidth)
    for name, peak in peaks.items():
        knee = peak / bandwidth
        ax.plot(
            [knee, high], [peak / TFLOP_PER_S] * 2, color=NEUTRAL, linewidth=1.0, gid=f"roof {name}"
        )
        ax.annotate(
            f"{name} {peak / TFLOP_PER_S:,.0f} TFLOP/s", (high, peak / TFLOP_PER_S),
            xytext=(-3, 3), textcoords="offset points", ha="right", fontsize=canvas.SMALL,
        )  # fmt: skip
    knee = highest / bandwidth
    ax.plot(
        [low, knee], [low * bandwidth / TFLOP_PER_S, highest / TFLOP_PER_S],
        color=NEUTRAL, linewidth=1.4, gid="roof hbm",
    )  # fmt: skip
    across, up = 2.0 * low, 2.6 * low * bandwidth / TFLOP_PER_S
    ax.text(
        across, up, f"memory {bandwidth / GB_PER_S:,.0f} GB/s", fontsize=canvas.SMALL,
        rotation=degrees(atan2(up, across)), rotation_mode="anchor", transform_rotates_text=True,
    )  # fmt: skip
    whole = float(table["ms"].sum())
    for family, colour in FAMILIES.items():
        own = points[points["family"] == family]
        if len(own):
            ax.scatter(
                own["flop_per_byte"], own["flop_per_s"] / TFLOP_PER_S,
                s=12.0 + LARGEST_MARK * own["ms"] / whole, color=colour, alpha=0.85,
                edgecolor=canvas.paper(ax), linewidth=0.6, label=family, gid=family,
            )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(0.4 * (points["flop_per_s"].min() / TFLOP_PER_S), 3.0 * highest / TFLOP_PER_S)
    canvas.name_points(
        ax,
        points["operator"].head(NAMED).tolist(),
        points["flop_per_byte"].tolist(),
        (points["flop_per_s"] / TFLOP_PER_S).tolist(),
    )
    ax.set_xlabel("work a byte of memory traffic [FLOP/B]")
    ax.set_ylabel("reached by all calls of an operator [TFLOP/s]")
    canvas.legend_of(ax, {n: c for n, c in FAMILIES.items() if n in set(points["family"])})
    rest = whole - float(points["ms"].sum())
    return canvas.finish(
        ax,
        title=f"Roofline of a rank: {len(points)} operators, {points['ms'].sum():,.3f} ms alone",
        caption=f"{estimate_text(estimate)}\nDense peaks of one GPU. Area: time of all calls "
        f"alone. Not shown, because they compute nothing or only send: {rest:,.3f} ms.",
        grid="both",
    )


def methods(table: pd.DataFrame, ax: Axes | None = None, *, of: Of = "operators") -> Axes:
    """Bound, operators and measured forwards side by side.

    Args:
        table: from `aisim_v41.compare`.
        ax: where to draw; a new figure where left out.
        of: the "operators" that take longest, or the "whole" step.

    Raises:
        InvalidInputError: neither operators nor whole.
        SchemaError: no table of `compare`.
        MissingProfileError: matplotlib is not installed.
    """
    if of not in ("operators", "whole"):
        raise InvalidInputError(f"of = {of!r}; {nearest(str(of), ('operators', 'whole'))}")
    columns = {method: f"{method}_ms" for method in METHODS}
    table = canvas.checked(
        table, "a table of aisim.compare", numbers=tuple(columns.values()), others=("operator",)
    )
    whole = table[table["operator"] == WHOLE]
    if len(whole) != 1:
        raise SchemaError(f"the table has {len(whole)} rows {WHOLE!r}; one of aisim.compare has 1")
    rows = whole if of == "whole" else table[table["operator"] != WHOLE].head(SHOWN)
    drawn = [method for method, column in columns.items() if rows[column].notna().any()]
    if not drawn:
        raise InvalidInputError(f"methods: no time of {of} is known")
    ax = canvas.axes(ax, 9.0, 1.8 + 0.11 * (1 + len(drawn)) * len(rows))
    height = 0.8 / len(drawn)
    for order, method in enumerate(drawn):
        for place, length in enumerate(rows[columns[method]]):
            if length == length:
                middle = place + (order - (len(drawn) - 1) / 2) * height
                ax.barh(middle, length, height=0.9 * height, color=METHODS[method], gid=method)
                ax.annotate(
                    f"{length:,.3f}", (length, middle), xytext=(3, 0), va="center",
                    textcoords="offset points", fontsize=canvas.SMALL,
                )  # fmt: skip
    ax.set_yticks(range(len(rows)), rows["operator"].tolist())
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.margins(x=0.12)
    ax.set_xlabel("time [ms]" if of == "whole" else "time of all calls alone [ms]")
    canvas.legend_of(ax, {method: METHODS[method] for method in drawn})
    told = ", ".join(
        f"{method} {float(whole[column].iloc[0]):,.3f} ms"
        for method, column in columns.items()
        if whole[column].notna().all()
    )
    missing = "" if whole["fpm_ms"].notna().all() else " No whole forward of this was measured."
    return canvas.finish(
        ax,
        title=f"The methods side by side; whole step: {told}",
        caption=f"{frame_text(table)}. sol: lower bound, peaks only; op: measured and calibrated "
        f"kernels; fpm: measured whole forwards.{missing}",
        grid="x",
    )
