"""What a fit of whole forwards says of measured steps that it has not seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aisim_v41.estimators.fpm.estimator import Fpm
from aisim_v41.forwards.records import StepRecord
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.plain import phase_of

if TYPE_CHECKING:
    import pandas as pd


def unseen(fpm: Fpm, records: Iterable[StepRecord]) -> pd.DataFrame:
    """Predictions of measured steps, those outside of what the fit knows too.

    Args:
        fpm: a fit.
        records: of the same identity; what failed, and sums that name no single step, is left out.

    Returns:
        One row a record: phase, measured, predicted, low, high [ms], error, domain ("inside",
        "edge" or "outside" what was fitted); the columns that `aisim_v41.pictures.predictions`
        draws.
    """
    import pandas as pd

    rows = []
    for record in records:
        if record.requests is None or record.latency_ms is None:
            continue
        requests = [request for request in record.requests if request.count]
        said = fpm.predict(requests, extrapolate=True)
        rows.append(
            {
                "phase": phase_of(requests),
                "measured": record.latency_ms,
                "predicted": said.latency_ms,
                "low": said.band_s[0] / MILLISECOND,
                "high": said.band_s[1] / MILLISECOND,
                "error": said.latency_ms / record.latency_ms - 1.0,
                "domain": said.domain.verdict,
            }
        )
    return pd.DataFrame(rows)
