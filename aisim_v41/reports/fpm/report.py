"""What is known about one execution identity and regime, as plain data.

The report says what was measured, how far the estimator is off where it could not know the answer,
what it fitted, and what it did not believe. Text (`aisim_v41.reports.fpm.text`), figure
(`aisim_v41.pictures.fpm_report`) and JSON show the same records.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from aisim_v41.validation.forwards import MethodError
from aisim_v41.validation.plain import Phase

LeftOutBy = Literal["site", "run"]
PHASES: tuple[Phase, ...] = get_args(Phase)
AXES = {
    "new_tokens": "new tokens of the step",
    "prefix_tokens": "prefix tokens a request",
    "requests": "requests of the step",
    "order": "position in its run",
}
"""Fields of a `Point` against which residuals are shown, and what they are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step, measured in one process run.

    Attributes:
        phase: "prefill", "decode" (verify steps too) or "mixed".
        requests: requests of the step.
        new_tokens: rows that the step computes [tokens].
        prefix_tokens: positions computed before, the mean over its requests [tokens].
        order: position in its run; None where it was not recorded.
        measured_ms: its time, the median of its records in logarithms [ms].
        samples: measurements behind that time.
        flag: why it is not believed; "" for a sound one.
    """

    phase: Phase
    requests: int
    new_tokens: int
    prefix_tokens: float
    run: str
    order: int | None
    regime: str
    point: str
    source: str
    measured_ms: float
    samples: int
    flag: str

    def axis(self, name: str) -> float | None:
        """Its place on one of `AXES`; None where that was not recorded."""
        value = getattr(self, name)
        return None if value is None else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutPoint:
    """A point, predicted by a fit that did not see it.

    Attributes:
        point: its place in the report's points.
        by: what was left out with it: every record of its "site", which is the same step in any
            run (in large tables: those of several sites at once), or of its process "run".
        predicted_ms, low_ms, high_ms: the prediction and its band [ms].
    """

    point: int
    by: LeftOutBy
    predicted_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Measured steps of one phase and number of requests.

    Attributes:
        points, sites: records, and steps that differ.
        new_tokens, prefix_tokens: least and most [tokens]; the prefix is a request's.
        measured_ms: fastest and slowest [ms].
    """

    phase: Phase
    requests: int
    points: int
    sites: int
    new_tokens: tuple[int, int]
    prefix_tokens: tuple[float, float]
    measured_ms: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One fitted term of the physical part.

    Attributes:
        name: "floor", "host", or a family of kernels.
        share: its seconds over those of the measured steps; kernels behind a longer host count
            though nobody waits for them.
        prior: what its seconds by operators are multiplied by before anything is measured; None
            for the floor, which has no such seconds.
        factor: what they are multiplied by after the fit.
    """

    name: str
    share: float
    prior: float | None
    factor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Records of this identity that belong together, and their times [ms]."""

    name: str
    points: int
    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What bands promise, and what they held.

    Attributes:
        level: the nominal share.
        held: share of left-out steps inside, by what was left out.
    """

    level: float
    held: Mapping[str, float]


class SiteLeftOut(NamedTuple):
    """A point, predicted / measured - 1 with its site left out, and that prediction."""

    point: Point
    residual: float
    predicted: LeftOutPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class FpmReport:
    """The report of one identity and regime.

    Attributes:
        gpu, identity, slug: whose time this is: the fields of the identity as plain values, and
            the name of its folder.
        regime: name of the regime that is reported.
        statuses: records by status; only those that are "ok" have a time.
        aggregates: records of totals that leave more than one step possible.
        runs: records of each process run.
        points: measured steps of the regime: records of one step in one run are one point.
        thinned: points that stand for all of them in the fit; only those are left out.
        composition: how host and kernels meet: "overlapped" (the longer one counts) or "added".
        noise: standard deviations of log(time) by cause.
        errors: of the left-out points and of plain predictors, by what was left out.
        coverage, left_out, terms, regimes, band: see their types.
        notice, licence, sources: whose data it is.
    """

    gpu: str
    identity: Mapping[str, Any]
    slug: str
    regime: str
    statuses: Mapping[str, int]
    aggregates: int
    runs: Mapping[str, int]
    points: tuple[Point, ...]
    thinned: int
    coverage: tuple[Covered, ...]
    left_out: tuple[LeftOutPoint, ...]
    errors: Mapping[LeftOutBy, tuple[MethodError, ...]]
    composition: str
    terms: tuple[Term, ...]
    noise: Mapping[str, float]
    regimes: tuple[Regime, ...]
    band: Band
    licence: str
    notice: str
    sources: tuple[Mapping[str, Any], ...]

    @property
    def site_left_out(self) -> tuple[SiteLeftOut, ...]:
        """Every point beside what the records of other sites predict of it."""
        return tuple(
            SiteLeftOut(
                point=self.points[one.point],
                residual=one.predicted_ms / self.points[one.point].measured_ms - 1.0,
                predicted=one,
            )
            for one in self.left_out
            if one.by == "site"
        )

    @property
    def flagged(self) -> tuple[Point, ...]:
        """Points that are not believed; they are kept, and fitted around."""
        return tuple(point for point in self.points if point.flag)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return asdict(self)

    def to_text(self) -> str:
        """The report for a terminal."""
        from aisim_v41.reports.fpm.text import report_text

        return report_text(self)


def coverage_of(
    points: tuple[Point, ...], sites: Sequence[Hashable] | None = None
) -> tuple[Covered, ...]:
    """What the points cover, by phase and requests.

    Args:
        points: Measured steps.
        sites: What the step of each is told by; by default its tokens, which steps of unlike
            requests may share.
    """
    told = [(p.new_tokens, p.prefix_tokens) for p in points] if sites is None else sites
    groups: dict[tuple[Phase, int], list[Point]] = {}
    steps: dict[tuple[Phase, int], set[Hashable]] = {}
    for point, site in zip(points, told, strict=True):
        groups.setdefault((point.phase, point.requests), []).append(point)
        steps.setdefault((point.phase, point.requests), set()).add(site)
    ordered = sorted(groups.items(), key=lambda item: (PHASES.index(item[0][0]), item[0][1]))
    return tuple(
        Covered(
            phase=phase,
            requests=requests,
            points=len(group),
            sites=len(steps[phase, requests]),
            new_tokens=(min(p.new_tokens for p in group), max(p.new_tokens for p in group)),
            prefix_tokens=(
                min(p.prefix_tokens for p in group),
                max(p.prefix_tokens for p in group),
            ),
            measured_ms=(min(p.measured_ms for p in group), max(p.measured_ms for p in group)),
        )
        for (phase, requests), group in ordered
    )
