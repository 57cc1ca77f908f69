"""What frees most memory: concrete changes, each priced by sizing the changed deployment.

Nothing here is a table of savings. A change that the engine or the mapping refuses is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from aisim_v41.errors import AisimError
from aisim_v41.memory.pages import ALIGNMENT
from aisim_v41.memory.setting import Setting
from aisim_v41.model.sharding import StoredAs

SMALLEST_CHUNK = 2048
"""Smaller chunks are not proposed (SGLang's default on the smallest GPUs, runtime-semantics §3)."""
LARGEST_FRACTION = 0.95
"""Larger shares are not proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """A change and what it brings on one rank.

    Attributes:
        change: In words.
        fields: What to set: names of policy fields or arguments, and values.
        freed_bytes: Memory that becomes free for KV when the same tokens are kept [B].
        kv_bytes: KV pool afterwards [B].
        tokens: Tokens that fit afterwards [tokens].
    """

    change: str
    fields: tuple[tuple[str, Any], ...]
    freed_bytes: int
    kv_bytes: int
    tokens: int


def reliefs(setting: Setting, kept_tokens: int | None) -> tuple[Relief, ...]:
    """Changes that free memory, best first.

    Args:
        setting: The deployment as it is.
        kept_tokens: Tokens that must still fit; None: one request of the longest context, whatever
            that is after the change (for a deployment that does not start).
    """
    before = _spare(setting, kept_tokens)
    found = []
    for change, fields, changed in _changes(setting):
        try:
            kv_bytes = changed.budget().kv_bytes
            freed = _spare(changed, kept_tokens) - before
            tokens = changed.pool().tokens_for(kv_bytes, changed.rank_requests)
        except AisimError:
            continue
        if freed > 0:
            found.append(
                Relief(
                    change=change,
                    fields=tuple(fields.items()),
                    freed_bytes=freed,
                    kv_bytes=kv_bytes,
                    tokens=tokens,
                )
            )
    return tuple(sorted(found, key=lambda relief: -relief.freed_bytes))


def _spare(setting: Setting, kept_tokens: int | None) -> int:
    """Memory left when the kept tokens have theirs; buffers beside a static budget count too."""
    budget, tokens = setting.budget(), kept_tokens
    if tokens is None:
        tokens = setting.max_length
    spare = budget.kv_bytes - setting.pool().bytes_for(tokens, setting.rank_requests)
    if setting.policy.fraction_covers == "static":
        spare += min(0, budget.room_left_bytes)
    return spare


def _changes(setting: Setting) -> Iterator[tuple[str, dict[str, Any], Setting]]:
    """Every change worth trying: words, fields, the changed deployment."""
    for change, fields in _policy_changes(setting):
        try:
            policy = setting.policy.with_overrides(**fields)
            yield change, fields, replace(setting, policy=policy)
        except AisimError:
            continue
    for change, fields, arguments in _other_changes(setting):
        try:
            yield change, fields, replace(setting, **arguments)
        except AisimError:
            continue


def _policy_changes(setting: Setting) -> Iterator[tuple[str, dict[str, Any]]]:
    policy, model = setting.policy, setting.model
    if policy.engram_residency == "hbm" and model.engram is not None:
        yield "Engram tables to host memory", {"engram_residency": "host_sharded"}
    for chunk in sorted({policy.chunk_tokens // 2, SMALLEST_CHUNK}):
        if SMALLEST_CHUNK <= chunk < policy.chunk_tokens:
            yield f"prefill chunks of {chunk} tokens", {"chunk_tokens": chunk}
    if policy.index_workspace == "full":
        yield "index scores in blocks of rows", {"index_workspace": "tiled"}
    if policy.gather_workspace != "none":
        yield "no flat copies of whole contexts", {"gather_workspace": "none"}
    if policy.speculation != "off" and model.draft is not None:
        yield "no speculation, draft blocks not loaded", {"speculation": "off"}
    if policy.vision_weights and model.vision is not None:
        yield "vision encoder not loaded", {"vision_weights": False}
    if policy.sharding.wo_a is StoredAs.BF16:
        yield "wo_a kept in FP8", {"wo_a": StoredAs.CHECKPOINT}
    if policy.memory_fraction < LARGEST_FRACTION:
        yield f"memory fraction {LARGEST_FRACTION}", {"memory_fraction": LARGEST_FRACTION}
    engine = policy.kv_layout.split("_")[0]
    for layout in ALIGNMENT:
        if layout.split("_")[0] == engine and layout != policy.kv_layout:
            yield f"KV layout {layout}, where the GPU has its kernels", {"kv_layout": layout}


def _other_changes(setting: Setting) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    if setting.requests > 1:
        half = setting.requests // 2
        yield f"at most {half} running requests", {"requests": half}, {"requests": half}
    if setting.max_length > 1:
        half = setting.max_length // 2
        yield f"contexts of at most {half} tokens", {"max_length": half}, {"max_length": half}
    parallel = setting.parallel
    whole = parallel.ep == parallel.expert_ranks
    doubled = replace(parallel, tp=2 * parallel.tp, ep=2 * parallel.ep if whole else parallel.ep)
    yield f"tp = {doubled.tp}", {"parallel": doubled}, {"parallel": doubled}
    if not whole:
        spread = replace(parallel, ep=parallel.expert_ranks)
        yield (
            f"whole experts on each rank (ep = {spread.ep})",
            {"parallel": spread},
            {"parallel": spread},
        )
