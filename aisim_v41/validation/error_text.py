"""The error table as text: what was aimed at, what came out, and what stands apart."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from aisim_v41.validation.errors import (
    DATA_CENTRE,
    CaseError,
    ErrorReport,
    Standing,
    Summary,
    summary,
)

MEDIAN_TARGET, P90_TARGET = 0.08, 0.20
"""Aim for steps, prefills and ratios on data-centre GPUs, over sources."""
GROUP_TARGET, RATIO_TARGET = 0.25, 0.08
"""Aim for each group of kernels on B200, and for each gain of decoder replay."""
BAND_TARGET = (0.80, 0.97)
"""Aim for the share of measurements inside the 90 % bands."""
GAIN = "replay-gain"
"""In the names of ratios that the aim for gains is about."""

HEADLINE_NAME = "data-centre GPUs, steps + prefills + ratios"
_COUNTS = frozenset({"memory", "capacity"})
_WIDTH = 34
_COLUMNS = (
    f"{'sources':>8}{'cases':>7}{'median |err|':>14}{'p90 |err|':>11}{'bias':>7}{'in band':>9}"
)


def report_text(report: ErrorReport) -> str:
    """The whole report."""
    if not report.errors:
        return "no case of that source can be predicted"
    blocks = [
        _head(report),
        _table("class", _by_class(report)),
        _table("class and gpu", report.by(lambda e: f"{e.kind}, {e.gpu}").items()),
        _table("source", report.by(lambda e: e.source).items()),
        _ratios(report),
        _groups(report),
        _open(report),
        _host(report),
        _seen(report),
    ]
    return "\n\n".join(block for block in blocks if block)


def case_lines(report: ErrorReport) -> str:
    """Every reading with its band and assumptions."""
    lines = []
    for e in report.errors:
        band = "" if e.contained is None else f" [{e.low:.4g}, {e.high:.4g}]"
        apart = "" if e.standing is Standing.COUNTED else f" ({e.standing})"
        lines.append(
            f"{e.case} ({e.reads}){apart}: measured {e.measured:.4g} {e.unit}, predicted "
            f"{e.predicted:.4g}{band}, {e.relative:+.1%}"
        )
        lines += [f"    {text}" for text in e.assumptions]
    return "\n".join(lines)


def headline_line(told: Summary) -> str:
    """The headline against its target; documents quote it word by word."""
    return (
        f"{HEADLINE_NAME}: median |error| {told.median_absolute:.0%} (aim {MEDIAN_TARGET:.0%}), "
        f"90th percentile {told.p90_absolute:.0%} (aim {P90_TARGET:.0%})"
    )


def band_line(told: Summary) -> str:
    """Share inside the bands against its target."""
    low, high = BAND_TARGET
    return f"90 % bands hold {told.contained or 0:.0%} (aim {low:.0%} to {high:.0%})"


def _head(report: ErrorReport) -> str:
    counted = report.of(Standing.COUNTED)
    if not counted:
        return "no measurement that counts: what there is stands apart"
    lines = [
        f"predictions against {len(counted)} measurements that none was fitted to "
        "(medians per source first)",
        "",
    ]
    if any(error.in_headline for error in report.errors):
        told = report.headline
        met = told.median_absolute <= MEDIAN_TARGET and told.p90_absolute <= P90_TARGET
        lines += [
            f"{headline_line(told)}: {_met(met)}",
            f"    {told.sources} sources, {told.cases} cases, bias {told.bias:+.0%}, 90th "
            f"percentile over cases {told.p90_cases:.0%}",
        ]
    if any(error.contained is not None for error in counted):
        low, high = BAND_TARGET
        bands = report.bands
        met = low <= (bands.contained or 0.0) <= high
        lines.append(
            f"{band_line(bands)}, each source with one vote of {bands.sources}: {_met(met)}"
        )
    return "\n".join(lines)


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _by_class(report: ErrorReport) -> list[tuple[str, list[CaseError]]]:
    """Classes, data-centre GPUs and others apart; counts have no such difference."""

    def name(error: CaseError) -> str:
        if error.kind in _COUNTS:
            return error.kind
        return f"{error.kind}, {'data centre' if error.gpu in DATA_CENTRE else 'other GPUs'}"

    return sorted(report.by(name).items())


def _table(title: str, rows: Iterable[tuple[str, list[CaseError]]]) -> str:
    lines = [f"{title:<{_WIDTH}}{_COLUMNS}"]
    lines += [f"{name:<{_WIDTH}}{_figures(summary(errors))}" for name, errors in sorted(rows)]
    return "\n".join(lines) if len(lines) > 1 else ""


def _figures(told: Summary) -> str:
    inside = "-" if told.contained is None else f"{told.contained:.0%}"
    return (
        f"{told.sources:>8}{told.cases:>7}{told.median_absolute:>14.1%}{told.p90_absolute:>11.1%}"
        f"{told.bias:>+7.0%}{inside:>9}"
    )


def _ratios(report: ErrorReport) -> str:
    """Each ratio with both values."""
    found = [e for e in report.of(Standing.COUNTED) if e.kind == "ratio"]
    if not found:
        return ""
    lines = [f"ratios (gains of decoder replay: aim {RATIO_TARGET:.0%} each)"]
    for e in found:
        verdict = f", {_met(abs(e.relative) <= RATIO_TARGET)}" if GAIN in e.case else ""
        lines.append(
            f"  {e.case:<36} measured {e.measured:.2f}, predicted {e.predicted:.2f}, "
            f"{e.relative:+.0%}{verdict}"
        )
    return "\n".join(lines)


def _groups(report: ErrorReport) -> str:
    """Groups of kernels on B200, one line each; both readings where replay is open."""
    found: dict[str, list[CaseError]] = {}
    for error in report.errors:
        if error.kind == "kernel_group" and error.gpu == "b200":
            found.setdefault(error.case, []).append(error)
    if not found:
        return ""
    lines = [f"groups of kernels on B200 (aim {GROUP_TARGET:.0%} each), by reading"]
    for case, errors in found.items():
        told = ", ".join(f"{_reading(e)}{e.relative:+.0%}" for e in errors)
        lines.append(f"  {case:<42} {told}")
    return "\n".join(lines)


def _reading(error: CaseError) -> str:
    if error.decoder_replay is None:
        return ""
    return "replay on " if error.decoder_replay else "replay off "


def _open(report: ErrorReport) -> str:
    """Cases that leave the decoder replay open: both readings, and which is nearer."""
    found = report.of(Standing.OPEN)
    if not found:
        return ""
    lines = [
        "decoder replay not stated (apart from the table): median error by reading",
        f"  {'source and class':<34}{'cases':>6}{'off':>8}{'on':>8}  nearer",
    ]
    groups: dict[str, list[CaseError]] = {}
    for error in found:
        groups.setdefault(f"{error.source}, {error.kind}", []).append(error)
    for name, errors in sorted(groups.items()):
        off = median(e.relative for e in errors if not e.decoder_replay)
        on = median(e.relative for e in errors if e.decoder_replay)
        nearer = "on" if abs(on) < abs(off) else "off"
        cases = len({e.case for e in errors})
        lines.append(f"  {name:<34}{cases:>6}{off:>+8.0%}{on:>+8.0%}  {nearer}")
    return "\n".join(lines)


def _host(report: ErrorReport) -> str:
    """Eager forwards by source: what OP says with the host as it prices it."""
    found = report.of(Standing.HOST)
    if not found:
        return ""
    groups: dict[str, list[CaseError]] = {}
    for error in found:
        groups.setdefault(f"{error.source}, {error.kind}", []).append(error)
    for error in report.of(Standing.MODULES):
        groups.setdefault(f"{error.source}, {error.kind}, modules", []).append(error)
    return _table("eager forwards (the host decides)", groups.items())


def _seen(report: ErrorReport) -> str:
    """Cases whose kernel rows laws were made from."""
    found = report.of(Standing.SEEN)
    if not found:
        return ""
    lines = ["kernel rows that laws were made from (no test of them)"]
    lines += [f"  {e.case:<42} {_reading(e)}{e.relative:+.0%}" for e in found]
    return "\n".join(lines)
