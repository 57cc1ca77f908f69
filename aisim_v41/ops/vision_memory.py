"""Memory of an encode on one rank: weights, the most activations alive at once, the embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from aisim_v41.model.description import Model
from aisim_v41.model.tensors_vision import IMAGE_CHANNELS
from aisim_v41.model.vision import ImageGrid
from aisim_v41.ops.operator import Traffic
from aisim_v41.ops.rank import BF16_BYTES
from aisim_v41.ops.vision import encode_operators, vision_of

_SMALLEST = ImageGrid(width=1, height=1, patches_wide=1, patches_high=1, cells_wide=1, cells_high=1)


def weight_bytes(model: Model, *, ranks: int = 1) -> int:
    """Weights of encoder, projector and delimiters on one rank [B].

    Args:
        model: with a vision encoder.
        ranks: over which they are cut; 1: a whole copy.

    >>> from aisim_v41.model.load import load_model
    >>> weight_bytes(load_model("deepseek-v4.1-flash"))
    970536960
    """
    operators = encode_operators(model, [_SMALLEST], ranks=ranks)
    return sum(op.calls * op.traffic.get(Traffic.WEIGHTS, 0) for op in operators)


def activation_bytes(
    model: Model, images: Sequence[ImageGrid], *, ranks: int = 1, captured_tokens: int = 0
) -> int:
    """The most values that one run keeps at once [B].

    Of a block: the residual with query, key and value, their rotated copies and the result; or
    with gate and up and their product. Before: pixels and patches. Behind: patches and joined
    patches, then the projector's layers. Scores are never stored.

    Args:
        model: with a vision encoder.
        images: of the run.
        ranks: over which heads and widths are cut.
        captured_tokens: rows that its graph holds, in tokens; 0: those of the images.
    """
    vision = vision_of(model)
    patches = sum(image.patches for image in images)
    cells = sum(image.cells for image in images)
    joined = vision.downsample**2
    if captured_tokens and images:
        patches, cells = joined * captured_tokens, captured_tokens
    width, hidden = vision.hidden, model.hidden
    pixels = IMAGE_CHANNELS * vision.patch**2
    moments = (
        (pixels + width) * patches,
        (width + 6 * width // ranks) * patches,
        (width + 3 * vision.intermediate // ranks) * patches,
        width * patches + joined * width * cells,
        (joined * width + hidden // ranks) * cells,
        (hidden // ranks + hidden) * cells,
    )
    return BF16_BYTES * max(moments)


def embedding_bytes(model: Model, images: Sequence[ImageGrid]) -> int:
    """What the language model takes: a row of its hidden width a token, BF16 [B]."""
    return BF16_BYTES * model.hidden * sum(image.tokens for image in images)
