"""Work of an encode: against loops over patches, the inventory and the published formula."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.tensors_vision import vision_tensors
from aisim_v41.model.vision import ImageGrid, image_grid
from aisim_v41.ops.operator import Traffic
from aisim_v41.ops.vision import encode_flop, encode_operators

_LOADED = load_model("deepseek-v4.1-flash")
assert isinstance(_LOADED, Model)
MODEL: Model = _LOADED
SIZES = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 3000)), min_size=1, max_size=4)


def grids(*sizes: tuple[int, int]) -> list[ImageGrid]:
    return [image_grid(MODEL, *size) for size in sizes]


@given(SIZES)
def test_work_is_the_published_formula_image_by_image(sizes: list[tuple[int, int]]) -> None:
    macs = 0
    for image in grids(*sizes):
        p = image.patches_wide * image.patches_high
        macs += 602_112 * p + 32 * (12_845_056 * p + 2_048 * p**2)
        macs += 73_400_320 * image.cells_wide * image.cells_high
    assert encode_flop(encode_operators(MODEL, grids(*sizes))) == 2 * macs


def test_attention_pairs_patches_of_one_image_only() -> None:
    """Every pair of patches counted one by one, in each head: a score and a weighted value."""
    images = [
        ImageGrid(width=14 * w, height=14 * h, patches_wide=w, patches_high=h,
                  cells_wide=-(-w // 3), cells_high=-(-h // 3))
        for w, h in ((4, 3), (2, 5))
    ]  # fmt: skip
    of_image = [n for n, image in enumerate(images) for _ in range(image.patches)]
    pairs = sum(a == b for a in of_image for b in of_image)
    (core,) = [op for op in encode_operators(MODEL, images) if op.name.endswith("core")]
    assert pairs == 144 + 100
    assert sum(core.flops.values()) == pairs * 16 * 2 * (2 * 64)
    assert core.traffic[Traffic.ACTIVATION_READ] == 22 * 3 * 1024 * 2
    assert core.traffic[Traffic.ACTIVATION_WRITE] == 22 * 1024 * 2


@given(SIZES)
def test_every_stored_weight_is_read_once(sizes: list[tuple[int, int]]) -> None:
    operators = encode_operators(MODEL, grids(*sizes))
    read = sum(op.calls * op.traffic[Traffic.WEIGHTS] for op in operators)
    assert read == sum(tensor.bytes for tensor in vision_tensors(MODEL).values()) == 970_536_960


@given(SIZES)
def test_a_batch_does_the_work_of_its_images_in_the_launches_of_one(
    sizes: list[tuple[int, int]],
) -> None:
    together = encode_operators(MODEL, grids(*sizes))
    alone = [encode_operators(MODEL, grids(size)) for size in sizes]
    assert encode_flop(together) == sum(encode_flop(operators) for operators in alone)
    assert [(op.name, op.calls) for op in together] == [(op.name, op.calls) for op in alone[0]]
    assert encode_operators(MODEL, grids(*reversed(sizes))) == together


def test_products_have_the_shapes_of_their_tensors() -> None:
    (image,) = grids((544, 544))
    named = {op.name: sum(op.flops.values()) for op in encode_operators(MODEL, [image])}
    rows = {"vision": 39 * 39, "aligner": 13 * 13}
    for role in ("vision.patch_embed.proj", "vision.blocks.mlp.w1", "aligner.w1", "aligner.w2"):
        tensor = vision_tensors(MODEL)[role]
        shape = (rows[role.split(".")[0]], tensor.rows, tensor.columns)
        assert named[role] == 2 * prod(shape)


def test_no_images_and_no_encoder() -> None:
    from dataclasses import replace

    assert encode_operators(MODEL, []) == ()
    with pytest.raises(UnsupportedPlanError, match="has no vision encoder"):
        encode_operators(replace(MODEL, vision=None), [])
