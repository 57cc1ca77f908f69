"""The report of an identity as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from aisim_v41.reports.columns import columns
from aisim_v41.reports.fpm.report import AXES, FpmReport, Point
from aisim_v41.validation.forwards import errors_text

WIDTH = 100
"""Columns of a terminal that the text fits into."""
LEAST_SHARE = 0.001
"""Share of the time from which on a term is told."""
BINS = 4
"""Ranges of an axis for which residuals are told."""


def report_text(report: FpmReport) -> str:
    """The whole report."""
    blocks = [
        _head(report),
        _identity(report.identity),
        _coverage(report),
        _errors(report),
        _band(report),
        _residuals(report),
        _terms(report),
        _noise(report),
        _regimes(report),
        _flagged(report.flagged),
        _sources(report),
    ]
    return "\n\n".join(block for block in blocks if block)


def fit_text(report: FpmReport) -> str:
    """What a fit says: the part of the report that is not about coverage and axes."""
    blocks = [
        _head(report),
        _terms(report),
        _noise(report),
        _errors(report),
        _band(report),
        _regimes(report),
        _flagged(report.flagged),
    ]
    return "\n\n".join(block for block in blocks if block)


def _head(report: FpmReport) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in report.statuses.items())
    lines = [
        f"{report.gpu}, {report.slug}",
        f"{sum(report.statuses.values())} records ({counts}); regime {report.regime}: "
        f"{len(report.points)} measured steps of {len(report.runs)} process "
        f"run{'s' if len(report.runs) != 1 else ''}",
    ]
    if report.thinned < len(report.points):
        lines.append(f"{report.thinned} of them, far apart, stand for all in the fit")
    if report.aggregates:
        lines.append(f"{report.aggregates} records are totals that leave several steps possible")
    return "\n".join(lines)


def _identity(identity: Mapping[str, Any]) -> str:
    """Fields of both halves, those of the plan first."""
    fields = {**identity["execution"], **identity["build"]}
    settings = fields.pop("settings")
    fields |= {f"settings.{name}": value for name, value in settings.items()}
    width = max(map(len, fields))
    lines = ["identity"]
    for name, value in fields.items():
        lines += textwrap.wrap(
            "-" if value is None else str(value),
            WIDTH,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _range(low: float, high: float, form: str = ",.0f") -> str:
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def _coverage(report: FpmReport) -> str:
    rows = [
        (
            one.phase,
            str(one.requests),
            str(one.points),
            str(one.sites),
            _range(*one.new_tokens),
            _range(*one.prefix_tokens),
            _range(*one.measured_ms, ",.1f"),
        )
        for one in report.coverage
    ]
    head = (
        "coverage", "requests", "points", "sites", "new tokens", "prefix a request", "ms",
    )  # fmt: skip
    return "\n".join(columns(head, rows, 1))


def _errors(report: FpmReport) -> str:
    blocks = [
        f"errors with the {by} left out\n{errors_text(rows)}" for by, rows in report.errors.items()
    ]
    return "\n\n".join(blocks) or "nothing can be left out: one site of one run"


def _band(report: FpmReport) -> str:
    held = ", ".join(
        f"{share:.0%} with the {by} left out" for by, share in report.band.held.items()
    )
    level = f"{report.band.level:.0%}".replace("%", " %")
    return f"bands of {level} hold {held}" if held else ""


def _residuals(report: FpmReport) -> str:
    """Median residual along each axis, a site left out: a slope would be a missing cause."""
    lines = []
    for axis, name in AXES.items():
        found = sorted(residuals(report, axis))
        if len({place for place, _ in found}) < 2:
            continue
        ranges = _binned(found)
        lines.append(f"  {name}: " + "; ".join(ranges))
    title = "median of predicted / measured - 1 along each axis, the site left out"
    return "\n".join([title, *lines]) if lines else ""


def residuals(report: FpmReport, axis: str) -> list[tuple[float, float]]:
    """Place on an axis and predicted / measured - 1, of sound records with their site left out."""
    return [
        (place, residual)
        for point, residual, _ in report.site_left_out
        if not point.flag and (place := point.axis(axis)) is not None
    ]


def _binned(found: list[tuple[float, float]]) -> list[str]:
    """Medians of ranges that hold about as many records; equal places stay together."""
    from statistics import median

    size = len(found) / min(BINS, len({place for place, _ in found}))
    bins: list[list[tuple[float, float]]] = [[]]
    for place, residual in found:
        full = len(bins[-1]) >= size and bins[-1][-1][0] != place
        if full:
            bins.append([])
        bins[-1].append((place, residual))
    return [
        f"{_range(group[0][0], group[-1][0])} {median(r for _, r in group):+.1%}" for group in bins
    ]


COMPOSITIONS = {
    "overlapped": "time = floor + the longer of host and kernels",
    "added": "time = floor + host + kernels",
}


def _terms(report: FpmReport) -> str:
    shown = [term for term in report.terms if term.share >= LEAST_SHARE or term.name == "floor"]
    rows = [
        (term.name, f"{term.share:.1%}", _factor(term.prior), _factor(term.factor))
        for term in shown
    ]
    title = f"{COMPOSITIONS[report.composition]}, then the local correction"
    lines = [title, *columns(("term", "share of time", "prior", "fitted"), rows, 1)]
    if len(shown) < len(report.terms):
        lines.append(f"and {len(report.terms) - len(shown)} terms below {LEAST_SHARE:.1%} each")
    return "\n".join(lines)


def _factor(value: float | None) -> str:
    return "-" if value is None else f"x {value:.3f}"


def _noise(report: FpmReport) -> str:
    told = ", ".join(f"{name} {size:.2%}" for name, size in report.noise.items())
    return f"noise (standard deviations): {told}" if told else ""


def _regimes(report: FpmReport) -> str:
    if len(report.regimes) < 2:
        return ""
    rows = [
        (one.name, str(one.points), _range(one.low_ms, one.high_ms, ",.1f"))
        for one in report.regimes
    ]
    lines = columns(("regimes, never mixed", "records", "ms"), rows, 1)
    return "\n".join(lines)


def _flagged(flagged: tuple[Point, ...]) -> str:
    if not flagged:
        return "flagged: none"
    lines = [f"flagged: {len(flagged)}, kept in the table and not believed"]
    for point in flagged:
        named = f"{point.run}, {point.point or point.phase}"
        lines += textwrap.wrap(
            f"{named} ({point.measured_ms:.1f} ms): {point.flag}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    return "\n".join(lines)


def owner(report: FpmReport) -> str:
    """Whose numbers these are, and under which licence."""
    whose = "; ".join(report.notice.splitlines())
    return f"{whose} ({report.licence})" if whose else f"licence {report.licence}"


def _sources(report: FpmReport) -> str:
    lines = textwrap.wrap(f"data: {owner(report)}", WIDTH, subsequent_indent="  ")
    for source in report.sources:
        told = ", ".join(str(value) for value in source.values() if value not in ("", None))
        lines += textwrap.wrap(told, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
