"""The report of an identity as text for a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aisim_v41.reports.fpm import AXES, FpmReport, Point
from aisim_v41.reports.fpm_errors import ErrorRow

WIDTH = 100
"""Columns of a terminal that the text fits into."""
NAMES = {
    "fpm": "FPM",
    "constant": "constant per phase",
    "linear": "linear in totals",
}
BINS = 4
"""Ranges of an axis for which residuals are told."""


def report_text(report: FpmReport) -> str:
    """The whole report."""
    blocks = [
        _head(report),
        _identity(report.identity),
        _coverage(report),
        _errors(report.errors),
        _band(report),
        _residuals(report),
        _terms(report),
        _noise(report),
        _regimes(report),
        _flagged(report.flagged),
        _sources(report),
    ]
    return "\n\n".join(block for block in blocks if block)


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> list[str]:
    """Lines of a table: the first ``words`` columns to the left, numbers to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _head(report: FpmReport) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in report.statuses.items())
    lines = [
        f"{report.gpu}, {report.slug}",
        f"{sum(report.statuses.values())} records ({counts}) of {len(report.runs)} process "
        f"run{'s' if len(report.runs) != 1 else ''}, {len(report.points)} of them steps with a "
        "time",
    ]
    if report.regime:
        lines.append(f"regime: {report.regime}")
    if report.aggregates:
        lines.append(f"{report.aggregates} records are totals that leave several steps possible")
    return "\n".join(lines)


def _identity(identity: Mapping[str, Any]) -> str:
    fields = dict(_flat("", identity))
    width = max(map(len, fields), default=0)
    lines = ["identity"]
    for name, value in fields.items():
        lines += textwrap.wrap(
            value,
            WIDTH,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
        )
    return "\n".join(lines)


def _flat(prefix: str, fields: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


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


def _errors(errors: tuple[ErrorRow, ...]) -> str:
    head = (
        "left out", "phase", "predictor", "cases", "median |err|", "p90 |err|", "MAPE", "bias",
        "in band",
    )  # fmt: skip
    rows = [
        (
            f"one {row.by}",
            row.phase,
            NAMES[row.predictor],
            str(row.cases),
            f"{row.median:.1%}",
            f"{row.p90:.1%}",
            f"{row.mape:.1%}",
            f"{row.bias:+.1%}",
            "-" if row.in_band is None else f"{row.in_band:.0%}",
        )
        for row in errors
    ]
    if not rows:
        return "nothing can be left out: one site of one run"
    return "\n".join(columns(head, rows, 3))


def _band(report: FpmReport) -> str:
    held = ", ".join(
        f"{share:.0%} with one {by} left out"
        for by, share in report.band.held.items()
        if share is not None
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
    title = "median of predicted / measured - 1 along each axis, one site left out"
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


def _terms(report: FpmReport) -> str:
    rows = [
        (term.name, f"{term.share:.1%}", f"{term.prior:.4g}", f"{term.coefficient:.4g}")
        for term in report.terms
    ]
    return "\n".join(columns(("fitted terms", "share of time", "prior", "fitted"), rows, 1))


def _noise(report: FpmReport) -> str:
    if not report.noise:
        return ""
    return "noise: " + ", ".join(f"{name} {share:.2%}" for name, share in report.noise.items())


def _regimes(report: FpmReport) -> str:
    if len(report.regimes) < 2:
        return ""
    lines = ["regimes of this identity; they never mix"]
    lines += columns(
        ("  regime", "points", "median ms"),
        [
            (f"  {one.name or '(without a label)'}", str(one.points), f"{one.median_ms:,.1f}")
            for one in report.regimes
        ],
        1,
    )
    return "\n".join(lines)


def _flagged(flagged: tuple[Point, ...]) -> str:
    if not flagged:
        return "flagged: none"
    lines = [f"flagged: {len(flagged)}, kept in the table and fitted around"]
    for point in flagged:
        named = f"{point.run}, {point.point or point.phase}"
        lines += textwrap.wrap(
            f"{named} ({point.measured_ms:.1f} ms): {point.flag}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    return "\n".join(lines)


def _sources(report: FpmReport) -> str:
    lines = [f"data: {report.notice} ({report.licence})"]
    for source in report.sources:
        told = ", ".join(str(value) for value in source.values() if value not in ("", None))
        lines += textwrap.wrap(told, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
