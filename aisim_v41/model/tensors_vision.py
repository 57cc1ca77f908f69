"""Stored tensors of the vision encoder, its projector and the image delimiters (report §2.1.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aisim_v41.model.description import Model, Vision
from aisim_v41.model.tensor import Split, Tensor, TensorGroup

IMAGE_CHANNELS = 3
"""Red, green, blue (reference image processor)."""


def vision_tensors(model: Model) -> Mapping[str, Tensor]:
    """Tensors by role; the equal blocks are one record with ``copies``. Empty without vision."""
    vision = model.vision
    if vision is None:
        return {}
    shapes = (*_encoder(vision), *_projector(vision, model.hidden), *_delimiters(model.hidden))
    return {
        role: Tensor(
            name=role.replace("blocks.", "blocks.*.", 1),
            role=role,
            group=TensorGroup.VISION,
            rows=rows,
            columns=columns,
            format=model.formats.plain,
            split=Split.REPLICATED,
            copies=copies,
        )
        for role, rows, columns, copies in shapes
    }


def _encoder(vision: Vision) -> Iterator[tuple[str, int, int, int]]:
    width, mlp, layers = vision.hidden, vision.intermediate, vision.layers
    yield "vision.patch_embed.proj", width, IMAGE_CHANNELS * vision.patch**2, 1
    yield "vision.patch_embed.proj.bias", 1, width, 1
    yield "vision.blocks.norm1", 1, width, layers
    yield "vision.blocks.attn.wqkv", 3 * width, width, layers
    yield "vision.blocks.attn.wqkv.bias", 1, 3 * width, layers
    yield "vision.blocks.attn.wo", width, width, layers
    yield "vision.blocks.attn.wo.bias", 1, width, layers
    yield "vision.blocks.norm2", 1, width, layers
    yield "vision.blocks.mlp.w1", 2 * mlp, width, layers  # gate and up in one matrix
    yield "vision.blocks.mlp.w2", width, mlp, layers
    yield "vision.norm", 1, width, 1


def _projector(vision: Vision, hidden: int) -> Iterator[tuple[str, int, int, int]]:
    unshuffled = vision.downsample**2 * vision.hidden
    yield "aligner.w1", hidden, unshuffled, 1
    yield "aligner.w1.bias", 1, hidden, 1
    yield "aligner.w2", hidden, hidden, 1
    yield "aligner.w2.bias", 1, hidden, 1


def _delimiters(hidden: int) -> Iterator[tuple[str, int, int, int]]:
    for role in ("image_start", "image_end", "image_newline"):
        yield role, 1, hidden, 1
