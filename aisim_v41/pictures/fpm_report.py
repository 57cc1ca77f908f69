"""The report of an identity as one figure: how far off, where, and from what."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aisim_v41.pictures import canvas
from aisim_v41.pictures.palette import NEUTRAL
from aisim_v41.pictures.palette import PHASES as COLOURS
from aisim_v41.reports.fpm.report import AXES, PHASES, FpmReport, SiteLeftOut
from aisim_v41.reports.fpm.text import owner
from aisim_v41.validation.plain import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS: dict[Phase, str] = {"prefill": "o", "decode": "s", "mixed": "D"}
SIZE_INCHES = (13.0, 8.6)
BEYOND = 1.5
"""How far a logarithmic axis goes beyond its largest value."""
MOST_NAMED = 12
"""Marks that a legend has room for."""
LEAST_RESIDUAL_PERCENT = 1.0
"""Residual that an axis shows at least."""


def figure(report: FpmReport) -> Figure:
    """Measured against predicted, coverage, and the residual along each axis.

    Predictions are those with the step's own site left out.

    Raises:
        MissingProfileError: matplotlib is not installed.
    """
    canvas.require()
    from matplotlib.figure import Figure

    drawn = Figure(figsize=SIZE_INCHES, dpi=canvas.DOTS_PER_INCH, layout="constrained")
    top, bottom = drawn.subfigures(2, 1, height_ratios=[1.25, 1.0], squeeze=False).flat
    predicted_against_measured(report, top.add_subplot(1, 2, 1))
    coverage_map(report, top.add_subplot(1, 2, 2))
    for place, axis in enumerate(AXES):
        ax = residual_along(report, axis, bottom.add_subplot(1, len(AXES), place + 1))
        if place:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
    for ax in drawn.get_axes():
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(linewidth=0.5)
        ax.set_axisbelow(True)
    drawn.suptitle(_title(report), fontsize=12, x=0.01, ha="left")
    drawn.supxlabel(_source(report), fontsize=7, x=0.01, ha="left", color=NEUTRAL)
    return drawn


def write_figure(report: FpmReport, path: Path) -> None:
    """The figure as a file for a light page; its format follows from the name.

    Raises:
        InvalidInputError: as `aisim_v41.pictures.canvas.check_path`.
        MissingProfileError: matplotlib is not installed.
    """
    canvas.check_path(path)
    with canvas.look("light"):
        canvas.save(figure(report), path)


def predicted_against_measured(report: FpmReport, ax: Axes) -> Axes:
    """Every left-out step: measured [ms] across, predicted [ms] with its band upwards.

    The scale is that of sound points; flagged ones beyond it are drawn at its edge.
    """
    for phase in PHASES:
        rows = _sound(report, phase)
        if not rows:
            continue
        predicted = [row.predicted.predicted_ms for row in rows]
        ax.errorbar(
            [row.point.measured_ms for row in rows],
            predicted,
            yerr=[
                [made - row.predicted.low_ms for made, row in zip(predicted, rows, strict=True)],
                [row.predicted.high_ms - made for made, row in zip(predicted, rows, strict=True)],
            ],
            fmt=MARKERS[phase],
            color=COLOURS[phase],
            ecolor=COLOURS[phase],
            elinewidth=0.6,
            markersize=4,
            alpha=0.75,
            label=phase,
        )
    sound = [row for row in report.site_left_out if not row.point.flag]
    times = [row.point.measured_ms for row in sound]
    if times:
        if max(times) > canvas.WIDE * min(times):
            _plain_ticks(ax, "log")
        ends = (
            min(*times, *(row.predicted.low_ms for row in sound)),
            max(*times, *(row.predicted.high_ms for row in sound)),
        )
        crossed = [(r.point.measured_ms, r.predicted.predicted_ms) for r in _flagged(report)]
        _cross_out(ax, [(_within(ends, across), _within(ends, up)) for across, up in crossed])
        ax.plot(ends, ends, color=NEUTRAL, linewidth=0.9, linestyle="--", label="equal", zorder=0)
        ax.legend(fontsize=8, frameon=False)
    ax.set_title(
        f"The site left out, bands of {100 * report.band.level:g} %", fontsize=10, loc="left"
    )
    ax.set_xlabel("measured [ms]")
    ax.set_ylabel("predicted [ms]")
    return ax


def coverage_map(report: FpmReport, ax: Axes) -> Axes:
    """Where measured steps lie; a larger mark is a step of more requests.

    Of very many numbers of requests the legend names the least and the most of each phase.
    """
    ends: list[Any] = []
    for phase in PHASES:
        marks: list[Any] = []
        points = [point for point in report.points if point.phase == phase]
        for requests in sorted({point.requests for point in points}, reverse=True):
            group = [point for point in points if point.requests == requests]
            mark = ax.scatter(
                [point.new_tokens for point in group],
                [point.prefix_tokens for point in group],
                s=18.0 * requests**0.75,
                facecolors="none",
                edgecolors=COLOURS[phase],
                marker=MARKERS[phase],
                linewidths=0.9,
                label=f"{phase}, {requests} request{'s' if requests != 1 else ''}",
            )
            marks.append(mark)
        ends += marks[:1] + marks[1:][-1:]
    _plain_ticks(ax, "symlog")
    ax.set_xlim(0, BEYOND * max(ax.dataLim.x1, 1.0))
    ax.set_ylim(-0.3, BEYOND * max(ax.dataLim.y1, 1.0))
    if report.points:
        named = ends if len(report.coverage) > MOST_NAMED else None
        ax.legend(handles=named, fontsize=8, frameon=False, ncols=2 if len(report.coverage) > 5
                  else 1)  # fmt: skip
    ax.set_title("What was measured", fontsize=10, loc="left")
    ax.set_xlabel(f"{AXES['new_tokens']} [tokens]")
    ax.set_ylabel(f"{AXES['prefix_tokens']} [tokens]")
    return ax


def residual_along(report: FpmReport, axis: str, ax: Axes) -> Axes:
    """predicted / measured - 1 [%] of left-out steps along one axis of `AXES`.

    The scale is that of sound points; flagged ones beyond it are drawn at its edge.
    """
    ax.axhline(0, color=NEUTRAL, linewidth=0.9, linestyle="--", zorder=0)
    largest = LEAST_RESIDUAL_PERCENT
    for phase in PHASES:
        sound = _sound(report, phase)
        largest = max([largest, *(abs(100.0 * row.residual) for row in sound)])
        places = _places(sound, axis)
        ax.scatter(
            [across for across, _ in places],
            [up for _, up in places],
            s=12,
            color=COLOURS[phase],
            marker=MARKERS[phase],
            alpha=0.7,
            linewidths=0,
        )
    crossed = _places(_flagged(report), axis)
    _cross_out(ax, [(across, _within((-largest, largest), up)) for across, up in crossed])
    ax.set_ylim(-1.1 * largest, 1.1 * largest)
    if all(point.axis(axis) is None for point in report.points):
        ax.set_xticks([])
        ax.text(0.5, 0.9, "not recorded", transform=ax.transAxes, ha="center", color=NEUTRAL)
    elif axis in ("new_tokens", "prefix_tokens"):
        _plain_ticks(ax, "symlog", across=True)
        ax.set_xlim(-0.3, BEYOND * max(ax.dataLim.x1, 1.0))
    else:
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if ax.dataLim.x0 == ax.dataLim.x1:  # else ticks of one place are parts of a request
            ax.set_xlim(ax.dataLim.x0 - 1, ax.dataLim.x1 + 1)
    ax.set_xlabel(AXES[axis], fontsize=9)
    ax.set_ylabel("predicted / measured - 1 [%]", fontsize=9)
    ax.tick_params(labelsize=8)
    return ax


def _sound(report: FpmReport, phase: Phase) -> list[SiteLeftOut]:
    return [r for r in report.site_left_out if r.point.phase == phase and not r.point.flag]


def _flagged(report: FpmReport) -> list[SiteLeftOut]:
    return [row for row in report.site_left_out if row.point.flag]


def _places(rows: list[SiteLeftOut], axis: str) -> list[tuple[float, float]]:
    """Place on an axis and residual [%], of points that have such a place."""
    return [
        (across, 100.0 * row.residual)
        for row in rows
        if (across := row.point.axis(axis)) is not None
    ]


def _within(ends: tuple[float, float], value: float) -> float:
    return max(ends[0], min(ends[1], value))


def _cross_out(ax: Axes, places: Sequence[tuple[float, float]]) -> None:
    """Flagged points, in grey and crossed."""
    if places:
        across, up = zip(*places, strict=True)
        ax.scatter(across, up, s=40, marker="x", color=NEUTRAL, linewidths=1.2, label="flagged")


def _plain_ticks(ax: Axes, scale: str, *, across: bool = False) -> None:
    """A logarithmic scale that shows numbers as they are; "symlog" also holds 0.

    Args:
        across: only the axis across.
    """
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    options = {"linthresh": 1} if scale == "symlog" else {}
    ax.set_xscale(scale, **options)
    if not across:
        ax.set_yscale(scale, **options)
    for axis in (ax.xaxis,) if across else (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        if scale == "symlog":
            axis.set_minor_formatter(NullFormatter())
        else:
            axis.set_minor_formatter(StrMethodFormatter("{x:,.0f}"))


def _title(report: FpmReport) -> str:
    regime = f", regime {report.regime}" if len(report.regimes) > 1 else ""
    runs = f"{len(report.runs)} process run{'s' if len(report.runs) != 1 else ''}"
    return (
        f"{report.gpu}, {report.slug}{regime}: {len(report.points)} measured steps of {runs}, "
        f"{len(report.flagged)} flagged"
    )


def _source(report: FpmReport) -> str:
    files = sorted({source["file"] for source in report.sources})
    told = f"Data: {owner(report)}" + (f"; {', '.join(files)}" if files else "")
    return "\n".join(textwrap.wrap(told, 230)[:3])
