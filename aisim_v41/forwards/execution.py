"""What a plan itself says of how it runs: the half of an identity that nobody has to type in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from aisim_v41.errors import InvalidInputError, SchemaError, UnsupportedPlanError
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.plan.policy import RuntimePolicy, preset_names
from aisim_v41.plan.policy import policy as preset

Scalar = str | int | float | bool
When = Callable[[RuntimePolicy], bool]


def _always(_: RuntimePolicy) -> bool:
    return True


def _replays(policy: RuntimePolicy) -> bool:
    return policy.decoder_replay


def _replays_a_budget(policy: RuntimePolicy) -> bool:
    return policy.decoder_replay and not policy.replay_exact


def _replays_images_apart(policy: RuntimePolicy) -> bool:
    return policy.decoder_replay and policy.replay_images != "as_text"


def _replays_exactly(policy: RuntimePolicy) -> bool:
    return policy.decoder_replay and policy.replay_exact


def _rebuilds_windows(policy: RuntimePolicy) -> bool:
    return policy.encoder_replay != "off"


def _captures_prefill(policy: RuntimePolicy) -> bool:
    return policy.prefill_execution != "eager"


def _captures_decode(policy: RuntimePolicy) -> bool:
    return policy.decode_execution != "eager"


def _exchanges(policy: RuntimePolicy) -> bool:
    return policy.expert_exchange != "gather"


def _fetches_rows(policy: RuntimePolicy) -> bool:
    return policy.engram_residency != "hbm"


def _caches_rows(policy: RuntimePolicy) -> bool:
    return _fetches_rows(policy) and policy.engram_cache_mib > 0


def _drafts(policy: RuntimePolicy) -> bool:
    return policy.speculation != "off"


def _verifies_ragged(policy: RuntimePolicy) -> bool:
    return _captures_decode(policy) and _drafts(policy) and policy.verify_lengths != "uniform"


def _fills_the_exchange(policy: RuntimePolicy) -> bool:
    return policy.exchange_padding != "sum"


def _returns_every_row(policy: RuntimePolicy) -> bool:
    return policy.exchange_return != "reduce_scatter"


def _reformats(policy: RuntimePolicy) -> bool:
    return policy.formats != ""


EXECUTION: Final[Mapping[str, When]] = {
    "decoder_replay": _always,
    "replay_tail_rows": _replays_a_budget,
    "replay_anchor": _replays,
    "replay_floor": _replays,
    "boundary_layer": _replays,
    "replay_exact": _replays,
    "replay_exact_multiple": _replays_exactly,
    "replay_exact_min_tokens": _replays_exactly,
    "replay_min_tokens": _replays,
    "decode_rows": _replays,
    "replay_images": _replays_images_apart,
    "prompt_logprobs": _replays,
    "encoder_replay": _always,
    "encoder_replay_rows": _rebuilds_windows,
    "replayed_rows_compress": _rebuilds_windows,
    "hit_page_tokens": _always,
    "hit_min_tokens": _rebuilds_windows,
    "reindex_scoring": _always,
    "score_shape": _always,
    "index_shortcut": _always,
    "kv_layout": _always,
    "index_arithmetic": _always,
    "expert_arithmetic": _always,
    "expert_exchange": _exchanges,
    "attention_head_multiple": _always,
    "exchange_padding": _fills_the_exchange,
    "exchange_return": _returns_every_row,
    "fusion": _always,
    "build": _always,
    "decode_streams": _always,
    "prefill_execution": _always,
    "prefill_graph_tokens": _captures_prefill,
    "decode_execution": _always,
    "decode_graph_sizes": _captures_decode,
    "verify_graph_sizes": _captures_decode,
    "graph_size_counts": _captures_decode,
    "verify_lengths": _verifies_ragged,
    "engram_residency": _always,
    "engram_prefetch": _fetches_rows,
    "engram_cache_mib": _caches_rows,
    "speculation": _always,
    "draft_tokens": _drafts,
    "formats": _reformats,
}
"""Policy fields that change what runs, and when they act. Those of the sharding rules always do,
the later ones where they act."""

NOT_EXECUTION: Final[Mapping[str, str]] = {
    **dict.fromkeys(("name", "revision"), "names of the preset, whose fields are taken instead"),
    "sharding": "its fields stand under their own names",
    "engine_rules": "says what is refused; what runs, runs alike",
    **dict.fromkeys(
        ("expert_routing", "expert_locality", "expert_popularity", "expert_imbalance",
         "engram_distinct_share", "engram_hit_share"),
        "an assumption about the text",
    ),
    **dict.fromkeys(
        (
            "engram_host_pages", "vision_weights", "draft_pool", "page_tokens", "page_counts",
            "kv_blocks", "window_slots", "window_page_rows", "window_pool", "window_ratio",
            "window_evict_tokens", "prefix_tails", "pair_ring_rows", "memory_fraction",
            "fraction_covers", "chunk_tokens", "max_requests", "index_workspace",
            "index_score_bytes", "index_tile_mib", "gather_workspace", "graph_pool_mib",
            "runtime_reserve_mib", "collective_mib", "exchange_mib",
        ),
        "memory or limits of steps: no step of given requests runs otherwise",
    ),
}  # fmt: skip
"""The other policy fields, and why they are left out."""

_OF_THE_PLAN: Final = ("config_sha256", "gpu")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_RANKS: Final = tuple(field.name for field in fields(Parallel))
_SHARDING: Final = tuple(field.name for field in fields(ShardingRules))
_LATER_RULES: Final = ("redundant_experts", "uneven_ranks")
"""Rules that tables measured before them do not name: they stand where they act."""


def execution_of(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> dict[str, Any]:
    """Config, GPU, mapping, and each policy field that changes what runs.

    A field stands here only where it acts: tails of a replay only under replay, captured sizes only
    with graphs. So two policies that run the same have the same execution.

    Raises:
        InvalidInputError: the model was not read from a config, or was changed since.
        UnsupportedPlanError: an earlier generation, which has no steps.
    """
    require_step_model(model)
    if not model.config_sha256:
        raise InvalidInputError(
            f"{model.name} ({model.revision}): was changed after its config was read, so that "
            "nothing says what it is. Change the config: aisim_v41.model.load.model_from_config"
        )
    return {
        "config_sha256": model.config_sha256,
        "gpu": hardware.name,
        **{name: getattr(parallel, name) for name in _RANKS},
        **policy_execution(policy),
    }


def policy_execution(policy: RuntimePolicy) -> dict[str, Any]:
    """The part of `execution_of` that the policy gives."""
    acting = {name: getattr(policy, name) for name, acts in EXECUTION.items() if acts(policy)}
    rules = policy.sharding
    neutral = ShardingRules()
    sharding = {
        name: getattr(rules, name)
        for name in _SHARDING
        if name not in _LATER_RULES or getattr(rules, name) != getattr(neutral, name)
    }
    return acting | {
        name: str(value) if isinstance(value, str) else value for name, value in sharding.items()
    }


def setting_of(execution: Mapping[str, Scalar], preset_name: str) -> tuple[Parallel, RuntimePolicy]:
    """Mapping and policy of an execution, so that its plans can be made again.

    Args:
        execution: as `execution_of` gives it.
        preset_name: what the fields that change no execution are taken from; defaults, where no
            preset has the name.

    Raises:
        SchemaError: a field is missing, not known, or not what it can be.
    """
    named = {*_OF_THE_PLAN, *_RANKS}
    for name in sorted(named - set(execution)):
        raise SchemaError(f"execution: {name} is missing")
    if not _DIGEST.fullmatch(str(execution["config_sha256"])):
        raise SchemaError("execution: config_sha256 must be 64 hexadecimal digits")
    try:
        ranks = Parallel(**{name: execution[name] for name in _RANKS})  # type: ignore[arg-type]
        if preset_name in preset_names():
            base = preset(preset_name)
        else:
            base = RuntimePolicy(name=preset_name, revision="not a preset")
        policy = base.with_overrides(
            **{name: value for name, value in execution.items() if name not in named}
        )
    except (InvalidInputError, UnsupportedPlanError) as error:
        raise SchemaError(f"execution: {error}") from None
    wanted = policy_execution(policy)
    for name in sorted(set(wanted) ^ (set(execution) - named)):
        said = "does not act under this policy" if name in execution else "is missing"
        raise SchemaError(f"execution: {name} {said}")
    return ranks, policy
