"""Size of an image -> pixels that are encoded -> patches -> cells -> language tokens.

The published rule, step by step; only config fields enter. It rounds quotients of floating-point
numbers, so the arithmetic here is in double precision and in the published order: another order
moves some sizes by a patch. Source: reference image processor (model-facts §7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.model.description import Model, Vision

MAX_SIDE = 2**31 - 1
"""Longest side [pixel] that a PNG file can have (PNG specification, IHDR)."""
DELIMITERS = 2
"""Tokens around an image: its start and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGrid:
    """What becomes of one image.

    Attributes:
        width, height: of what is encoded, a multiple of the patch [pixel].
        patches_wide, patches_high: rows of the encoder are the product.
        cells_wide, cells_high: patches joined by the projector; an edge cell may be padded.
    """

    width: int
    height: int
    patches_wide: int
    patches_high: int
    cells_wide: int
    cells_high: int

    @property
    def patches(self) -> int:
        """Rows of the encoder."""
        return self.patches_wide * self.patches_high

    @property
    def cells(self) -> int:
        """Rows of the projector: tokens with content."""
        return self.cells_wide * self.cells_high

    @property
    def tokens(self) -> int:
        """Language tokens: cells, a newline after each row of cells, start and end."""
        return _tokens(self.cells_wide, self.cells_high)


def image_grid(model: Model, width: int, height: int) -> ImageGrid:
    """The grid of an image of any size.

    Args:
        model: with a vision encoder.
        width, height: of the image as given [pixel].

    Raises:
        UnsupportedPlanError: the model has no vision encoder.
        InvalidInputError: a side is not a whole number of pixels from 1 to `MAX_SIDE`.
        OutOfRangeError: the rule leaves nothing of so long an image.

    >>> from aisim_v41.model.load import load_model
    >>> image_grid(load_model("deepseek-v4.1-flash"), 1024, 768).tokens
    496
    """
    vision = model.vision
    if vision is None:
        raise UnsupportedPlanError(
            f"an image of {width} x {height} pixels: {model.name} has no vision encoder; give a "
            "config with vision_config"
        )
    for side, pixels in (("width", width), ("height", height)):
        if type(pixels) is not int or not 1 <= pixels <= MAX_SIDE:
            raise InvalidInputError(
                f"image {side} = {pixels!r} pixels: must be a whole number from 1 to {MAX_SIDE}"
            )
    grid = _grid(vision, *_resized(vision, width, height))
    if not grid.patches or grid.tokens > vision.max_image_tokens:
        raise OutOfRangeError(
            f"an image of {width} x {height} pixels becomes {grid.width} x {grid.height} pixels "
            f"and {grid.tokens} tokens; it needs a patch of {vision.patch} pixels each way and at "
            f"most {vision.max_image_tokens} tokens; give a less elongated image"
        )
    return grid


def _resized(vision: Vision, width: int, height: int) -> tuple[int, int]:
    """Width and height that are encoded [pixel]."""
    if width * height < vision.min_pixels:
        enlarged = (vision.min_pixels / (width * height)) ** 0.5
        width, height = int(width * enlarged), int(height * enlarged)
    whole = (_up(width, vision.patch), _up(height, vision.patch))
    if _grid(vision, *whole).tokens <= vision.max_image_tokens:
        return whole
    return _shrunk(vision, width, height)


def _shrunk(vision: Vision, width: int, height: int) -> tuple[int, int]:
    """The largest size of the same shape whose tokens fit.

    With w columns and w·ratio rows, w·ratio·(w + 1) + 2 = tokens gives w.
    """
    cell = vision.patch * vision.downsample
    limit = vision.max_image_tokens
    ratio = height / width
    columns = math.sqrt((limit - DELIMITERS) / ratio + 0.25) - 0.5
    rows = columns * ratio
    if columns < 1:
        return cell, (limit - DELIMITERS) // 2 * cell
    if rows < 1:
        return (limit - DELIMITERS - 1) * cell, cell
    scale = min(math.floor(columns) * cell / width, math.floor(rows) * cell / height)
    return (
        math.floor(width * scale / vision.patch) * vision.patch,
        math.floor(height * scale / vision.patch) * vision.patch,
    )


def _grid(vision: Vision, width: int, height: int) -> ImageGrid:
    wide, high = width // vision.patch, height // vision.patch
    return ImageGrid(
        width=width,
        height=height,
        patches_wide=wide,
        patches_high=high,
        cells_wide=-(-wide // vision.downsample),
        cells_high=-(-high // vision.downsample),
    )


def _tokens(cells_wide: int, cells_high: int) -> int:
    return cells_high * (cells_wide + 1) + DELIMITERS


def _up(pixels: int, patch: int) -> int:
    return math.ceil(pixels / patch) * patch
