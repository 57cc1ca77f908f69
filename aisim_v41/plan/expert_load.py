"""How many distinct experts rows touch, given how alike experts are chosen.

Rows draw top-k experts each. With p_e the probability that one row includes expert e, N independent
rows touch Σ_e 1 − (1 − p_e)^N experts. A popularity says what the p_e are. Sources and what is
taken as true: docs/assumptions.md, "Experts".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Experts, Model
from aisim_v41.plan.policy import RuntimePolicy

Floats = npt.NDArray[np.float64]
CERTAIN = -1e3
"""Logarithm of the chance to miss an expert that every row includes."""
ALIKE = 1e-12
"""Popularities that differ less than this are alike: the difference is below rounding."""
_NEARLY_ALIKE = 1e-6
"""The same where the number of draws is not known but read off what they touched."""
_LEAST = 1e-9
"""Share of experts missed below which it makes no difference."""
BLOCK = 4096
"""Numbers of draws evaluated at once against a histogram."""


@dataclass(frozen=True)
class ExpertLoad:
    """Distinct experts touched by independent draws.

    Args:
        routed: experts of a layer, E.
        top_k: experts of a row, k.
        popularity: 0 for experts that are all alike; a number for unlike ones; or the measured
            share of all choices of each expert.

    With 0 it is E (1 − (1 − k/E)^N). With a number v, the hazards −ln(1 − p_e) are gamma
    distributed with squared coefficient of variation v, so that

        touched = E (1 − (1 + c N)^(−1/v)),   c = (1 − k/E)^(−v) − 1,

    the Laplace transform of that distribution, scaled so that one draw touches k. With shares,
    p_e = min(1, s share_e), s such that Σ p_e = k.

    Raises:
        InvalidInputError: shares that are not one an expert, or fewer than k above 0.

    >>> ExpertLoad(384, 6, 0.0).touched(np.array([0.0, 1.0, 64.0])).round(2)
    array([  0.  ,   6.  , 243.85])
    >>> ExpertLoad(384, 6, 1.0).touched(np.array([0.0, 1.0, 64.0])).round(2)
    array([  0.  ,   6.  , 193.51])
    """

    routed: int
    top_k: int
    popularity: float | tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.popularity, tuple):
            return
        if len(self.popularity) != self.routed:
            raise InvalidInputError(
                f"policy field expert_popularity has {len(self.popularity)} shares: the model has "
                f"{self.routed} routed experts; give one share each"
            )
        chosen = sum(share > 0 for share in self.popularity)
        if chosen < self.top_k:
            raise InvalidInputError(
                f"policy field expert_popularity: {chosen} shares are above 0, but a row chooses "
                f"{self.top_k} experts; give at least as many"
            )

    def among(self, experts: Experts) -> ExpertLoad:
        """The load of other experts that are chosen as unlike as these."""
        return ExpertLoad(experts.routed, experts.top_k, self.variation)

    def touched(self, draws: Floats) -> Floats:
        """Expected distinct experts of so many draws, element by element; 0 for none."""
        if isinstance(self.popularity, tuple):
            return self._of_histogram(draws)
        if self.popularity > ALIKE and self.top_k < self.routed:
            exponent = np.log1p(draws * self._scale) * (-1.0 / self.popularity)
        else:
            exponent = draws * self._log_miss
        found: Floats = np.expm1(exponent) * -float(self.routed)
        return found

    def together(self, some: Floats, others: Floats) -> Floats:
        """Expected distinct experts of two sets of draws that favour experts independently.

        An expert that the one misses in a share of all cases, the other misses as often as any
        other: E - (E - a)(E - b) / E. So for text and images, each routed by a bias of its own.

        >>> load = ExpertLoad(384, 6, 0.0)
        >>> three, five = load.touched(np.array([3.0, 5.0]))
        >>> bool(np.isclose(load.together(three, five), load.touched(np.array(8.0))))
        True
        """
        return np.asarray(some + others - some * others / self.routed)

    def one_more(self, touched: Floats) -> Floats:
        """Expected distinct experts where one more draw follows those that touched so many.

        From E - touched = E (1 + c N)^(-1/v) without knowing N; a histogram counts by its
        variation, up to the experts that it asks for.
        """
        missed = np.maximum(1.0 - touched / self.routed, _LEAST)
        popularity = self.variation
        if popularity <= _NEARLY_ALIKE:
            return np.asarray(touched + self.top_k * missed)
        scale = np.expm1(-popularity * self._log_miss)
        left = (missed**-popularity + scale) ** (-1.0 / popularity)
        found: Floats = self.routed * (1.0 - left)
        if isinstance(self.popularity, tuple):
            np.minimum(found, np.count_nonzero(self.inclusion), out=found)
        return found

    @cached_property
    def variation(self) -> float:
        """Squared coefficient of variation of the popularity."""
        if isinstance(self.popularity, tuple):
            mean_square = float(np.square(self.inclusion).mean())
            return max(0.0, mean_square * (self.routed / self.top_k) ** 2 - 1.0)
        return float(self.popularity)

    @cached_property
    def _log_miss(self) -> float:
        missed = 1.0 - self.top_k / self.routed
        return float(np.log(missed)) if missed > 0 else CERTAIN

    @cached_property
    def _scale(self) -> float:
        assert not isinstance(self.popularity, tuple)
        return float(np.expm1(-self.popularity * self._log_miss))

    @cached_property
    def inclusion(self) -> Floats:
        """Chance that a row includes each expert of a histogram [experts], most likely first."""
        shares = np.sort(np.asarray(self.popularity, np.float64))[::-1]
        # The first n experts are certain; the rest split the k − n others by their shares.
        rest = np.cumsum(shares[::-1])[::-1]
        certain = 0
        while certain < self.top_k and (
            shares[certain] * (self.top_k - certain) >= rest[certain] > 0
        ):
            certain += 1
        left = self.top_k - certain
        found: Floats = np.ones_like(shares)
        found[certain:] = shares[certain:] * (left / rest[certain]) if left else 0.0
        return found

    @cached_property
    def _log_misses(self) -> Floats:
        """[experts], those that are never chosen left out."""
        chances = self.inclusion[self.inclusion > 0]
        sure = chances >= 1.0
        return np.where(sure, CERTAIN, np.log1p(-np.where(sure, 0.0, chances)))

    def _of_histogram(self, draws: Floats) -> Floats:
        flat = np.asarray(draws, np.float64).reshape(-1)
        found = np.empty_like(flat)
        for first in range(0, len(flat), BLOCK):
            part = flat[first : first + BLOCK, None]
            found[first : first + BLOCK] = -np.expm1(part * self._log_misses).sum(axis=1)
        return found.reshape(np.shape(draws))


def load_of(model: Model, policy: RuntimePolicy) -> ExpertLoad:
    """The load of a model's experts under a policy.

    Raises:
        InvalidInputError: a histogram that does not fit the model.
    """
    experts = model.experts
    return ExpertLoad(experts.routed, experts.top_k, policy.expert_popularity)
