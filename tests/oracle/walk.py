"""Counts of one layer, query by query.

Sources: runtime-semantics §0 (entry arithmetic), §1.6 (last KV owner), §7 (indexer), and
model-facts §4.3 (candidate pool). The names of the counts are those of `aisim_v41.plan.counts`.
"""

from __future__ import annotations

from functools import cache

from .rows import Forward, Query, Sequence, forwards

LIMITS = ("selected_rows_cached", "index_keys_cached")
"""Counts that promise a lower bound; the oracle gives the least that any selection can reach."""


def count_step(model, policy, requests) -> list[list[list[dict[str, int]]]]:
    """Counts of every forward, layer and request: ``[forward][layer][request][name]``.

    Numbers are those of one request, run once; multiply by its count and the forward's times.
    """
    return [count_forward(model, policy, f) for f in forwards(model, policy, requests)]


def count_forward(model, policy, forward: Forward) -> list[list[dict[str, int]]]:
    """Counts of one forward: ``[layer][request][name]``."""
    seen: dict[object, list[dict[str, int]]] = {}
    result = []
    for layer in model.layers:
        region = region_of(model, policy, layer)
        pooled = _pooled(model, layer)
        alike = (str(layer.kind), layer.ratio, region, pooled)
        if alike not in seen:
            skip = _scoring_is_skipped(model, policy, forward, layer)
            seen[alike] = [
                count_layer(model, policy, layer, region, pooled, skip, sequence)
                for sequence in forward.sequences
            ]
        result.append(seen[alike])
    return result


def region_of(model, policy, layer) -> str:
    """Whether a layer runs before the cut, at it (KV for all rows, queries of few), or after."""
    if not policy.decoder_replay or model.boundary is None or layer.index < model.boundary:
        return "early"
    if layer.index == model.boundary:
        return "kv_only" if policy.boundary_layer == "kv_only" else "early"
    return "late"


def _pooled(model, layer) -> bool:
    """Whether the layer's selection was made inside the candidate pool."""
    if layer.selection_producer is None:
        return False
    return model.layers[layer.selection_producer].candidate_role == "user"


def count_layer(
    model, policy, layer, region: str, pooled: bool, skip: bool, sequence: Sequence
) -> dict[str, int]:
    """Counts of one request in one layer."""
    queries, written = rows_of(region, sequence)
    counts = {
        "tokens": len(sequence.queries),
        "logit_rows": logit_rows(
            sequence, rows_of(region_of(model, policy, model.layers[-1]), sequence)
        ),
        "query_rows": len(queries),
        "kv_rows": len(written),
        "image_rows": len(sequence.images.intersection(written)),
        **_window(model, queries, written),
    }
    if layer.ratio:
        counts |= _attention(model, layer, pooled, sequence, queries)
    if layer.kind in ("full", "reindex"):
        scored = pooled and policy.reindex_scoring == "candidates"
        rows = () if skip else queries
        counts |= _indexer(model, policy, layer, scored, sequence, rows)
    if layer.kind == "full":
        counts |= _compressor(policy, layer, sequence)
    return counts


def rows_of(region: str, sequence: Sequence) -> tuple[tuple[Query, ...], list[int]]:
    """Queries of a layer, and positions whose window KV it writes."""
    if region == "early":
        return sequence.queries, [q.position for q in sequence.queries]
    if region == "late":
        return sequence.late_queries, [q.position for q in sequence.late_queries]
    kept = {q.position for q in sequence.late_queries}
    full_window = tuple(q for q in sequence.queries if q.position in kept)
    return full_window, [q.position for q in sequence.queries]


def logit_rows(sequence: Sequence, last_layer: tuple[tuple[Query, ...], list[int]]) -> int:
    """Rows that reach the head, of those that ran the last layer.

    Every new row of decode, verify and prompt log-probabilities, else the row that ends the
    prompt (model-facts §4.7); a forward of its own for a replay has one too (§2.1).
    """
    rows = 0
    for query in last_layer[0]:
        is_new = query.position >= sequence.before
        ends_prompt = (
            query.position >= sequence.prompt_end - 1 and query.position == sequence.end - 1
        )
        if sequence.is_replay:
            rows += query.position == sequence.end - 1
        elif is_new and (sequence.kind != "prefill" or sequence.logprobs or ends_prompt):
            rows += 1
    return rows


def _window(model, queries: tuple[Query, ...], written: list[int]) -> dict[str, int]:
    pairs = 0
    read: set[int] = set()
    for query in queries:
        first = max(query.floor, query.position - model.attention.window + 1, 0)
        visible = range(first, query.position + 1)
        pairs += len(visible)
        read.update(visible)
    return {
        "window_pairs": pairs,
        "window_rows": len(read),
        "window_rows_cached": len(read.difference(written)),
    }


def visible_entries(position: int, ratio: int) -> int:
    """Entries whose last token is at or before a position."""
    return (position + 1) // ratio


@cache
def pool(blocks_kept: int, block: int, visible: int, old: int) -> tuple[int, int]:
    """Candidate pool of one query: entries in it, and how many of them are old at least.

    Blocks of consecutive entries are ranked; the newest one is pinned at the top; the best
    ``blocks_kept`` stay; entries that the query cannot see are dropped. How many entries stay
    does not depend on the scores, so the scores may be adversarial: here a block ranks the higher
    the fewer entries it holds that were written before the step.
    """
    blocks = [
        [entry for entry in range(first, first + block) if entry < visible]
        for first in range(0, visible, block)
    ]
    if not blocks:
        return 0, 0
    newest = blocks.pop()
    blocks.sort(key=lambda entries: sum(entry < old for entry in entries))
    entries = newest + [entry for kept in blocks[: blocks_kept - 1] for entry in kept]
    return len(entries), sum(entry < old for entry in entries)


def choice_of(model, pooled: bool, visible: int, old: int) -> tuple[int, int]:
    """Entries that a query may choose from: how many, and how many at least are old."""
    if pooled:
        return pool(model.indexer.candidate_blocks, model.indexer.candidate_block, visible, old)
    return visible, min(visible, old)


def _attention(model, layer, pooled, sequence, queries) -> dict[str, int]:
    pairs = last = fewest_old = 0
    old = sequence.before // layer.ratio
    for query in queries:
        visible = visible_entries(query.position, layer.ratio)
        choice, choice_old = choice_of(model, pooled, visible, old)
        attended = min(model.indexer.top_k, choice)
        pairs += attended
        last = attended
        fewest_old = max(fewest_old, attended - (choice - choice_old))
    return {
        "selected_entries": pairs,
        "selected_rows": last,
        "selected_rows_cached": fewest_old,
    }


def _indexer(model, policy, layer, pooled, sequence, queries) -> dict[str, int]:
    scored = last = fewest_old = 0
    old = sequence.before // layer.ratio
    for query in queries:
        sees = query.position if policy.score_shape == "triangle" else sequence.end - 1
        keys, keys_old = choice_of(model, pooled, visible_entries(sees, layer.ratio), old)
        scored += keys
        last = keys
        fewest_old = max(fewest_old, keys_old)
    return {
        "index_rows": len(queries),
        "scored_positions": scored,
        "index_keys": last,
        "index_keys_cached": fewest_old,
    }


def _compressor(policy, layer, sequence) -> dict[str, int]:
    """An entry is written when its last token is computed; replayed rows write nothing."""
    written = 0
    rows = 0
    for query in sequence.queries:
        replayed = query.position < sequence.before
        if not replayed or policy.replayed_rows_compress:
            rows += 1
        if not replayed and (query.position + 1) % layer.ratio == 0:
            written += 1
    return {"compressed_rows": rows, "entries_written": written}


def _scoring_is_skipped(model, policy, forward: Forward, layer) -> bool:
    """Whether the step selects everything anyway and the engine takes notice (§7)."""
    if policy.index_shortcut == "never" or not layer.ratio:
        return False
    running = [s for s in forward.sequences if s.count and s.queries]
    if policy.index_shortcut == "decode" and any(s.kind == "prefill" for s in running):
        return False
    longest = max((s.end for s in running), default=0)
    return longest // layer.ratio <= model.indexer.top_k
