"""Collectives: where latency and rate change, by search over the sizes that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from aisim_v41.evidence.fit.samples import Samples
from aisim_v41.evidence.laws import REGIMES, FloatArray

FEWEST = 3
"""Sizes in a regime; with fewer, two numbers follow anything."""
_WEIGHTINGS = 12
_FLAT = 1e-15
_FASTEST = 1e15
_LEAST_OFF = 3e-3


def search(samples: Samples, count: int, switch: float | None = None) -> tuple[float, ...]:
    """Ends of all regimes but the last that leave the least relative misses [B].

    Args:
        samples: of one collective on one number of GPUs.
        count: regimes.
        switch: an end that is known [B].
    """
    order = np.argsort(samples.scale)
    size, seconds = samples.scale[order], samples.seconds[order]
    cuts = range(FEWEST, len(size) - FEWEST + 1)
    choices = [
        chosen
        for chosen in combinations(cuts, count - 1)
        if all(after - before >= FEWEST for before, after in pairwise(chosen))
        and (switch is None or switch in size[[cut - 1 for cut in chosen]])
    ]
    misses = {
        part: _misfit(size[slice(*part)], seconds[slice(*part)])
        for chosen in choices
        for part in pairwise((0, *chosen, len(size)))
    }
    best = min(
        choices,
        key=lambda chosen: (sum(misses[p] for p in pairwise((0, *chosen, len(size)))), chosen),
    )
    return tuple(float(size[cut - 1]) for cut in best)


def solve(samples: Samples, limits: Sequence[float]) -> dict[str, float]:
    """Parameters of the collective law, given where its regimes end [B]."""
    size, seconds = samples.scale, samples.seconds
    parameters: dict[str, float] = {}
    for number, (low, high) in enumerate(pairwise((-np.inf, *limits, np.inf)), start=1):
        inside = (size > low) & (size <= high)
        alpha, rate = line(size[inside], seconds[inside])
        parameters[f"alpha_{number}_s"] = alpha
        parameters[f"rate_{number}_bytes_per_s"] = rate
        if np.isfinite(high):
            parameters[f"limit_{number}_bytes"] = high
    for number in REGIMES[len(limits) + 1 :]:  # the last regime again
        parameters[f"limit_{number - 1}_bytes"] = limits[-1]
        parameters[f"alpha_{number}_s"] = parameters[f"alpha_{number - 1}_s"]
        parameters[f"rate_{number}_bytes_per_s"] = parameters[f"rate_{number - 1}_bytes_per_s"]
    return parameters


def line(size: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """Latency [s] and rate [B/s] with the least sum of relative misses."""
    weight = 1 / seconds
    for _ in range(_WEIGHTINGS):
        design = np.stack([weight, size * weight], axis=1)
        alpha, slope = np.linalg.lstsq(design, seconds * weight, rcond=None)[0]
        if slope <= 0:
            alpha, slope = float(np.median(seconds)), _FLAT
            break
        if alpha < 0:
            alpha, slope = 0.0, float(np.median(seconds / size))
            break
        off = np.abs((alpha + slope * size) / seconds - 1)
        weight = 1 / (seconds * np.sqrt(np.maximum(off, _LEAST_OFF)))
    return float(alpha), min(1 / float(slope), _FASTEST)


def _misfit(size: FloatArray, seconds: FloatArray) -> float:
    alpha, rate = line(size, seconds)
    off = np.abs((alpha + size / rate) / seconds - 1)
    return float(np.sqrt(off**2 + _LEAST_OFF**2).sum())
