"""Where a step lies among others: its physical features, and what makes two steps equal.

A forward that recomputes rows of a prefix and has no new token (a replay of its own, see
`aisim_v41.plan.plan.forward_passes`) lies where a prefill of those rows does.
"""

from __future__ import annotations

from dataclasses import replace
from math import log1p, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.compiled import Floats
from aisim_v41.plan.spans import MISSING, PREFILL, RequestColumns

RANGES: Final = ("new tokens", "requests", "new tokens of a request", "context of a request",
                 "context of all requests")  # fmt: skip
"""Raw axes whose measured range a query is held against, in tokens or requests."""
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, an odd number (Knuth, The Art of Computer Programming 3, 6.4)."""


def _with_replays(requests: RequestColumns, rows: Floats) -> RequestColumns:
    """Requests without new tokens that rows are recomputed for, as prefills of those rows."""
    alone = (requests.new == 0) & (requests.window == MISSING)
    if not alone.any():
        return requests
    recomputed = rows / np.maximum(np.sum(requests.count * alone), 1.0)
    return replace(requests, new=np.where(alone, recomputed, requests.new))


def place_of(requests: RequestColumns, rows: Floats) -> tuple[Floats, Floats]:
    """Features and raw axes of one step [1, axes].

    Args:
        requests: of the step.
        rows: rows that run, those of captured sizes included: a scalar array.
    """
    if requests.special and not requests.new.any():
        requests = _with_replays(requests, rows)
    each = requests.new * requests.count
    new, context = float(each.sum()), float(each @ requests.prefix)
    present = float(requests.count @ (requests.new > 0))
    prefill = float(each @ (requests.kind == PREFILL))
    size = float((requests.new * (requests.prefix + requests.new)).max(initial=0.0))
    longest, far = float(requests.new.max(initial=0.0)), float(requests.prefix.max(initial=0.0))
    real, filled = max(new, 1.0), float(rows)
    features = (
        log1p(filled), log1p(context / real), log1p(present * max(filled / real, 1.0)),
        log1p(sqrt(size)), prefill / real,
    )  # fmt: skip
    held = float(requests.count @ requests.prefix)
    return np.array([features]), np.array([(new, present, longest, far, held)])


def places_of(requests: RequestColumns, rows: Floats) -> tuple[Floats, Floats]:
    """Features and raw axes of steps of one request group each [steps, axes].

    Args:
        requests: one group a step.
        rows: rows that run, those of captured sizes included [steps].
    """
    new = requests.new * requests.count
    present = requests.count * (requests.new > 0)
    real = np.maximum(new, 1.0)
    ranges = (new, present, requests.new, requests.prefix, requests.prefix * requests.count)
    features = np.empty((len(real), 5))
    features[:, 0] = rows
    features[:, 1] = new * requests.prefix / real
    features[:, 2] = present * np.maximum(rows / real, 1.0)
    features[:, 3] = np.sqrt(requests.new * (requests.prefix + requests.new))
    np.log1p(features[:, :4], out=features[:, :4])
    features[:, 4] = new * (requests.kind == PREFILL) / real
    return features, np.stack(ranges, axis=1)


def marks_of(counts: Floats, ranges: Floats) -> Floats:
    """What makes steps equal, as rows of numbers [steps, ...]: the ledger, and their raw axes.

    Steps that an engine cannot tell apart, whatever the order and grouping of their requests, have
    equal marks.
    """
    columns = counts[:, None] if counts.ndim == 1 else counts
    return np.ascontiguousarray(np.concatenate([columns.T, ranges], axis=1))


def hashes_of(marks: Floats) -> npt.NDArray[np.uint64]:
    """A number for each row of marks, by which equal rows are found among many [steps]."""
    bits = np.ascontiguousarray(marks).view(np.uint64)
    odd = np.arange(1, 2 * bits.shape[1], 2, dtype=np.uint64) * np.uint64(MULTIPLIER)
    mixed: npt.NDArray[np.uint64] = (bits ^ (bits >> np.uint64(29))) @ odd
    return mixed
