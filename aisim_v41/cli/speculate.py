"""``aisim-v41 speculate``: what drafts gain, and how many of them to verify."""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    DecodeOption,
    DpOption,
    EngineOption,
    EpOption,
    GpuOption,
    JsonOption,
    ModelOption,
    ReplayOption,
    SetOption,
    TpOption,
    plans,
    requests_from,
    whole,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.reports.speculate import SCHEDULES, speculate_by_batch
from aisim_v41.reports.speculate import speculate as compared
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.outcomes import PROFILE_TOKENS
from aisim_v41.speculation.published import PUBLISHED


def speculate(
    decode: DecodeOption = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="TOKENS|NAME",
            help="Mean tokens of a step that verifies all drafts, or a published one: "
            f"{', '.join(PUBLISHED)}. One for all, or one for each --decode.",
        ),
    ] = None,
    acceptance: Annotated[
        list[str] | None,
        typer.Option(
            "--acceptance",
            metavar="P,P,...",
            help="Instead: probability that each draft is kept if those before it were.",
        ),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule", help=f"One of {', '.join(SCHEDULES)}; repeatable; by default all."
        ),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option("--batches", metavar="N,N,...", help="The same requests, so many at a time."),
    ] = None,
    profile_context: Annotated[
        str, typer.Option("--profile-context", help="Context that 'profiled' chooses for.")
    ] = str(PROFILE_TOKENS),
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    ep: EpOption = 1,
    dp: DpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "sglang",
    decoder_replay: ReplayOption = "off",
    changes: SetOption = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol, op or fpm.")] = "auto",
    json: JsonOption = False,
) -> None:
    """Steps, output and gain of DSpark under each way to choose how many drafts are verified."""
    settings = plans(
        model,
        Parallel(tp=tp, ep=ep, dp=dp),
        engine,
        decoder_replay,
        changes,
        requests_from(None, decode, None),
    )
    if len(settings) != 1:
        raise InvalidInputError("--decoder-replay both: must be on or off here")
    ((_, plan),) = settings
    known = _acceptances(accept, acceptance, plan.policy.draft_tokens)
    hardware = load_hardware(gpu)
    if batches is not None:
        if len(known) != 1 or schedule:
            raise InvalidInputError("--batches takes one acceptance and no --schedule")
        sizes = [whole(part.strip(), "--batches", "1,8,64") for part in batches.split(",")]
        by_batch = speculate_by_batch(plan, hardware, known[0], sizes, method)
        if json:
            print_json(by_batch.to_dict())
        else:
            print_text(by_batch.text())
        return
    report = compared(
        plan, hardware, known[0] if len(known) == 1 else known, method,
        schedules=schedule or None,
        profile_tokens=whole(profile_context, "--profile-context", "8k"),
    )  # fmt: skip
    if json:
        print_json(report.to_dict())
    else:
        print_text(report.text())


def _acceptances(
    lengths: list[str] | None, vectors: list[str] | None, drafts: int
) -> list[Acceptance]:
    """What is kept, in the order of the options.

    Raises:
        InvalidInputError: both kinds, none, or what cannot be read.
        OutOfRangeError: a length that so many drafts cannot have.
    """
    if bool(lengths) == bool(vectors):
        raise InvalidInputError("give --accept or --acceptance, for example --accept 3.51")
    if vectors:
        return [Acceptance(tuple(_number(part) for part in text.split(","))) for text in vectors]
    found = []
    for text in lengths or []:
        if text in PUBLISHED:
            found.append(PUBLISHED[text].acceptance())
        else:
            found.append(Acceptance.of_accept_length(_number(text), drafts))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"{text!r}: must be a number, or a published length; {nearest(text, PUBLISHED)}"
        ) from None
