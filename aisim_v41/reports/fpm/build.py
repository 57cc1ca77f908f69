"""From a fitted table to its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from aisim_v41.estimators.fpm.estimator import Fpm
from aisim_v41.evidence.forwards.fit import ForwardFit
from aisim_v41.evidence.forwards.fit import LeftOut as LeftOutRows
from aisim_v41.evidence.forwards.physical import LEDGER_PRIOR
from aisim_v41.evidence.forwards.samples import Samples
from aisim_v41.forwards.records import StepRecord
from aisim_v41.plan.request import Request
from aisim_v41.reports.fpm.report import (
    Band,
    FpmReport,
    LeftOutBy,
    LeftOutPoint,
    Point,
    Regime,
    Term,
    coverage_of,
)
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.forwards import LeftOut, MethodError, left_out_errors
from aisim_v41.validation.plain import phase_of

Pair = tuple[int, int]
"""A step in a run: the numbers that samples give both."""


def report_of(fpm: Fpm) -> FpmReport:
    """What is known about the identity and regime of a fitted table.

    Args:
        fpm: from `load_fpm`; what it learnt online is not part of the report.
    """
    table, fit = fpm.table, fpm.fit
    given = _pairs(fpm.steps.samples)
    flags = {given[flag.row]: flag.reason for flag in fit.flags}
    records: dict[Pair, list[StepRecord]] = {}
    for pair, number in zip(given, fpm.steps.records, strict=True):
        records.setdefault(pair, []).append(table.records[number])
    points = tuple(_point(own, flags.get(pair, "")) for pair, own in records.items())
    place = {pair: number for number, pair in enumerate(records)}
    fitted = [place[pair] for pair in _pairs(fit.samples)]
    steps = [_requests(records[pair][0]) for pair in _pairs(fit.samples)]
    left: dict[LeftOutBy, tuple[LeftOutPoint, ...]] = {}
    errors: dict[LeftOutBy, tuple[MethodError, ...]] = {}
    by: LeftOutBy
    for by, rows in (("site", fit.sites_left_out), ("run", fit.runs_left_out)):
        if rows is not None and len(set(rows.group.tolist())) > 1:
            left[by] = _left_out(by, fit, rows, fitted)
            errors[by] = _errors(left[by], points, steps, rows.group.tolist())
    return FpmReport(
        gpu=table.gpu,
        identity=table.identity.to_dict(),
        slug=table.identity.slug(),
        regime=fpm.regime,
        statuses=table.statuses(),
        aggregates=sum(record.requests is None for record in table.measured),
        runs=dict(Counter(fpm.steps.runs)),
        points=points,
        thinned=len(fit.samples),
        coverage=coverage_of(points, [site for site, _ in records]),
        left_out=tuple(one for rows in left.values() for one in rows),
        errors=errors,
        composition=fit.physical.composition,
        terms=_terms(fit),
        noise=_noise(fit),
        regimes=tuple(
            Regime(
                name=one.name,
                points=len(one.rows),
                low_ms=one.low_s / MILLISECOND,
                high_ms=one.high_s / MILLISECOND,
            )
            for one in fpm.regimes
        ),
        band=Band(
            level=fit.band.level, held={by: _held(rows, points) for by, rows in left.items()}
        ),
        licence=table.licence,
        notice=table.notice,
        sources=tuple(dict(source) for source in table.sources),
    )


def _pairs(samples: Samples) -> list[Pair]:
    return list(zip(samples.site.tolist(), samples.run.tolist(), strict=True))


def _point(records: Sequence[StepRecord], flag: str) -> Point:
    first = records[0]
    requests = _requests(first)
    count = sum(request.count for request in requests)
    prefix = sum(request.count * request.prefix_tokens for request in requests)
    orders = [record.order for record in records if record.order is not None]
    logs = np.log([record.latency_ms or 0.0 for record in records])
    return Point(
        phase=phase_of(requests),
        requests=count,
        new_tokens=sum(request.count * request.new_tokens for request in requests),
        prefix_tokens=prefix / count,
        run=first.run,
        order=orders[0] if orders else None,
        regime=first.regime,
        point=first.point,
        source=first.source,
        measured_ms=float(np.exp(np.median(logs))),
        samples=sum(record.samples for record in records),
        flag=flag,
    )


def _requests(record: StepRecord) -> tuple[Request, ...]:
    """Requests of a record that a fit has read, less those that compute nothing."""
    requests = record.requests or ()
    return tuple(request for request in requests if request.count) or requests


def _left_out(
    by: LeftOutBy, fit: ForwardFit, rows: LeftOutRows, fitted: Sequence[int]
) -> tuple[LeftOutPoint, ...]:
    half = np.exp(fit.band.width * rows.spread)
    predicted = rows.predicted_s / MILLISECOND
    ends = zip(
        fitted,
        predicted.tolist(),
        (predicted / half).tolist(),
        (predicted * half).tolist(),
        strict=True,
    )
    return tuple(
        LeftOutPoint(point=point, by=by, predicted_ms=made, low_ms=low, high_ms=high)
        for point, made, low, high in ends
    )


def _held(rows: Sequence[LeftOutPoint], points: Sequence[Point]) -> float:
    inside = [one.low_ms <= points[one.point].measured_ms <= one.high_ms for one in rows]
    return sum(inside) / len(inside)


def _errors(
    rows: Sequence[LeftOutPoint],
    points: Sequence[Point],
    steps: Sequence[Sequence[Request]],
    groups: Sequence[int],
) -> tuple[MethodError, ...]:
    """Errors of the fit and of plain predictors, which know the same steps and times."""
    return left_out_errors(
        LeftOut(
            steps=steps,
            measured_s=[points[one.point].measured_ms * MILLISECOND for one in rows],
            groups=[str(group) for group in groups],
            predicted_s=[one.predicted_ms * MILLISECOND for one in rows],
            low_s=[one.low_ms * MILLISECOND for one in rows],
            high_s=[one.high_ms * MILLISECOND for one in rows],
        )
    )


def _terms(fit: ForwardFit) -> tuple[Term, ...]:
    physical, terms = fit.physical, fit.samples.terms
    whole = float(physical.seconds(terms).sum())
    device = terms.device_s.sum(axis=0)
    found = [
        Term(
            name="floor",
            share=physical.floor_s * len(fit.samples) / whole,
            prior=None,
            factor=None,
        ),
        *(
            Term(
                name=name,
                share=factor * float(terms.host_s[terms.prefills == prefills].sum()) / whole,
                prior=1.0,
                factor=factor,
            )
            for name, prefills, factor in (
                ("host, decode", 0.0, physical.host_factor),
                ("host, prefill", 1.0, physical.prefill_factor),
            )
            if np.any(terms.prefills == prefills)
        ),
    ]
    found += [
        Term(
            name=name,
            share=float(factor * seconds) / whole,
            prior=1.0 if number < terms.families else float(np.exp(LEDGER_PRIOR[0])),
            factor=float(factor),
        )
        for number, (name, factor, seconds) in enumerate(
            zip(physical.names, physical.factors, device, strict=True)
        )
        if seconds > 0
    ]
    return tuple(found)


def _noise(fit: ForwardFit) -> dict[str, float]:
    """Standard deviations of log(time) by cause; what the rows cannot show is assumed."""
    spread = fit.samples.spread[np.isfinite(fit.samples.spread)]
    found = {"repeats of a point": float(np.median(spread))} if spread.size else {}
    runs = "between runs" if fit.samples.runs > 1 else "between runs (assumed: there is one)"
    return {
        **found,
        "between points": fit.sizes.noise,
        runs: fit.sizes.run,
        "drift in a run": fit.sizes.drift,
        "local correction": fit.sizes.local,
    }
