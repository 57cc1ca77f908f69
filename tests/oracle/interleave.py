"""Rows of a step dealt one by one to the ranks of context parallelism, and counted one by one.

Source: runtime-semantics §4.4: row i of a step belongs to rank i mod n, a row that late layers keep
stays where it was, and every rank stores the KV of all rows.
"""

from __future__ import annotations

from collections import Counter

from .rows import Forward, Sequence
from .walk import (
    _attention,
    _compressor,
    _indexer,
    _pooled,
    _scoring_is_skipped,
    _window,
    logit_rows,
    region_of,
    rows_of,
)


def rows_of_ranks(forward: Forward, ranks: int) -> list[list[list[set[int]]]]:
    """Positions that each rank has of each copy of each request: [rank][request][copy]."""
    found = [[[] for _ in forward.sequences] for _ in range(ranks)]
    row = 0
    for place, sequence in enumerate(forward.sequences):
        for _ in range(sequence.count):
            for rank in range(ranks):
                found[rank][place].append(set())
            for query in sequence.queries:
                found[row % ranks][place][-1].add(query.position)
                row += 1
    return found


def count_rank_layer(model, policy, layer, forward: Forward, mine) -> Counter[str]:
    """Counts of one layer on one rank, of all its requests together.

    Args:
        mine: positions that the rank has: [request][copy].
    """
    skip = _scoring_is_skipped(model, policy, forward, layer)
    total: Counter[str] = Counter()
    for sequence, copies in zip(forward.sequences, mine, strict=True):
        for own in copies:
            total.update(_copy(model, policy, layer, skip, sequence, own))
    return total


def _copy(model, policy, layer, skip: bool, sequence: Sequence, own: set[int]) -> dict[str, int]:
    pooled = _pooled(model, layer)
    queries, written = rows_of(region_of(model, policy, layer), sequence)
    kept = tuple(query for query in queries if query.position in own)
    last = rows_of(region_of(model, policy, model.layers[-1]), sequence)
    counts = {
        "query_rows": len(kept),
        "stored_rows": len(written),
        "logit_rows": logit_rows(sequence, last),
        **_window(model, kept, written),
    }
    if layer.ratio:
        counts |= _attention(model, layer, pooled, sequence, kept)
    if layer.kind in ("full", "reindex"):
        scored = pooled and policy.reindex_scoring == "candidates"
        counts |= _indexer(model, policy, layer, scored, sequence, () if skip else kept)
    if layer.kind == "full":
        counts |= _compressor(policy, layer, sequence)
    return counts
