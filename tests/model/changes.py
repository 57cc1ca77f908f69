"""Changed configs that the tests share: each is the official one with some features altered."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Config = dict[str, Any]


def without_engram(config: Config) -> Config:
    changed = copy.deepcopy(config)
    text = changed["text_config"]
    for key in [key for key in text if key.startswith("engram_")]:
        del text[key]
    return changed


def without_draft(config: Config, *, keep_zero: bool) -> Config:
    changed = copy.deepcopy(config)
    text = changed["text_config"]
    blocks = text.pop("num_nextn_predict_layers")
    if keep_zero:
        text["num_nextn_predict_layers"] = 0
    for key in [key for key in text if key.startswith("dspark_")]:
        del text[key]
    text["compress_ratios"] = text["compress_ratios"][:-blocks]
    return changed


def without_vision(config: Config) -> Config:
    changed = copy.deepcopy(config)
    del changed["vision_config"], changed["image_token_id"]
    return changed


def without_pool(config: Config) -> Config:
    changed = copy.deepcopy(config)
    for key in ("candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"):
        del changed["text_config"][key]
    return changed


def window_only(config: Config) -> Config:
    """No global KV at all: no sources, no indexer, no pool."""
    changed = without_pool(config)
    text = changed["text_config"]
    text["compress_ratios"] = [0] * len(text["compress_ratios"])
    for key in [key for key in text if key.startswith("index_")] + ["kv_source_layer_ids"]:
        del text[key]
    return changed


def shrunken(config: Config) -> Config:
    """Nine layers in the official pattern: two window-only, three of ratio 2, four of ratio 1."""
    changed = copy.deepcopy(config)
    changed["text_config"].update(
        num_hidden_layers=9,
        hidden_size=256,
        moe_intermediate_size=128,
        n_routed_experts=16,
        compress_ratios=[0, 0, 2, 2, 2, 1, 1, 1, 1, 0],
        num_nextn_predict_layers=1,
        kv_source_layer_ids=[2, 5],
        index_source_layer_ids=[2, 4, 5, 7],
        candidate_source_layer_id=5,
        engram_layer_ids=[1],
        engram_num_embeddings=[1000],
        dspark_target_layer_ids=[7, 8],
    )
    return changed


def ratio_four(config: Config) -> Config:
    """The encoder half at ratio 4 with one owner."""
    changed = copy.deepcopy(config)
    text = changed["text_config"]
    text["compress_ratios"] = [0] * 2 + [4] * 18 + [1] * 20 + [0] * 3
    text["kv_source_layer_ids"] = [2, 20]
    text["index_source_layer_ids"] = [2, 11, 20, 30]
    return changed


ALL: dict[str, Callable[[Config], Config]] = {
    "without_engram": without_engram,
    "draft_zero": lambda config: without_draft(config, keep_zero=True),
    "draft_missing": lambda config: without_draft(config, keep_zero=False),
    "without_vision": without_vision,
    "without_pool": without_pool,
    "window_only": window_only,
    "shrunken": shrunken,
    "ratio_four": ratio_four,
    "bare": lambda config: without_vision(
        without_engram(without_draft(window_only(config), keep_zero=False))
    ),
}
