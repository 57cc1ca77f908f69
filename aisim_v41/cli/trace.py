"""``aisim-v41 trace``: a step as a file that Perfetto and Chrome open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    one_policy,
    requests_from,
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.entry import estimate
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.request import Request, chunked
from aisim_v41.reports.trace import MAX_STEPS, write_trace
from aisim_v41.reports.trace import trace as events_of


def trace(
    file: Annotated[Path, typer.Argument(help="File to write: .json or .json.gz.")],
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    chunk: Annotated[
        str | None,
        typer.Option("--chunk", help="Run one --prefill in steps of so many tokens, in a row."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="op or sol.")] = "op",
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    ep: EpOption = 1,
    dp: DpOption = 1,
    cp: CpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "paper",
    decoder_replay: ReplayOption = "on",
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """A step, or the chunks of a prompt, as a trace for ui.perfetto.dev or chrome://tracing."""
    steps = _steps(requests_from(prefill, decode, verify), chunk)
    policy = one_policy(engine, decoder_replay, changes)
    parallel = Parallel(tp=tp, ep=ep, dp=dp, cp=cp)
    loaded, hardware = step_model(model), load_hardware(gpu)
    document = events_of(
        [estimate(Plan(loaded, one, parallel, policy), hardware, method) for one in steps]
    )
    write_trace(document, file)
    said: dict[str, Any] = document["otherData"]
    events = sum(event["ph"] == "X" for event in document["traceEvents"])
    if json:
        print_json({"file": str(file), "events": events, **said})
    else:
        print_text(
            f"{file}: {events:,} events of {said['steps']} step(s), {said['latency_ms']:.3f} ms; "
            "open it at https://ui.perfetto.dev"
        )


def _steps(requests: list[Request], chunk: str | None) -> list[list[Request]]:
    """Requests of every step.

    Raises:
        InvalidInputError: chunks of anything but one prefill.
    """
    if chunk is None:
        return [requests]
    if len(requests) != 1 or requests[0].kind != "prefill":
        raise InvalidInputError("--chunk: give one --prefill, and nothing else")
    (one,) = requests
    size = whole(chunk, "--chunk", "2048")
    if size and one.new_tokens > MAX_STEPS * size:
        raise InvalidInputError(
            f"--chunk {size}: {-(-one.new_tokens // size)} steps, at most {MAX_STEPS}; take longer "
            "chunks"
        )
    return [
        [request]
        for request in chunked(
            one.new_tokens, chunk_tokens=size, prefix_tokens=one.prefix_tokens, count=one.count
        )
    ]
