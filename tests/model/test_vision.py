"""Image sizes: the published examples, the layout token by token, and laws of the resize rule."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model, model_from_config
from aisim_v41.model.vision import MAX_SIDE, ImageGrid, image_grid

from . import changes

OFFICIAL = load_model("deepseek-v4.1-flash")
SIDES = st.integers(1, 20_000) | st.integers(1, MAX_SIDE)


def grid(width: int, height: int) -> ImageGrid:
    assert isinstance(OFFICIAL, Model)
    return image_grid(OFFICIAL, width, height)


@pytest.mark.parametrize(
    ("width", "height", "patches", "cells", "tokens"),
    [
        (224, 224, (39, 39), (13, 13), 184),
        (544, 544, (39, 39), (13, 13), 184),
        (640, 480, (46, 35), (16, 12), 206),
        (1024, 768, (74, 55), (25, 19), 496),
        (1280, 720, (92, 52), (31, 18), 578),
        (1920, 1080, (122, 69), (41, 23), 968),
        (1302, 1302, (93, 93), (31, 31), 994),
        (1344, 1344, (93, 93), (31, 31), 994),
        (4096, 4096, (93, 93), (31, 31), 994),
    ],
)
def test_published_examples(
    width: int, height: int, patches: tuple[int, int], cells: tuple[int, int], tokens: int
) -> None:
    found = grid(width, height)
    assert (found.patches_wide, found.patches_high) == patches
    assert (found.cells_wide, found.cells_high) == cells
    assert found.tokens == tokens
    assert (found.width, found.height) == (14 * patches[0], 14 * patches[1])
    assert (found.patches, found.cells) == (patches[0] * patches[1], cells[0] * cells[1])


def test_very_long_images_become_one_row_or_one_column() -> None:
    # one column: a cell and a newline each, 2 x 511 + 2; one row: 1021 cells, newline, 2
    assert (grid(1, 100_000).cells_wide, grid(1, 100_000).cells_high) == (1, 511)
    assert (grid(100_000, 1).cells_wide, grid(100_000, 1).cells_high) == (1021, 1)
    assert grid(1, 100_000).tokens == grid(100_000, 1).tokens == 1024


def layout(cells_wide: int, cells_high: int) -> list[str]:
    """The span of an image, token by token."""
    span = ["start"]
    for _ in range(cells_high):
        span += ["cell"] * cells_wide + ["newline"]
    return [*span, "end"]


@given(SIDES, SIDES)
def test_tokens_are_those_of_the_layout_and_fit(width: int, height: int) -> None:
    found = grid(width, height)
    span = layout(found.cells_wide, found.cells_high)
    assert found.tokens == len(span) <= 1024
    assert found.cells == span.count("cell")
    assert 0 <= 3 * found.cells_wide - found.patches_wide < 3
    assert 0 <= 3 * found.cells_high - found.patches_high < 3


def exact(width: int, height: int) -> tuple[int, int]:
    """The shrunken patches by exact arithmetic, where both sides keep a cell.

    Columns: largest whole w with w (w + 1) height / width + 2 <= 1024; rows likewise.
    """
    columns = rows = 0
    while (columns + 1) * (columns + 2) * height <= 1022 * width:
        columns += 1
    # rows y = w·r solves y² / r + y = 1022: y <= found  <=>  y² width + y height <= 1022 height
    while (rows + 1) ** 2 * width + (rows + 1) * height <= 1022 * height:
        rows += 1
    scale = min(Fraction(columns * 42, width), Fraction(rows * 42, height))
    return int(width * scale / 14), int(height * scale / 14)


@given(st.integers(1400, 12_000), st.integers(1400, 12_000))
@example(2113, 2113)
def test_shrinking_is_the_exact_rule_up_to_a_rounded_patch(width: int, height: int) -> None:
    """Quotients of doubles may fall just below a whole number; they never rise above one."""
    found, (wide, high) = grid(width, height), exact(width, height)
    assert found.patches_wide in (wide, wide - 1)
    assert found.patches_high in (high, high - 1)


def test_rounding_of_doubles_costs_this_square_a_patch() -> None:
    assert exact(2113, 2113) == (93, 93)
    assert (grid(2113, 2113).patches_wide, grid(2113, 2113).tokens) == (92, 994)


@given(st.integers(1, 543), st.integers(1, 543))
def test_small_images_reach_the_least_pixels(width: int, height: int) -> None:
    """Both sides are rounded down once and then up to a patch, so little is missing."""
    found = grid(width, height)
    if found.tokens < 1021:  # shape kept: neither one row nor one column
        assert (found.width + 1) * (found.height + 1) > 295_936
        assert found.width + found.height < 4 * isqrt(295_936) * max(width / height, height / width)


def test_every_number_comes_from_the_config(config: dict[str, Any]) -> None:
    config["vision_config"].update(
        patch_size=16, downsample_ratio=2, max_image_tokens=512, min_pixels=65_536
    )
    model = model_from_config(config, name="other vision")
    assert image_grid(model, 64, 64).patches == 16 * 16  # 256 pixels each way
    assert image_grid(model, 640, 480).tokens == 15 * (20 + 1) + 2
    # w (w + 1) + 2 <= 512: 22 cells, not 23
    assert image_grid(model, 5000, 5000).cells_wide == 22


@pytest.mark.parametrize(
    "size", [(0, 10), (10, 0), (-1, 5), (5, MAX_SIDE + 1), (1.5, 2), (True, 2)]
)
def test_impossible_sizes(size: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be a whole number from 1 to"):
        grid(*size)


def test_without_vision(config: dict[str, Any]) -> None:
    blind = model_from_config(changes.without_vision(config), name="text only")
    with pytest.raises(UnsupportedPlanError, match="text only has no vision encoder"):
        image_grid(blind, 640, 480)


def test_a_budget_that_leaves_nothing(config: dict[str, Any]) -> None:
    config["vision_config"].update(max_image_tokens=3, min_pixels=1)
    model = model_from_config(config, name="no room")
    with pytest.raises(OutOfRangeError, match="at most 3 tokens"):
        image_grid(model, 1000, 1000)
