"""Closed forms: how many entries the queries of a span can reach.

A query at position p sees ``v = floor((p + 1) / ratio)`` entries and reaches

    g(v) = v                              while v <= cap
    g(v) = cap - ((-v) mod block)         beyond

With block 1 this is min(v, cap): a sliding window (ratio 1, cap W, positions counted from the
window floor), the top-k of the indexer, or everything (cap `UNLIMITED`). With block 8 and cap
16,384 it is the candidate pool, whose newest block is kept whole although it is partly filled
(model-facts §4.3; runtime-semantics §7).

The sum over a span [a, b) is ``reach_before(b) - reach_before(a)``; both sums have the closed form
below because each v is seen by ``ratio`` consecutive positions. `tests/oracle` counts the same
position by position.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

UNLIMITED: Final = 1 << 41
"""A cap that no context reaches."""


class ReachRules(NamedTuple):
    """One rule g a row, as columns that broadcast over requests: each [rows, 1] int64."""

    ratio: Counts
    cap: Counts
    block: Counts

    @classmethod
    def of(cls, rules: list[tuple[int, int, int]]) -> ReachRules:
        """From (ratio, cap, block) triples."""
        table = np.array(rules, dtype=np.int64).reshape(-1, 3)
        return cls(*(np.ascontiguousarray(table[:, i : i + 1]) for i in range(3)))


def reach_before(positions: Counts, rules: ReachRules) -> tuple[Counts, Counts]:
    """Entries reached by all queries before ``positions``, and by the last of them alone.

    Args:
        positions: [rows, requests]; ``n`` stands for the queries at 0 .. n - 1.
        rules: one rule a row.

    Returns:
        ``(total, last)``, both [rows, requests]: Σ g over those queries, and g of query n - 1
        (0 where n is 0).

    Every v from 1 to q = floor(n / ratio) is seen by ``ratio`` queries, the last one only by
    ``n mod ratio + 1`` of them, so total = ratio·Φ(q) - (ratio - 1 - n mod ratio)·g(q) with
    Φ(q) = Σ_{v<=q} g(v) = m(m+1)/2 + cap·(q - m) - lost, where m = min(q, cap) and ``lost`` is the
    sawtooth of the newest block: block(block-1)/2 for each whole block beyond cap.
    """
    ratio, cap, block = rules
    visible = positions // ratio
    remainder = positions - visible * ratio
    within = np.minimum(visible, cap)
    beyond = visible - within
    total = within * (within + 1) // 2 + cap * beyond
    last = within
    if block.max() > 1:
        whole = beyond // block
        part = beyond - whole * block
        total -= whole * (block * (block - 1) // 2) + part * block - part * (part + 1) // 2
        last = within - (block - part) * (part > 0)
    return ratio * total - (ratio - 1 - remainder) * last, last
