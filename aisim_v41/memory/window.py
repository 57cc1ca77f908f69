"""Window KV of an engine: rings of running requests, or a pool with a size rule of its own.

Window rows do not grow with a context: a request needs them for its last ``window`` tokens, in
every layer. What engines differ in is how many rows they set aside (runtime-semantics §6.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from aisim_v41.memory.terms import round_up
from aisim_v41.model.description import Model
from aisim_v41.plan.policy import RuntimePolicy

CHUNKS_IN_FLIGHT = 2
"""Prefill chunks that hold window rows at once: the one that runs and the one being prepared
(SGLang, overlap scheduling)."""
ALLOCATED_PAGES_SPECULATING = 2
"""Pages that a decoding request holds ahead of its last token while it speculates; one without
(SGLang keeps two allocations outstanding)."""
WITH_RINGS = ("sglang",)
"""Presets whose encoder replay takes window KV out of the pool, into a ring a running request
(runtime-semantics §2.1)."""
_RATIO_DIGITS = 1_000_000
"""A ratio is taken as the fraction that its decimal text means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How many window rows a pool holds.

    Attributes:
        kind: "per_request", "ratio" or "request_cap", see the policy; "rings": of all requests that
            may run, set aside at start.
        ring_rows: Rows of one running request when each has a ring [rows].
        live_rows: Rows that one running request really needs [rows].
        ratio: Window rows per token of the token pool ("ratio").
        request_rows: Rows charged for one running request ("request_cap").
        shared_rows: Rows charged once: chunks in flight and a page ("request_cap").
        multiple: Pools are rounded to a multiple of this [rows].
    """

    kind: str
    ring_rows: int
    live_rows: int
    ratio: Fraction
    request_rows: int
    shared_rows: int
    multiple: int

    def rows(self, tokens: int, requests: int) -> int:
        """Rows of the whole pool beside ``tokens`` tokens and ``requests`` running requests."""
        if self.kind in ("per_request", "rings"):
            return requests * self.ring_rows
        if self.kind == "ratio":
            return int(self.ratio * tokens) // self.multiple * self.multiple
        return round_up(requests * self.request_rows + self.shared_rows, self.multiple)

    def tokens_for_rows(self, rows: int) -> int:
        """Tokens of the smallest pool whose windows hold ``rows`` rows (0 unless "ratio")."""
        if self.kind != "ratio":
            return 0
        wanted = round_up(rows, self.multiple)
        return -int(-wanted // self.ratio)


def window_rule(model: Model, policy: RuntimePolicy) -> WindowRule:
    """The rule of an engine for one model.

    "per_request": a ring holds the window and the rows that a verify step may write past it.
    "request_cap" (SGLang ``compute_swa_request_cap`` and ``_resolve_swa_cap_tokens``): a request
    holds its window, what it decodes until old rows are freed, the page in which that happens and
    the pages allocated ahead; every kept prefix tail holds a window and a page.
    "rings" (SGLang with encoder replay): such a ring whatever ``window_pool`` says.
    """
    window, page = model.attention.window, policy.page_tokens
    speculates = policy.speculation != "off"
    verified = 1 + policy.draft_tokens if speculates else 1
    ahead = page * (ALLOCATED_PAGES_SPECULATING if speculates else 1)
    held = window + policy.window_evict_tokens * verified + page + ahead
    live = window + verified - 1
    ring = max(policy.window_slots, live)
    return WindowRule(
        kind="rings" if has_rings(policy) else policy.window_pool,
        ring_rows=round_up(ring, policy.window_page_rows),
        live_rows=live,
        ratio=_fraction(policy.window_ratio),
        request_rows=held + policy.prefix_tails * (window + page),
        shared_rows=CHUNKS_IN_FLIGHT * policy.chunk_tokens + page,
        multiple=page,
    )


def has_rings(policy: RuntimePolicy) -> bool:
    """Whether windows are in rings because an encoder replay rebuilds them."""
    return policy.name in WITH_RINGS and policy.encoder_replay != "off"


def ring_workspace_rows(model: Model, policy: RuntimePolicy, requests: int) -> int:
    """Rows of the workspace that rings are copied through, layer after layer [rows]: windows of all
    slots and one spare, and the largest step (runtime-semantics §6.3)."""
    slots = requests + 1
    verified = 1 if policy.speculation == "off" else 1 + policy.draft_tokens
    return slots * model.attention.window + max(policy.chunk_tokens, slots * verified)


def _fraction(ratio: float) -> Fraction:
    """0.1 as 1/10; a ratio too small for that as it is."""
    return Fraction(ratio).limit_denominator(_RATIO_DIGITS) or Fraction(ratio)
