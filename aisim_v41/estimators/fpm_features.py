"""Where a step lies among others: its physical features, and what makes two steps equal."""

from __future__ import annotations

from typing import Final

import numpy as np

from aisim_v41.estimators.compiled import Floats
from aisim_v41.plan.spans import PREFILL, RequestColumns

RANGES: Final = ("new tokens", "requests", "new tokens of a request", "context of a request",
                 "context of all requests")  # fmt: skip
"""Raw axes whose measured range a query is held against, in tokens or requests."""


def features_of(requests: RequestColumns, rows: Floats, *, one_step: bool) -> Floats:
    """Features of steps [steps, axes], see `aisim_v41.evidence.forwards.samples.AXES`.

    Args:
        requests: of one step, or one group a step.
        rows: rows that run, those of captured sizes included: a scalar array, or [steps].
        one_step: whether all requests are one step.
    """
    new = requests.new * requests.count
    prefill = new * (requests.kind == PREFILL)
    context = new * requests.prefix
    size = requests.new * (requests.prefix + requests.new)
    present = requests.count * (requests.new > 0)
    if one_step:
        new, prefill, context = (np.add.reduce(x, keepdims=True) for x in (new, prefill, context))
        present = np.add.reduce(present, keepdims=True)
        size = np.maximum.reduce(size, keepdims=True, initial=0.0)
    real = np.maximum(new, 1.0)
    filled = np.atleast_1d(rows)
    found = np.empty((len(real), 5))
    found[:, 0] = filled
    found[:, 1] = context / real
    found[:, 2] = present * np.maximum(filled / real, 1.0)
    found[:, 3] = np.sqrt(size)
    np.log1p(found[:, :4], out=found[:, :4])
    found[:, 4] = prefill / real
    return found


def ranges_of(requests: RequestColumns, *, one_step: bool) -> Floats:
    """Values of steps on the raw axes [steps, axes], see `RANGES`."""
    values = np.stack(
        [
            requests.new * requests.count,
            requests.count * (requests.new > 0),
            requests.new,
            requests.prefix,
            requests.prefix * requests.count,
        ],
        axis=1,
    )
    if not one_step:
        return values
    sums, most = values.sum(axis=0), values.max(axis=0, initial=0.0)
    found: Floats = np.where([True, True, False, False, True], sums, most)[None, :]
    return found


def marks_of(counts: Floats, ranges: Floats) -> Floats:
    """What makes steps equal, as rows of numbers [steps, ...]: the ledger, and their raw axes.

    Steps that an engine cannot tell apart, whatever the order and grouping of their requests, have
    equal marks.
    """
    columns = counts[:, None] if counts.ndim == 1 else counts
    return np.ascontiguousarray(np.concatenate([columns.T, ranges], axis=1))
