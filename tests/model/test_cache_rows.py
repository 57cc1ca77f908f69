from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.model.cache_rows import (
    CACHE_LAYOUTS,
    cache_rows,
    draft_window_bytes,
    global_kv_bytes,
    global_kv_bytes_per_token,
    pair_state_bytes,
    window_bytes,
)
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model, model_from_config

from . import changes

MILLION = 1 << 20


@pytest.mark.parametrize(
    ("layout", "main", "window", "index", "slope"),
    [  # runtime-semantics §6.1; slope = 2.5 x (main + index)
        ("trained", 288, 528, 68, 890),
        ("sglang_v4", 584, 584, 68, 1630),
        ("sglang_v41", 288, 528, 68, 890),
        ("sglang_v41_fp8", 528, 528, 68, 1490),
        ("trtllm_plain", 512, 512, 68, 1450),
        ("trtllm_csa2", 288, 528, 68, 890),
        ("vllm_fp8", 528, 528, 68, 1490),
        ("vllm_fp8_index_fp8", 528, 528, 132, 1650),
        ("vllm_nvfp4", 288, 528, 68, 890),
        ("vllm_packed", 584, 584, 132, 1790),
        ("vllm_packed_index_fp4", 584, 584, 68, 1630),
        ("atom_bf16", 1024, 1024, 256, 3200),
        ("atom_packed", 288, 528, 132, 1050),
    ],
)
def test_rows_of_every_layout(
    model: Model, layout: str, main: int, window: int, index: int, slope: int
) -> None:
    rows = cache_rows(model, layout)
    assert (rows.main_bytes, rows.window_bytes, rows.index_bytes) == (main, window, index)
    assert global_kv_bytes_per_token(model, rows) == slope


def test_every_layout_is_tested() -> None:
    assert len(CACHE_LAYOUTS) == 13


def test_a_million_tokens(model: Model) -> None:
    # 890 MiB in the trained rows, 1630 MiB in SGLang's (model-facts §5)
    assert global_kv_bytes(model, cache_rows(model, "trained"), MILLION) == 933_232_640
    assert global_kv_bytes(model, cache_rows(model, "sglang_v4"), MILLION) == 1_709_178_880


def test_one_sequence_of_131072_tokens_in_sglang_rows(model: Model) -> None:
    rows, tokens = cache_rows(model, "sglang_v4"), 131_072
    window, global_kv = window_bytes(model, rows, tokens), global_kv_bytes(model, rows, tokens)
    assert (window, pair_state_bytes(model), global_kv) == (2_990_080, 24_576, 213_647_360)
    assert window + pair_state_bytes(model) + global_kv == 216_662_016


def test_windows(model: Model) -> None:
    rows = cache_rows(model, "trained")
    assert window_bytes(model, rows, 128) == window_bytes(model, rows, 5000) == 2_703_360
    assert window_bytes(model, rows, 1) == 40 * 528
    assert draft_window_bytes(model, rows, 5000) == 3 * 128 * 528


def test_a_half_pair_stores_nothing(model: Model) -> None:
    # Three owners of ratio 2 and one of ratio 1, 288 + 68 bytes an entry.
    rows = cache_rows(model, "trained")
    assert global_kv_bytes(model, rows, 0) == 0
    assert global_kv_bytes(model, rows, 1) == 356
    assert global_kv_bytes(model, rows, 2) == (3 + 2) * 356
    assert global_kv_bytes(model, rows, 3) == (3 + 3) * 356


@given(st.integers(min_value=0, max_value=1 << 40), st.sampled_from(CACHE_LAYOUTS))
def test_exact_bytes_stay_within_one_group_of_the_slope(tokens: int, layout: str) -> None:
    model = load_model("deepseek-v4.1-flash")
    assert isinstance(model, Model)
    rows = cache_rows(model, layout)
    exact = global_kv_bytes(model, rows, tokens)
    line = global_kv_bytes_per_token(model, rows) * tokens
    assert line - len(model.kv_owners) * rows.entry_bytes <= exact <= line


def test_other_ratios(config: dict[str, Any]) -> None:
    changed = model_from_config(changes.ratio_four(config), name="ratio 4")
    rows = cache_rows(changed, "trained")
    assert global_kv_bytes_per_token(changed, rows) == Fraction(356, 4) + 356
    assert pair_state_bytes(changed) == 2 * 4 * 512 * 4


def test_without_global_kv_nothing_grows(config: dict[str, Any]) -> None:
    changed = model_from_config(changes.window_only(config), name="window only")
    rows = cache_rows(changed, "trained")
    assert rows.index_bytes == 0
    assert global_kv_bytes_per_token(changed, rows) == 0
    assert global_kv_bytes(changed, rows, MILLION) == 0
    assert pair_state_bytes(changed) == 0


def test_rows_follow_the_widths_of_the_model(config: dict[str, Any]) -> None:
    config["text_config"].update(head_dim=256, qk_rope_head_dim=32, index_head_dim=64)
    changed = model_from_config(config, name="narrow")
    rows = cache_rows(changed, "sglang_v4")
    # 224 FP8 + 4 scales + 32 BF16 = 292, padded to 296; keys 32 + 2
    assert (rows.main_bytes, rows.index_bytes) == (296, 34)


def test_an_unknown_layout_names_its_neighbours(model: Model) -> None:
    with pytest.raises(MissingProfileError, match="sglang_v4"):
        cache_rows(model, "sglang_v5")


@pytest.mark.parametrize("tokens", [-1, 1.0, True, "8", None])
def test_tokens_must_be_a_whole_number(model: Model, tokens: Any) -> None:
    with pytest.raises(InvalidInputError, match="tokens"):
        global_kv_bytes(model, cache_rows(model, "trained"), tokens)
