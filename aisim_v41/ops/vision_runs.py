"""How an engine encodes a batch of images: which share a run, and which rank encodes which.

Sources: vLLM deepseek_v4/common/vision.py @4c5eba3e (an image at a time, cut over ranks or images
over ranks), deepseek_v41/common/vl_cudagraph.py @1641f568 and v1/worker/encoder_cudagraph.py
@034e78dd (captured runs); tokenspeed deepseek_v41_vision.py @78fccdf2 and ATOM's
page on images @41011da8 (an image at a time). Taken as true: docs/assumptions.md,
"Vision".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.vision import ImageGrid

Batching = Literal["one_by_one", "packed"]
BATCHINGS: tuple[Batching, ...] = ("one_by_one", "packed")
LEAST_CAPTURED = 64
"""Smallest number of image tokens that a graph is captured for; others are this times a power of
two, and the largest number allowed."""
MOST_CAPTURED_IMAGES = 64
"""Images that one captured run takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeRun:
    """One run of the encoder.

    Attributes:
        images: encoded together.
        times: how often such a run is made, with other images of the same size.
        captured_tokens: tokens that its graph holds; 0: no graph.
    """

    images: tuple[ImageGrid, ...]
    times: int = 1
    captured_tokens: int = 0


def encode_runs(
    images: Sequence[ImageGrid], batching: Batching, *, captured_up_to: int = 0
) -> tuple[EncodeRun, ...]:
    """Runs over a batch.

    Args:
        images: in order.
        batching: an image at a time, or the rows of all in one run.
        captured_up_to: most image tokens that graphs were captured for; 0: runs are eager.

    Raises:
        UnsupportedPlanError: an image is larger than every graph.
    """
    if captured_up_to:
        largest = max((image.tokens for image in images), default=0)
        if captured_up_to < max(largest, LEAST_CAPTURED):
            raise UnsupportedPlanError(
                f"an image of {largest} tokens in encoder graphs of up to {captured_up_to}: larger "
                f"than every graph (the smallest holds {LEAST_CAPTURED}); raise chunk_tokens, or "
                "use execution='eager'"
            )
    if batching == "one_by_one":
        return tuple(
            EncodeRun(
                images=(image,),
                times=times,
                captured_tokens=captured_tokens(image.tokens, captured_up_to),
            )
            for image, times in Counter(images).items()
        )
    runs: list[list[ImageGrid]] = [[]] if images else []
    for image in images:
        tokens = image.tokens + sum(other.tokens for other in runs[-1])
        full = tokens > captured_up_to or len(runs[-1]) == MOST_CAPTURED_IMAGES
        if captured_up_to and full and runs[-1]:
            runs.append([])
        runs[-1].append(image)
    return tuple(
        EncodeRun(
            images=tuple(run),
            captured_tokens=captured_tokens(sum(image.tokens for image in run), captured_up_to),
        )
        for run in runs
    )


def captured_tokens(tokens: int, most: int) -> int:
    """The smallest captured number of tokens that holds so many; 0 without graphs.

    >>> captured_tokens(184, 8192), captured_tokens(994, 1000), captured_tokens(994, 0)
    (256, 1000, 0)
    """
    if not most:
        return 0
    size = LEAST_CAPTURED
    while size < tokens:
        size *= 2
    return min(size, most)


def balanced(images: Sequence[ImageGrid], ranks: int) -> tuple[tuple[ImageGrid, ...], ...]:
    """Images of every rank: the largest left goes to the rank with the fewest patches.

    Whole images; ranks may stay without any. Within a rank they keep this order.
    """
    loads = [0] * ranks
    found: list[list[ImageGrid]] = [[] for _ in range(ranks)]
    for image in sorted(images, key=lambda image: -image.patches):
        rank = loads.index(min(loads))
        loads[rank] += image.patches
        found[rank].append(image)
    return tuple(map(tuple, found))
