"""Claims on the vision encoder's shapes and parameters.

Source of the figures: technical report §2.1.1, §4.2; fact sheet §7. Image sizes, tokens and the
encoder's work need a later issue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.model.tensors import vision_tensors


def parameters(prefix: str, *, one_block: bool = False) -> Formula:
    """Parameters of tensors whose roles start so; of a single block if asked."""

    def value(context: Context) -> int:
        return sum(
            tensor.parameters // (tensor.copies if one_block else 1)
            for role, tensor in vision_tensors(context.model).items()
            if role.startswith(prefix)
        )

    return value


FORMULAS: Mapping[str, Formula] = {
    "vis-01": lambda c: c.vision.layers,
    "vis-02": lambda c: c.vision.patch,
    "vis-03": lambda c: c.vision.downsample**2,
    "vis-05": lambda c: math.sqrt(c.vision.min_pixels),
    "vis-06": lambda c: c.vision.max_image_tokens,
    "vis-07": lambda c: c.vision.min_pixels,
    "vis-par-block": parameters("vision.blocks.", one_block=True),
    "vis-par-patch": parameters("vision.patch_embed."),
    "vis-par-norm": parameters("vision.norm"),
    "vis-par-encoder": parameters("vision."),
    "vis-par-projector": parameters("aligner."),
    "vis-par-delimiters": parameters("image_"),
}
