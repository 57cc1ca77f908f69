"""``aisim-v41 engram``: rows of the n-gram memory, from text and from where the tables lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

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
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.engram import break_even
from aisim_v41.estimators.engram import engram as transfer
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.reading import read_bytes
from aisim_v41.reports.engram import compare_residencies, engram_text
from aisim_v41.reports.engram_text import TextCount, count_text
from aisim_v41.units import GB_PER_S, MIB

MOST_TEXT_BYTES = 1 << 28


def engram(
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "sglang",
    decoder_replay: ReplayOption = "off",
    changes: SetOption = None,
    method: Annotated[str, typer.Option("--method", help="auto, sol or op.")] = "auto",
    prefetch: Annotated[
        str | None,
        typer.Option(
            "--prefetch",
            help="Rows are fetched in the step before (previous), beside earlier layers (step), or "
            "with nothing beside (none); by default as the engine does.",
        ),
    ] = None,
    hit_share: Annotated[
        float | None,
        typer.Option("--hit-share", help="Share of the rows in a cache.", show_default=False),
    ] = None,
    disk_gb_per_s: Annotated[
        float | None, typer.Option("--disk-gb-per-s", help="A GPU's share of the disks.")
    ] = None,
    disk_reads_per_s: Annotated[
        float | None, typer.Option("--disk-reads-per-s", help="Random page reads of that share.")
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", help="Token ids, one request a line: counts their rows, and prices those."
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option("--classes", help="Class of every token id, from the tokenizer."),
    ] = None,
    chunk: Annotated[
        str, typer.Option("--chunk", help="Positions of each text in a step; 1 decodes.")
    ] = "8192",
    cache_mib: Annotated[
        str | None,
        typer.Option("--cache-mib", help="Size of a cache of rows that the text runs through."),
    ] = None,
    limit: Annotated[
        bool, typer.Option("--break-even", help="How many times the requests make a step wait.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Engram rows: how many differ in a text, what moving them costs, what a step waits for."""
    counted = None
    if text is not None:
        counted = count_text(
            step_model(model),
            token_ids(text),
            chunk_tokens=whole(chunk, "--chunk", "8192"),
            cache_bytes=None if cache_mib is None else MIB * whole(cache_mib, "--cache-mib", "1k"),
            classes=None if classes is None else _one_line(classes),
        )
    elif classes is not None or cache_mib is not None:
        raise InvalidInputError("--classes and --cache-mib say how a --text is counted: give one")
    document: dict[str, object] = {}
    if counted is not None:
        document["text"] = counted.to_dict()
        if not json:
            print_text(counted.text())
    if counted is None or prefill or decode or verify:
        requests = requests_from(prefill, decode, verify)
        settings = plans(model, Parallel(tp=tp), engine, decoder_replay, changes, requests)
        if len(settings) != 1:
            raise InvalidInputError("--decoder-replay both: must be on or off here")
        ((_, plan),) = settings
        if counted is not None:
            plan = _with_shares(plan, counted, changes)
            if cache_mib is not None:
                size = whole(cache_mib, "--cache-mib", "1k")
                plan = replace(plan, policy=plan.policy.with_overrides(engram_cache_mib=size))
        named = {"engram_prefetch": prefetch, "engram_hit_share": hit_share}
        chosen = {name: value for name, value in named.items() if value is not None}
        plan = replace(plan, policy=plan.policy.with_overrides(**chosen))
        hardware = _with_disk(load_hardware(gpu), disk_gb_per_s, disk_reads_per_s)
        detailed = any(change.startswith("engram_residency=") for change in changes or ())
        _answer(plan, hardware, method, limit, json, document, detailed=detailed)
    if json:
        print_json(document)


def token_ids(path: Path) -> list[list[int]]:
    """Token ids of a text file: one request a line, ids apart by spaces or commas.

    Raises:
        MissingProfileError, SchemaError: no such file, or not a regular one.
        InvalidInputError: a line that holds something else, or no line at all.
    """
    found: list[list[int]] = []
    lines = read_bytes(path, most=MOST_TEXT_BYTES).decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        words = line.strip().strip("[]").replace(",", " ").split()
        wrong = next((w for w in words if not (w.isascii() and w.isdigit() and len(w) < 10)), None)
        if wrong is not None:
            raise InvalidInputError(
                f"{path}, line {number}: {wrong[:20]!r} is no token id; write whole numbers, one "
                "request a line"
            )
        if words:
            found.append([int(word) for word in words])
    if not found:
        raise InvalidInputError(f"{path}: holds no token ids; write one request a line")
    return found


def _one_line(path: Path) -> list[int]:
    return [item for line in token_ids(path) for item in line]


def _with_shares(plan: Plan, counted: TextCount, changes: list[str] | None) -> Plan:
    """The plan with the text's shares, unless one was given."""
    shares = {"engram_distinct_share": counted.rows.distinct_share}
    if counted.cache is not None:
        shares["engram_hit_share"] = counted.cache.hit_share
    given = {change.partition("=")[0] for change in changes or ()}
    shares = {name: share for name, share in shares.items() if name not in given}
    return replace(plan, policy=plan.policy.with_overrides(**shares))


def _with_disk(hardware: Hardware, gb_per_s: float | None, reads_per_s: float | None) -> Hardware:
    """The GPU with a disk that its file need not have."""
    if gb_per_s is None:
        if reads_per_s is not None:
            raise InvalidInputError("--disk-reads-per-s needs --disk-gb-per-s")
        return hardware
    return replace(hardware, disk_bytes_per_s=gb_per_s * GB_PER_S, disk_reads_per_s=reads_per_s)


def _answer(
    plan: Plan, hardware: Hardware, method: str, limit: bool, json: bool,
    document: dict[str, object], *, detailed: bool,
) -> None:  # fmt: skip
    """All residencies side by side, or the one that was chosen in detail."""
    if limit and not detailed:
        raise InvalidInputError(
            "--break-even asks about one residency: add --set engram_residency=host_shared"
        )
    if detailed:
        report = transfer(plan, hardware, method)
        document["transfer"] = report.to_dict()
        if not json:
            print_text(engram_text(report))
    else:
        compared = compare_residencies(plan, hardware, method)
        document["residencies"] = compared.to_dict()
        if not json:
            print_text(compared.text())
    if limit:
        times = break_even(plan, hardware, method)
        document["break_even_times"] = times
        if not json:
            print_text(
                "no multiple of these requests up to 4,096 makes a step wait"
                if times is None
                else f"a step waits for rows from {times} times these requests"
            )
