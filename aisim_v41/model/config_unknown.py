"""Keys of a config that the library does not know: harmless, or a reason to stop.

A number computed from a config whose meaning is only half understood would be wrong without a
sign of it. So a key that carries the name of something that changes execution is refused, and
every other one is kept and listed in `Model.unknown_keys`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Never

from aisim_v41.errors import SchemaError, nearest

EARLIER_TYPES: Mapping[str, str] = {
    "deepseek_v4": "deepseek-v4-flash",
    "deepseek_v32": "deepseek-v3.2",
    "deepseek_v3": "deepseek-v3.2",
}
"""``model_type`` of an earlier generation, and the packaged figures nearest to it."""

_CHANGES_EXECUTION = re.compile(
    r"""index | candidate | engram | dspark | draft | mtp | nextn | speculat
    | ^hc_ | mhc | hyper_conn
    | compress | layer_id | layer_type | _layers$ | layer_freq | dense_replace
    | moe | expert | router | gate | topk | top_k | n_group | hash | scoring
    | rope | rotary | yarn | position_embed
    | quant | expert_dtype | ignored_layers | bits$
    | sliding | window | attention | attn | kv_ | _kv | lora | head_dim | n_heads | num_heads | sink
    | cross | recurren | loop | mamba | ssm | conv | hidden_size | intermediate | _rank$ | groups$
    | patch | downsample | vision | audio | video | image_tok | residual | tie_
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Name families that decide what is executed or stored."""

_HARMLESS = frozenset(
    {
        "attention_dropout",
        "aux_loss_alpha",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "router_aux_loss_coef",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "cross_attention_hidden_size",
        "add_cross_attention",
        "is_encoder_decoder",
        "tie_encoder_decoder",
        "encoder_no_repeat_ngram_size",
    }
)
"""Bookkeeping of Hugging Face classes that only looks like one of those families."""


def refuse_earlier(model_type: str, *, where: str) -> Never:
    """Stop at a config of an earlier generation, which has another forward pass."""
    raise SchemaError(
        f"{where}: model_type = {model_type!r} is an earlier generation with another forward "
        f"pass, not 'deepseek_v41'. Its figures for comparison are packaged: "
        f'load_model("{EARLIER_TYPES[model_type]}")'
    )


def sort_unknown_keys(
    raw: Mapping[str, Any], known: Mapping[str, frozenset[str]], *, where: str
) -> tuple[str, ...]:
    """Dotted names of harmless keys outside ``known``.

    Args:
        raw: Content of the file.
        known: Known keys of each section, by the section's dotted name.
        where: Name of the file for messages.

    Raises:
        SchemaError: an unknown key belongs to a family that changes execution.
    """
    kept: list[str] = []
    for section, names in known.items():
        content = _section(raw, section)
        if content is None:
            continue
        for key in content:
            if key in names:
                continue
            dotted = f"{section}.{key}" if section else key
            if key not in _HARMLESS and _CHANGES_EXECUTION.search(key):
                homes = [path or "the top level" for path, keys in known.items() if key in keys]
                hint = f"it belongs in {homes[0]}" if homes else nearest(key, names)
                raise SchemaError(
                    f"{where}: {dotted} is not a key of DeepSeek-V4.1 that this library knows, and "
                    f"its name says that it changes what is executed. Remove it, or correct it "
                    f"({hint})"
                )
            kept.append(dotted)
    return tuple(sorted(kept))


def _section(raw: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    content: Any = raw
    for part in path.split(".") if path else ():
        content = content.get(part) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else None
