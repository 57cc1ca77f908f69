"""The inventory closes on the published figures to the digit (model-facts §2, §11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aisim_v41.model.description import Model
from aisim_v41.model.inventory import Inventory, inventory, totals
from aisim_v41.model.load import model_from_config
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import all_tensors, draft_tensors, vision_tensors

from . import changes


@pytest.fixture(scope="module")
def official(model: Model) -> Inventory:
    return inventory(model)


def test_whole_checkpoint(official: Inventory) -> None:
    total = official.total
    assert total.tensors == 96_085
    assert total.parameters == 763_205_315_794
    assert total.bytes == 510_286_023_000
    assert total.scale_bytes == 23_563_015_184


def test_language_backbone(official: Inventory) -> None:
    backbone = official.backbone
    assert backbone.tensors == 93_406
    assert backbone.parameters == 551_566_180_464
    assert backbone.bytes == 298_309_535_168


@pytest.mark.parametrize(
    ("group", "tensors", "parameters", "size", "scale_bytes"),
    [
        (TensorGroup.ATTENTION, 440, 5_064_624_640, 5_069_578_240, 4_945_920),
        (TensorGroup.ROUTED_EXPERTS, 92_160, 543_581_798_400, 288_777_830_400, 16_986_931_200),
        (TensorGroup.SHARED_EXPERTS, 240, 1_415_577_600, 1_416_960_000, 1_382_400),
        (TensorGroup.ROUTER, 120, 78_673_920, 157_409_280, 0),
        (TensorGroup.HYPER_CONNECTIONS, 240, 39_323_760, 157_295_040, 0),
        (TensorGroup.INDEXER, 32, 43_516_416, 45_130_752, 40_960),
        (TensorGroup.COMPRESSOR, 11, 18_352_128, 36_704_256, 0),
        (TensorGroup.NORM, 161, 486_400, 972_800, 0),
        (TensorGroup.EMBEDDING, 1, 661_913_600, 1_323_827_200, 0),
        (TensorGroup.HEAD, 1, 661_913_600, 1_323_827_200, 0),
        (TensorGroup.ENGRAM_TABLE, 4, 196_613_849_600, 202_758_032_400, 6_144_182_800),
        (TensorGroup.ENGRAM_PROJECTION, 8, 314_654_720, 315_043_840, 307_200),
        (TensorGroup.DRAFT_EXPERTS, 2_304, 13_589_544_960, 7_219_445_760, 424_673_280),
        (TensorGroup.DRAFT, 90, 490_967_394, 502_294_920, 474_624),
        (TensorGroup.DRAFT_HEADS, 7, 144_850_176, 211_133_952, 76_800),
        (TensorGroup.VISION, 266, 485_268_480, 970_536_960, 0),
    ],
)
def test_every_class(
    official: Inventory,
    group: TensorGroup,
    tensors: int,
    parameters: int,
    size: int,
    scale_bytes: int,
) -> None:
    total = official.by_group[group]
    assert (total.tensors, total.parameters) == (tensors, parameters)
    assert (total.bytes, total.scale_bytes) == (size, scale_bytes)


def test_every_class_is_listed(official: Inventory) -> None:
    assert list(official.by_group) == list(TensorGroup)


def test_parameters_by_dtype_as_the_model_page_counts_them(official: Inventory) -> None:
    assert official.by_dtype == {
        "BF16": 1_976_441_856,
        "F32": 42_307_282,
        "F8_E4M3": 204_015_223_296,
        "I8": 557_171_343_360,
    }


@pytest.mark.parametrize(
    ("places", "size", "tensors"),
    [
        (("layers.0", "layers.3", "layers.29", "layers.39"), 7_389_500_888, 2_334),
        (("layers.2", "layers.8"), 7_405_694_680, 2_342),
        (("layers.20",), 7_400_451_800, 2_341),
        (("layers.24", "layers.28", "layers.32", "layers.36"), 7_395_076_568, 2_337),
        (("layers.1",), 108_924_651_160, 2_340),
        (("layers.14",), 108_943_620_648, 2_348),
        (("mtp.0",), 2_652_643_800, None),
        (("mtp.1",), 2_573_913_560, None),
        (("mtp.2",), 2_706_317_272, None),
    ],
)
def test_bytes_by_layer(
    official: Inventory, places: tuple[str, ...], size: int, tensors: int | None
) -> None:
    for place in places:
        assert official.by_place[place].bytes == size
        assert tensors is None or official.by_place[place].tensors == tensors


def test_parts_of_the_draft_blocks(model: Model) -> None:
    def parameters(*prefixes: str) -> int:
        return sum(
            tensor.parameters
            for block in draft_tensors(model)
            for role, tensor in block.items()
            if tensor.group is TensorGroup.DRAFT and role.startswith(prefixes)
        )

    norms = ("attn.q_norm", "attn.kv_norm", "attn_norm", "ffn_norm")
    assert parameters("attn.w", "attn.attn_sink") == 379_846_848
    assert parameters("ffn.shared_experts") == 106_168_320
    assert parameters("ffn.gate") == 1_966_848
    assert parameters("hc_") == 2_949_282
    assert parameters(*norms) == 36_096


def test_parts_of_vision(model: Model) -> None:
    def parameters(prefix: str) -> int:
        tensors = vision_tensors(model).items()
        return sum(tensor.parameters for role, tensor in tensors if role.startswith(prefix))

    assert parameters("vision.") == 411_842_560
    assert parameters("aligner.") == 73_410_560
    assert parameters("image_") == 15_360


def test_places_and_groups_add_up_to_the_same_total(official: Inventory, model: Model) -> None:
    from_places = sum(official.by_place.values(), start=totals(()))
    assert from_places == official.total == totals(all_tensors(model))


def test_frame_has_a_row_per_class_and_two_sums(official: Inventory) -> None:
    frame = official.to_frame().set_index("group")
    assert list(frame.index[-2:]) == ["language backbone", "whole checkpoint"]
    assert frame.loc["whole checkpoint", "bytes"] == 510_286_023_000
    assert frame["tensors"].iloc[:-2].sum() == 96_085


@pytest.mark.parametrize("change", changes.ALL.values(), ids=changes.ALL.keys())
def test_changed_models_have_an_inventory(
    config: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    changed = inventory(model_from_config(change(config), name="changed"))
    assert 0 < changed.backbone.parameters <= changed.total.parameters
    assert sum(changed.by_dtype.values()) == changed.total.parameters


def test_what_a_missing_feature_takes_away(config: dict[str, Any], official: Inventory) -> None:
    def groups_gone(changed: dict[str, Any]) -> set[TensorGroup]:
        left = inventory(model_from_config(changed, name="changed")).by_group
        return set(official.by_group) - set(left)

    draft = {TensorGroup.DRAFT, TensorGroup.DRAFT_EXPERTS, TensorGroup.DRAFT_HEADS}
    engram = {TensorGroup.ENGRAM_TABLE, TensorGroup.ENGRAM_PROJECTION}
    assert groups_gone(changes.without_engram(config)) == engram
    assert groups_gone(changes.without_draft(config, keep_zero=True)) == draft
    assert groups_gone(changes.without_vision(config)) == {TensorGroup.VISION}
    assert groups_gone(changes.window_only(config)) == {TensorGroup.INDEXER, TensorGroup.COMPRESSOR}
    assert groups_gone(changes.without_pool(config)) == set()
