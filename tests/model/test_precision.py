"""Formats by role: bytes of rows and matrices by hand, and what cannot be read."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.cache_rows import (
    CACHE_LAYOUTS,
    cache_rows,
    global_kv_bytes_per_token,
)
from aisim_v41.model.load import load_model
from aisim_v41.model.precision import (
    AS_STORED,
    ELEMENTS,
    NAMED,
    ROLES,
    SCALES,
    Precision,
    RoleFormats,
    precision,
    role_formats,
)
from aisim_v41.model.reformatted import reformatted
from aisim_v41.model.tensor import TensorGroup, bytes_by_group
from aisim_v41.model.tensors import all_tensors, draft_tensors, global_tensors, layer_tensors

MODEL = load_model("deepseek-v4.1-flash")


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("nvfp4", 512, 288),  # 256 + 32 scales of a byte
        ("fp4_e2m1+16/e4m3", 512, 288),
        ("mxfp8", 512, 528),  # 512 + 16
        ("fp8_e4m3+32", 512, 528),
        ("mxfp4", 128, 68),  # 64 + 4
        ("fp8_e4m3+128/fp32", 128, 132),  # one FP32 scale
        ("fp8", 512, 512),
        ("bf16", 512, 1024),
        ("fp8_e4m3+64", 100, 102),  # 2 scales, the second for 36 values
        ("fp4_e2m1", 3, 2),  # 12 bits
    ],
)
def test_rows_by_hand(text: str, values: int, expected: int):
    assert precision(text).row(values).bytes == expected
    assert precision(text).matrix().bytes(1, values) == expected


def test_bytes_of_one_value():
    assert precision("bf16").value_bytes == 2
    assert precision("mxfp8").value_bytes == 1 + 1 / 32
    assert precision("nvfp4").value_bytes == 0.5 + 1 / 16


any_precision = st.builds(
    Precision,
    st.sampled_from(sorted(ELEMENTS)),
    st.integers(1, 1 << 16),
    st.sampled_from(sorted(SCALES)),
) | st.builds(Precision, st.sampled_from(sorted(ELEMENTS)))


@given(any_precision)
def test_what_is_written_is_read_back(one: Precision):
    assert precision(str(one)) == one


@given(any_precision, st.integers(1, 2048))
def test_bytes_of_a_row_bit_by_bit(one: Precision, values: int):
    bits = 0
    for value in range(values):
        bits += one.bits
        if one.group and value % one.group == 0:
            bits += SCALES[one.scale]
    assert one.row(values).bytes == -(-bits // 8)


@given(st.dictionaries(st.sampled_from(ROLES), any_precision))
def test_roles_are_written_in_one_order(chosen: dict[str, Precision]):
    made = RoleFormats(**chosen)
    backwards = ",".join(f"{role}={chosen[role]}" for role in reversed(list(chosen)))
    assert role_formats(backwards) == made
    assert str(role_formats(backwards)) == str(made)
    assert role_formats(str(made)) == made


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("main=bf16", "main_kv"),
        ("main_kv", "ROLE=FORMAT"),
        ("main_kv=", "no elements ''"),
        ("main_kv=int8", "fp4_e2m1"),
        ("main_kv=fp8+32", "no elements 'fp8'"),
        ("main_kv=fp8_e4m3+", "whole number"),
        ("main_kv=fp8_e4m3+0", "whole number"),
        ("main_kv=fp8_e4m3+-3", "whole number"),
        ("main_kv=fp8_e4m3+٣", "whole number"),
        ("main_kv=fp8_e4m3+99999", "whole number"),
        ("main_kv=fp8_e4m3+32/", "no scale ''"),
        ("main_kv=fp8_e4m3+32/e8m0", "ue8m0"),
        ("main_kv=bf16,main_kv=fp8", "set twice"),
        (",", "ROLE=FORMAT"),
        ("main_kv=bf16,", "ROLE=FORMAT"),
    ],
)
def test_what_cannot_be_read_says_what_can(text: str, part: str):
    with pytest.raises(InvalidInputError) as caught:
        role_formats(text)
    assert part in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_formats_or_an_error(text: str):
    try:
        made = role_formats(text)
    except InvalidInputError:
        return
    assert role_formats(str(made)) == made


def stored(text: str):
    return reformatted(MODEL, role_formats(text))


def test_rows_follow_their_role_in_every_layout():
    model = stored("main_kv=fp8_e4m3+32,index_key=fp8_e4m3+128/fp32")
    for layout in CACHE_LAYOUTS:
        rows = cache_rows(model, layout)
        assert (rows.main_bytes, rows.index_bytes) == (528, 132)
        assert rows.window_bytes == cache_rows(MODEL, layout).window_bytes
    # Three owners of ratio 2 and one of ratio 1: 2.5 entries a token (runtime-semantics §6.1).
    fp8 = stored("main_kv=mxfp8")
    assert global_kv_bytes_per_token(fp8, cache_rows(fp8, "trained")) == 2.5 * (528 + 68)
    assert cache_rows(stored("window_kv=bf16"), "trained").window_bytes == 1024


def by_group(model) -> dict[TensorGroup, int]:
    return bytes_by_group(all_tensors(model))


WEIGHTS = {
    "expert_weights": {TensorGroup.ROUTED_EXPERTS},
    "dense": {
        TensorGroup.ATTENTION, TensorGroup.SHARED_EXPERTS, TensorGroup.INDEXER,
        TensorGroup.ENGRAM_PROJECTION,
    },
    "wo_a": {TensorGroup.ATTENTION},
    "engram_rows": {TensorGroup.ENGRAM_TABLE},
    "draft": {TensorGroup.DRAFT, TensorGroup.DRAFT_EXPERTS, TensorGroup.DRAFT_HEADS},
    "head": {TensorGroup.HEAD},
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_role_changes_its_own_weights_alone(role: str):
    before, after = by_group(MODEL), by_group(stored(f"{role}=fp8_e4m3+7"))
    changed = {group for group in before if after[group] != before[group]}
    assert changed == WEIGHTS.get(role, set())


def test_weights_by_hand():
    """384 experts of 3 x 2304 x 5120 values a layer; 129,280 x 5,120 of the head."""
    experts = by_group(stored("expert_weights=mxfp8"))[TensorGroup.ROUTED_EXPERTS]
    assert experts == 40 * 384 * 3 * 2304 * 5120 * 33 // 32
    assert global_tensors(stored("head=fp8"))["head"].bytes == 129_280 * 5_120
    layer = layer_tensors(stored("wo_a=bf16"), MODEL.layers[7])
    assert layer["attn.wo_a"].bytes == 8 * 1024 * 4096 * 2
    assert layer["attn.wo_b"] == layer_tensors(MODEL, MODEL.layers[7])["attn.wo_b"]
    table = layer_tensors(stored("engram_rows=nvfp4"), MODEL.layers[1])["engram.embed"]
    assert table.bytes == 384_006_168 * (128 + 16)
    block = draft_tensors(stored("draft=bf16"))[1]
    assert block["attn.wq_b"].bytes == 2 * 32_768 * 1_280
    assert draft_tensors(stored("dense=bf16")) == draft_tensors(MODEL)


def test_a_model_gets_these_formats_and_no_others():
    once = stored("head=fp8")
    assert reformatted(once, role_formats("head=fp8")) is once
    assert reformatted(once, role_formats("dense=bf16")) == stored("dense=bf16")
    assert reformatted(once, AS_STORED) == MODEL
    assert reformatted(MODEL, AS_STORED) is MODEL
    assert once.config_sha256 == MODEL.config_sha256


def test_every_short_name_is_a_format():
    assert {precision(name) for name in NAMED} == {precision(text) for text in NAMED.values()}
    assert tuple(field.name for field in fields(RoleFormats)) == ROLES
