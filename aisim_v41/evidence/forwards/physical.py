"""The physical part of a forward: a floor, the host's path and terms of the ledger.

    time = floor + max(host x H, sum of factor_g x D_g)        an eager host runs ahead of the GPU
    time = floor + host x H + sum of factor_g x D_g            it waits for every step

with one host factor for decode steps and one for prefills, which are near each other.

H and the first D_g are the seconds that operators predict, by family of kernels (measured where
there are measurements, resources at peak otherwise): a factor of 1 is their prior. The other D_g
are the ledger's resources at peak, family by family, for what an engine does otherwise than those
kernels; their prior is small. Factors are positive by construction and are drawn to the prior by
its own uncertainty: with few rows they stay there, with many the rows decide. The loss is soft for
rows and priors alike, so that a few wild rows, or a host unlike the prior's, do not bend the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
from scipy.optimize import least_squares

from aisim_v41.evidence.forwards.samples import Floats, Terms

Composition = Literal["overlapped", "added"]

HOST_PRIOR: Final = 0.5
"""Standard deviation of log(host factor): hosts of one model differ by that much (docs/op.md,
"Execution modes")."""
PREFILL_PRIOR: Final = 0.2
"""Of the logarithm of what a prefill's host path takes beside that: other code, same engine."""
DEVICE_PRIOR: Final = 0.4
"""Of the logarithm of the factor that all device terms share."""
TERM_PRIOR: Final = 0.5
"""Of the logarithm of each family's factor beside it."""
LEDGER_PRIOR: Final = (-1.5, 1.0)
"""Middle and standard deviation of the logarithm of the factors of resources: beside kernels that
are already priced, a fifth of the time at peak, give or take a factor of 2.7."""
FLOOR_PRIOR: Final = 0.05
"""Scale of the floor, as a share of the median measured time."""
FLOOR_START: Final = 1e-3
"""Where the search for the floor starts at least, as a share of the median."""
SMALLEST_S: Final = 1e-9
"""Time that stands for none."""


@dataclass(frozen=True, kw_only=True)
class Physical:
    """Fitted floor and factors.

    Attributes:
        composition: how host and device meet.
        names: of the terms.
        theta: log host factor, log of a prefill's beside it, log common factor of the kernels, log
            factors of the terms, floor as a share of ``scale_s``.
        scale_s: median measured time [s].
        covariance: of theta, as the rows and the prior leave it.
    """

    composition: Composition
    names: tuple[str, ...]
    theta: Floats
    scale_s: float
    covariance: Floats

    @cached_property
    def floor_s(self) -> float:
        """What every forward takes beside its host and kernels [s]."""
        return float(self.theta[-1]) * self.scale_s

    @cached_property
    def host_factor(self) -> float:
        """Measured over predicted time of the host in decode steps."""
        return float(np.exp(self.theta[0]))

    @cached_property
    def prefill_factor(self) -> float:
        """The same in prefills."""
        return float(np.exp(self.theta[0] + self.theta[1]))

    @cached_property
    def factors(self) -> Floats:
        """Measured over predicted time of each term [names]."""
        found: Floats = np.exp(self.theta[2] + self.theta[3:-1])
        return found

    def seconds(self, terms: Terms) -> Floats:
        """Seconds of steps [steps]; nothing takes no time."""
        return self.both(terms)[1]

    def device_seconds(self, terms: Terms) -> Floats:
        """Seconds of the kernels alone [steps]."""
        return self.both(terms)[0]

    def both(self, terms: Terms) -> tuple[Floats, Floats]:
        """Seconds of the kernels alone and of the whole [steps]."""
        factor = np.where(terms.prefills > 0, self.prefill_factor, self.host_factor)
        host, device = factor * terms.host_s, terms.device_s @ self.factors
        together = np.maximum(host, device) if self.composition == "overlapped" else host + device
        return device, together + self.floor_s * (together > 0)

    def spread(self, terms: Terms) -> Floats:
        """Standard deviation of the logarithm of `seconds` that the factors leave [steps]."""
        slope = _slopes(self.theta, terms, self.scale_s, self.composition)
        found: Floats = np.sqrt(np.einsum("ij,jk,ik->i", slope, self.covariance, slope))
        return found


def fit_physical(
    terms: Terms,
    seconds: Floats,
    noise: float,
    weights: Floats | None = None,
    near: Physical | None = None,
) -> Physical:
    """Floor and factors, with the composition that explains the rows better.

    Args:
        terms: of the rows.
        seconds: measured [rows].
        noise: standard deviation of log(measured) that does not come from the terms.
        weights: of the rows; 1 if not given.
        near: a fit of nearly the same rows, to start from; its composition is kept.
    """
    weights = np.ones(len(seconds)) if weights is None else weights
    if near is not None:
        return _fit(terms, seconds, noise, weights, near.composition, near)[1]
    kinds: tuple[Composition, ...] = (
        ("overlapped", "added") if np.any(terms.host_s > 0) else ("overlapped",)
    )
    found = [_fit(terms, seconds, noise, weights, kind) for kind in kinds]
    return min(found, key=lambda pair: pair[0])[1]


def _fit(
    terms: Terms,
    seconds: Floats,
    noise: float,
    weights: Floats,
    composition: Composition,
    near: Physical | None = None,
) -> tuple[float, Physical]:
    scale = float(np.median(seconds)) if near is None else near.scale_s
    names, resources = terms.names, len(terms.names) - terms.families
    low, wide = LEDGER_PRIOR
    middle = np.array([0.0, 0.0, 0.0, *[0.0] * terms.families, *[low] * resources, 0.0])
    common = (HOST_PRIOR, PREFILL_PRIOR, DEVICE_PRIOR)
    spreads = np.array([*common, *[TERM_PRIOR] * terms.families, *[wide] * resources, FLOOR_PRIOR])
    root = np.sqrt(weights) / noise

    def misses(theta: Floats) -> Floats:
        ratio = np.log(_seconds(theta, terms, scale, composition) / seconds)
        return np.concatenate([root * ratio, (theta - middle) / spreads])

    def slopes(theta: Floats) -> Floats:
        by_row = root[:, None] * _slopes(theta, terms, scale, composition)
        return np.concatenate([by_row, np.diag(1.0 / spreads)])

    least, most = np.full(len(spreads), -8.0), np.full(len(spreads), 4.0)
    least[-1] = 0.0
    start = (middle if near is None else near.theta).copy()
    start[-1] = max(start[-1], FLOOR_START)
    end = least_squares(misses, start, jac=slopes, bounds=(least, most), loss="soft_l1")
    shape = slopes(end.x)
    believed = 1.0 / np.sqrt(1.0 + np.square(misses(end.x)))  # slope of the loss at each miss
    covariance: Floats = np.linalg.inv((shape.T * believed) @ shape).astype(np.float64)
    return float(end.cost), Physical(
        composition=composition, names=names, theta=end.x, scale_s=scale, covariance=covariance
    )


def _parts(theta: Floats, terms: Terms, scale: float) -> tuple[Floats, Floats, Floats]:
    """Host, device terms and floor of steps [s]; the floor only where there is anything."""
    host = np.exp(theta[0] + theta[1] * terms.prefills) * terms.host_s
    device = terms.device_s * np.exp(theta[2] + theta[3:-1])
    some = (terms.host_s > 0) | (terms.device_s.sum(axis=1) > 0)
    return host, device, theta[-1] * scale * some


def _seconds(theta: Floats, terms: Terms, scale: float, composition: Composition) -> Floats:
    host, device, floor = _parts(theta, terms, scale)
    total = device.sum(axis=1)
    found: Floats = floor + (
        np.maximum(host, total) if composition == "overlapped" else host + total
    )
    return found


def _slopes(theta: Floats, terms: Terms, scale: float, composition: Composition) -> Floats:
    """Derivatives of log(seconds) [steps, parameters]."""
    host, device, floor = _parts(theta, terms, scale)
    total = device.sum(axis=1)
    if composition == "overlapped":
        waits = host >= total
        host, device = host * waits, device * ~waits[:, None]
    some = (floor + host + device.sum(axis=1)) > 0
    seconds = np.maximum(floor + host + device.sum(axis=1), SMALLEST_S)
    common = [host, host * terms.prefills, device.sum(axis=1)]
    columns = [np.stack(common, axis=1), device, (some * scale)[:, None]]
    found: Floats = np.concatenate(columns, axis=1) / seconds[:, None]
    return found
