"""Where the time of steps goes: stacked breakdowns, and a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.estimators.result import Estimate
from aisim_v41.pictures import canvas
from aisim_v41.pictures.about import estimate_text
from aisim_v41.pictures.palette import EVIDENCE, FAMILIES, ink_on
from aisim_v41.reports.shares import WAITING, By, Estimates, families_of, named, shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Unit = Literal["ms", "percent"]
COLOURS: Mapping[By, Mapping[str, str]] = {"family": FAMILIES, "source": EVIDENCE}
SAID = {
    "family": "Operators on the critical path; waiting: for the host, or for a resource that "
    "operators side by side share.",
    "source": "Share of all kernels' time by kind of evidence.",
}
NAMED_FROM = 0.05
"""Share of the longest bar from which a part is named inside."""


def breakdown(
    estimates: Estimates, ax: Axes | None = None, *, by: By = "family", unit: Unit = "ms"
) -> Axes:
    """One bar a step, or two where it drafts; its parts add up to the time of the step.

    Args:
        estimates: one, several, or several by name.
        ax: where to draw; a new figure where left out.
        by: "family" of operators, or "source", the kind of evidence.
        unit: "ms", or "percent" of each bar, where steps differ much.

    Raises:
        InvalidInputError: no estimate, none that takes time, or parts that there are not.
        MissingProfileError: matplotlib is not installed.
    """
    if unit not in ("ms", "percent"):
        raise InvalidInputError(f"unit = {unit!r}; {nearest(str(unit), ('ms', 'percent'))}")
    table = shares(estimates, by=by)
    if table.empty:
        raise InvalidInputError("breakdown: none of these steps takes any time")
    told = named(estimates)
    bars = list(dict.fromkeys(zip(table["step"], table["part"], strict=True)))
    key = table["name"].nunique()
    ax = canvas.axes(ax, 9.0, max(2.0 + 0.55 * len(bars), 1.2 + 0.21 * key))
    whole = table.groupby(["step", "part"])["ms"].sum()
    scale = {bar: 1.0 if unit == "ms" else 100.0 / float(whole[bar]) for bar in bars}
    longest = max(scale[bar] * float(whole[bar]) for bar in bars)
    for place, (step, part) in enumerate(bars):
        start = 0.0
        own = table[(table["step"] == step) & (table["part"] == part)].set_index("name")["ms"]
        for name, colour in COLOURS[by].items():
            if name not in own:
                continue
            length = scale[step, part] * float(own[name])
            ax.barh(
                place, length, left=start, height=0.68, color=colour, gid=name,
                edgecolor=canvas.paper(ax), linewidth=0.6,
            )  # fmt: skip
            if length > NAMED_FROM * longest:
                ax.text(
                    start + length / 2, place, f"{length:,.2f}", ha="center", va="center",
                    fontsize=canvas.SMALL, color=ink_on(colour),
                )  # fmt: skip
            start += length
        ax.annotate(
            f"{whole[step, part]:,.3f} ms", (start, place), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=canvas.PLAIN - 1,
        )  # fmt: skip
    parted = table["part"].nunique() > 1
    ax.set_yticks(
        range(len(bars)), [f"{step}: {part}" if parted else str(step) for step, part in bars]
    )
    ax.set_ylim(len(bars) - 0.45, -0.55)
    ax.set_xlim(0, 1.14 * longest or 1.0)
    ax.set_xlabel("time of the step [ms]" if unit == "ms" else "share of the time [%]")
    present = {name: colour for name, colour in COLOURS[by].items() if name in set(table["name"])}
    canvas.legend_of(ax, present)
    caption = "\n".join(
        estimate_text(one) if len(told) == 1 else f"{name}: {estimate_text(one)}"
        for name, one in told.items()
    )
    title = "Where the time goes" if by == "family" else "What the time rests on"
    return canvas.finish(ax, title=title, caption=f"{caption}\n{SAID[by]}", grid="x")


def timeline(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    layers: tuple[int, int] | None = None,
) -> Axes:
    """Every task in time, a row a lane, coloured by its operator's family.

    Args:
        estimate: from `aisim_v41.estimate`.
        ax: where to draw; a new figure where left out.
        layers: first and last layer to show; all where left out (-1 is what comes before the
            layers, and the number of layers what comes after).

    Raises:
        InvalidInputError: no estimate, or no task in those layers.
        MissingProfileError: matplotlib is not installed.
    """
    if not isinstance(estimate, Estimate):
        raise InvalidInputError(
            f"estimate = {estimate!r}: must be an Estimate, not {type(estimate).__name__}"
        )
    table = estimate.timeline()
    if layers is not None:
        first, last = _pair(layers)
        table = table[(table["layer"] >= first) & (table["layer"] <= last)]
    if table.empty:
        which = "" if layers is None else f" of layers {first} to {last}"
        raise InvalidInputError(f"timeline: no task{which} takes time in this step")
    families = families_of(estimate)
    lanes = int(table["lane"].max()) + 1
    ax = canvas.axes(ax, 12.0, 2.1 + 0.5 * lanes)
    table = table.assign(
        family=[families.get(name, WAITING) for name in table["operator"]],
        length=table["end_ms"] - table["start_ms"],
    )
    kinds = table[["lane", "family"]].drop_duplicates()
    for lane, family in zip(kinds["lane"].tolist(), kinds["family"].tolist(), strict=True):
        own = table[(table["lane"] == lane) & (table["family"] == family)]
        ax.broken_barh(
            list(zip(own["start_ms"], own["length"], strict=True)), (lane - 0.4, 0.8),
            facecolors=FAMILIES[family], edgecolor=canvas.paper(ax),
            linewidth=0.4 if len(table) < _MANY else 0.0, gid=f"{family} {lane}",
        )  # fmt: skip
    begin, end = float(table["start_ms"].min()), float(table["end_ms"].max())
    _name_tasks(ax, table, end - begin)
    ax.set_xlim(begin, end)
    ax.set_ylim(lanes - 0.4, -0.6)
    ax.set_yticks(range(lanes), [f"lane {lane}" for lane in range(lanes)])
    ax.set_xlabel("time since the step began [ms]")
    present = {n: c for n, c in FAMILIES.items() if n in set(table["family"])}
    canvas.legend_of(ax, present)
    shown = "all layers" if layers is None else f"layers {layers[0]} to {layers[1]}"
    return canvas.finish(
        ax,
        title=f"{len(table):,} tasks of {shown}, {end - begin:,.3f} ms",
        caption=f"{estimate_text(estimate)} Lanes are what runs at the same time; a forward that "
        "runs several times is shown once.",
        grid="x",
    )


_MANY = 400
"""Tasks from which edges would hide them."""
_ROOM = 0.075
"""Share of the axis that the name of a task needs."""


def _pair(layers: object) -> tuple[int, int]:
    """First and last layer.

    Raises:
        InvalidInputError: no two whole numbers.
    """
    if (
        not isinstance(layers, tuple | list)
        or len(layers) != 2
        or any(type(layer) is not int for layer in layers)
    ):
        raise InvalidInputError(
            f"layers = {layers!r}: must be the first and the last, such as (20, 21)"
        )
    return layers[0], layers[1]


def _name_tasks(ax: Axes, table: object, whole: float) -> None:
    """Names inside the tasks that have room for them."""
    for row in table.itertuples():  # type: ignore[attr-defined]
        if row.length > _ROOM * whole:
            ax.text(
                row.start_ms + row.length / 2, row.lane, row.operator, ha="center", va="center",
                fontsize=canvas.SMALL, color=ink_on(FAMILIES[row.family]), clip_on=True,
            )  # fmt: skip
