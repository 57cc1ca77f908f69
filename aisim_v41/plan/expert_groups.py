"""Experts in groups of ranks: how many groups a row reaches, and how much the fullest has to do.

Expert parallelism gives each of ``parts`` groups as many experts. The layer waits for the fullest,
so the mean share of a group is a floor and no estimate. Sources and what is taken as true:
docs/assumptions.md, "Expert parallelism".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_FARTHEST: Final = 10.0
_STEPS: Final = 4000
"""Grid of the integrals over a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """How the rows of a rank spread over others: each goes to those that hold an expert of it.

    Attributes:
        routed: experts of a layer, copies counted.
        top_k: experts of a row.
        fewest: count what holds whatever is routed, not what is expected.

    >>> round(Scatter(384, 6, fewest=False).reached(4), 4)  # of four ranks with 96 experts each
    3.2974
    >>> Scatter(384, 6, fewest=True).reached(4)
    1.0
    """

    routed: int
    top_k: int
    fewest: bool

    def reached(self, parts: int) -> float:
        """Parts of so many equal ones that hold an expert of a row [1].

        A row draws its experts without returning any, each alike, so that it misses a part of E/g
        experts with C(E − E/g, k)/C(E, k). At least ceil(k g/E) parts hold them.

        Args:
            parts: that the experts are divided into; they divide ``routed``.
        """
        own = self.routed // parts
        if self.fewest:
            return float(math.ceil(self.top_k / own))
        missed = math.comb(self.routed - own, self.top_k) / math.comb(self.routed, self.top_k)
        return parts * (1.0 - missed)


class Fullest(NamedTuple):
    """The group with the most to do, as expected.

    Attributes:
        choices: rows times their experts that it computes [1].
        touched: distinct experts whose weights it reads [1].
    """

    choices: Floats
    touched: Floats


def fullest_group(
    choices: Floats,
    touched: Floats,
    parts: int,
    experts: Floats | float,
    variation: Floats | float,
    imbalance: float = 0.0,
) -> Fullest:
    """Work of the fullest of ``parts`` groups, element by element.

    The counts of a group have a mean m, a variance s² and a third cumulant; the largest of n such
    counts lies c₁ s + κ₃/s² (c₂ − 1)/6 above the mean, with c₁ and c₂ the expected largest of n
    normal variables and its expected square (Cornish-Fisher). For choices, popularities of
    squared variation v make m = N k/g, s² = m + w m² and κ₃/s² = 1 + 2 w m, with w = v g/E: what
    chance does fades with rows, what popularity does stays. Experts touched are a binomial of the
    group's own: s² = m (1 − t), κ₃/s² = 1 − 2 t at a share t touched.

    Args:
        choices: rows times experts of a row, of all groups [1].
        touched: distinct experts, of all groups [1].
        parts: groups, g.
        experts: experts of all groups, copies counted, E.
        variation: squared coefficient of variation of the experts' popularity that placement does
            not even out, v.
        imbalance: work of the fullest over the mean, where that is known; 0: as above.
    """
    mean, distinct, own = choices / parts, touched / parts, experts / parts
    if imbalance:
        return Fullest(mean * imbalance, np.minimum(distinct * imbalance, own))
    first, second = largest_normal(parts)
    stays = variation / own
    share = np.minimum(distinct / own, 1.0)
    more = first * np.sqrt(mean + stays * mean * mean) + (1.0 + 2.0 * stays * mean) * second
    further = first * np.sqrt(distinct * (1.0 - share)) + (1.0 - 2.0 * share) * second
    there = np.minimum(choices, 1.0)
    largest = np.minimum(mean + there * more, choices)
    read = np.minimum(distinct + there * np.maximum(further, 0.0), np.minimum(own, touched))
    return Fullest(largest, np.maximum(read, distinct))


def of_copies(touched: Floats, experts: Floats | float, copies: Floats | float) -> Floats:
    """Distinct copies of experts that are read where experts have copies on several ranks.

    Choices of an expert spread over its copies. With copies alike, a copy is missed as often as a
    draw among E + R misses it: (E + R)(1 − (1 − touched/E)^(E/(E + R))).

    Args:
        touched: distinct experts [1].
        experts: E.
        copies: E + R.
    """
    missed = np.maximum(1.0 - touched / experts, 0.0)
    return np.asarray(copies * (1.0 - missed ** (experts / copies)))


@cache
def largest_normal(count: int) -> tuple[float, float]:
    """Expected largest of so many normal variables, and (expected square − 1)/6.

    >>> [round(value, 3) for value in largest_normal(2)]  # 1/sqrt(pi), and 0
    [0.564, 0.0]
    """
    step = 2.0 * _FARTHEST / _STEPS
    at = (np.arange(_STEPS) + 0.5) * step - _FARTHEST
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in at]) ** count
    beyond = np.where(at > 0, 1.0 - below, -below) * step
    first, square = float(beyond.sum()), float((2.0 * at * beyond).sum())
    return first, (square - 1.0) / 6.0
