"""How far predictions of left-out steps are off, beside two predictors that know no model.

Every predictor is asked for the same left-out records. ``fpm`` is the estimator fitted without
them, ``constant`` the median of the phase's other records, ``linear`` the linear interpolation of
their totals (`aisim_v41.validation.plain`). The last two stand for what a table of times can do
without a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aisim_v41.plan.request import Request
from aisim_v41.validation.plain import Predictor, constant_per_phase, linear_on_totals

PredictorName = Literal["fpm", "constant", "linear"]
LeftOutBy = Literal["site", "run"]
Step = Sequence[Request]
Learn = Callable[[Sequence[Step], Sequence[float]], Predictor]
"""A predictor from steps and their times."""
PLAIN: dict[PredictorName, Learn] = {"constant": constant_per_phase, "linear": linear_on_totals}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One measured step, predicted from records that share its site, or its run, with none left.

    Attributes:
        point: place in the report's points.
        by: what was left out with it: every record of its "site" (the same step), or every record
            of its process "run".
        predicted_ms, low_ms, high_ms: the prediction and its band [ms].
    """

    point: int
    by: LeftOutBy
    predicted_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """Errors of one predictor over the left-out records of one phase.

    Attributes:
        by, phase, predictor: what was left out, whose steps, who predicted.
        cases: records asked for.
        median, p90, mape: median, 90th percentile and mean of |predicted / measured - 1|.
        bias: mean of predicted / measured - 1.
        in_band: share of measured times inside the band; None for a predictor without one.
    """

    by: LeftOutBy
    phase: str
    predictor: PredictorName
    cases: int
    median: float
    p90: float
    mape: float
    bias: float
    in_band: float | None


def error_row(
    by: LeftOutBy,
    phase: str,
    predictor: PredictorName,
    measured_ms: Sequence[float],
    predicted_ms: Sequence[float],
    band_ms: Sequence[tuple[float, float]] | None = None,
) -> ErrorRow:
    """One line of the table.

    Args:
        measured_ms, predicted_ms, band_ms: of each left-out record, at least one [ms].
    """
    measured = np.asarray(measured_ms, np.float64)
    errors = np.asarray(predicted_ms, np.float64) / measured - 1.0
    off = np.abs(errors)
    held = None
    if band_ms is not None:
        low, high = np.asarray(band_ms, np.float64).T
        held = float(((low <= measured) & (measured <= high)).mean())
    return ErrorRow(
        by=by,
        phase=phase,
        predictor=predictor,
        cases=measured.size,
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        mape=float(off.mean()),
        bias=float(errors.mean()),
        in_band=held,
    )


def plain_predictions(
    learn: Learn, steps: Sequence[Step], measured_ms: Sequence[float], groups: Sequence[Hashable]
) -> list[float]:
    """Every step as a plain predictor has it from the steps of other groups [ms].

    Args:
        learn: one of `PLAIN`.
        steps: measured ones.
        measured_ms: of each [ms].
        groups: of each; what is left out together has the same one. At least two differ.
    """
    answers = [0.0] * len(steps)
    for group in dict.fromkeys(groups):
        inside = [place for place, other in enumerate(groups) if other == group]
        outside = [place for place, other in enumerate(groups) if other != group]
        predict = learn([steps[p] for p in outside], [measured_ms[p] for p in outside])
        for place in inside:
            answers[place] = predict(steps[place])
    return answers
