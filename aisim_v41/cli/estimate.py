"""``aisim-v41 estimate``: how long a step takes, at least and likely, why, and whether it fits."""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    CpOption,
    DecodeOption,
    DpOption,
    EngineOption,
    EpOption,
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
from aisim_v41.estimators.entry import estimate as price
from aisim_v41.estimators.result import Estimate
from aisim_v41.hardware import load_hardware
from aisim_v41.memory.terms import size
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.ledger import ledger
from aisim_v41.units import MILLISECOND


def estimate(
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    ep: EpOption = 1,
    dp: DpOption = 1,
    cp: CpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "on",
    changes: SetOption = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol, op or fpm.")] = "auto",
    extrapolate: Annotated[
        bool | None,
        typer.Option(
            "--extrapolate/--no-extrapolate",
            help="Answer everywhere, or nowhere beyond what was measured.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Time of one step with its band and bounds, where it goes, and the memory verdict."""
    requests = requests_from(prefill, decode, verify)
    parallel = Parallel(tp=tp, ep=ep, dp=dp, cp=cp)
    hardware = load_hardware(gpu)
    answers = [
        (setting, price(plan, hardware, method, extrapolate=extrapolate))
        for setting, plan in plans(model, parallel, engine, decoder_replay, changes, requests)
    ]
    if json:
        documents = [{"decoder_replay": s, **_document(answer)} for s, answer in answers]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    for setting, answer in answers:
        print_text(f"decoder replay {setting}")
        print_text(answer.explain())
        print_text(f"memory: {_verdict(answer)}\n")
    if len(answers) > 1:
        _side_by_side(answers)


def _document(answer: Estimate) -> dict[str, object]:
    memory = answer.memory
    return {
        **answer.to_dict(),
        "token_layers": ledger(answer.plan).token_layers,
        "memory": {
            "fits": memory.fits,
            "short_bytes": memory.short_bytes,
            "kv_bytes": memory.kv_bytes,
            "kv_available_bytes": memory.kv_available_bytes,
            "gpu_bytes": memory.gpu_bytes,
        },
    }


def _verdict(answer: Estimate) -> str:
    memory = answer.memory
    if memory.fits:
        left = size(memory.kv_available_bytes - memory.kv_bytes)
        return f"fits; KV of the step {size(memory.kv_bytes)} a GPU, {left} left for more"
    return f"does NOT fit, {size(memory.short_bytes)} missing a GPU"


def _paths_ms(answer: Estimate) -> tuple[float | None, float | None]:
    """Kernels and host [ms]; a bound and a whole have neither."""
    if answer.method != "op":
        return None, None
    return answer.kernels_s / MILLISECOND, answer.host_s / MILLISECOND


def _side_by_side(answers: list[tuple[str, Estimate]]) -> None:
    print_table(
        "side by side",
        [
            "decoder replay",
            "token-layers",
            "ms",
            "kernels ms",
            "host ms",
            "resource ms",
            "graph ms",
            "fits",
        ],
        [
            (
                setting,
                ledger(answer.plan).token_layers,
                answer.latency_ms,
                *_paths_ms(answer),
                answer.bounds.resource_s / MILLISECOND,
                answer.bounds.graph_s / MILLISECOND,
                answer.memory.fits,
            )
            for setting, answer in answers
        ],
    )
