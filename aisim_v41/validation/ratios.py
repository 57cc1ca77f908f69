"""A ratio of two predictions of one machine and build, with its band.

Errors do not simply add: a law that is off for some number of rows is off on both sides, a build
adds its launches to both, and a side that waits for its host does not feel its kernels.
"""

from __future__ import annotations

from math import cos, fsum, hypot, pi, sin

from aisim_v41.validation.prediction import Prediction, together

DIRECTIONS = 16
"""Points around the ellipse of the errors of kernels and host that are tried."""


def ratio(first: Prediction, second: Prediction) -> Prediction:
    """``first / second``, as numbers in place of seconds.

    Two parts of the band are independent:

    - laws that have unlike shares of the two sides at some number of rows, and a build. Builds
      differ by launches and small kernels, of which both sides have the same: a build adds one
      time to both, at most the spread of the shorter, so that the ratio moves by
      spread x (1 - shorter / longer);
    - kernels or host off on both sides alike, which moves the ratio where one of them waits.
    """
    value = first.value_s / second.value_s
    shares = {
        law: first.error_by_size_s.get(law, 0.0) / first.value_s
        - second.error_by_size_s.get(law, 0.0) / second.value_s
        for law in {*first.error_by_size_s, *second.error_by_size_s}
    }
    spread = max(first.spread, second.spread) * (1 - min(value, 1 / value))
    half = value * hypot(together(shares), spread)
    tried = [value, *_around(first, second, value)]
    return Prediction(
        value_s=value,
        low_s=max(0.0, value - hypot(half, value - min(tried))),
        high_s=value + hypot(half, max(tried) - value),
        error_by_law_s={law: abs(value * share) for law, share in shares.items()},
        spread=spread,
        used_cases=first.used_cases | second.used_cases,
    )


def _around(first: Prediction, second: Prediction, value: float) -> list[float]:
    """Ratios with kernels and host longer or shorter on both sides, within their errors together.

    Their errors are independent, so that only points of an ellipse are tried. Errors of a whole
    time or more leave points without a time, which say nothing.
    """
    if not (first.paths and second.paths):
        return []
    kernels = max(_kernel_error(first), _kernel_error(second))
    host = max(first.host_relative, second.host_relative)
    plain = _total(first, 1.0, 1.0) / _total(second, 1.0, 1.0)
    found = []
    for place in range(DIRECTIONS):
        angle = 2 * pi * place / DIRECTIONS
        scale = 1 + kernels * cos(angle), 1 + host * sin(angle)
        if min(scale) > 0:
            found.append(value * _total(first, *scale) / _total(second, *scale) / plain)
    return found


def _kernel_error(told: Prediction) -> float:
    """Relative 90 % error of the kernels of a side."""
    device = fsum(times * device for times, device, _ in told.paths)
    return hypot(together(told.error_by_law_s) / device, told.spread)


def _total(told: Prediction, kernels: float, host: float) -> float:
    """Time of a side with kernels and host scaled [s]."""
    return fsum(times * max(kernels * device, host * wait) for times, device, wait in told.paths)
