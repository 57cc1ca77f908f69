from __future__ import annotations

from typing import Any

import pytest

from aisim_v41.errors import SchemaError
from aisim_v41.model.load import model_from_config


def test_harmless_keys_are_kept_and_listed(config: dict[str, Any]) -> None:
    config["_name_or_path"] = "somewhere"
    config["text_config"]["output_attentions"] = False
    config["vision_config"]["comment"] = {"nested": [1, {"moe": 2}]}
    model = model_from_config(config, name="mine")
    assert model.unknown_keys == (
        "_name_or_path",
        "text_config.output_attentions",
        "vision_config.comment",
    )


@pytest.mark.parametrize(
    "key",
    [
        "index_topk_pattern",
        "candidate_refresh",
        "engram_conv_kernel",
        "dspark_window",
        "hc_share",
        "compress_overlap",
        "hash_layer_ids",
        "moe_layer_freq",
        "n_expert_groups",
        "rope_parameters",
        "quant_bits",
        "sliding_window_pattern",
        "attention_chunk_size",
        "n_group",
        "topk_group",
        "first_k_dense_replace",
        "kv_lora_rank",
        "v_head_dim",
        "num_hash_layers",
        "layer_types",
        "mtp_depth",
        "cross_layer_sharing",
    ],
)
def test_keys_that_change_execution_are_refused(config: dict[str, Any], key: str) -> None:
    config["text_config"][key] = 1
    with pytest.raises(SchemaError, match=rf"text_config\.{key} is not a key"):
        model_from_config(config, name="mine")


@pytest.mark.parametrize(
    ("section", "key", "near"),
    [
        ("", "expert_dtype", "belongs in quantization_config"),
        ("", "hidden_size", "belongs in text_config"),
        ("quantization_config", "ignored_layers", "known: activation_scheme"),
        ("text_config", "index_top_k", "index_topk"),
        ("text_config", "dspark_blocksize", "dspark_block_size"),
        ("text_config", "expert_dtype", "belongs in quantization_config"),
        ("text_config.rope_scaling", "attention_factor", "nearest: factor"),
        ("vision_config", "window_size", "hidden_size"),
    ],
)
def test_a_key_in_the_wrong_place_or_spelling(
    config: dict[str, Any], section: str, key: str, near: str
) -> None:
    target = config
    for part in section.split(".") if section else ():
        target = target[part]
    target[key] = 4
    dotted = f"{section}.{key}" if section else key
    with pytest.raises(SchemaError) as caught:
        model_from_config(config, name="mine")
    assert f"mine: {dotted} is not a key" in str(caught.value)
    assert near in str(caught.value)


def test_every_key_of_rope_scaling_counts(config: dict[str, Any]) -> None:
    config["text_config"]["rope_scaling"]["note"] = 1.0
    with pytest.raises(SchemaError, match=r"text_config\.rope_scaling\.note"):
        model_from_config(config, name="mine")
