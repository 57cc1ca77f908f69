"""What the physical part leaves, taken apart: place, process run, drift and noise.

The logarithm of measured over physical is the sum of
  - a smooth function of the physical features, which vanishes away from the rows (*local*),
  - one offset a process run, and a drift along its order: a warm-up that fades, and what wanders,
  - noise of each row, smaller where a row is the median of repeats.
Each has a covariance; their sizes are those under which the rows are likeliest, drawn to what other
campaigns show (`PRIOR`). One linear system then gives every part with its uncertainty, so that a
drift that repeats the order of the grid is not taken for physics more than it must be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from aisim_v41.evidence.forwards.samples import NO_ORDER, Floats, Places, Samples

SCALES: Final = ("local", "run", "drift", "noise")
PRIOR: Final = {
    "local": (0.02, 1.0),
    "run": (0.02, 0.5),
    "drift": (0.03, 0.7),
    "noise": (0.01, 1.0),
    "reach": (1.5, 0.5),
    "memory": (0.3, 0.5),
}
"""Median of each size, and the standard deviation of its logarithm. Run to run: eight published
hold-outs against tables of an earlier run are off by 0.8 to 5.5 %, in the middle by 1.3 %
(facts on the peer's FPM profiles), two runs of one GB300 campaign by 3-6 %; a difference is sqrt(2)
of a run's own. Single repeats: 0.3-4 %. Reach: in units of features, so that a factor of e^1.5 in
rows is one length. Memory: share of a run."""
WANDERS: Final = 0.3
"""Variance of a drift that may come at any moment of a run, as a share of that of a warm-up, which
fades from the start: all runs of the GB300 study are slower in their first quarter."""
LEAST: Final = 1e-4
"""Smallest standard deviation: keeps the system solvable where rows agree to the digit."""
FEATURE_REACH: Final = np.array([1.0, 1.5, 1.0, 2.0, 0.7])
"""Relative reach of the axes of `aisim_v41.evidence.forwards.samples.AXES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Standard deviations of the parts, and how far they reach.

    Attributes:
        local, run, noise: of log(time).
        drift: of log(time) at the start of a run, about where it settles.
        reach: distance in features over which the local part forgets.
        memory: share of a run over which a warm-up fades and a later drift forgets.
    """

    local: float
    run: float
    drift: float
    noise: float
    reach: float
    memory: float

    @property
    def moment(self) -> float:
        """Standard deviation of the drift at any moment of a run."""
        faded = 0.5 * self.memory * (1.0 - np.exp(-2.0 / self.memory))
        return float(self.drift * np.sqrt(WANDERS + faded))

    def own_run(self, runs: int) -> float:
        """Standard deviation of a row of a measured run about the mean of all runs.

        Args:
            runs: how many there are; one is its own mean.
        """
        about_mean = self.run**2 * (1.0 - 1.0 / runs)
        return float(np.sqrt(about_mean + self.moment**2 + self.noise**2))

    def new_run(self, runs: int) -> float:
        """Standard deviation of a step in a run that was not measured, its place known.

        Args:
            runs: measured ones, whose mean is the level that a new run differs from.
        """
        return float(np.sqrt(self.between_runs(runs) ** 2 + self.noise**2))

    def between_runs(self, runs: int) -> float:
        """Of that, what lies between runs: the new run's own, the level's, and that few runs do not
        show how much runs differ."""
        slow = self.run**2 + self.moment**2
        return float(np.sqrt(slow * (1.0 + 1.0 / runs) * (1.0 + 0.5 / runs)))


@dataclass(frozen=True, kw_only=True)
class Residual:
    """The parts, solved.

    Attributes:
        sizes: of the parts.
        features: of the rows [rows, axes].
        alpha: weights of the rows: covariance^-1 x residual.
        factor: Cholesky factor of their covariance.
        drifted: residual explained by run and drift [rows].
        middle: median of what is left then: predictions are medians, and noise may be skew.
    """

    sizes: Sizes
    features: Floats
    alpha: Floats
    factor: Floats
    drifted: Floats
    middle: float

    def local(self, features: Floats) -> Floats:
        """Expected local part at steps [steps]."""
        found: Floats = self._near(features) @ self.alpha
        return found

    def local_spread(self, features: Floats) -> Floats:
        """Standard deviation of the local part at steps [steps]."""
        near = self._near(features)
        known = np.einsum("ij,ji->i", near, cho_solve((self.factor, True), near.T))
        found: Floats = np.sqrt(np.maximum(self.sizes.local**2 - known, 0.0))
        return found

    def _near(self, features: Floats) -> Floats:
        return _local(features / self._reach, self._rows, self.sizes.local)

    @cached_property
    def _reach(self) -> Floats:
        return self.sizes.reach * FEATURE_REACH

    @cached_property
    def _rows(self) -> tuple[Floats, Floats]:
        return _scaled(self.features, self._reach)


def solve(samples: Samples, residual: Floats, sizes: Sizes, weights: Floats) -> Residual:
    """The parts of a residual under given sizes.

    Args:
        samples: the rows.
        residual: log(measured/physical) [rows].
        sizes: of the parts.
        weights: of the rows, at most 1; rows of weight 0 say nothing.
    """
    slow = _slow(samples, sizes)
    reach = sizes.reach * FEATURE_REACH
    near = _local(samples.features / reach, _scaled(samples.features, reach), sizes.local)
    covariance = near + slow
    covariance[np.diag_indices(len(residual))] += _noise(samples, sizes, weights)
    factor, _ = cho_factor(covariance, lower=True)
    alpha = cho_solve((factor, True), residual)
    drifted = slow @ alpha
    left = (residual - near @ alpha - drifted)[weights > 0]
    return Residual(
        sizes=sizes, features=samples.features, alpha=alpha, factor=factor, drifted=drifted,
        middle=float(np.median(left)) if len(left) else 0.0,
    )  # fmt: skip


def likeliest_sizes(samples: Samples, residual: Floats, weights: Floats) -> Sizes:
    """Sizes under which the residual is likeliest, with their prior.

    Rows of weight 0 take no part: each would ask for less noise.
    """
    seen = weights > 0
    samples, residual, weights = samples.at(seen), residual[seen], weights[seen]
    names = list(PRIOR)
    middle = np.log([PRIOR[name][0] for name in names])
    width = np.array([PRIOR[name][1] for name in names])
    free = np.array([name in _free(samples) for name in names])

    def sizes(chosen: Floats) -> Sizes:
        logs = middle.copy()
        logs[free] += chosen
        found = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return Sizes(**found if "drift" in _free(samples) else found | {"drift": 0.0})

    def unlikeliness(chosen: Floats) -> float:
        found = solve(samples, residual, sizes(chosen), weights)
        fit = 0.5 * float(residual @ found.alpha) + float(np.log(np.diag(found.factor)).sum())
        return fit + 0.5 * float(np.square(chosen / width[free]).sum())

    bounds = [(-3.0 * w, 3.0 * w) for w in width[free]]
    end = minimize(unlikeliness, np.zeros(int(free.sum())), method="L-BFGS-B", bounds=bounds,
                   options={"maxiter": 40})  # fmt: skip
    return sizes(end.x)


def leave_out(
    samples: Samples, residual: Floats, sizes: Sizes, weights: Floats, left: Places
) -> tuple[Floats, Floats]:
    """Local part and middle of rows as the others give them, and the local part's standard
    deviation.

    Args:
        left: the rows that are left out.
    """
    kept = np.setdiff1d(np.arange(len(residual)), left)
    if not len(kept):
        return np.zeros(len(left)), np.full(len(left), sizes.local)
    found = solve(samples.at(kept), residual[kept], sizes, weights[kept])
    features = samples.features[left]
    return found.local(features) + found.middle, found.local_spread(features)


def _free(samples: Samples) -> set[str]:
    """Sizes that the rows can say something about; the others keep their prior."""
    free = {"local", "noise", "reach"}
    if samples.runs > 1:
        free.add("run")
    if np.any(samples.order != NO_ORDER):
        free |= {"drift", "memory"}
    return free


def _scaled(features: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """Rows in units of reach, transposed and doubled, and their squared lengths."""
    rows = features / reach
    return 2.0 * rows.T, np.square(rows).sum(axis=1)


def _local(steps: Floats, rows: tuple[Floats, Floats], size: float) -> Floats:
    """Covariance of the local part between steps in units of reach and `_scaled` rows (Matern
    3/2)."""
    doubled, lengths = rows
    square = np.square(steps).sum(axis=1)[:, None] + lengths - steps @ doubled
    distance = np.sqrt(3.0 * np.maximum(square, 0.0))
    found: Floats = size**2 * (1.0 + distance) * np.exp(-distance)
    return found


def _slow(samples: Samples, sizes: Sizes) -> Floats:
    """Covariance of run and drift between rows."""
    same = samples.run[:, None] == samples.run
    known = samples.order != NO_ORDER
    apart = np.abs(samples.order[:, None] - samples.order)
    started = np.exp(-(samples.order[:, None] + samples.order) / sizes.memory)
    wanders = WANDERS * np.exp(-apart / sizes.memory)
    drift = sizes.drift**2 * (started + wanders) * (known[:, None] & known)
    found: Floats = same * ((sizes.run**2 if samples.runs > 1 else 0.0) + drift)
    return found


def _noise(samples: Samples, sizes: Sizes, weights: Floats) -> Floats:
    """Variance of each row alone [rows]: between steps, and of its repeats.

    Where a row does not say how wide its repeats are, they are as wide as those that do.
    """
    known = samples.spread[np.isfinite(samples.spread)]
    usual = float(np.median(known)) if len(known) else 0.0
    spread = np.where(np.isfinite(samples.spread), samples.spread, usual)
    repeats = np.square(spread) / samples.repeats
    found: Floats = (sizes.noise**2 + repeats) / np.maximum(weights, 1e-8) + LEAST**2
    return found
