"""Draws a mapping, a policy and a step with every field that there is, whatever fits together.

Fields are found by their types, so that one added tomorrow is drawn tomorrow.
"""

from __future__ import annotations

import typing
from dataclasses import fields
from random import Random
from typing import Any

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.cache_rows import CACHE_LAYOUTS
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names
from aisim_v41.plan.request import Request

NAMED: dict[str, tuple[object, ...]] = {
    "kv_layout": CACHE_LAYOUTS,
    "decode_graph_sizes": ("every", "1, 2, 4, 8-256/8"),
    "verify_graph_sizes": ("every", "1-8, 16-64/8"),
    "build": ("any",),
    "formats": (
        "", "main_kv=fp8_e4m3+32", "expert_weights=fp8", "expert_activations=nvfp4",
        "dense=bf16,head=fp8", "wo_a=fp8", "index_key=fp8_e4m3+128/fp32", "index_key=bf16",
        "engram_rows=nvfp4,draft=bf16", "window_kv=bf16,expert_weights=bf16",
    ),
    "expert_popularity": (0.0, 1.0, 4.0),
    "expert_imbalance": (None, 1.0, 1.25, 8.0),
    "expert_slice_multiple": (1, 32, 128),
    "redundant_experts": (0, 8, 16, 4096),
    "attention_head_multiple": (1, 16, 64),
    "chunk_tokens": (64, 8192, 16384),
    "draft_tokens": (1, 3, 5, 7, 257),
    "replay_tail_rows": (1, 127, 128, 133),
    "encoder_replay_rows": (1, 127, 128),
    "hit_page_tokens": (1, 3, 64, 256),
}  # fmt: skip
"""Values of fields whose type does not say what they take."""
TENSOR_RANKS = (1, 1, 2, 3, 4, 4, 7, 8, 8, 16)
OTHER_RANKS = (1, 1, 1, 1, 1, 1, 2, 3, 4, 8)
LENGTHS = (0, 1, 2, 63, 127, 128, 129, 512, 513, 1026, 4097, 8192, 16385, 131_072)


def any_parallel(random: Random) -> Parallel:
    """Ranks per dimension, most of them 1."""
    others = ("ep", "dp", "cp", "pp")
    return Parallel(
        tp=random.choice(TENSOR_RANKS), **{name: random.choice(OTHER_RANKS) for name in others}
    )


def any_runtime(random: Random) -> RuntimePolicy:
    """A preset or custom policy with some fields drawn from all that their types allow."""
    base = random.choice(preset_names())
    made = policy("custom", base=base) if random.random() < 0.4 else policy(base)
    share = random.choice((0.0, 0.03, 0.1, 0.3))
    for record in (RuntimePolicy, ShardingRules):
        types = typing.get_type_hints(record)
        for field in fields(record):
            known = field.name not in ("name", "revision", "sharding", "engine_rules")
            if known and random.random() < share:
                value = _any_value(random, field.name, types[field.name])
                made = made.with_overrides(**{field.name: value})
    for switch, chance in (("decoder_replay", 0.4), ("speculation", 0.3)):
        if random.random() < chance:
            on: object = True if switch == "decoder_replay" else "dspark"
            made = made.with_overrides(**{switch: on})
    return made


def _any_value(random: Random, name: str, kind: Any) -> object:
    if name in NAMED:
        return random.choice(NAMED[name])
    if typing.get_origin(kind) is typing.Literal:
        return random.choice(typing.get_args(kind))
    if hasattr(kind, "__members__"):
        return random.choice([member.value for member in kind])
    if kind is bool:
        return random.random() < 0.5
    if kind is float:
        return random.choice((0.1, 0.5, 1.0))
    if kind is int:
        return random.choice((1, 2, 128, 4096))
    raise NotImplementedError(f"{name}: {kind} has no values to draw; name them in NAMED")


def any_step(random: Random, ranks: int) -> list[Request]:
    """One to four requests of one or several kinds; images, lost windows, ranks where there are."""
    kinds = random.choice((("prefill",), ("decode",), ("verify",), ("prefill", "decode", "verify")))
    return [_any_request(random, random.choice(kinds), ranks) for _ in range(random.randint(1, 4))]


def _any_request(random: Random, kind: str, ranks: int) -> Request:
    new = {"decode": 1, "verify": random.randint(1, 8)}.get(kind) or random.choice(LENGTHS)
    prefix = random.choice(LENGTHS)
    wanted: dict[str, Any] = {
        "new_tokens": new,
        "prefix_tokens": prefix,
        "kind": kind,
        "count": random.choice((0, 1, 1, 3, 64)),
    }
    if kind == "prefill" and random.random() < 0.3:
        window = random.choice(("running", "cached", "missing", "snapshot"))
        wanted |= {
            "window": window,
            "prompt_logprobs": random.random() < 0.2,
            "prompt_tokens": prefix + new + random.choice((0, 1, 4096)),
        }
    names = {field.name for field in fields(Request)}
    if kind == "prefill" and "image_tokens" in names and random.random() < 0.3:
        wanted["image_tokens"] = random.choice((0, new // 2, new))
    if "rank" in names and random.random() < 0.5:
        wanted["rank"] = random.randrange(ranks)
    try:
        return Request(**wanted)
    except InvalidInputError:  # a window state that such a request cannot have
        return Request(new_tokens=new, prefix_tokens=prefix, kind=kind)  # type: ignore[arg-type]
