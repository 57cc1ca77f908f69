"""Correction from live observations: slow to believe, quick to forget, and revocable.

An observation says log(observed/predicted) at a place. The correction of a step is the weighted
mean of what was said near it, drawn to none:

    correction = sum of w_i k_i r_i / (sum of w_i k_i + GUARD)

with k the nearness in features and w a weight that halves every `HALF_LIFE` believed ones. Guards:
fewer than `COLD` observations of a phase change nothing; each r is cut to a few standard
deviations, so that no single one says much; and one beyond any drift (`WILD`) is kept in the record
and never learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from aisim_v41.errors import SchemaError
from aisim_v41.evidence.forwards.residual import FEATURE_REACH
from aisim_v41.evidence.forwards.samples import Floats

COLD: Final = 5
"""Believed observations of a phase before they are used."""
GUARD: Final = 6.0
"""Observations that the table counts as against new ones."""
HALF_LIFE: Final = 64.0
"""Observations after which one weighs half."""
KEPT: Final = 512
"""Observations that are kept."""
REACH: Final = 3.0
"""Reach of an observation, in the units of the local part's reach."""
CUT: Final = 3.0
"""Standard deviations of the table to which what an observation says is cut."""
WILD: Final = 0.4
"""log(observed/predicted) beyond which an observation is not believed, or 6 standard deviations
where those are more: no drift or run-to-run difference known is as large (a factor of 1.5)."""
WILD_SPREADS: Final = 6.0
MOST_WILD: Final = 2.0
"""What is never believed, however wide a table scatters: a factor of 7."""
MOST_FEATURE: Final = 1e3
"""Far beyond any feature, which are logarithms and shares."""
MOST_SPREAD: Final = 10.0


@dataclass(frozen=True, slots=True)
class Correction:
    """What observations have taught so far; each step of learning is a new value.

    Attributes:
        features: of believed observations, oldest first [observations, axes].
        ratio: what they say, cut [observations].
        seen: observations so far, believed or not.
        when: place of each among the believed ones [observations].
        believed: observations so far that were believed.
        wild: numbers and ratios of those not believed, the last `KEPT`.
        spread: standard deviation of log(time) in the table.
    """

    spread: float
    features: Floats = field(default_factory=lambda: np.empty((0, len(FEATURE_REACH))))
    ratio: Floats = field(default_factory=lambda: np.empty(0))
    when: Floats = field(default_factory=lambda: np.empty(0))
    seen: int = 0
    believed: int = 0
    wild: tuple[tuple[int, float], ...] = ()

    def learnt(self, features: Floats, ratio: Floats) -> Correction:
        """With more observations.

        Args:
            features: of the observed steps [observations, axes].
            ratio: log(observed / predicted by the table alone) [observations].
        """
        number = self.seen + np.arange(len(ratio))
        believed = np.abs(ratio) <= min(max(WILD, WILD_SPREADS * self.spread), MOST_WILD)
        cut = np.clip(ratio[believed], -CUT * self.spread, CUT * self.spread)
        wild = tuple(zip(number[~believed].tolist(), ratio[~believed].tolist(), strict=True))
        when = self.believed + np.arange(len(cut), dtype=float)
        return replace(
            self,
            features=np.concatenate([self.features, features[believed]])[-KEPT:],
            ratio=np.concatenate([self.ratio, cut])[-KEPT:],
            when=np.concatenate([self.when, when])[-KEPT:],
            seen=self.seen + len(ratio),
            believed=self.believed + len(cut),
            wild=(*self.wild, *wild)[-KEPT:],
        )

    def at(self, features: Floats) -> Floats:
        """log of the factor on predictions of steps [steps]."""
        if len(self.ratio) < COLD:
            return np.zeros(len(features))
        weight = 0.5 ** ((self.believed - self.when) / HALF_LIFE)
        reach = REACH * FEATURE_REACH
        apart = (features[:, None, :] - self.features) / reach
        near = weight * np.exp(-0.5 * np.square(apart).sum(axis=2))
        alike = (features[:, None, -1] > 0) == (self.features[:, -1] > 0)
        near *= alike
        enough = alike.sum(axis=1) >= COLD
        found: Floats = enough * (near @ self.ratio) / (near.sum(axis=1) + GUARD)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which `from_dict` makes it again."""
        return {
            "spread": self.spread,
            "features": self.features.tolist(),
            "ratio": self.ratio.tolist(),
            "when": self.when.tolist(),
            "seen": self.seen,
            "believed": self.believed,
            "wild": [list(one) for one in self.wild],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, where: str) -> Correction:
        """What `to_dict` wrote.

        Raises:
            SchemaError: a field is missing or cannot be; names it and ``where``.
        """
        try:
            found = cls(
                spread=float(content["spread"]),
                features=np.array(content["features"], float).reshape(-1, len(FEATURE_REACH)),
                ratio=np.array(content["ratio"], float),
                when=np.array(content["when"], float),
                seen=int(content["seen"]),
                believed=int(content["believed"]),
                wild=tuple((int(number), float(ratio)) for number, ratio in content["wild"]),
            )
        except KeyError as error:
            raise SchemaError(f"{where}: {error.args[0]} is missing") from None
        except (OverflowError, TypeError, ValueError) as error:
            raise SchemaError(f"{where}: {error}") from None
        size = (len(found.features),)
        if found.ratio.shape != size or found.when.shape != size:
            raise SchemaError(f"{where}: features, ratio and when must be equally many")
        if not 0.0 < found.spread <= MOST_SPREAD:
            raise SchemaError(f"{where}: spread = {found.spread} cannot be")
        most = CUT * found.spread * (1.0 + 1e-9)
        for name, values, low, high in (
            ("features", found.features, -MOST_FEATURE, MOST_FEATURE),
            ("ratio", found.ratio, -most, most),
            ("when", found.when, 0.0, found.believed),
            ("believed", np.array(found.believed), 0.0, found.seen),
        ):
            if not np.all((values >= low) & (values <= high)):
                raise SchemaError(f"{where}: {name} must be from {low:g} to {high:g}")
        return found
