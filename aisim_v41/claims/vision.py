"""Claims on the vision encoder's shapes and parameters, and on images: tokens and work.

Source of the figures: technical report §2.1.1, §4.2; fact sheet §7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.model.tensors import vision_tensors
from aisim_v41.model.vision import image_grid
from aisim_v41.ops.vision import encode_flop, encode_operators
from aisim_v41.units import TFLOP_PER_S

LARGE = 4096
"""A side [pixel] that is shrunk whatever the config's limits are."""


def parameters(prefix: str, *, one_block: bool = False) -> Formula:
    """Parameters of tensors whose roles start so; of a single block if asked."""

    def value(context: Context) -> int:
        return sum(
            tensor.parameters // (tensor.copies if one_block else 1)
            for role, tensor in vision_tensors(context.model).items()
            if role.startswith(prefix)
        )

    return value


def tokens(size: str) -> Formula:
    """Language tokens of an image of so many pixels, width x height."""
    width, height = map(int, size.split("x"))
    return lambda context: image_grid(context.model, width, height).tokens


def encoder_tflop(size: str) -> Formula:
    """Work of encoder and projector on an image of so many pixels [TFLOP]."""
    width, height = map(int, size.split("x"))

    def value(context: Context) -> float:
        grid = image_grid(context.model, width, height)
        return encode_flop(encode_operators(context.model, [grid])) / TFLOP_PER_S

    return value


FORMULAS: Mapping[str, Formula] = {
    "vis-01": lambda c: c.vision.layers,
    "vis-02": lambda c: c.vision.patch,
    "vis-03": lambda c: c.vision.downsample**2,
    "vis-04": lambda c: image_grid(c.model, LARGE, LARGE).width,
    "vis-05": lambda c: math.sqrt(c.vision.min_pixels),
    "vis-06": lambda c: c.vision.max_image_tokens,
    "vis-07": lambda c: c.vision.min_pixels,
    "vis-par-block": parameters("vision.blocks.", one_block=True),
    "vis-par-patch": parameters("vision.patch_embed."),
    "vis-par-norm": parameters("vision.norm"),
    "vis-par-encoder": parameters("vision."),
    "vis-par-projector": parameters("aligner."),
    "vis-par-delimiters": parameters("image_"),
    "vis-tokens-224": tokens("224x224"),
    "vis-tokens-544": tokens("544x544"),
    "vis-tokens-640x480": tokens("640x480"),
    "vis-tokens-1024x768": tokens("1024x768"),
    "vis-tokens-1280x720": tokens("1280x720"),
    "vis-tokens-1920x1080": tokens("1920x1080"),
    "vis-tflop-largest": encoder_tflop("1302x1302"),
    "vis-tflop-smallest": encoder_tflop("544x544"),
    "vis-tokens-largest": tokens(f"{LARGE}x{LARGE}"),
}
