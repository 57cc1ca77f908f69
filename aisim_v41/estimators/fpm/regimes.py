"""Which rows of a table may be fitted together, and which steps they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.fpm.samples import MeasuredSteps
from aisim_v41.evidence.forwards.regimes import Regime, find_regimes
from aisim_v41.units import MILLISECOND

LEAST_S: Final = 1e-9
"""Time that stands for none."""


@dataclass(frozen=True, slots=True)
class Known:
    """A measured step: the median of its runs [s], and its records."""

    seconds: float
    records: tuple[int, ...]


def regimes_of(steps: MeasuredSteps) -> tuple[Regime, ...]:
    """The regimes of a table's rows, by what they take relative to OP."""
    samples = steps.samples
    host, device = samples.terms.host_s, samples.terms.predicted_s
    ratio = np.log(samples.seconds / np.maximum(np.maximum(host, device), LEAST_S))
    return find_regimes(ratio, samples.seconds, samples.features, steps.runs, steps.labels)


def of_regime(
    steps: MeasuredSteps, regimes: tuple[Regime, ...], chosen: str | None, name: str
) -> MeasuredSteps:
    """Rows of the chosen regime.

    Args:
        steps: all rows.
        regimes: what they fall into.
        chosen: name of one; None where there is only one.
        name: of the table.

    Raises:
        UnsupportedPlanError: several and none chosen, or none of that name.
    """
    if len(regimes) == 1 and chosen in (None, regimes[0].name):
        return steps
    listed = "\n".join(
        f"  {one.name}: {len(one.rows)} rows, {one.low_s / MILLISECOND:.1f} to "
        f"{one.high_s / MILLISECOND:.1f} ms"
        for one in regimes
    )
    where = f"table {name}"
    if chosen is None:
        raise UnsupportedPlanError(
            f"{where} holds {len(regimes)} regimes: steps at the same coordinates that no noise "
            f"brings together\n{listed}\nchoose one: regime=... (in the shell --regime)"
        )
    named = [one for one in regimes if one.name == chosen]
    if not named:
        raise UnsupportedPlanError(f"{where} has no regime {chosen!r}; it has\n{listed}")
    return steps.at(np.array(named[0].rows, np.intp))


def known_steps(steps: MeasuredSteps, flagged: frozenset[int]) -> dict[bytes, Known]:
    """Steps that were measured and are believed: the median over runs of each run's median."""
    by_step: dict[bytes, dict[str, list[tuple[float, int]]]] = {}
    for row, (mark, run, record) in enumerate(
        zip(steps.marks, steps.runs, steps.records, strict=True)
    ):
        if record not in flagged:
            time = float(steps.samples.seconds[row])
            by_step.setdefault(mark, {}).setdefault(run, []).append((time, record))
    return {
        mark: Known(
            float(np.median([np.median([time for time, _ in rows]) for rows in runs.values()])),
            tuple(record for rows in runs.values() for _, record in rows),
        )
        for mark, runs in by_step.items()
    }
