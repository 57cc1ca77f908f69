"""Which prefix of a prompt an engine can use, by trying every length.

Sources: runtime-semantics §2.1-§2.5 and §1.5. A length is usable if every condition holds for it;
the longest usable one is taken.
"""

from __future__ import annotations

RINGS = ("sglang", "vllm")


def used_prefix(lookup, policy, window: int) -> tuple[int, str]:
    """The longest usable prefix, and where its window comes from."""
    for length in range(lookup.prompt_tokens - 1, 0, -1):
        source = usable(lookup, policy, window, length)
        if source:
            return length, source
    return 0, "none"


def usable(lookup, policy, window: int, length: int) -> str | None:
    """How a prefix of this length could be used; None if it could not."""
    entries = length <= lookup.global_tokens
    whole_pages = length % policy.hit_page_tokens == 0
    if not (entries and whole_pages):
        return None
    held = stored(lookup, policy, window)
    has_window = all(position in held for position in range(max(0, length - window), length))
    remaining = lookup.prompt_tokens - length
    if policy.encoder_replay == "off":
        private = policy.decoder_replay and policy.replay_anchor == "prompt_end"
        if private and remaining < policy.replay_tail_rows:
            return None
        return "cached" if has_window else None
    if policy.encoder_replay == "snapshot":
        exact = lookup.snapshot and lookup.window_tokens == length
        if exact and remaining >= policy.encoder_replay_rows:
            return "snapshot"
    elif has_window and policy.name not in RINGS:
        return "cached"
    return None if length <= policy.hit_min_tokens else "replayed"


def stored(lookup, policy, window: int) -> range:
    """Positions whose window rows the cache holds."""
    rows = lookup.window_rows
    if rows is None:
        rows = window + policy.hit_page_tokens
    end = lookup.window_tokens
    return range(max(0, end - rows), end)
