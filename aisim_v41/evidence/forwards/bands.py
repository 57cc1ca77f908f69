"""How wide a band must be to hold what it promises, from rows that the fit did not see.

Split conformal prediction with scores in standard deviations, by groups: rows of one process run
err together, so that the run (or, within one, the site) is what counts, not the row. Few groups
cannot show a quantile; then the answer is drawn to the normal one, and never below it: runs that
happen to agree have already made the standard deviation small. (Vovk, Gammerman and Shafer,
Algorithmic Learning in a Random World, ch. 2; groups as in Dunn, Wasserman and Ramdas,
Distribution-free prediction sets for two-layer hierarchical models, JASA 2023.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtri

from aisim_v41.evidence.forwards.samples import Floats, Places

LEVEL: Final = 0.9
"""Share of steps that a band should hold."""
GROUPS_OF_THE_NORMAL: Final = 4.0
"""Groups that the normal quantile counts as."""
WIDEST: Final = 4.0
"""Largest half-width in standard deviations."""


@dataclass(frozen=True, slots=True)
class Band:
    """Half-width of a band in standard deviations of log(time).

    Attributes:
        width: the half-width.
        level: share that it should hold.
        groups: independent groups behind it.
        held: share of left-out rows inside, each group counting alike.
    """

    width: float
    level: float
    groups: int
    held: float


def normal_width(level: float) -> float:
    """Half-width that holds such a share of a normal distribution, in standard deviations.

    >>> round(normal_width(0.9), 3)
    1.645
    """
    return float(ndtri(0.5 + level / 2.0))


def calibrate(scores: Floats, group: Places, level: float = LEVEL) -> Band:
    """The half-width under which left-out rows lie inside as often as promised.

    Args:
        scores: |log(measured/predicted)| over its standard deviation [rows].
        group: rows that err together [rows].
        level: share that should lie inside.

    >>> calibrate(np.linspace(0.0, 2.0, 201), np.arange(201)).width > 1.6
    True
    """
    normal = normal_width(level)
    names, members = np.unique(group, return_inverse=True)
    weights = 1.0 / (len(names) * np.bincount(members)[members])
    order = np.argsort(scores)
    reached = np.cumsum(weights[order])
    wanted = min(level * (1.0 + 1.0 / len(names)), 1.0)
    shown = float(
        scores[order][min(int(np.searchsorted(reached, wanted - 1e-12)), len(scores) - 1)]
    )
    share = len(names) / (len(names) + GROUPS_OF_THE_NORMAL)
    width = min(share * shown + (1.0 - share) * normal, WIDEST)
    if wanted == 1.0:  # so few groups show no quantile, only their worst
        width = max(width, normal)
    held = float(weights[scores <= width].sum())
    return Band(width=width, level=level, groups=len(names), held=held)
