"""Counts of the draft pass, position by position.

Sources: model-facts §8, runtime-semantics §9. A ring of each draft block holds the last window of
positions whose taps were computed. A request that decodes or verifies then drafts: each drafted
row attends to every row of the ring that its floor allows and to all drafted rows, itself included.
"""

from __future__ import annotations

from .rows import Forward, Sequence
from .walk import experts_touched


def count_drafts(model, policy, forward: Forward) -> list[dict[str, int]]:
    """Counts of one draft block, of every request of a forward."""
    return [_count(model, policy, sequence) for sequence in forward.sequences]


def _count(model, policy, sequence: Sequence) -> dict[str, int]:
    filled = _filled(model, sequence)
    drafts = sequence.kind != "prefill" and len(sequence.queries) > 0
    drafted = [f"row {number}" for number in range(policy.draft_tokens)] if drafts else []
    ring = set(_ring(model, sequence)) if drafts else set()
    pairs = 0
    for _ in drafted:
        pairs += len([*ring, *drafted])
    return {
        "rows": len(drafted),
        "context": len(filled),
        "requests": int(drafts),
        "pairs": pairs,
        "ring": len(ring),
        "ring_cached": len(ring.difference(filled)),
    }


def _filled(model, sequence: Sequence) -> list[int]:
    """Positions that this step puts into the rings and that stay there at its end."""
    last_tap = max(model.draft.taps)
    cut = model.boundary is not None and last_tap > model.boundary
    tapped = [query.position for query in (sequence.late_queries if cut else sequence.queries)]
    return [p for p in tapped if p > sequence.end - 1 - model.attention.window]


def _ring(model, sequence: Sequence) -> list[int]:
    """Positions that drafted rows see in a ring after the step."""
    floor = sequence.queries[0].floor
    return [p for p in range(floor, sequence.end) if p > sequence.end - 1 - model.attention.window]


def draft_experts_touched(model, policy, forward: Forward) -> float:
    """Distinct experts of a draft block, under the routing of the backbone's verify rows."""
    draws = 0
    for sequence, counts in zip(
        forward.sequences, count_drafts(model, policy, forward), strict=True
    ):
        shared = policy.expert_routing == "per_request"
        draws += sequence.count * (counts["requests"] if shared else counts["rows"])
    return experts_touched(model.draft, policy, draws)
