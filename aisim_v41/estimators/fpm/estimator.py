"""FPM: measured whole forwards of one identity become a predictor of any step of it.

A table (`aisim_v41.forwards`) is read once: its steps are counted by the ledger and priced by OP
into terms, the numerics of `aisim_v41.evidence.forwards` fit them, and `Fpm` answers for steps.
Identities never mix, and neither do two regimes under one identity. docs/fpm.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aisim_v41.errors import InvalidInputError, OutOfRangeError, SchemaError, UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledSol, CompiledStep, Floats, compiled_sol, listed
from aisim_v41.estimators.fpm.domain import INSIDE, VERDICTS, Domain, MeasuredDomain
from aisim_v41.estimators.fpm.features import hashes_of, marks_of, place_of, places_of
from aisim_v41.estimators.fpm.forward import whole_estimate
from aisim_v41.estimators.fpm.prediction import Prediction, Source, between, in_turn
from aisim_v41.estimators.fpm.regimes import Known, known_steps, of_regime, regimes_of
from aisim_v41.estimators.fpm.samples import MeasuredSteps, measured_steps
from aisim_v41.estimators.fpm.terms import FamilyTerms
from aisim_v41.estimators.op.builds import compiled_build
from aisim_v41.estimators.result import Estimate
from aisim_v41.evidence.forwards.fit import ForwardFit, fit_forwards
from aisim_v41.evidence.forwards.online import Correction
from aisim_v41.evidence.forwards.regimes import Regime
from aisim_v41.evidence.forwards.samples import Terms
from aisim_v41.forwards.identity import Difference, differences_text, differing_from_plan
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.plan.compatibility import check_requests
from aisim_v41.plan.dealing import RowSplit
from aisim_v41.plan.plan import Plan, forward_passes
from aisim_v41.plan.request import Request
from aisim_v41.plan.spans import RequestColumns
from aisim_v41.reading import read_mapping
from aisim_v41.writing import replace_file

if TYPE_CHECKING:
    from aisim_v41.forwards.table import StepTable

LEARNT: Final = "fpm_correction"
LEAST_ROWS: Final = 1
"""Measured forwards from which on there is an answer; with few, it is OP's, rescaled."""


class Fpm(CompiledStep):
    """Whole forwards of one identity, fitted.

    ``fpm(requests)`` is the hot path, `predict` adds band, source and domain, `estimate` answers
    for a `Plan`.

    Args:
        table: measured forwards of one identity.
        model: that the identity is of.
        hardware: that the identity is of.
        regime: which of several regimes, by name; needed only where there are several.
        extrapolate: whether steps outside what was measured are answered.

    Raises:
        UnsupportedPlanError: the table is of another model or GPU, or holds several regimes and
            none, or one that does not exist, was chosen.
        OutOfRangeError: no record says a step and its time.
    """

    method = "fpm"

    def __init__(
        self,
        table: StepTable,
        model: Model,
        hardware: Hardware,
        *,
        regime: str | None = None,
        extrapolate: bool = False,
    ) -> None:
        self.table, self.model, self.hardware = table, model, hardware
        self.extrapolate = extrapolate
        self.parallel, as_published = table.plan_setting()
        # What was measured has run, whatever its engine refuses.
        self.policy = as_published.with_overrides(engine_rules="warned")
        if RowSplit.of(self.parallel) is not None:
            raise UnsupportedPlanError(
                f"table {table.identity.slug()}: dp = {self.parallel.dp}, cp = {self.parallel.cp}; "
                "FPM does not know which rank a measured forward waited for. Use method 'op', or "
                "measure tensor parallelism"
            )
        self._require_identity(
            differing_from_plan(table.identity, model, hardware, self.parallel, self.policy)
        )
        self.terms = FamilyTerms(compiled_build(model, hardware, self.parallel, self.policy))
        self.program = self.terms.build.program
        self.captured = self.terms.build.captured
        every = measured_steps(self.terms, table.records)
        if len(every.samples) < LEAST_ROWS:
            raise OutOfRangeError(
                f"table {table.identity.slug()}: no record says a step and its time; FPM needs "
                "measured steps whose requests are known"
            )
        self.regimes: tuple[Regime, ...] = regimes_of(every)
        self.steps: MeasuredSteps = of_regime(every, self.regimes, regime, table.identity.slug())
        self.regime = regime or self.regimes[0].name
        self.fit: ForwardFit = fit_forwards(self.steps.samples)
        physical = self.fit.physical
        self.domain = MeasuredDomain(
            self.steps.samples.features,
            self.steps.ranges,
            physical.device_seconds(self.steps.samples.terms),
            physical.seconds(self.steps.samples.terms),
        )
        self._measured = known_steps(self.steps, self.flagged)
        measured = [np.frombuffer(mark) for mark in self._measured]
        self._hashes = hashes_of(np.stack(measured)) if measured else np.empty(0, np.uint64)
        spread = self.fit.sizes.new_run(self.fit.samples.runs)
        self.correction = Correction(spread=max(spread, 0.01))
        self._before: list[Correction] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made from; what was learnt online stays behind."""
        made_from = (self.table, self.model, self.hardware, self.regime)
        return _again, (*made_from, self.extrapolate)

    @property
    def flagged(self) -> frozenset[int]:
        """Records of the table that are not believed."""
        return frozenset(self.steps.records[flag.row] for flag in self.fit.flags)

    # --- answers ------------------------------------------------------------------------------

    def priced(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Seconds of requests as columns: of one forward, or of one a column [steps].

        Raises:
            OutOfRangeError: a step lies outside what was measured.
        """
        counted = self._counted(requests, one_step=one_step)
        seconds, known = self._seconds(counted)
        for step in self._beyond(counted, known):
            if not self.extrapolate:
                place = f"row {step}: " if len(seconds) > 1 else ""
                raise OutOfRangeError(place + self._outside(self._verdict(counted, int(step))))
            seconds[step] = counted.physical_s[step]
        if np.any(seconds < counted.terms.predicted_s):
            seconds = np.maximum(seconds, self._sol.priced(requests, one_step=one_step))
        return seconds[0] if one_step else seconds

    def predict(
        self, requests: Sequence[Request] | StepTotals, *, extrapolate: bool = False
    ) -> Prediction:
        """Time of one step, with what it rests on.

        Args:
            requests: of the step; or their sums, which are answered with an interval over their
                readings where they leave the step open, unless all of those lie outside.
            extrapolate: whether a step outside what was measured is answered, by the physical
                part, with the band that leaves.

        Raises:
            OutOfRangeError: it is outside, and no extrapolation was asked for.
            InvalidInputError, UnsupportedPlanError: as for `Plan`.
        """
        if isinstance(requests, StepTotals):
            known_step = requests.determined()
            if known_step is None:
                readings = requests.extremes(self.model.max_context)
                found = between([self.predict(one, extrapolate=True) for one in readings])
                if found.all_outside and not (extrapolate or self.extrapolate):
                    raise OutOfRangeError(self._outside(found.domain))
                return found
            requests = known_step
        step = listed("requests", requests)
        check_requests(self.model, self.policy, step)
        passes = forward_passes(step, self.policy)
        said = [(f.times, self.predict_forward(f.requests, extrapolate)) for f in passes]
        return said[0][1] if len(said) == 1 else in_turn(said)

    def predict_forward(self, requests: Sequence[Request], extrapolate: bool) -> Prediction:
        """`predict` for one forward of a step; a step has several under a separate replay."""
        columns = check_requests(self.model, self.policy, requests)
        counted = self._counted(columns, one_step=True)
        (seconds,), (known,) = self._seconds(counted)
        domain = INSIDE
        if known is None and seconds:
            domain = self._verdict(counted, 0)
        terms, features = counted.terms, counted.features
        physical = float(counted.physical_s[0])
        local = (
            float(np.exp(self.fit.log_seconds(terms, features)[0]) / physical) if seconds else 1.0
        )
        online = float(np.exp(self.correction.at(features)[0]))
        if domain.verdict == "outside":
            if not (extrapolate or self.extrapolate):
                raise OutOfRangeError(self._outside(domain))
            seconds, local, online = physical, 1.0, 1.0
        spread = self.fit.spread(terms, features) if seconds else np.zeros(1)
        half = float(self.fit.half_width(np.hypot(spread, domain.spread))[0])
        floor = float(self._sol.priced(columns, one_step=True)) if seconds else 0.0
        latency = max(float(seconds), floor)
        source: Source = "interpolated" if domain.verdict == "inside" else "extrapolated"
        return Prediction(
            latency_s=latency,
            band_s=(max(floor, latency * float(np.exp(-half))), latency * float(np.exp(half))),
            source=source if known is None else "measured",
            domain=domain,
            physical_s=physical,
            local=local,
            online=online,
            measured=() if known is None else tuple(self.table.records[n] for n in known.records),
        )

    def estimate(
        self, plan: Plan, hardware: Hardware, *, extrapolate: bool | None = None
    ) -> Estimate:
        """The time of a plan of this identity.

        Args:
            plan: what is run.
            hardware: from `load_hardware`.
            extrapolate: None answers inside and at the edge of what was measured, True everywhere;
                for False see `aisim_v41.estimate`.

        Raises:
            UnsupportedPlanError: the plan is of another identity; names the differing fields.
            OutOfRangeError: it lies outside what was measured.
        """
        self._require_identity(
            differing_from_plan(
                self.table.identity, plan.model, hardware, plan.parallel, plan.policy
            )
        )
        return whole_estimate(self, plan, hardware, extrapolate=bool(extrapolate))

    # --- learning -----------------------------------------------------------------------------

    def update(self, observations: Sequence[StepRecord]) -> Correction:
        """Learn from live steps of the same identity, in the order in which they ran.

        Records without a time or with an open step say nothing. Each call can be undone.

        Returns:
            What is believed afterwards; its ``wild`` lists what was not.

        Raises:
            InvalidInputError: not records.
        """
        observations = listed("observations", observations, "StepRecord")
        for one in observations:
            if not isinstance(one, StepRecord):
                raise InvalidInputError(
                    f"observations: {one!r:.80} must be a StepRecord, not {type(one).__name__}"
                )
        new = measured_steps(self.terms, observations)
        self._before.append(self.correction)
        if len(new.samples):
            # Held against what the table alone answers: a measured step with its own time.
            expected = self.fit.log_seconds(new.samples.terms, new.samples.features)
            for step, mark in enumerate(new.marks):
                if (known := self._measured.get(mark)) is not None:
                    expected[step] = np.log(known.seconds)
            ratio = np.log(new.samples.seconds) - expected
            self.correction = self.correction.learnt(new.samples.features, ratio)
        return self.correction

    def undo(self) -> Correction:
        """Take back the last `update`.

        Raises:
            InvalidInputError: nothing was learnt.
        """
        if not self._before:
            raise InvalidInputError("undo: nothing was learnt, or all of it was taken back")
        self.correction = self._before.pop()
        return self.correction

    def save(self, path: str | Path) -> None:
        """Keep what was learnt in a file, whole or not at all.

        Raises:
            InvalidInputError: the file cannot be written.
        """
        content = {
            "kind": LEARNT,
            "identity": self.table.identity.sha256,
            "regime": self.regime,
            "correction": self.correction.to_dict(),
        }
        target = _path(path)
        try:
            replace_file(target, f"{json.dumps(content)}\n".encode())
        except OSError as error:
            raise InvalidInputError(f"{target}: cannot be written ({error})") from None

    def restore(self, path: str | Path) -> Correction:
        """Take up what `save` kept; can be undone.

        Raises:
            MissingProfileError, SchemaError: there is no such file, or it is not what it must be.
            UnsupportedPlanError: it was learnt from another identity or regime.
        """
        content = read_mapping(_path(path))
        if content.get("kind") != LEARNT or not isinstance(content.get("correction"), dict):
            raise SchemaError(f"{path}: is not what Fpm.save wrote")
        for name, own in (("identity", self.table.identity.sha256), ("regime", self.regime)):
            if content.get(name) != own:
                raise UnsupportedPlanError(
                    f"{path}: was learnt from {name} {content.get(name)!r:.80}, this is {own!r}"
                )
        found = Correction.from_dict(content["correction"], where=str(path))
        self._before.append(self.correction)
        self.correction = found
        return found

    # --- inside -------------------------------------------------------------------------------

    def _counted(self, requests: RequestColumns, *, one_step: bool) -> _Counted:
        if requests.pictured and self.table.identity.build.modality == "text":
            raise UnsupportedPlanError(
                f"table {self.table.identity.slug()} was measured with text: it says nothing of "
                "steps with image rows; use method='op', or a table of modality image"
            )
        totals = self.program.count(requests, one_step=one_step).totals
        counts, uncaptured = self.captured.filled(requests, totals, one_step=one_step)
        place = place_of if one_step else places_of
        features, ranges = place(requests, self.terms.build.rows(counts))
        prefills = features[:, -1] > 0
        terms = self.terms(counts, prefills[0] if one_step else prefills, uncaptured)
        kernels, physical = self.fit.physical.both(terms)
        return _Counted(
            totals=totals, terms=terms, features=features,
            ranges=ranges, kernels_s=kernels, physical_s=physical,
        )  # fmt: skip

    def _seconds(self, counted: _Counted) -> tuple[Floats, list[Known | None]]:
        """Seconds of steps, and what was measured of each."""
        known = self._known(counted)
        seconds = counted.physical_s * np.exp(
            self.fit.residual.local(counted.features) + self.fit.residual.middle
        )
        for step, one in enumerate(known):
            if one is not None:
                seconds[step] = one.seconds
        if self.correction.seen:
            seconds = seconds * np.exp(self.correction.at(counted.features))
        return seconds, known

    def _known(self, counted: _Counted) -> list[Known | None]:
        marks = marks_of(counted.totals, counted.ranges)
        if len(marks) == 1:
            return [self._measured.get(marks.tobytes())]
        found: list[Known | None] = [None] * len(marks)
        for step in np.flatnonzero(np.isin(hashes_of(marks), self._hashes)):
            found[step] = self._measured.get(marks[step].tobytes())
        return found

    def _verdict(self, counted: _Counted, step: int) -> Domain:
        return self.domain.verdict(
            counted.features[step],
            counted.ranges[step],
            float(counted.kernels_s[step]),
            float(counted.physical_s[step]),
        )

    def _beyond(self, counted: _Counted, known: list[Known | None]) -> list[int]:
        """Steps outside what was measured."""
        features, ranges = counted.features, counted.ranges
        if len(ranges) == 1 and self.domain.holds(features[0, -1], ranges[0]):
            return []
        codes = self.domain.codes(features, ranges, counted.kernels_s, counted.physical_s)
        outside = np.flatnonzero((codes == VERDICTS.index("outside")) & (ranges[:, 0] > 0))
        return [int(step) for step in outside if known[step] is None]

    def _outside(self, domain: Domain) -> str:
        return (
            f"outside the measured forwards of {self.table.identity.slug()}: {domain.text}; ask "
            "with extrapolate=True for the physical part with its wider band, or measure it"
        )

    @cached_property
    def _sol(self) -> CompiledSol:
        return compiled_sol(self.model, self.hardware, self.parallel, self.policy)

    def _require_identity(self, differences: tuple[Difference, ...]) -> None:
        if differences:
            raise UnsupportedPlanError(
                f"no measured forward is of this identity; asked | measured "
                f"({self.table.identity.slug()}):\n{differences_text(differences)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Steps, counted and priced by operators: a row a step."""

    totals: Floats
    terms: Terms
    features: Floats
    ranges: Floats
    kernels_s: Floats
    physical_s: Floats


def _path(path: object) -> Path:
    if not isinstance(path, (str, Path)) or not Path(path).name:
        raise InvalidInputError(f"path = {path!r:.80}: must name a file")
    return Path(path)


def _again(
    table: StepTable,
    model: Model,
    hardware: Hardware,
    regime: str,
    extrapolate: bool,
) -> Fpm:
    return Fpm(table, model, hardware, regime=regime, extrapolate=extrapolate)
