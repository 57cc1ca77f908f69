from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from aisim_v41.model.description import Model
from aisim_v41.model.load import model_from_config
from aisim_v41.model.tensor import Split, TensorGroup
from aisim_v41.model.tensors import (
    all_tensors,
    draft_tensors,
    global_tensors,
    layer_tensors,
    vision_tensors,
)

from . import changes


@pytest.mark.parametrize(
    ("role", "shape", "scale_bytes"),
    [  # model-facts §2: shape [out, in] and scale shape
        ("attn.wq_a", (1280, 5120), 40 * 160),
        ("attn.wq_b", (32768, 1280), 1024 * 40),
        ("attn.wkv", (512, 5120), 16 * 160),
        ("attn.wo_a", (8192, 4096), 256 * 128),
        ("attn.wo_b", (5120, 8192), 160 * 256),
        ("ffn.gate", (384, 5120), 0),
        ("ffn.experts.w1", (2304, 5120), 384 * 2304 * 160),
        ("ffn.experts.w2", (5120, 2304), 384 * 5120 * 72),
        ("ffn.shared_experts.w1", (2304, 5120), 72 * 160),
        ("ffn.shared_experts.w2", (5120, 2304), 160 * 72),
        ("hc_attn_fn", (24, 20480), 0),
        ("hc_ffn_base", (1, 24), 0),
        ("hc_ffn_scale", (1, 3), 0),
        ("attn.compressor.wgate", (512, 5120), 0),
        ("attn.indexer.wq_b", (4096, 1280), 128 * 40),
        ("attn.indexer.weights_proj", (32, 5120), 0),
        ("attn.indexer.wk", (128, 512), 0),
        ("engram.embed", (384_016_682, 256), 384_016_682 * 8),
        ("engram.wkv", (25600, 6144), 800 * 192),
        ("engram.k_weight", (4, 5120), 0),
    ],
)
def test_shapes_of_layer_14(
    model: Model, role: str, shape: tuple[int, int], scale_bytes: int
) -> None:
    tensor = layer_tensors(model, model.layers[14])[role]
    assert (tensor.rows, tensor.columns) == shape
    assert tensor.scale_bytes == scale_bytes


def test_which_layers_have_which_extra_tensors(model: Model) -> None:
    def layers_with(role: str) -> list[int]:
        return [x.index for x in model.layers if role in layer_tensors(model, x)]

    assert layers_with("attn.compressor.wkv") == [2, 8, 14, 20]
    assert layers_with("attn.compressor.wgate") == [2, 8, 14]  # ratio 1 pools nothing
    assert layers_with("attn.indexer.wq_b") == [2, 8, 14, 20, 24, 28, 32, 36]
    assert layers_with("attn.indexer.wk") == [2, 8, 14, 20]
    assert layers_with("engram.embed") == [1, 14]


def test_stored_names(model: Model) -> None:
    tensors = layer_tensors(model, model.layers[7])
    assert tensors["attn.wq_b"].name == "layers.7.attn.wq_b"
    assert tensors["ffn.experts.w1"].name == "layers.7.ffn.experts.*.w1"
    assert draft_tensors(model)[2]["markov_head.embed"].name == "mtp.2.markov_head.embed"
    assert vision_tensors(model)["vision.blocks.mlp.w1"].name == "vision.blocks.*.mlp.w1"
    assert global_tensors(model)["head"].name == "head"


def test_names_are_unique_and_the_last_part_of_them_is_the_role(model: Model) -> None:
    tensors = list(all_tensors(model))
    assert max(Counter(tensor.name for tensor in tensors).values()) == 1
    assert all(tensor.name.replace(".*", "").endswith(tensor.role) for tensor in tensors)


def test_draft_heads_sit_in_the_first_and_last_block(model: Model) -> None:
    first, middle, last = draft_tensors(model)
    assert (first["main_proj"].rows, first["main_proj"].columns) == (5120, 3 * 5120)
    assert "main_proj" not in middle
    assert not [t for t in middle.values() if t.group is TensorGroup.DRAFT_HEADS]
    assert (last["markov_head.head"].rows, last["markov_head.head"].columns) == (129280, 256)
    assert last["confidence_head.proj"].columns == 5376


def test_draft_blocks_have_their_own_experts(model: Model) -> None:
    block = draft_tensors(model)[1]
    assert block["ffn.experts.w1"].copies == 128
    assert block["ffn.gate"].rows == 128
    assert {t.group for t in block.values()} == {TensorGroup.DRAFT, TensorGroup.DRAFT_EXPERTS}


def test_one_draft_block_holds_both_ends(config: dict[str, Any]) -> None:
    (block,) = draft_tensors(model_from_config(changes.shrunken(config), name="small"))
    assert "main_proj" in block
    assert "markov_head.head" in block


def test_image_router_bias_goes_with_vision(config: dict[str, Any]) -> None:
    blind = model_from_config(changes.without_vision(config), name="text only")
    assert "ffn.gate.bias_vl" not in layer_tensors(blind, blind.layers[0])
    assert vision_tensors(blind) == {}


def test_fp8_experts_are_honoured(config: dict[str, Any]) -> None:
    config["quantization_config"].update(expert_dtype="fp8", weight_block_size=[128, 64])
    changed = model_from_config(config, name="fp8")
    expert = layer_tensors(changed, changed.layers[0])["ffn.experts.w1"]
    assert expert.element_bytes == 384 * 2304 * 5120
    assert expert.scale_bytes == 384 * 18 * 80


def test_every_matrix_has_a_split_that_cuts_something(model: Model) -> None:
    # A sanity law of the declared splits: what is cut has more rows or columns than one.
    for tensor in all_tensors(model):
        if tensor.split in (Split.INPUT_COLUMNS, Split.EXPERT_COLUMNS):
            assert tensor.columns > 1
        elif tensor.split is not Split.REPLICATED:
            assert tensor.rows > 1


def test_a_layer_is_listed_in_well_under_a_millisecond(model: Model) -> None:
    # Compiling a step lists every layer; the design asks for 100 us, a busy machine gets ten
    # times that.
    repeats = 20
    best = min(_seconds_per_layer(model) for _ in range(repeats))
    assert best < 1e-3


def _seconds_per_layer(model: Model) -> float:
    start = time.perf_counter()
    for layer in model.layers:
        layer_tensors(model, layer)
    return (time.perf_counter() - start) / len(model.layers)
