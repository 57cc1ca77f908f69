"""Claims on DSpark: its shapes, the ledger of a verify step, accept lengths, and what a step costs.

Source of the figures: technical report §2.4.3; vLLM recipe; SGLang cookbook; engines' logs of what
they accepted, whose arithmetic must be that of `aisim_v41.speculation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.claims.context import SHORT_CONTEXT, Context, Formula
from aisim_v41.claims.work import paper
from aisim_v41.estimators.entry import compile as compile_step
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import draft_tensors
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.published import PUBLISHED

SMALLER_BLOCK = 3
"""Draft positions that the cookbook compares with the shipped block."""
EXPERTS_IN_ALL = 9
"""Distinct experts of a draft pass of the fact sheet, over all blocks."""
MID_OUTPUT = 4096 + 512
"""Context half way through the answers of the MI355X runs [tokens]."""
ASCEND = (0.8957, 0.7760, 0.6556, 0.5518, 0.4502)
"""Survival by position, as vllm-ascend pull request 15269 prints it."""
LOGGED = (0.579, 0.447, 0.316, 0.237, 0.158)
"""The same of one log line in vllm pull request 41834."""
PERCENT = 100


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


def draft_bytes(context: Context) -> int:
    """Weights of a draft pass that touches so many experts [B]."""
    tensors = [t for block in draft_tensors(context.model) for t in block.values()]
    experts = [t.bytes for t in tensors if t.group is TensorGroup.DRAFT_EXPERTS]
    held = context.draft.blocks * context.draft.experts.routed
    others = sum(t.bytes for t in tensors) - sum(experts)
    return others + EXPERTS_IN_ALL * sum(experts) // held


def step_cost(context: Context) -> float:
    """A step of all drafts with the pass behind it over a plain one, on four MI355X."""
    gpu, four = context.hardware("mi355x"), Parallel(tp=4)

    def seconds(request: Request, speculation: str) -> float:
        runtime = policy("sglang", speculation=speculation)
        return compile_step(context.model, gpu, parallel=four, policy=runtime, method="op")(
            [request]
        )

    rows = 1 + context.draft.positions
    whole = Request(new_tokens=rows, prefix_tokens=MID_OUTPUT, kind="verify")
    plain = Request(new_tokens=1, prefix_tokens=MID_OUTPUT, kind="decode")
    return seconds(whole, "dspark") / seconds(plain, "off")


def logged(context: Context, survival: tuple[float, ...]) -> float:
    """Mean tokens of a step from the survival that an engine logged."""
    return Acceptance.of_survival(survival).expected_emitted(context.draft.positions)


FORMULAS: Mapping[str, Formula] = {
    "spec-01": lambda c: c.draft.blocks,
    "spec-02": lambda c: c.draft.positions,
    "spec-03": lambda c: c.draft.experts.routed,
    "spec-04": lambda c: c.draft.experts.top_k,
    "spec-05": verify_rows(1),
    "spec-draft-bytes": draft_bytes,
    "spec-step-cost": step_cost,
    "spec-step-gain": lambda c: (
        PUBLISHED["benchmark"].acceptance().expected_emitted(c.draft.positions) / step_cost(c)
    ),
    "spec-ceiling": lambda c: Acceptance.constant(1.0, c.draft.positions).expected_emitted(),
    "spec-accept-rates": lambda c: logged(c, ASCEND),
    "spec-accept-rates-2": lambda c: logged(c, LOGGED),
    "spec-accept-share": lambda c: PERCENT * (logged(c, LOGGED) - 1.0) / c.draft.positions,
    "spec-09": lambda c: experts_touched(c, c.draft.positions) / experts_touched(c, SMALLER_BLOCK),
}
