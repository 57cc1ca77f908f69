"""``aisim-v41 encode``: what images become, how long encoding them takes, and what it needs."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    EngineOption,
    GpuOption,
    JsonOption,
    ModelOption,
    SetOption,
    TpOption,
    overrides,
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_table, print_text
from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.encode_result import EncodeEstimate, Ranks, Way, send_seconds
from aisim_v41.estimators.vision import Execution
from aisim_v41.estimators.vision import encode as price
from aisim_v41.hardware import load_hardware
from aisim_v41.memory.terms import size
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.vision_runs import Batching
from aisim_v41.plan.policy import policy
from aisim_v41.units import MICROSECOND, MILLISECOND, TFLOP_PER_S

MOST_IMAGES = 100_000


def encode(
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="[COUNTx]WIDTHxHEIGHT",
            help="Size of an image in pixels, as given; repeatable.",
        ),
    ] = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "sglang",
    changes: SetOption = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol or op.")] = "auto",
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            help="Every GPU encodes all (copies), heads and widths are cut (tensor), or images are "
            "spread (images); by default as the engine does.",
        ),
    ] = None,
    batching: Annotated[
        str | None, typer.Option("--batching", help="one_by_one or packed.")
    ] = None,
    execution: Annotated[str, typer.Option("--execution", help="eager or graph.")] = "eager",
    send: Annotated[
        str | None,
        typer.Option("--send", help="Embeddings go to another stage over link, network or host."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Images: grid, tokens, time of one encode with its band and bounds, memory, bytes to send."""
    hardware = load_hardware(gpu)
    answer = price(
        step_model(model),
        sizes(image),
        hardware,
        method,
        parallel=Parallel(tp=tp),
        policy=policy(engine, **overrides(changes)),
        ranks=cast("Ranks | None", ranks),
        batching=cast("Batching | None", batching),
        execution=cast("Execution", execution),
    )
    sent = None if send is None else send_seconds(answer, hardware, cast("Way", send))
    if json:
        document = answer.to_dict()
        if sent is not None:
            document["send"] = {"way": send, "send_ms": sent / MILLISECOND}
        print_json(document)
        return
    _images(answer)
    print_text(_summary(answer))
    if sent is not None:
        print_text(f"sending {size(answer.embedding_bytes)}: {sent / MICROSECOND:,.1f} us ({send})")
    _operators(answer)


def sizes(texts: list[str] | None) -> list[tuple[int, int]]:
    """Images as written on the command line.

    Raises:
        InvalidInputError: none at all, too many, or one that cannot be read.
    """
    example = "1024x768 or 8x1024x768"
    found: list[tuple[int, int]] = []
    for text in texts or []:
        parts = [whole(part, "--image", example) for part in text.lower().split("x")]
        if len(parts) not in (2, 3):
            raise InvalidInputError(f"--image {text!r}: must be WIDTHxHEIGHT, such as {example}")
        count = parts[0] if len(parts) == 3 else 1
        if len(found) + count > MOST_IMAGES:
            raise InvalidInputError(f"--image {text!r}: at most {MOST_IMAGES} images at once")
        found += [(parts[-2], parts[-1])] * count
    if not found:
        raise InvalidInputError(f"no images: give --image, such as {example}")
    return found


def _images(answer: EncodeEstimate) -> None:
    counts = {grid: answer.images.count(grid) for grid in dict.fromkeys(answer.images)}
    print_table(
        "images",
        ["count", "encoded", "patches", "cells", "tokens each"],
        [
            (count, f"{g.width} x {g.height}", g.patches, g.cells, g.tokens)
            for g, count in counts.items()
        ],
    )


def _summary(answer: EncodeEstimate) -> str:
    low, high = answer.band_ms
    memory = answer.memory
    upper = "" if high == float("inf") else f", band {low:,.3f} to {high:,.3f}"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in answer.source_share.items())
    return "\n".join(
        [
            f"{answer.tokens:,} tokens of {len(answer.images):,} images on {answer.tp} GPUs "
            f"({answer.ranks}, {answer.batching}, {answer.execution})",
            f"{answer.method}: {answer.latency_ms:,.3f} ms{upper}",
            f"bounds: resource {answer.bounds.resource_s / MILLISECOND:,.3f} ms, graph "
            f"{answer.bounds.graph_s / MILLISECOND:,.3f} ms; kernels "
            f"{answer.kernels_s / MILLISECOND:,.3f} ms, host {answer.host_s / MILLISECOND:,.3f} ms",
            f"evidence: {shares or 'none'}",
            f"memory a GPU: weights {size(memory.weight_bytes)}, activations at most "
            f"{size(memory.activation_bytes)}, embeddings {size(memory.embedding_bytes)}",
        ]
    )


def _operators(answer: EncodeEstimate) -> None:
    longest = sorted(answer.rows, key=lambda row: -row.seconds)
    print_table(
        "operators",
        ["operator", "calls", "TFLOP", "ms", "bound", "source"],
        [
            (r.operator, r.calls, r.flop / TFLOP_PER_S, r.seconds / MILLISECOND, r.bound, r.source)
            for r in longest
        ],
    )
