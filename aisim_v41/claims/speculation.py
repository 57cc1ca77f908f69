"""Claims on DSpark that follow from its shapes and from the ledger of a verify step.

Source of the figures: technical report §2.4.3; vLLM recipe; SGLang cookbook. Its acceptance is in
`aisim_v41.speculation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.claims.context import SHORT_CONTEXT, Context, Formula
from aisim_v41.claims.work import paper
from aisim_v41.plan.counts import Count
from aisim_v41.plan.request import Request

SMALLER_BLOCK = 3
"""Draft positions that the cookbook compares with the shipped block."""


def verify(drafts: int, *, count: int = 1) -> Request:
    """A verify step: the last token and its drafts."""
    return Request(new_tokens=1 + drafts, prefix_tokens=SHORT_CONTEXT, kind="verify", count=count)


def verify_rows(count: int) -> Formula:
    """Rows of a verify step of ``count`` requests through the last layer."""

    def value(context: Context) -> int:
        request = verify(context.draft.positions, count=count)
        counted = context.ledger(request, policy=paper(context))
        return counted.total(Count.QUERY_ROWS, len(context.model.layers) - 1)

    return value


def experts_touched(context: Context, drafts: int) -> float:
    """Distinct routed experts that independent rows of a verify step are expected to read, all
    experts being alike."""
    alike = {"expert_routing": "independent", "expert_popularity": 0.0}
    independent = paper(context).with_overrides(**alike)
    counted = context.ledger(verify(drafts), policy=independent)
    ((_, counts),) = counted.passes
    place = counted.program.position(Count.EXPERTS_TOUCHED, counted.program.classes[0])
    return float(counts.totals[place])


FORMULAS: Mapping[str, Formula] = {
    "spec-01": lambda c: c.draft.blocks,
    "spec-02": lambda c: c.draft.positions,
    "spec-03": lambda c: c.draft.experts.routed,
    "spec-04": lambda c: c.draft.experts.top_k,
    "spec-05": verify_rows(1),
    "spec-09": lambda c: experts_touched(c, c.draft.positions) / experts_touched(c, SMALLER_BLOCK),
}
