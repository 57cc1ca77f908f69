"""Every field is typed and bounded, and what is wrong with it is said by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aisim_v41.errors import SchemaError
from aisim_v41.model.layers import CandidateRole, LayerKind
from aisim_v41.model.load import model_from_config

from . import changes


def refused(config: dict[str, Any], *mentions: str) -> str:
    with pytest.raises(SchemaError) as caught:
        model_from_config(config, name="changed.json")
    message = str(caught.value)
    assert message.startswith("changed.json: ")
    for mention in mentions:
        assert mention in message
    return message


@pytest.mark.parametrize(
    ("section", "field", "value", "right"),
    [
        ("text_config", "hidden_size", -5120, "greater than or equal to 1"),
        ("text_config", "hidden_size", 5120.0, "whole number"),
        ("text_config", "hidden_size", "5120", "whole number"),
        ("text_config", "hidden_size", True, "whole number"),
        ("text_config", "hidden_size", 1 << 40, "less than or equal to"),
        ("text_config", "num_hidden_layers", 10**6, "less than or equal to 512"),
        ("text_config", "rope_theta", 0, "greater than 0"),
        ("text_config", "compress_ratios", {}, "list"),
        ("text_config", "rms_norm_eps", "1e-20", "number"),
        ("quantization_config", "weight_block_size", [32], "at least 2"),
        ("quantization_config", "weight_block_size", [32, 0], "greater than or equal to 1"),
        ("vision_config", "patch_size", 0, "greater than or equal to 1"),
        ("text_config", "attention_bias", 0, "boolean"),
        ("text_config", "num_key_value_heads", True, "whole number"),
    ],
)
def test_types_and_ranges(
    config: dict[str, Any], section: str, field: str, value: object, right: str
) -> None:
    config[section][field] = value
    refused(config, f"{section}.{field}", right)


@pytest.mark.parametrize(
    ("section", "field", "value", "right"),
    [
        ("text_config", "hidden_act", "gelu", "'silu'"),
        ("text_config", "attention_bias", True, "False"),
        ("text_config", "tie_word_embeddings", True, "False"),
        ("text_config", "scoring_func", "sigmoid", "'sqrtsoftplus'"),
        ("text_config", "topk_method", "group_limited", "'noaux_tc'"),
        ("text_config", "num_key_value_heads", 8, "1"),
        ("text_config", "model_type", "deepseek_v4_text", "'deepseek_v41_text'"),
        ("quantization_config", "quant_method", "awq", "'fp8'"),
        ("quantization_config", "activation_scheme", "static", "'dynamic'"),
        ("quantization_config", "scale_fmt", "float32", "'ue8m0'"),
        ("quantization_config", "expert_dtype", "int4", "'fp4' or 'fp8'"),
        ("vision_config", "max_wh_ratio", 2.0, "null"),
    ],
)
def test_values_that_are_not_modelled(
    config: dict[str, Any], section: str, field: str, value: object, right: str
) -> None:
    config[section][field] = value
    refused(config, f"{section}.{field} = {value!r}", right)


def test_dtype_and_model_type(config: dict[str, Any]) -> None:
    config["dtype"] = "float16"
    refused(config, "dtype = 'float16'", "'bfloat16'")
    config["model_type"] = "deepseek_v4.1"  # the spelling that a cookbook prints
    refused(config, "model_type = 'deepseek_v4.1'", "'deepseek_v41'")


@pytest.mark.parametrize("earlier", ["deepseek_v4", "deepseek_v32", "deepseek_v3"])
def test_earlier_generations_fail_loudly(config: dict[str, Any], earlier: str) -> None:
    config["model_type"] = earlier
    refused(config, repr(earlier), "earlier generation", "load_model(")


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        ({"o_groups": 7}, ("o_groups = 7", "num_attention_heads = 64")),
        ({"qk_rope_head_dim": 514}, ("qk_rope_head_dim = 514", "head_dim = 512")),
        ({"qk_rope_head_dim": 63}, ("qk_rope_head_dim = 63", "even")),
        ({"moe_intermediate_size": 2303}, ("moe_intermediate_size = 2303", "expert_dtype")),
        ({"num_hidden_layers": 41}, ("43 entries", "41 + 3 = 44")),
        ({"num_nextn_predict_layers": 2}, ("43 entries", "40 + 2 = 42")),
        ({"compress_ratios": [0] * 2 + [2] * 18 + [1] * 23}, ("compress_ratios[40] = 1", "draft")),
        ({"compress_ratios": [0] * 2 + [2] * 18 + [129] * 20}, ("compress_ratios[20] = 129",)),
        ({"kv_source_layer_ids": [2, 14, 8, 20]}, ("kv_source_layer_ids", "ascend")),
        ({"kv_source_layer_ids": [2, 8, 8, 20]}, ("kv_source_layer_ids", "repetition")),
        ({"kv_source_layer_ids": [2, 8, 14, 20, 40]}, ("names layer 40", "last one is 39")),
        ({"kv_source_layer_ids": [2, 9, 14, 20]}, ("[9]", "index_source_layer_ids")),
        ({"kv_source_layer_ids": [8, 14, 20]}, ("compress_ratios[2] = 2", "[8, 14, 20]")),
        ({"kv_source_layer_ids": [2, 8, 14]}, ("compress_ratios[20] = 1", "2 of layer 14")),
        ({"index_source_layer_ids": [1, 2, 8, 14, 20]}, ("names layer 1", "window-only")),
        ({"index_source_layer_ids": [2, 8, 20]}, ("[14]", "index_source_layer_ids")),
        ({"index_topk": None}, ("index_topk is missing",)),
        ({"candidate_block_size": None}, ("candidate_block_size is missing", "or none")),
        ({"candidate_source_layer_id": 24}, ("candidate_source_layer_id = 24", "[2, 8, 14, 20]")),
        ({"candidate_topk_blocks": 63}, ("63 x 8", "index_topk = 512")),
        ({"num_experts_per_tok": 385}, ("num_experts_per_tok = 385", "n_routed_experts = 384")),
        ({"engram_layer_ids": [1]}, ("2 entries", "engram_layer_ids 1")),
        ({"engram_layer_ids": [14, 1]}, ("engram_layer_ids = [14, 1]", "ascend")),
        ({"engram_layer_ids": [1, 40]}, ("engram_layer_ids names layer 40",)),
        ({"engram_head_dim": None}, ("engram_head_dim is missing",)),
        ({"engram_compressed_vocab_size": 129_281}, ("129281", "vocab_size = 129280")),
        ({"dspark_target_layer_ids": []}, ("dspark_target_layer_ids is empty",)),
        ({"dspark_target_layer_ids": [38, 39, 40]}, ("dspark_target_layer_ids names layer 40",)),
        ({"dspark_markov_rank": None}, ("dspark_markov_rank is missing",)),
        ({"dspark_num_experts_per_tok": 129}, ("129", "dspark_n_routed_experts = 128")),
        ({"dspark_noise_token_id": 129_280}, ("dspark_noise_token_id = 129280", "vocabulary")),
    ],
)
def test_fields_that_contradict_each_other(
    config: dict[str, Any], change: dict[str, Any], mentions: tuple[str, ...]
) -> None:
    config["text_config"].update(change)
    refused(config, *mentions)


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        ({"num_attention_heads": 15}, ("num_attention_heads = 15", "hidden_size = 1024")),
        ({"min_pixels": 10**9}, ("min_pixels = 1000000000", "max_image_tokens = 1024")),
    ],
)
def test_vision_fields_that_contradict_each_other(
    config: dict[str, Any], change: dict[str, Any], mentions: tuple[str, ...]
) -> None:
    config["vision_config"].update(change)
    refused(config, *mentions)


@pytest.mark.parametrize(
    "path", ["quantization_config", "text_config", "dtype", "model_type", "text_config.head_dim"]
)
def test_what_must_be_there(config: dict[str, Any], path: str) -> None:
    section, _, field = path.rpartition(".")
    del (config[section] if section else config)[field]
    refused(config, f"{path} is missing")


def test_several_problems_in_one_message(config: dict[str, Any]) -> None:
    for field in ("hidden_size", "vocab_size", "head_dim", "o_groups", "sliding_window", "hc_mult"):
        config["text_config"][field] = -1
    message = refused(config, "text_config.hidden_size = -1", "and 1 more")
    assert message.count("; ") == 5


def test_long_values_are_cut(config: dict[str, Any]) -> None:
    config["text_config"]["hidden_act"] = "x" * 10_000
    assert len(refused(config, "hidden_act")) < 300


def test_large_but_legal_numbers_keep_64_bits(config: dict[str, Any]) -> None:
    from aisim_v41.model.inventory import inventory

    config["text_config"].update(
        hidden_size=1 << 16,
        moe_intermediate_size=1 << 16,
        n_routed_experts=1 << 12,
        engram_num_embeddings=[1 << 36, 1 << 36],
        engram_head_dim=1 << 12,
        vocab_size=1 << 24,
    )
    assert inventory(model_from_config(config, name="huge")).total.bytes < 1 << 62


def test_contexts_end_where_counts_are_exact(config: dict[str, Any]) -> None:
    longest = 1 << 26
    text = config["text_config"]
    text["max_position_embeddings"] = longest
    assert model_from_config(config, name="long").max_context == longest
    exact = longest * (longest + 1)  # twice the entries that a full span reaches
    assert exact < 2**53
    text["max_position_embeddings"] = longest + 1
    told = refused(config, "max_position_embeddings")
    assert "must be at most 67108864 (2**26), as counts are exact only up to there" in told


def test_shrunken_model_has_the_pattern_of_its_config(config: dict[str, Any]) -> None:
    model = model_from_config(changes.shrunken(config), name="small")
    kinds = [layer.kind for layer in model.layers]
    assert kinds == [
        LayerKind.WINDOW_ONLY,
        LayerKind.WINDOW_ONLY,
        LayerKind.FULL,
        LayerKind.REUSE,
        LayerKind.REINDEX,
        LayerKind.FULL,
        LayerKind.REUSE,
        LayerKind.REINDEX,
        LayerKind.REUSE,
    ]
    # Layer 4 reindexes layer 2's keys, outside the pool that layer 5 makes.
    roles = [layer.candidate_role for layer in model.layers]
    assert roles[4] is CandidateRole.NONE
    assert roles[5] is CandidateRole.SOURCE
    assert roles[7] is CandidateRole.USER
    assert model.draft is not None
    assert (model.draft.blocks, model.draft.taps) == (1, (7, 8))


def test_missing_features_are_none(config: dict[str, Any]) -> None:
    bare = model_from_config(changes.ALL["bare"](config), name="bare")
    assert (bare.engram, bare.draft, bare.vision, bare.indexer) == (None, None, None, None)
    assert bare.kv_owners == ()
    assert bare.boundary is None
    assert bare.count(LayerKind.WINDOW_ONLY) == 40


def test_no_pool_means_full_scans(config: dict[str, Any]) -> None:
    model = model_from_config(changes.without_pool(config), name="no pool")
    assert model.indexer is not None
    assert model.indexer.candidate_positions == 0
    assert {layer.candidate_role for layer in model.layers} == {CandidateRole.NONE}


@pytest.mark.parametrize("change", changes.ALL.values(), ids=changes.ALL.keys())
def test_changed_configs_load_without_leftovers(
    config: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    assert model_from_config(change(config), name="changed").unknown_keys == ()


def test_keys_of_a_feature_that_is_off_are_listed(config: dict[str, Any]) -> None:
    text = config["text_config"]
    text["num_nextn_predict_layers"] = 0
    text["compress_ratios"] = text["compress_ratios"][:40]
    model = model_from_config(config, name="draft off")
    assert model.draft is None
    assert "text_config.dspark_markov_rank" in model.unknown_keys
    assert len(model.unknown_keys) == 6
