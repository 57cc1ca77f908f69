"""``aisim-v41 ledger``: which rows every layer computes, reads and writes."""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    CpOption,
    DecodeOption,
    DpOption,
    EngineOption,
    JsonOption,
    ModelOption,
    PrefillOption,
    ReplayOption,
    SetOption,
    VerifyOption,
    plans,
    requests_from,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.ledger import ledger as count


def ledger(
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    dp: DpOption = 1,
    cp: CpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "on",
    changes: SetOption = None,
    every_layer: Annotated[
        bool, typer.Option("--every-layer", help="A row a layer instead of runs of like layers.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Exact counts of a step, by layer and request."""
    requests = requests_from(prefill, decode, verify)
    documents = []
    parallel = Parallel(dp=dp, cp=cp)
    for setting, plan in plans(model, parallel, engine, decoder_replay, changes, requests):
        counted = count(plan)
        if json:
            frame = counted.to_frame().astype(object)
            rows = frame.where(frame.notna(), None).to_dict(orient="records")
            documents.append(
                {
                    "decoder_replay": setting,
                    "policy": plan.policy.name,
                    "policy_revision": plan.policy.revision,
                    "token_layers": counted.token_layers,
                    "rows": rows,
                }
            )
            continue
        print_text(f"decoder replay {setting}")
        print_text(counted.to_frame().to_string(index=False) if every_layer else counted.to_text())
    if json:
        print_json(documents[0] if len(documents) == 1 else documents)
