"""What an engine makes of a cache hit: how much of it is used, what is recomputed, what runs.

Each engine's rule: runtime-semantics §2.1-§2.5, taken as true in docs/assumptions.md, "Cache hits".
The answer names the steps as `Request`s, so that any estimator can price them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aisim_v41.caching.copies import RingCopies, ring_copies
from aisim_v41.caching.kinds import require_kind
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.errors import OutOfRangeError, UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.plan.compatibility import step_warnings
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request, chunked
from aisim_v41.units import MB

Source = Literal["none", "cached", "snapshot", "replayed"]

WINDOWS_IN_RINGS = ("sglang", "vllm")
"""Presets whose encoder replay takes window KV out of the prefix cache (§2.1, §2.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What a policy does with a lookup.

    Attributes:
        lookup, policy: what was asked.
        hit_tokens: prefix that is used: positions whose global entries are not written again.
        window: where the window before it comes from: "cached" or "snapshot" (stored), "replayed"
            (recomputed), "none" (nothing is used).
        replayed_rows: rows recomputed for it [rows].
        requests: what runs, one request a step.
        skipped_entries: by KV owner, entries of replayed rows that are there and not written.
        copies: rows copied between the request's window ring and a workspace.
        history_ids: token ids before the first computed row that Engram hashes look back at.
        reasons: how the hit became what is used, one line each.
        warnings: which engines would refuse it, where the policy's ``engine_rules`` are "warned".
    """

    lookup: CacheLookup
    policy: RuntimePolicy
    hit_tokens: int
    window: Source
    replayed_rows: int
    requests: tuple[Request, ...]
    skipped_entries: Mapping[int, int]
    copies: RingCopies
    history_ids: int
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def new_tokens(self) -> int:
        """Tokens of the prompt that are computed for the first time."""
        return self.lookup.prompt_tokens - self.hit_tokens

    @property
    def rows(self) -> int:
        """Rows computed in all, replayed ones included."""
        return self.new_tokens + self.replayed_rows

    @property
    def replay_start(self) -> int:
        """First replayed position, which is also the window floor; the hit's end without replay."""
        return self.hit_tokens - self.replayed_rows

    @property
    def forwards(self) -> int:
        """Forwards of the model: one a step, and one for a separate replay."""
        apart = self.policy.encoder_replay == "separate" and self.replayed_rows > 0
        return len(self.requests) + apart

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "policy": self.policy.name,
            "policy_revision": self.policy.revision,
            "prompt_tokens": self.lookup.prompt_tokens,
            "global_tokens": self.lookup.global_tokens,
            "window_tokens": self.lookup.window_tokens,
            "hit_tokens": self.hit_tokens,
            "window": self.window,
            "replayed_rows": self.replayed_rows,
            "replay_start": self.replay_start,
            "new_tokens": self.new_tokens,
            "rows": self.rows,
            "forwards": self.forwards,
            "skipped_entries": {str(layer): n for layer, n in self.skipped_entries.items()},
            "history_ids": self.history_ids,
            "ring_copy_bytes": self.copies.bytes,
            "requests": [repr(request) for request in self.requests],
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
        }

    def text(self) -> str:
        """The answer in words that can be checked by hand."""
        found, prompt = self.lookup, self.lookup.prompt_tokens
        stored = f"ends at {found.window_tokens:,}" if found.window_tokens else "not stored"
        lines = [
            f"policy {self.policy.name} ({self.policy.revision})",
            f"prompt {prompt:,}; entries of {found.global_tokens:,} found, window {stored}",
            *(f"  {reason}" for reason in self.reasons),
            f"uses {self.hit_tokens:,}, computes {self.rows:,} rows: {self.replayed_rows:,} "
            f"replayed, {self.new_tokens:,} new, in {self.forwards:,} "
            f"forward{'s' if self.forwards > 1 else ''}",
        ]
        if self.replayed_rows:
            entries = ", ".join(
                f"{n} of layer {layer}" for layer, n in self.skipped_entries.items()
            )
            lines += [
                f"replayed rows [{self.replay_start:,}, {self.hit_tokens:,}): window from "
                f"{self.replay_start:,}; not written again: entries {entries}",
            ]
        if self.history_ids:
            lines.append(f"Engram looks back at {self.history_ids} token ids before the first row")
        if self.copies.bytes:
            lines.append(
                f"window rows copied in every layer: {self.copies.to_workspace} into a workspace, "
                f"{self.copies.to_ring} back into the ring; {self.copies.bytes / MB:.1f} MB in all"
            )
        shown = self.requests if len(self.requests) <= 4 else self.requests[:2]
        lines += [f"  step {number}: {request!r}" for number, request in enumerate(shown)]
        if len(shown) < len(self.requests):
            lines.append(f"  ... {len(self.requests):,} steps in all")
        lines += [f"warning: {line}" for line in self.warnings]
        return "\n".join(lines)


def adopt(model: Model, lookup: CacheLookup, policy: RuntimePolicy) -> Adoption:
    """What an engine makes of a lookup.

    Args:
        model: from `load_model`.
        lookup: the prompt and what the cache has of it.
        policy: the engine; its ``encoder_replay``, page, chunk and decoder replay decide. What it
            refuses of a mapping is left to the plan of a step: here it is one GPU.

    Raises:
        InvalidInputError: an argument of the wrong kind.
        OutOfRangeError: a prompt beyond the model's context.
        UnsupportedPlanError: the engine refuses the hit, or the policy.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> from aisim_v41.plan.policy import policy
        >>> model = load_model("deepseek-v4.1-flash")
        >>> found = adopt(model, CacheLookup(prompt_tokens=66_048, global_tokens=65_536),
        ...               policy("vllm"))
        >>> found.hit_tokens, found.replayed_rows, found.rows
        (65536, 128, 640)
    """
    require_step_model(model)
    require_kind("lookup", lookup, CacheLookup)
    require_kind("policy", policy, RuntimePolicy)
    if lookup.prompt_tokens > model.max_context:
        raise OutOfRangeError(
            f"CacheLookup.prompt_tokens = {lookup.prompt_tokens}: {model.name} has a context of "
            f"{model.max_context}"
        )
    hit, reasons = _page_rounded(lookup, policy)
    source = _window_source(model, lookup, policy, hit, reasons)
    if source == "replayed" and hit <= policy.hit_min_tokens:
        reasons.append(
            f"{hit:,} -> 0: hits of {policy.hit_min_tokens} tokens or fewer are not used"
        )
        hit, source = 0, "none"
    if source == "none":
        hit = 0
    replayed = min(hit, policy.encoder_replay_rows) if source == "replayed" else 0
    _note_unfinished_group(model, policy, hit, source, reasons)
    start = hit - replayed
    history = 0 if model.engram is None else min(model.engram.max_ngram - 1, start)
    requests = _steps(lookup, policy, hit, source, replayed)
    step = Plan(model, requests[:1], policy=policy)
    return Adoption(
        lookup=lookup,
        policy=policy,
        hit_tokens=hit,
        window=source,
        replayed_rows=replayed,
        requests=requests,
        skipped_entries={
            owner.index: hit // owner.ratio - start // owner.ratio for owner in model.kv_owners
        },
        copies=ring_copies(model, policy, requests),
        history_ids=history,
        reasons=tuple(reasons),
        warnings=step_warnings(policy, step.requests, model, step.parallel),
    )


def _page_rounded(lookup: CacheLookup, policy: RuntimePolicy) -> tuple[int, list[str]]:
    """The longest prefix that could be used, and why it is no longer than that."""
    reasons: list[str] = []
    hit = lookup.global_tokens

    def cut(most: int, reason: str) -> None:
        nonlocal hit
        if most < hit:
            reasons.append(f"{hit:,} -> {most:,}: {reason}")
            hit = most

    if policy.encoder_replay == "off":
        cut(lookup.window_tokens, "entries without a window are of no use (encoder_replay 'off')")
        if policy.decoder_replay and policy.replay_anchor == "prompt_end":
            tail = policy.replay_tail_rows
            cut(
                max(0, lookup.prompt_tokens - tail),
                f"the late layers compute the prompt's last {tail} rows",
            )
    cut(lookup.prompt_tokens - 1, "a prompt has at least one row to compute")
    page = policy.hit_page_tokens
    cut(hit // page * page, f"whole pages of {page} tokens")
    return hit, reasons


def _window_source(
    model: Model, lookup: CacheLookup, policy: RuntimePolicy, hit: int, reasons: list[str]
) -> Source:
    """Where the window before the first new row comes from."""
    if not hit:
        return "none"
    covered = lookup.window_covers(hit, model.attention.window, policy.hit_page_tokens)
    if policy.encoder_replay == "off":
        if not covered:
            reasons.append(
                f"{hit:,} -> 0: the stored tail does not hold the window that ends there"
            )
        return "cached" if covered else "none"
    if policy.encoder_replay == "snapshot":
        if lookup.snapshot and lookup.window_tokens == hit:
            if hit <= lookup.prompt_tokens - policy.encoder_replay_rows:
                return "snapshot"
            reasons.append(
                f"the snapshot is left: the hit ends within {policy.encoder_replay_rows} tokens of "
                "the prompt's end"
            )
        return "replayed"
    if covered and policy.name in WINDOWS_IN_RINGS:
        reasons.append("the stored window is not looked at: replay keeps windows out of the cache")
        return "replayed"
    return "cached" if covered else "replayed"


def _note_unfinished_group(
    model: Model, policy: RuntimePolicy, hit: int, source: Source, reasons: list[str]
) -> None:
    """A hit that ends inside a group of the compressor."""
    group = math.lcm(*(owner.ratio for owner in model.kv_owners)) if model.kv_owners else 1
    if source != "replayed" or hit % group == 0 or policy.replayed_rows_compress:
        return
    reasons.append(f"the unfinished group at {hit:,} must come from stored state")


def _steps(
    lookup: CacheLookup, policy: RuntimePolicy, hit: int, source: Source, replayed: int
) -> tuple[Request, ...]:
    """The prompt's chunks; replayed rows in front of the first take their share of it."""
    prompt, chunk = lookup.prompt_tokens, policy.chunk_tokens
    if source == "none":
        return tuple(chunked(prompt, chunk_tokens=chunk))
    room = chunk if policy.encoder_replay == "separate" else chunk - replayed
    if room < 1:
        raise UnsupportedPlanError(
            f"chunk_tokens = {chunk} and {replayed} replayed rows exclude each other "
            f"({policy.revision}): they leave no room for a new row; raise chunk_tokens"
        )
    first = Request(
        new_tokens=min(room, prompt - hit),
        prefix_tokens=hit,
        prompt_tokens=prompt,
        window="missing" if source == "replayed" else source,
    )
    later = chunked(prompt - first.end, chunk_tokens=chunk, prefix_tokens=first.end)
    floor = hit - replayed if replayed else 0
    return (
        first,
        *(
            Request(
                new_tokens=request.new_tokens,
                prefix_tokens=request.prefix_tokens,
                prompt_tokens=prompt,
                window_start=floor,
            )
            for request in later
        ),
    )
