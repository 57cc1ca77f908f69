"""``aisim-v41 transfer``: a prompt from prefill to decode, images from encoder to prefill."""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.caching.transfer import Role, transfer_images
from aisim_v41.caching.transfer import transfer as hand_over
from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    EngineOption,
    GpuOption,
    JsonOption,
    ModelOption,
    ReplayOption,
    SetOption,
    TpOption,
    one_policy,
    overrides,
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.cli.restore import RateOption, StartOption, WayOption, way_from
from aisim_v41.errors import InvalidInputError
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import policy as preset
from aisim_v41.reports.caching import images_text, transfer_text


def transfer(
    prompt: Annotated[str, typer.Option("--prompt", help="Length of the prompt [tokens].")],
    found: Annotated[
        str, typer.Option("--found", help="Prefix that the prefill side has [tokens].")
    ] = "0",
    held: Annotated[
        str, typer.Option("--held", help="Prefix whose entries the decode side has [tokens].")
    ] = "0",
    images: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="WxH", help="An image that was encoded elsewhere."),
    ] = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    to_tp: Annotated[
        int | None, typer.Option("--to-tp", help="Ranks of the decode side; as many by default.")
    ] = None,
    way: WayOption = "network",
    gb_per_s: RateOption = None,
    start_us: StartOption = 0.0,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "sglang",
    to_engine: Annotated[
        str | None, typer.Option("--to-engine", help="Preset of the decode side; the same.")
    ] = None,
    decoder_replay: ReplayOption = "off",
    changes: SetOption = None,
    to_changes: Annotated[
        list[str] | None,
        typer.Option("--to-set", metavar="FIELD=VALUE", help="Change a field of the decode side."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol or op.")] = "auto",
    json: JsonOption = False,
) -> None:
    """Hand a computed prompt to a decode server: bytes by kind, copies, and what is waited for."""
    hardware, loaded = load_hardware(gpu), step_model(model)
    policy = one_policy(engine, decoder_replay, changes)
    decoding = policy if to_engine is None else preset(to_engine)
    decoding = decoding.with_overrides(**overrides(to_changes))
    sender = Role(policy=policy, parallel=Parallel(tp=tp))
    receiver = Role(policy=decoding, parallel=Parallel(tp=tp if to_tp is None else to_tp))
    link = way_from(hardware, way, gb_per_s, start_us)
    length = whole(prompt, "--prompt", "8k")
    entries = whole(found, "--found", "8k")
    report = hand_over(
        loaded,
        hardware,
        CacheLookup(prompt_tokens=length, global_tokens=entries, window_tokens=entries),
        sender=sender,
        receiver=receiver,
        way=link,
        method=method,
        held_tokens=whole(held, "--held", "8k"),
    )
    pictures = None
    if images:
        sizes = [_size(text) for text in images]
        pictures = transfer_images(loaded, sizes, receiver=sender, way=link)
    if json:
        document = report.to_dict()
        if pictures is not None:
            document["images"] = {
                "cells": pictures.cells,
                "copy_bytes": pictures.copy_bytes,
                "copies": pictures.copies,
                "seconds": pictures.seconds,
            }
        print_json(document)
        return
    print_text(transfer_text(report))
    if pictures is not None:
        print_text(images_text(pictures))


def _size(text: str) -> tuple[int, int]:
    width, times, height = text.lower().partition("x")
    if not times:
        raise InvalidInputError(f"--image {text!r}: must be WxH in pixels, such as 1024x768")
    return whole(width, "--image", "1024x768"), whole(height, "--image", "1024x768")
