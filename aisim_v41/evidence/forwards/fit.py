"""A table of measured forwards becomes a predictor of log(time), with its own errors.

The physical part, then what it leaves, then which rows to believe, until nothing changes; then
every site and every run is left out once, to know how far predictions are off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from aisim_v41.evidence.forwards.bands import Band, calibrate, normal_width
from aisim_v41.evidence.forwards.flags import (
    LEAST_RATIO,
    SPREADS,
    Flag,
    apart,
    unlike_the_others,
)
from aisim_v41.evidence.forwards.physical import Physical, fit_physical
from aisim_v41.evidence.forwards.residual import (
    Residual,
    Sizes,
    leave_out,
    likeliest_sizes,
    solve,
)
from aisim_v41.evidence.forwards.samples import Floats, Places, Samples, Terms
from aisim_v41.evidence.forwards.thin import Merged, merged, spread_out

ROUNDS: Final = 4
"""Times that rows to believe are chosen anew."""
FOLDS: Final = 12
"""Parts in which sites are left out."""
MOST_ROWS: Final = 400
"""Rows of the linear system; of more, those that lie farthest apart stand for the others."""
FIRST_NOISE: Final = 0.03
"""Standard deviation of log(time) before anything is known."""
LEAST_NOISE: Final = 0.01
"""Smallest such deviation: no kernel's time follows the terms more closely."""


class LeftOut(NamedTuple):
    """Rows as the others predict them.

    Attributes:
        group: what was left out together with each row of the fit.
        predicted_s: the prediction [s].
        spread: its standard deviation in log(time).
    """

    group: Places
    predicted_s: Floats
    spread: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardFit:
    """A fitted table.

    Attributes:
        samples: rows of the fit: those of one step in one run are one, and of very many the ones
            that lie farthest apart.
        members: given rows behind each of them.
        weights: of the rows, 0 where one is not believed.
        physical: floor and factors.
        residual: the parts of what that leaves.
        flags: given rows that are not believed.
        sites_left_out: every row as the rows of other steps predict it, in a run that is known.
        runs_left_out: every row as the other runs predict it; None with one run.
        band: half-width of predictions.
    """

    samples: Samples
    members: tuple[Places, ...]
    weights: Floats
    physical: Physical
    residual: Residual
    flags: tuple[Flag, ...]
    sites_left_out: LeftOut
    runs_left_out: LeftOut | None
    band: Band

    @property
    def sizes(self) -> Sizes:
        """Standard deviations of the parts of the residual."""
        return self.residual.sizes

    def log_seconds(self, terms: Terms, features: Floats) -> Floats:
        """log of the expected seconds of steps [steps]."""
        left = self.residual.local(features) + self.residual.middle
        found: Floats = np.log(self.physical.seconds(terms)) + left
        return found

    def spread(self, terms: Terms, features: Floats) -> Floats:
        """Standard deviation of the logarithm of a measurement in a new run [steps].

        With one run nothing here says how runs differ: the prior does.
        """
        parts = np.square(self.physical.spread(terms))
        parts += np.square(self.residual.local_spread(features))
        found: Floats = np.sqrt(parts + self.sizes.new_run(self.samples.runs) ** 2)
        return found

    def half_width(self, spread: Floats) -> Floats:
        """Half-width of the band in log(time) for such spreads [steps]."""
        if self.runs_left_out is not None:
            return np.asarray(self.band.width * spread)
        untested = self.sizes.between_runs(1) ** 2
        inside = np.square(self.band.width) * np.maximum(np.square(spread) - untested, 0.0)
        return np.asarray(np.sqrt(inside + normal_width(self.band.level) ** 2 * untested))


def fit_forwards(samples: Samples) -> ForwardFit:
    """Fit one regime of one identity.

    Args:
        samples: at least one row.
    """
    every = merged(samples)
    chosen = every
    if len(every.samples) > MOST_ROWS:
        chosen = every.at(spread_out(every.samples.features, MOST_ROWS))
    rows = chosen.samples
    first = fit_physical(rows.terms, rows.seconds, FIRST_NOISE)
    weights = apart(_ratio(rows, first), rows.features)
    physical, residual = _parts(rows, weights, FIRST_NOISE)
    for _ in range(ROUNDS):
        misses = unlike_the_others(residual, _ratio(rows, physical), weights)
        if misses.all():
            misses = np.zeros_like(misses)  # nobody is left of whom the others are unlike
        believed = (misses == 0).astype(float)
        settled = np.array_equal(believed, weights)
        weights = believed
        physical, residual = _parts(rows, weights, _noise(rows, residual.sizes))
        if settled:
            break
    noise = _noise(rows, residual.sizes)
    left_out = partial(_left_out, rows, residual.sizes, weights, noise, physical)
    sites = left_out(_folds(rows.site), within=True)
    runs = None
    if rows.runs > 1:
        runs = left_out(rows.run, within=False)
    judged, group = (sites, rows.site) if runs is None else (runs, rows.run)
    score = np.abs(np.log(rows.seconds / judged.predicted_s)) / judged.spread
    seen = weights > 0
    found = ForwardFit(
        samples=rows, members=chosen.members, weights=weights, physical=physical,
        residual=residual, flags=(), sites_left_out=sites, runs_left_out=runs,
        band=calibrate(score[seen], group[seen]),
    )  # fmt: skip
    misses_of = {row: miss for row, miss in enumerate(misses) if not weights[row]}
    wild = [(member, misses_of[row]) for row in misses_of for member in chosen.members[row]]
    return replace(found, flags=_flags([*wild, *every.wild.items(), *_unseen(found, every)]))


def _parts(rows: Samples, weights: Floats, noise: float) -> tuple[Physical, Residual]:
    """The physical part of rows, and the likeliest parts of what it leaves."""
    physical = fit_physical(rows.terms, rows.seconds, noise, weights)
    ratio = _ratio(rows, physical)
    sizes = likeliest_sizes(rows, ratio, weights)
    return physical, solve(rows, ratio, sizes, weights)


def _noise(rows: Samples, sizes: Sizes) -> float:
    """Standard deviation of log(time) of measured rows about the truth of their steps.

    Without the local part: that is what a better physical part would explain.
    """
    return max(sizes.own_run(rows.runs), LEAST_NOISE)


def _flags(wild: Iterable[tuple[int, float]]) -> tuple[Flag, ...]:
    """Rows with their distance [log], each once, in order."""
    return tuple(
        Flag(row, float(np.exp(miss)), f"{np.exp(miss):.2f} x what the other rows say")
        for row, miss in sorted({int(row): float(miss) for row, miss in wild}.items())
    )


def _unseen(found: ForwardFit, every: Merged) -> Iterator[tuple[int, float]]:
    """Rows that thinning left out of the fit, where it cannot explain them."""
    if len(every.samples) == len(found.samples):
        return
    rows = every.samples
    miss = np.log(rows.seconds) - found.log_seconds(rows.terms, rows.features)
    limit = np.maximum(SPREADS * found.spread(rows.terms, rows.features), LEAST_RATIO)
    for place in np.flatnonzero(np.abs(miss) > limit):
        yield from ((int(member), float(miss[place])) for member in every.members[place])


def _ratio(samples: Samples, physical: Physical) -> Floats:
    found: Floats = np.log(samples.seconds / physical.seconds(samples.terms))
    return found


def _folds(site: Places) -> Places:
    """Sites dealt to folds in turn, so that a fold holds distant ones."""
    _, number = np.unique(site, return_inverse=True)
    found: Places = number % FOLDS
    return found


def _left_out(
    samples: Samples,
    sizes: Sizes,
    weights: Floats,
    noise: float,
    whole: Physical,
    group: Places,
    *,
    within: bool,
) -> LeftOut:
    """Every row as the rows of other groups predict it; sizes of the parts are those of all rows.

    Args:
        whole: the physical part of all rows, to start from.
        within: whether a left-out row lies in a run that the others know; else it is a run.
    """
    predicted, spread = np.empty(len(samples)), np.empty(len(samples))
    for one in np.unique(group):
        left, kept = np.flatnonzero(group == one), np.flatnonzero(group != one)
        if not len(kept):
            kept = left  # nothing else was measured: the prior is all there is to compare with
        rows = samples.at(kept)
        physical = fit_physical(rows.terms, rows.seconds, noise, weights[kept], whole)
        ratio = _ratio(samples, physical)
        local, local_spread = leave_out(samples, ratio, sizes, weights, left)
        terms = samples.terms.at(left)
        predicted[left] = physical.seconds(terms) * np.exp(local)
        alone = np.square(physical.spread(terms)) + np.square(local_spread)
        slow = sizes.own_run(samples.runs) if within else sizes.new_run(samples.runs - 1)
        spread[left] = np.sqrt(alone + slow**2)
    return LeftOut(group, predicted, spread)
