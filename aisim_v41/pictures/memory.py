"""What fills the memory of a GPU: the terms of one deployment, and deployments side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import InvalidInputError
from aisim_v41.memory.capacity import CapacityReport
from aisim_v41.memory.terms import Kind, Place, Term, size, total
from aisim_v41.pictures import canvas
from aisim_v41.pictures.palette import MEMORY, NEUTRAL, ink_on
from aisim_v41.plan.words import setting_text
from aisim_v41.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST = 0.004
"""Share of the GPU's memory below which terms of one kind are drawn as one."""
NAMED_FROM = 0.07
"""Share of the GPU's memory from which a term is named inside its bar."""
KINDS = {
    Kind.WEIGHTS: "weights",
    Kind.ENGRAM: "Engram tables",
    Kind.WORKSPACE: "workspace",
    Kind.RESERVE: "reserves",
    Kind.KV: "KV pool",
}
ALLOWANCE = "////"
"""Hatch of terms that are allowances or assumed shapes, not counts."""


def capacity_terms(report: CapacityReport, ax: Axes | None = None) -> Axes:
    """Every term of a GPU's memory, one below the other, each from where the last one ended.

    Args:
        report: from `aisim_v41.capacity`.
        ax: where to draw; a new figure where left out.

    Raises:
        InvalidInputError: no such report.
        MissingProfileError: matplotlib is not installed.
    """
    _require("report", report)
    terms = _gathered(report)
    ax = canvas.axes(ax, 9.5, 1.9 + 0.26 * len(terms))
    start = 0.0
    for place, term in enumerate(terms):
        length = term.bytes / GIB
        _bar(ax, place, start, term)
        ax.annotate(
            size(term.bytes), (max(start, start + length), place), xytext=(4, 0), va="center",
            textcoords="offset points", fontsize=canvas.SMALL,
        )  # fmt: skip
        start += length
    _line_of_gpu(ax, report)
    ax.set_yticks(range(len(terms)), [term.name for term in terms])
    ax.set_ylim(len(terms) - 0.4, -0.6)
    ax.set_xlim(min(0.0, *(term.bytes / GIB for term in terms)), 1.13 * _most(report))
    ax.set_xlabel("memory of one GPU [GiB]")
    _legend(ax, terms)
    return canvas.finish(
        ax,
        title=f"{report.setting.hardware.name}: {_answer(report)}",
        caption=_said(report),
        grid="x",
    )


def capacity_bars(
    reports: CapacityReport | Sequence[CapacityReport] | Mapping[str, CapacityReport],
    ax: Axes | None = None,
) -> Axes:
    """One bar a deployment: what its memory is for, and how many tokens are left for.

    Args:
        reports: from `aisim_v41.capacity`; several by name, or in a list.
        ax: where to draw; a new figure where left out.

    Raises:
        InvalidInputError: no such report.
        MissingProfileError: matplotlib is not installed.
    """
    named = _named(reports)
    ax = canvas.axes(ax, 10.5, 2.0 + 0.62 * len(named))
    for place, report in enumerate(named.values()):
        start = 0.0
        whole = report.setting.hardware.hbm_bytes
        for term in _by_kind(report):
            _bar(ax, place, start, term)
            if term.bytes > NAMED_FROM * whole:
                ax.text(
                    start + term.bytes / GIB / 2, place, f"{term.bytes / GIB:,.1f}", ha="center",
                    va="center", fontsize=canvas.SMALL, color=ink_on(MEMORY[term.kind]),
                )  # fmt: skip
            start += term.bytes / GIB
        end = whole / GIB
        ax.plot(
            [end] * 2, [place - 0.45, place + 0.45], color=ax.xaxis.label.get_color(),
            linewidth=1.6, gid=f"gpu {place}",
        )  # fmt: skip
        ax.annotate(
            _answer(report), (max(start, end), place), xytext=(6, 0), va="center",
            textcoords="offset points", fontsize=canvas.PLAIN - 1,
        )  # fmt: skip
    ax.set_yticks(range(len(named)), list(named))
    ax.set_ylim(len(named) - 0.4, -0.6)
    ax.set_xlim(0, 1.42 * max(_most(report) for report in named.values()))
    ax.set_xlabel("memory of one GPU [GiB]")
    _legend(
        ax, [term for report in named.values() for term in report.terms],
        ncols=len(KINDS) + 1, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2,
    )  # fmt: skip
    caption = "\n".join(
        _said(report) if len(named) == 1 else f"{name}: {_said(report)}"
        for name, report in named.items()
    )
    return canvas.finish(ax, title="What fills a GPU's memory", caption=caption, grid="x")


def _require(name: str, report: object) -> None:
    if not isinstance(report, CapacityReport):
        raise InvalidInputError(
            f"{name} = {report!r}: must be a report of `aisim_v41.capacity`, not "
            f"{type(report).__name__}"
        )


def _named(
    reports: CapacityReport | Sequence[CapacityReport] | Mapping[str, CapacityReport],
) -> dict[str, CapacityReport]:
    if isinstance(reports, Mapping):
        found = {str(name): report for name, report in reports.items()}
    else:
        several = [reports] if not isinstance(reports, Iterable) else list(reports)
        found = {}
        for place, report in enumerate(several):
            _require(f"reports[{place}]", report)
            name = report.setting.hardware.name
            found[name if name not in found else f"{name} {place + 1}"] = report
    for name, report in found.items():
        _require(f"reports[{name!r}]", report)
    if not found:
        raise InvalidInputError("reports: none; give one or several of `aisim_v41.capacity`")
    return found


def _gathered(report: CapacityReport) -> list[Term]:
    """The GPU's terms; of each kind the small ones together, after its larger ones."""
    least = SMALLEST * report.setting.hardware.hbm_bytes
    found: list[Term] = []
    for kind, name in KINDS.items():
        own = [t for t in report.terms if t.place is Place.GPU and t.kind is kind]
        small = [term for term in own if 0 <= term.bytes < least]
        found += [term for term in own if term not in small] if len(small) > 1 else own
        if len(small) > 1:
            found.append(_together(small, f"{len(small)} small terms ({name})"))
    return found


def _by_kind(report: CapacityReport) -> list[Term]:
    """One term a kind, and one of its allowances."""
    found = []
    for kind, name in KINDS.items():
        for guessed in (False, True):
            own = [
                term
                for term in report.terms
                if term.place is Place.GPU and term.kind is kind and term.estimate == guessed
            ]
            if total(own) > 0:
                found.append(_together(own, f"{name}, allowance" if guessed else name))
    return found


def _together(terms: Sequence[Term], name: str) -> Term:
    return Term(
        name=name,
        kind=terms[0].kind,
        bytes=total(terms),
        formula=" + ".join(term.name for term in terms),
        source="the terms themselves",
        estimate=any(term.estimate for term in terms),
    )


def _bar(ax: Axes, place: int, start: float, term: Term) -> None:
    ax.barh(
        place, term.bytes / GIB, left=start, height=0.68, color=MEMORY[term.kind], gid=term.name,
        edgecolor=canvas.paper(ax), linewidth=0.6, hatch=ALLOWANCE if term.estimate else None,
    )  # fmt: skip


def _line_of_gpu(ax: Axes, report: CapacityReport) -> None:
    """Where the memory of the GPU ends."""
    ax.axvline(
        report.setting.hardware.hbm_bytes / GIB, color=NEUTRAL, linewidth=1.2, linestyle="--",
        gid="gpu",
    )  # fmt: skip


def _most(report: CapacityReport) -> float:
    """The longest bar, or the GPU's memory where that is more [GiB]."""
    on_gpu = sum(t.bytes for t in report.terms if t.place is Place.GPU and t.bytes > 0)
    return max(on_gpu, report.setting.hardware.hbm_bytes) / GIB


def _answer(report: CapacityReport) -> str:
    if not report.starts:
        return f"does not start: {report.failing}, {size(report.short_bytes)} short"
    return (
        f"{report.tokens:,} tokens, {report.sessions:,} sessions of {report.setting.max_length:,}"
    )


def _legend(ax: Axes, terms: Sequence[Term], **options: Any) -> None:
    from matplotlib.patches import Patch

    kinds = {term.kind for term in terms}
    handles = [
        Patch(facecolor=MEMORY[kind], label=name) for kind, name in KINDS.items() if kind in kinds
    ]
    if any(term.estimate for term in terms):
        handles.append(
            Patch(facecolor=NEUTRAL, hatch=ALLOWANCE, edgecolor=canvas.paper(ax), label="allowance")
        )
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} | options
    ax.legend(handles=handles, fontsize=canvas.PLAIN - 1, frameon=False, **place)


def _said(report: CapacityReport) -> str:
    setting = report.setting
    beside = [term for term in report.terms if term.place is not Place.GPU]
    elsewhere = "; ".join(f"{term.name} ({term.place}): {size(term.bytes)}" for term in beside)
    gpu, parallel = setting.hardware.name, setting.parallel
    return (
        f"{setting_text(setting.model.name, gpu, parallel, setting.policy)}; "
        f"{setting.requests:,} running requests, longest context {setting.max_length:,} tokens."
        + (f" Beside the GPU: {elsewhere}." if beside else "")
    )
