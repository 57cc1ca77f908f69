"""Vision encoder and projector: work of one encode of a batch of images.

Patches of all images are rows of one batch; attention pairs patches of the same image only. Image
sizes are no columns of the ledger, so counts here are whole numbers of one batch, not forms.
Everything computes in BF16 (model-facts §7). Source of the operators: the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.description import Model, Vision
from aisim_v41.model.tensor import Tensor
from aisim_v41.model.tensors_vision import vision_tensors
from aisim_v41.model.vision import ImageGrid
from aisim_v41.ops.operator import Family, Traffic
from aisim_v41.ops.rank import BF16_BYTES
from aisim_v41.units import FLOP_PER_MAC


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOperator:
    """One kernel of an encode; all numbers are of one call.

    Attributes:
        name: unique in an encode.
        family: kind of work.
        calls: how often it runs: once, or in every block. Each is a launch.
        flops: multiply-accumulate work [FLOP].
        traffic: bytes by kind [B].
        source: where the formula comes from.
    """

    name: str
    family: Family
    calls: int
    flops: Mapping[Arithmetic, int]
    traffic: Mapping[Traffic, int]
    source: str


def encode_operators(model: Model, images: Sequence[ImageGrid]) -> tuple[EncodeOperator, ...]:
    """Kernels of one encode of a batch, in order; none for an empty batch.

    Raises:
        UnsupportedPlanError: the model has no vision encoder.
    """
    if model.vision is None:
        raise UnsupportedPlanError(
            f"encode images: {model.name} has no vision encoder; give a config with vision_config"
        )
    return tuple(_operators(model, model.vision, images)) if images else ()


def _operators(
    model: Model, vision: Vision, images: Sequence[ImageGrid]
) -> Iterator[EncodeOperator]:
    tensors = vision_tensors(model)
    patches = sum(image.patches for image in images)
    pairs = sum(image.patches**2 for image in images)
    cells = sum(image.cells for image in images)
    tokens = sum(image.tokens for image in images)
    width, gated, blocks = vision.hidden, vision.intermediate, vision.layers
    joined = vision.downsample**2 * width

    def product(role: str, rows: int, calls: int = 1) -> EncodeOperator:
        matrix = tensors[role]
        bias = tensors.get(f"{role}.bias")
        stored = (matrix,) if bias is None else (matrix, bias)
        return EncodeOperator(
            name=role,
            family=Family.PROJECTION,
            calls=calls,
            flops={Arithmetic.BF16: FLOP_PER_MAC * matrix.rows * matrix.columns * rows},
            traffic=_traffic(matrix.columns * rows, matrix.rows * rows, stored),
            source="model-facts §7",
        )

    def elementwise(
        name: str, read: int, written: int, calls: int = 1, weights: tuple[str, ...] = ()
    ) -> EncodeOperator:
        return EncodeOperator(
            name=name,
            family=Family.ELEMENTWISE,
            calls=calls,
            flops={},
            traffic=_traffic(read, written, tuple(tensors[role] for role in weights)),
            source="model-facts §7",
        )

    row = width * patches
    yield product("vision.patch_embed.proj", patches)
    yield elementwise("vision.blocks.norm1", row, row, blocks, ("vision.blocks.norm1",))
    yield product("vision.blocks.attn.wqkv", patches, blocks)
    yield elementwise("vision.blocks.attn.rotation", 2 * row, 2 * row, blocks)
    yield EncodeOperator(
        name="vision.blocks.attn.core",
        family=Family.ATTENTION,
        calls=blocks,
        # scores and their sum of values, all heads together as wide as a row
        flops={Arithmetic.BF16: 2 * FLOP_PER_MAC * width * pairs},
        traffic=_traffic(3 * row, row),
        source="model-facts §7: full bidirectional attention within one image",
    )
    yield product("vision.blocks.attn.wo", patches, blocks)
    yield elementwise("vision.blocks.attn.residual", 2 * row, row, blocks)
    yield elementwise("vision.blocks.norm2", row, row, blocks, ("vision.blocks.norm2",))
    yield product("vision.blocks.mlp.w1", patches, blocks)
    yield elementwise("vision.blocks.mlp.gate", 2 * gated * patches, gated * patches, blocks)
    yield product("vision.blocks.mlp.w2", patches, blocks)
    yield elementwise("vision.blocks.mlp.residual", 2 * row, row, blocks)
    yield elementwise("vision.norm", row, row, weights=("vision.norm",))
    yield elementwise("aligner.unshuffle", row, joined * cells)
    yield product("aligner.w1", cells)
    yield elementwise("aligner.gelu", model.hidden * cells, model.hidden * cells)
    yield product("aligner.w2", cells)
    yield elementwise(
        "image_span", model.hidden * cells, model.hidden * tokens,
        weights=("image_start", "image_end", "image_newline"),
    )  # fmt: skip


def _traffic(read: int, written: int, weights: Sequence[Tensor] = ()) -> dict[Traffic, int]:
    """Bytes of one call: each weight once, each value of an activation once."""
    return {
        Traffic.WEIGHTS: sum(tensor.bytes // tensor.copies for tensor in weights),
        Traffic.ACTIVATION_READ: BF16_BYTES * read,
        Traffic.ACTIVATION_WRITE: BF16_BYTES * written,
    }


def encode_flop(operators: Sequence[EncodeOperator]) -> int:
    """Work of all calls [FLOP]."""
    return sum(op.calls * sum(op.flops.values()) for op in operators)
