"""Active parameters and touched weight bytes (model-facts §2, "Against the published figures")."""

from __future__ import annotations

from typing import Any

from aisim_v41.model.active import (
    DECODE_GROUPS,
    PREFILL_GROUPS,
    decode_active_parameters,
    decode_weight_bytes,
    prefill_active_parameters,
)
from aisim_v41.model.description import Model
from aisim_v41.model.load import model_from_config
from aisim_v41.model.tensor import TensorGroup

from . import changes


def test_decode_reaches_16e9_only_with_the_head(model: Model) -> None:
    without_head = DECODE_GROUPS - {TensorGroup.HEAD}
    with_engram = DECODE_GROUPS | {TensorGroup.ENGRAM_PROJECTION}
    assert decode_active_parameters(model, groups=without_head) == 15_154_020_464
    assert decode_active_parameters(model) == 15_815_934_064
    assert decode_active_parameters(model, groups=with_engram) == 16_130_588_784


def test_decode_pieces(model: Model) -> None:
    routed = decode_active_parameters(model, groups=frozenset({TensorGroup.ROUTED_EXPERTS}))
    # 40 layers x 6 experts x 3 x 5120 x 2304
    assert routed == 40 * 6 * 35_389_440 == 8_493_465_600
    rest = DECODE_GROUPS - {TensorGroup.ROUTED_EXPERTS, TensorGroup.HEAD}
    assert decode_active_parameters(model, groups=rest) == 6_660_554_864


def test_prefill_of_the_encoder_half(model: Model) -> None:
    assert prefill_active_parameters(model) == 7_895_563_064
    assert prefill_active_parameters(model, boundary="full") == 8_278_273_454


def test_layer_20_adds_its_compressor_and_index_key(model: Model) -> None:
    layers_before = prefill_active_parameters(model) - 2_687_616
    assert layers_before == 7_892_875_448
    # compressor 512 x 5120 and its norm 512, wk 128 x 512 and its norm 128
    assert 512 * 5120 + 512 + 128 * 512 + 128 == 2_687_616


def test_without_global_kv_prefill_runs_every_layer(config: dict[str, Any]) -> None:
    changed = model_from_config(changes.window_only(config), name="window only")
    final_norm = 5120
    all_layers = decode_active_parameters(changed, groups=PREFILL_GROUPS) - final_norm
    assert prefill_active_parameters(changed) == all_layers


def test_weight_bytes_of_one_decode_token(model: Model) -> None:
    touched = decode_weight_bytes(model)
    assert sum(touched.values()) == 13_035_097_920
    assert touched[TensorGroup.ROUTED_EXPERTS] == 4_512_153_600
    assert touched[TensorGroup.EMBEDDING] == 10_240
    assert touched[TensorGroup.ENGRAM_TABLE] == 12_672
    assert TensorGroup.VISION not in touched
