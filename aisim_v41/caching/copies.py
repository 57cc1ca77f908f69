"""Copies of window rows between rings of requests and the workspace of a step.

SGLang's encoder replay keeps windows in rings of their own: every layer copies the rows before a
request's first one into a workspace, and the last ones back (runtime-semantics §2.1). The size of
that workspace (§6.3) has room for all running requests, so decode and verify steps are taken to
copy too. Not part of any estimate (docs/assumptions.md, "Replay").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aisim_v41.memory.window import has_rings, window_rule
from aisim_v41.model.cache_rows import cache_rows
from aisim_v41.model.description import Model
from aisim_v41.plan.plan import forward_passes
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request

READ_AND_WRITTEN = 2
"""A copied row crosses memory twice."""


@dataclass(frozen=True, slots=True)
class RingCopies:
    """Rows copied in one layer, and what that moves in all.

    Args:
        to_workspace: rows before the first computed one [rows].
        to_ring: rows kept for the next step [rows].
        bytes: read and written over all layers [B].
    """

    to_workspace: int
    to_ring: int
    bytes: int


def ring_copies(model: Model, policy: RuntimePolicy, requests: Iterable[Request]) -> RingCopies:
    """Copies of all requests of one step, or of one request in several; none without rings.

    Every layer is taken to copy alike, also those that a decoder replay trims.

    Args:
        model: from `load_model`.
        policy: the engine.
        requests: as it runs them, see `aisim_v41.caching.adoption.Adoption.requests`.
    """
    if not has_rings(policy):
        return RingCopies(0, 0, 0)
    window, capacity = model.attention.window, window_rule(model, policy).ring_rows
    rows = cache_rows(model, policy.kv_layout).window_bytes
    into = back = 0
    for request in requests:
        for forward in forward_passes((request,), policy):
            for run in forward.requests:
                many = run.count * forward.times
                history, computed = _rows(run, policy, window)
                if computed:
                    into += many * history
                    back += many * min(history + computed, capacity)
    moved = READ_AND_WRITTEN * rows * len(model.layers) * (into + back)
    return RingCopies(into, back, moved)


def _rows(run: Request, policy: RuntimePolicy, window: int) -> tuple[int, int]:
    """Rows that lie in the ring before the first one of a forward, and rows that it computes."""
    if run.window == "missing":
        return 0, min(run.prefix_tokens, policy.encoder_replay_rows) + run.new_tokens
    return min(run.prefix_tokens - run.window_start, window), run.new_tokens
