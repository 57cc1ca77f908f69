"""``aisim-v41 prefix``: what an engine makes of a cache hit."""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_v41.caching.adoption import adopt
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    EngineOption,
    JsonOption,
    ModelOption,
    ReplayOption,
    SetOption,
    one_policy,
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_text


def prefix(
    prompt: Annotated[str, typer.Option("--prompt", help="Length of the prompt [tokens].")],
    found: Annotated[
        str, typer.Option("--found", help="Prefix whose entries the cache has [tokens].")
    ] = "0",
    window: Annotated[
        str, typer.Option("--window", help="End of the last stored window tail [position].")
    ] = "0",
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="That tail holds the state of unfinished groups.")
    ] = False,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "sglang",
    decoder_replay: ReplayOption = "off",
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """What an engine makes of a cache hit: rows used, replayed and new, and the steps that run."""
    policy = one_policy(engine, decoder_replay, changes)
    lookup = CacheLookup(
        prompt_tokens=whole(prompt, "--prompt", "8256"),
        global_tokens=whole(found, "--found", "8k"),
        window_tokens=whole(window, "--window", "8k"),
        snapshot=snapshot,
    )
    adoption = adopt(step_model(model), lookup, policy)
    if json:
        print_json(adoption.to_dict())
    else:
        print_text(adoption.text())
