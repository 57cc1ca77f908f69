"""What a step of DeepSeek-V4.1-Flash computes, counted position by position.

A second, plain count beside the library's ledger: 40 layers; two see a window alone, eighteen read
entries of two positions, twenty entries of one; three and one of them score all entries they can
see, four more only the candidate pool. No replay, no draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from aisim_v41.plan.request import Request

LAYERS: Final = 40
WINDOW: Final = 128
SELECTED: Final = 512
PAIRED_LAYERS, SINGLE_LAYERS = 18, 20
PAIRED_SCORING, SINGLE_SCORING, POOL_SCORING = 3, 1, 4
POOL, POOL_BLOCK = 16_384, 8
EXPERTS, CHOSEN = 384, 6
KV_PAGE: Final = 64


class Work(NamedTuple):
    """Counts of one step, over all layers.

    Attributes:
        rows: tokens computed.
        requests: sequences.
        experts: distinct experts that a layer is expected to read, with alike experts.
        window_pairs: query x position pairs inside windows.
        selected: entries attended to.
        scored: entries that an indexer compares with a query.
        pages: KV pages of all requests.
    """

    rows: float
    requests: float
    experts: float
    window_pairs: float
    selected: float
    scored: float
    pages: tuple[float, ...]


def work_of(step: Sequence[Request], dummies: int = 0) -> Work:
    """Counts of a step, with so many dummy decodes that fill a captured graph.

    Dummies are alike: to the experts they are one more row.

    >>> work = work_of([Request(new_tokens=1, prefix_tokens=1023, kind="decode")])
    >>> work.window_pairs, work.selected, work.scored
    (5120.0, 19456.0, 6656.0)
    """
    positions = np.concatenate(
        [np.arange(r.prefix_tokens, r.prefix_tokens + r.new_tokens) for r in step]
        + [np.zeros(1, np.int64)] * bool(dummies)
    )
    times = np.concatenate(
        [np.full(r.new_tokens, r.count) for r in step] + [np.array([dummies])] * bool(dummies)
    )
    seen, pairs = positions + 1, (positions + 1) // 2
    pooled = np.where(seen > POOL, POOL - (-seen) % POOL_BLOCK, seen)
    selected = PAIRED_LAYERS * np.minimum(pairs, SELECTED)
    selected += SINGLE_LAYERS * np.minimum(seen, SELECTED)
    scored = PAIRED_SCORING * pairs + SINGLE_SCORING * seen + POOL_SCORING * pooled
    rows = float(times.sum())
    draws = rows - dummies + bool(dummies)
    return Work(
        rows=rows,
        requests=float(sum(r.count for r in step) + dummies),
        experts=EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** draws),
        window_pairs=float(LAYERS * (times * np.minimum(seen, WINDOW)).sum()),
        selected=float((times * selected).sum()),
        scored=float((times * scored).sum()),
        pages=tuple(-(-r.end // KV_PAGE) for r in step for _ in range(r.count)),
    )
