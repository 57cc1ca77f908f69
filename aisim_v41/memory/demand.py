"""Memory that the requests of one plan need when the step ends, next to the weights.

KV of a request is counted where the step leaves it: entries and index keys of every owner to the
end of its context, window rows as far as its window reaches, state of unfinished groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aisim_v41.errors import InvalidInputError
from aisim_v41.hardware import Hardware
from aisim_v41.memory.blocks import SharedBlocks
from aisim_v41.memory.budget import budget
from aisim_v41.memory.pool import KvPool, kv_pool, padding_term
from aisim_v41.memory.terms import Kind, Term, total
from aisim_v41.memory.workspace import LargestStep
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.dealing import requests_of_ranks
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.request import Request

if TYPE_CHECKING:
    import pandas as pd

_SOURCE = "runtime-semantics §6.1-§6.2, pages of the policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Whether a step fits on one rank.

    Attributes:
        terms: Everything on the GPU: weights, buffers of this step, reserves, KV of its requests.
        gpu_bytes: What a program can see of the GPU's memory [B].
        kv_bytes: KV that the requests of the plan need at the end of the step [B].
        kv_available_bytes: What the budget leaves for KV beside this step [B].
        short_bytes: By how much it does not fit [B]; 0 when it does.
    """

    terms: tuple[Term, ...]
    gpu_bytes: int
    kv_bytes: int
    kv_available_bytes: int
    short_bytes: int

    @property
    def fits(self) -> bool:
        """Whether weights, buffers and the KV of these requests fit together."""
        return self.short_bytes == 0

    @property
    def bytes(self) -> int:
        """Everything that this step needs on the GPU [B], unused memory left out."""
        return total(self.terms)

    def to_frame(self) -> pd.DataFrame:
        """One row a term; columns as in `CapacityReport.to_frame`."""
        from aisim_v41.memory.report import terms_frame

        return terms_frame(self.terms)

    def explain(self) -> str:
        """The terms as text."""
        from aisim_v41.memory.report import explain_step

        return explain_step(self)


def demand(plan: Plan, hardware: Hardware) -> StepMemory:
    """Memory of one step on one rank, where ranks hold different requests on the fullest.

    Args:
        plan: Requests, mapping and policy.
        hardware: From `load_hardware`.

    Raises:
        InvalidInputError: not a plan, or not a `Hardware`.
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"demand: plan = {plan!r}: must be a Plan")
    if not isinstance(hardware, Hardware):
        raise InvalidInputError(f"demand: hardware = {hardware!r}: must be a Hardware")
    ranks = plan.parallel.dp
    held = [plan.requests]
    if ranks > 1:
        dealt = requests_of_ranks(plan.requests, pack(plan.requests), ranks)
        held = list(dict.fromkeys(one.requests for one in dealt))
    found = (_of_rank(plan, hardware, requests) for requests in held)
    return max(found, key=lambda memory: (memory.short_bytes, memory.bytes))


def _of_rank(plan: Plan, hardware: Hardware, held: Sequence[Request]) -> StepMemory:
    """Memory of the step on a rank that holds these requests."""
    requests = [request for request in held if request.count]
    step = LargestStep(
        rows=sum(request.count * request.new_tokens for request in requests),
        max_length=max((request.end for request in requests), default=0),
        requests=sum(request.count for request in requests),
        together=sum(request.count * request.new_tokens for request in plan.requests),
    )
    shared = budget(plan.model, hardware, plan.parallel, plan.policy, step)
    needed = kv_terms(kv_pool(plan.model, plan.policy), requests)
    kv_bytes = total(needed)
    return StepMemory(
        terms=(*shared.charged, *shared.outside, *needed),
        gpu_bytes=shared.gpu_bytes,
        kv_bytes=kv_bytes,
        kv_available_bytes=shared.kv_bytes,
        short_bytes=max(0, kv_bytes - shared.kv_bytes, -shared.room_left_bytes),
    )


def kv_terms(pool: KvPool, requests: Iterable[Request]) -> tuple[Term, ...]:
    """KV of running requests at the end of a step, by owner and kind of row.

    Additive over requests; a group of ``count`` requests is ``count`` times one of them.
    """
    held = [(request.count, request.end) for request in requests if request.count and request.end]
    found = []
    for owner in pool.owners:
        pages = sum(count * owner.pages(end) for count, end in held)
        shown = f"{pages} pages of {owner.span_tokens} tokens"
        found += [
            _term(f"entries of layer {owner.layer}", pages * owner.main_bytes,
                  f"{shown} x {owner.main_bytes} B"),
            _term(f"index keys of layer {owner.layer}", pages * owner.index_bytes,
                  f"{shown} x {owner.index_bytes} B"),
        ]  # fmt: skip
    rows = sum(count * pool.window_rows(end) for count, end in held)
    windows = rows // pool.window_page_rows * pool.window_layers * pool.window_page_bytes
    found.append(_term("window KV", windows, f"{rows} rows x {pool.window_layers} layers"))
    base = total(found)
    if pool.share != 1:
        found.append(
            _term("share of the draft blocks", math.ceil(base * pool.share) - base,
                  f"{base} B x ({pool.share} - 1)")
        )  # fmt: skip
    running = sum(count for count, _ in held)
    found.append(
        _term("state of unfinished groups", running * pool.pair_bytes,
              f"{running} requests x {pool.pair_bytes} B")
    )  # fmt: skip
    if pool.blocks is not None:
        found.append(padding_term(pool.blocks, _held(pool, pool.blocks, held), total(found)))
    return tuple(found)


def _held(pool: KvPool, blocks: SharedBlocks, requests: list[tuple[int, int]]) -> int:
    """Whole blocks that (count, end) requests hold [B]."""
    count = sum(
        number
        * (
            blocks.token_blocks(end)
            + blocks.window_groups * pool.window_rows(end) // pool.window_page_rows
            + blocks.state_groups
        )
        for number, end in requests
    )
    return count * blocks.stride_bytes


def _term(name: str, amount: int, formula: str) -> Term:
    return Term(name=name, kind=Kind.KV, bytes=amount, formula=formula, source=_SOURCE)
