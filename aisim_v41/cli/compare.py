"""``aisim-v41 compare`` and ``coverage``: estimators side by side, and what they rest on."""

from __future__ import annotations

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    DecodeOption,
    EngineOption,
    GpuOption,
    JsonOption,
    ModelOption,
    PrefillOption,
    ReplayOption,
    SetOption,
    TpOption,
    VerifyOption,
    plans,
    requests_from,
)
from aisim_v41.cli.output import print_json, print_table, print_text
from aisim_v41.estimators.compare import compare as side_by_side
from aisim_v41.estimators.compare import coverage as what_is_known
from aisim_v41.hardware import load_hardware


def compare(
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "on",
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """SOL and OP of one step side by side, operator by operator."""
    requests = requests_from(prefill, decode, verify)
    hardware = load_hardware(gpu)
    documents = []
    for setting, plan in plans(model, tp, engine, decoder_replay, changes, requests):
        table = side_by_side(plan, hardware)
        if json:
            documents.append(
                {"decoder_replay": setting, "operators": table.to_dict(orient="records")}
            )
            continue
        print_text(f"decoder replay {setting}")
        shown = table.drop(columns=["family"])
        print_table("", list(shown.columns), shown.itertuples(index=False))
    if json:
        print_json(documents[0] if len(documents) == 1 else documents)


def coverage(
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "on",
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """What OP's time of one step rests on: laws, where they were fitted, and their errors."""
    requests = requests_from(prefill, decode, verify)
    hardware = load_hardware(gpu)
    documents = []
    for setting, plan in plans(model, tp, engine, decoder_replay, changes, requests):
        table = what_is_known(plan, hardware)
        if json:
            documents.append({"decoder_replay": setting, "laws": table.to_dict(orient="records")})
            continue
        print_text(f"decoder replay {setting}")
        shown = table.drop(columns=["kind", "sources", "note"])
        print_table("", list(shown.columns), shown.itertuples(index=False))
    if json:
        print_json(documents[0] if len(documents) == 1 else documents)
