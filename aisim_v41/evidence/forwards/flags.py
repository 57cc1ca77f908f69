"""Rows that cannot be believed: found against the others, left out of the fit, never deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import cho_solve

from aisim_v41.evidence.forwards.residual import Residual
from aisim_v41.evidence.forwards.samples import Floats

FIRST_RATIO: Final = 0.35
"""Distance [log] from the middle of its neighbours beyond which a row sits out the first fit."""
NEIGHBOURS: Final = 6
"""Nearest rows that a row is first held against."""
FIRST_SPREADS: Final = 6.0
"""That distance in robust standard deviations, where the rows themselves are wider."""
SPREADS: Final = 5.0
"""Standard deviations from what the other rows say at which a row is flagged."""
LEAST_RATIO: Final = 0.05
"""Distance [log] below which a row is never flagged, however quiet the others are."""
NORMAL: Final = 1.4826
"""Standard deviation over the median absolute deviation of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A row that the fit does not believe.

    Attributes:
        row: its number in the samples.
        ratio: measured over expected.
        reason: for a reader.
    """

    row: int
    ratio: float
    reason: str


def apart(residual: Floats, features: Floats) -> Floats:
    """Weights of a first fit: 0 for rows far from their neighbours [rows].

    Neighbours are compared, not the fit, which may still be far off.

    Args:
        residual: log(measured/physical).
        features: [rows, axes].
    """
    rows = len(residual)
    if rows <= NEIGHBOURS:
        return np.ones(rows)
    square = np.square(features).sum(axis=1)
    distance = square[:, None] + square - 2.0 * features @ features.T
    near = np.argsort(distance, axis=1, kind="stable")[:, : NEIGHBOURS + 1]
    away = np.abs(residual - np.median(residual[near], axis=1))
    limit = max(FIRST_RATIO, FIRST_SPREADS * NORMAL * float(np.median(away)))
    return (away <= limit).astype(float)


def unlike_the_others(found: Residual, residual: Floats, weights: Floats) -> Floats:
    """How far each row lies from what all other rows say of it, run and drift included [rows].

    Rows of weight 0 are compared with the fit that they had no part in. In logarithms; rows that
    are close enough are 0.
    """
    inverse = np.diag(cho_solve((found.factor, True), np.eye(len(residual))))
    miss = found.alpha / inverse
    sizes = found.sizes
    whole = sizes.local**2 + sizes.run**2 + sizes.moment**2 + sizes.noise**2
    alone = np.where(weights > 0, 1.0 / inverse, whole)
    far = np.abs(miss) > np.maximum(SPREADS * np.sqrt(alone), LEAST_RATIO)
    return np.where(far, miss, 0.0)
