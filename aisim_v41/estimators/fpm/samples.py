"""The rows of a table as what a fit reads: terms, features and times of each measured forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aisim_v41.estimators.compiled import Floats
from aisim_v41.estimators.fpm.features import RANGES, marks_of, place_of
from aisim_v41.estimators.fpm.terms import FamilyTerms
from aisim_v41.evidence.forwards.flags import NORMAL
from aisim_v41.evidence.forwards.samples import AXES, NO_ORDER, Places, Samples, Terms, numbered
from aisim_v41.forwards.records import StepRecord
from aisim_v41.plan.captured import Mask
from aisim_v41.plan.compatibility import check_requests
from aisim_v41.plan.plan import forward_passes
from aisim_v41.plan.request import Request
from aisim_v41.units import MILLISECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step, counted.

    Attributes:
        counts: ledger, filled up to captured sizes [columns].
        uncaptured: whether it is above every captured size; None: no.
        features: [axes].
        ranges: raw axes.
        marks: what makes it equal to another step.
    """

    counts: Floats
    uncaptured: Mask | None
    features: Floats
    ranges: Floats
    marks: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Records that a fit can read.

    Attributes:
        records: their numbers in the table, one a row.
        samples: what the fit reads.
        ranges: raw axes [rows, axes].
        marks: what makes steps equal, one a row.
        runs: name of each row's process run.
        labels: what the source calls each row's regime.
    """

    records: tuple[int, ...]
    samples: Samples
    ranges: Floats
    marks: tuple[bytes, ...]
    runs: tuple[str, ...]
    labels: tuple[str, ...]

    def at(self, rows: Places) -> MeasuredSteps:
        """A choice of rows."""
        return MeasuredSteps(
            records=tuple(self.records[row] for row in rows),
            samples=self.samples.at(rows),
            ranges=self.ranges[rows],
            marks=tuple(self.marks[row] for row in rows),
            runs=tuple(self.runs[row] for row in rows),
            labels=tuple(self.labels[row] for row in rows),
        )


def count_step(terms: FamilyTerms, requests: Sequence[Request]) -> Step:
    """A step's ledger and where it lies.

    Raises:
        InvalidInputError, OutOfRangeError, UnsupportedPlanError: as for `Plan`.
    """
    build = terms.build
    columns = check_requests(build.model, build.policy, requests)
    totals = build.program.count(columns, one_step=True).totals
    counts, uncaptured = build.captured.filled(columns, totals, one_step=True)
    features, ranges = place_of(columns, build.rows(counts))
    return Step(
        counts=counts, uncaptured=uncaptured, features=features[0], ranges=ranges[0],
        marks=marks_of(totals, ranges).tobytes(),
    )  # fmt: skip


def measured_steps(terms: FamilyTerms, records: Sequence[StepRecord]) -> MeasuredSteps:
    """The records that say one step and its time, counted and priced.

    Records that failed, totals that leave the step open, and steps of several forwards (a replay
    that is separate, and what it is for) are left out. A step that is measured again is counted
    once.

    Args:
        terms: of the build that ran.
        records: of one table.

    Raises:
        InvalidInputError, OutOfRangeError, UnsupportedPlanError: a step that the model or the
            policy cannot run, naming its record.
    """
    policy = terms.build.policy
    known: dict[tuple[bytes, ...], Step] = {}
    rows: list[int] = []
    steps: list[Step] = []
    for number, record in enumerate(records):
        requests = record.requests if record.status == "ok" else None
        if not requests or record.latency_ms is None:
            continue
        if len(forward_passes(requests, policy)) > 1 and any(r.new_tokens for r in requests):
            continue
        packed = tuple(request.packed for request in requests)
        if packed not in known:
            known[packed] = count_step(terms, requests)
        rows.append(number)
        steps.append(known[packed])
    chosen = [records[number] for number in rows]
    runs = tuple(record.run for record in chosen)
    marks = tuple(step.marks for step in steps)
    distinct = numbered(marks)
    samples = Samples(
        terms=_terms(terms, steps, distinct),
        features=np.array([step.features for step in steps]).reshape(len(steps), len(AXES)),
        seconds=np.array([(record.latency_ms or 0.0) * MILLISECOND for record in chosen]),
        site=distinct,
        run=numbered(runs),
        order=_orders(chosen),
        repeats=np.array([float(record.samples) for record in chosen]),
        spread=np.array([_spread(record.samples_ms) for record in chosen]),
    )
    return MeasuredSteps(
        records=tuple(rows), samples=samples,
        ranges=np.array([step.ranges for step in steps]).reshape(len(steps), len(RANGES)),
        marks=marks, runs=runs, labels=tuple(record.regime for record in chosen),
    )  # fmt: skip


def _terms(terms: FamilyTerms, steps: Sequence[Step], distinct: Places) -> Terms:
    """Terms of all steps, each distinct one priced once."""
    _, first = np.unique(distinct, return_index=True)
    eager = np.array([bool(np.any(steps[n].uncaptured)) for n in first])
    counts = np.stack([steps[n].counts for n in first], axis=1) if len(first) else np.empty((0, 0))
    if not len(first):
        nothing = np.empty(0)
        return Terms(
            names=(), families=0, host_s=nothing, prefills=nothing, device_s=np.empty((0, 0))
        )
    prefills = np.array([steps[n].features[-1] > 0 for n in first])
    return terms(counts, prefills, eager if eager.any() else None).at(distinct)


def _orders(records: Sequence[StepRecord]) -> Floats:
    """Place of each record in its run, as a share of the run's length."""
    last: dict[str, int] = {}
    for record in records:
        if record.order is not None:
            last[record.run] = max(last.get(record.run, 1), record.order)
    return np.array(
        [NO_ORDER if r.order is None else r.order / last[r.run] for r in records], dtype=float
    )


def _spread(samples_ms: Sequence[float]) -> float:
    """Robust standard deviation of the logarithm of repeats; nan for fewer than three."""
    if len(samples_ms) < 3:
        return float("nan")
    logs = np.log(np.asarray(samples_ms, dtype=float))
    return NORMAL * float(np.median(np.abs(logs - np.median(logs))))
