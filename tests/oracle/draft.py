"""Counts of the draft pass, position by position.

Sources: model-facts §8, runtime-semantics §9. A ring of each draft block holds the last window of
positions whose taps were computed. A request that decodes or verifies then drafts: each drafted
row attends to every row of the ring that its floor allows and to all drafted rows, itself included.
"""

from __future__ import annotations

from .experts import experts_touched
from .rows import Forward, Sequence


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


def draft_experts(model, policy, forward: Forward) -> tuple[float, float]:
    """Distinct experts of a draft block, of a bound and expected: rows of one request draw as
    those of a verify step do."""
    bound = expected = 0.0
    for sequence, counts in zip(
        forward.sequences, count_drafts(model, policy, forward), strict=True
    ):
        for row in range(counts["rows"]):
            alone = row == 0 or policy.expert_routing == "independent"
            bound += sequence.count * (1.0 if alone else 0.0)
            expected += sequence.count * (1.0 if alone else 1.0 - policy.expert_locality)
    if policy.expert_routing == "fewest":
        return model.draft.experts.top_k * (bound > 0), experts_touched(
            model.draft, policy, expected
        )
    return experts_touched(model.draft, policy, bound), experts_touched(
        model.draft, policy, expected
    )
