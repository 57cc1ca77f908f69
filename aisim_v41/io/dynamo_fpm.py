"""Dynamo Forward Pass Metrics as JSON lines, one message a line (docs/io.md, "dynamo_fpm").

A listener that dumps what it decodes writes such a file. One iteration of one worker becomes one
record; its time is that of the slowest rank, because ranks of a step wait for each other.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from aisim_v41.errors import AisimError, SchemaError
from aisim_v41.forwards.identity import TIMERS
from aisim_v41.forwards.records import MAX_SAMPLES, StepRecord
from aisim_v41.io.fields import require_choice, require_flag
from aisim_v41.io.forward_pass import Message, parse_message, step_of
from aisim_v41.io.imported import Hint, Imported, RunNames, Skipped
from aisim_v41.io.lines import json_lines
from aisim_v41.units import MILLISECOND

HEARTBEAT = "heartbeat of an idle scheduler"
TWICE = "the same message twice"
MAX_TOLD = 8
"""Most absent ranks that a reason names."""
_UNMATCHED = "several ranks without counter_id: their iterations cannot be matched"

UnevenRanks = Literal["skip", "fullest"]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    message: Message
    process: int = 0
    """Which process of this worker: counters start again with each."""


def read_dynamo_fpm(
    path: str | os.PathLike[str],
    *,
    timer: str = "scheduler_wall",
    kv_includes_current: bool | None = None,
    uneven_ranks: UnevenRanks = "skip",
    run: str | None = None,
    regime: str = "",
) -> Imported:
    """Records of a file of messages.

    Args:
        path: The file.
        timer: What ``wall_time`` is: "scheduler_wall" in Dynamo's scheduler hook, "gpu_events" in
            engines that time with CUDA events. The file does not say.
        kv_includes_current: Whether contexts of decodes count the token being decoded. SGLang and
            TensorRT-LLM count it, vLLM under Dynamo does not. None takes what the file itself
            shows (a lone prefill followed by its decode), else that it is not counted.
        uneven_ranks: What becomes of an iteration whose data-parallel ranks ran different loads,
            which is no single step of a plan: "skip" lists it, "fullest" keeps the fullest rank's
            load and names the others in the note.
        run: Name of the process run, of the second one in the file "name#2"; by default the worker
            of each message.
        regime: Label for the conditions.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: not a file of such messages.
        InvalidInputError: an argument has no such value.
    """
    file = Path(path)
    require_choice("timer", timer, TIMERS)
    require_choice("uneven_ranks", uneven_ranks, ("skip", "fullest"))
    require_flag("kv_includes_current", kv_includes_current, unknown=True)
    lines, skipped, dp = _messages(file)
    lines, twice, restarts = _processes(file, lines)
    skipped += twice
    remarks = restarts
    lines, unreported = _without_unreported_variances(lines)
    remarks += unreported
    includes, convention = _convention(lines, kv_includes_current)
    remarks += convention
    records: list[StepRecord] = []
    iterations, unmatched = _iterations(file, lines, dp)
    skipped += unmatched
    names = RunNames(run)
    for order, ranks, missing in iterations:
        place = f"{file.name}:{ranks[0].number}"
        try:
            records.append(
                _record(
                    ranks,
                    missing,
                    place=place,
                    order=order,
                    run=names.of(_run_name(file, ranks[0])),
                    regime=regime,
                    kv_includes_current=includes,
                    uneven_ranks=uneven_ranks,
                )
            )
        except AisimError as bad:
            skipped.append(Skipped(place, str(bad)))
    hints: dict[str, Hint] = {"timer": timer}
    if dp > 1:
        hints["dp"] = dp
    return Imported(
        records=tuple(records),
        skipped=tuple(sorted(skipped, key=lambda entry: int(entry.place.rpartition(":")[2]))),
        build_hints=hints,
        remarks=tuple(remarks),
    )


def _messages(file: Path) -> tuple[list[_Line], list[Skipped], int]:
    """Messages that hold a step, what else there was, and how many ranks there must be.

    Ranks are counted from 0, so the largest tells of those that the file lacks, and an idle one
    tells of itself by its heartbeat.
    """
    lines: list[_Line] = []
    skipped: list[Skipped] = []
    heartbeats, dp = 0, 1
    for number, row in json_lines(file):
        if isinstance(row, Skipped):
            skipped.append(row)
            continue
        place = f"{file.name}:{number}"
        try:
            message = parse_message(row)
        except SchemaError as bad:
            skipped.append(Skipped(place, str(bad)))
            continue
        dp = max(dp, message.rank + 1)
        if message.heartbeat:
            heartbeats += 1
            skipped.append(Skipped(place, HEARTBEAT))
        elif message.seconds <= 0:
            skipped.append(
                Skipped(place, f"wall_time = {message.seconds:g} s with {message.load.text()}")
            )
        else:
            lines.append(_Line(number, message))
    if not lines and not heartbeats:
        first = skipped[0] if skipped else Skipped(f"{file.name}:1", "the file is empty")
        raise SchemaError(f"{file}: no forward pass message in it; {first.place}: {first.reason}")
    return lines, skipped, dp


def _processes(file: Path, lines: Iterable[_Line]) -> tuple[list[_Line], list[Skipped], list[str]]:
    """Lines with their process, repeated messages taken out.

    A counter only grows within a process. Where it falls, the worker was started again. One that
    never moves is a field that the emitter does not fill in.
    """
    counters: defaultdict[tuple[str, int], set[int | None]] = defaultdict(set)
    messages = list(lines)
    for line in messages:
        counters[line.message.worker, line.message.rank].add(line.message.counter)
    many = Counter((line.message.worker, line.message.rank) for line in messages)
    idle = {sender for sender, seen in counters.items() if len(seen) == 1 < many[sender]}
    last: dict[tuple[str, int], int] = {}
    process: Counter[tuple[str, int]] = Counter()
    seen: set[tuple[int, Message]] = set()
    kept: list[_Line] = []
    twice: list[Skipped] = []
    for line in messages:
        message = line.message
        sender = (message.worker, message.rank)
        if sender in idle or message.counter is None:
            kept.append(_Line(line.number, replace(message, counter=None)))
            continue
        if (process[sender], message) in seen:
            twice.append(Skipped(f"{file.name}:{line.number}", TWICE))
            continue
        if message.counter <= last.get(sender, -1):
            process[sender] += 1
        last[sender] = message.counter
        seen.add((process[sender], message))
        kept.append(_Line(line.number, message, process[sender]))
    remarks = [
        f"worker {worker!r:.60}: counter_id of rank {rank} falls {times} times: {times + 1} "
        "process runs"
        for (worker, rank), times in process.items()
        if times
    ]
    return kept, twice, remarks


def _without_unreported_variances(lines: Sequence[_Line]) -> tuple[list[_Line], list[str]]:
    """Variances set to unknown for workers that report 0 where it cannot be, and never more."""
    reporting = {line.message.worker for line in lines if line.message.load.has_variance}
    silent = {
        line.message.worker for line in lines if line.message.load.contradicts_variance
    } - reporting
    remarks = [
        f"worker {worker!r:.60}: reports every variance as 0, also where lengths cannot be equal: "
        "read as not known"
        for worker in sorted(silent)
    ]
    return [
        replace(line, message=replace(line.message, load=line.message.load.without_variances()))
        if line.message.worker in silent
        else line
        for line in lines
    ], remarks


def _convention(lines: Sequence[_Line], asked: bool | None) -> tuple[bool, list[str]]:
    """Whether decodes count their current token, and how that is known.

    After a lone prefill that ends at P, the lone decode that follows reads P tokens, or P + 1
    where it counts its own.
    """
    if not any(line.message.load.decodes for line in lines):
        return bool(asked), []
    votes: Counter[bool] = Counter()
    before: dict[tuple[str, int, int], Message] = {}
    for line in lines:
        message = line.message
        sender = (message.worker, message.rank, line.process)
        last, load = before.get(sender), message.load
        before[sender] = message
        if last is None or (load.prefills, load.decodes) != (0, 1):
            continue
        if (last.load.prefills, last.load.decodes) == (1, 0):
            beyond = load.decode_kv - last.load.prefill_tokens - last.load.prefill_kv
            if beyond in (0, 1):
                votes[beyond == 1] += 1
    shown = votes[True] > votes[False] if votes[True] != votes[False] else None
    taken = bool(shown if asked is None else asked)
    counted = "count" if taken else "do not count"
    if asked is not None and shown is not None and shown != asked:
        why = (
            f"as asked, but {votes[shown]} prefills followed by their decode show the opposite: "
            f"check kv_includes_current={asked}"
        )
    elif shown is not None:
        why = f"as {votes[shown]} prefills followed by their decode show"
    elif asked is not None:
        why = "as asked"
    else:
        why = "as Dynamo's own scheduler; kv_includes_current=True for SGLang and TensorRT-LLM"
    return taken, [f"contexts of decodes {counted} the current token, {why}"]


def _iterations(
    file: Path, lines: Sequence[_Line], dp: int
) -> tuple[list[tuple[int, list[_Line], list[int]]], list[Skipped]]:
    """Per iteration: order, one line a rank, and ranks that are not in it."""
    groups: dict[tuple[str, int, int, int], list[_Line]] = {}
    skipped: list[Skipped] = []
    position: Counter[str] = Counter()
    for line in lines:
        worker, counter = line.message.worker, line.message.counter
        if counter is None:
            if dp > 1:
                skipped.append(Skipped(f"{file.name}:{line.number}", _UNMATCHED))
                continue
            groups[worker, 0, position[worker], -1] = [line]
            position[worker] += 1
        else:
            groups.setdefault((worker, line.process, counter, 0), []).append(line)
    return [
        (order, found, _absent({line.message.rank for line in found}, dp))
        for (_, _, order, _), found in groups.items()
    ], skipped


def _absent(ranks: set[int], dp: int) -> list[int]:
    """Ranks that are not in an iteration, the first ones of many."""
    return list(islice((rank for rank in range(dp) if rank not in ranks), MAX_TOLD))


def _record(
    ranks: Sequence[_Line],
    missing: Sequence[int],
    *,
    place: str,
    order: int,
    run: str,
    regime: str,
    kv_includes_current: bool,
    uneven_ranks: UnevenRanks,
) -> StepRecord:
    chosen = max(ranks, key=lambda line: line.message.load.size)
    even = not missing and len({line.message.load for line in ranks}) == 1
    note = f"{len(ranks)} ranks with this load each" if even and len(ranks) > 1 else ""
    if not even:
        loads = [f"rank {line.message.rank}: {line.message.load.text()}" for line in ranks]
        loads += [f"rank {rank}: nothing" for rank in missing]
        if uneven_ranks == "skip":
            raise SchemaError(
                f"ranks ran different loads ({'; '.join(loads)}), which is no single step; "
                "uneven_ranks='fullest' keeps the fullest one's"
            )
        note = f"fullest of uneven ranks ({'; '.join(loads)})"[:1000]
    step, reading = step_of(chosen.message.load, kv_includes_current=kv_includes_current)
    return StepRecord(
        step=step,
        latency_ms=max(line.message.seconds for line in ranks) / MILLISECOND,
        run=run,
        order=order if order <= MAX_SAMPLES else None,
        regime=regime,
        point=str(order),
        source=place,
        note="; ".join(part for part in (note, reading) if part),
    )


def _run_name(file: Path, line: _Line) -> str:
    name = line.message.worker or file.stem
    return f"{name}#{line.process + 1}" if line.process else name
