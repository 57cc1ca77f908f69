"""Results of SGLang's `bench_one_batch`, one JSON object a line (docs/io.md, "sglang_bench").

A line is one static batch: a prefill of ``batch_size`` prompts of ``input_len`` tokens in one
forward, then ``output_len - 1`` decode steps, each timed between two device synchronisations. Times
are seconds. The file names no engine argument; those come from a file beside it
(sgl-project/sglang, `python/sglang/bench_one_batch.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisim_v41.errors import AisimError, SchemaError
from aisim_v41.forwards.records import StepRecord
from aisim_v41.io.fields import number, require_path, text, whole
from aisim_v41.io.imported import Hint, Imported, RunNames, Skipped
from aisim_v41.io.lines import json_lines
from aisim_v41.plan.request import Request
from aisim_v41.reading import read_mapping
from aisim_v41.units import MILLISECOND

TIMER = "sync_wall"
PREFILL, DECODE = "prefill_latency", "median_decode_latency"
SIZES = ("batch_size", "input_len", "output_len")
WARM_UP = ("warmup", "warm-up", "warm_up")
ARGUMENTS: Mapping[str, str] = {
    "model_path": "checkpoint",
    "tp_size": "tp",
    "tensor_parallel_size": "tp",
    "dp_size": "dp",
    "data_parallel_size": "dp",
    "ep_size": "ep",
}
"""Engine arguments that have a name of our own; others become ``settings.<name>``."""
_SAME = 0.01
"""Relative difference at which a time and its throughput still say the same."""


def read_sglang_bench(
    path: str | os.PathLike[str],
    *,
    engine_args: str | os.PathLike[str] | None = None,
    run: str | None = None,
    regime: str = "",
) -> Imported:
    """Two records a line: the prefill, and the decode step in the middle of the batch's life.

    The median of the decode steps is the time of the middle one, because each reads one token more
    than the last: step i reads ``input_len + i`` tokens, so the middle one reads
    ``input_len + (output_len - 2) // 2``.

    Args:
        path: The file.
        engine_args: A JSON or YAML mapping of the arguments that the engine ran with.
        run: Name of the process run, of the second one in the file "name#2". By default that of the
            line, and another one each time that the file has the same batch again, because one
            invocation times each batch once.
        regime: Label for the conditions.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: no line of it is such a result.
        InvalidInputError: ``engine_args`` is no path.
    """
    require_path("engine_args", engine_args)
    file = Path(path)
    records: list[StepRecord] = []
    skipped: list[Skipped] = []
    again: dict[str, int] = {}
    seen: set[tuple[object, ...]] = set()
    order: dict[str, int] = {}
    names = RunNames(run)
    for line, row in json_lines(file):
        if isinstance(row, Skipped):
            skipped.append(row)
            continue
        place = f"{file.name}:{line}"
        try:
            name = text(row, "run_name", default="") or file.stem
            if any(word in name.lower() for word in WARM_UP):
                raise SchemaError(f"warm-up (run_name {name!r:.60})")
            steps = _steps(row)
            key = (name, again.get(name, 0), *(row[size] for size in SIZES))
            if key in seen:
                again[name] = again.get(name, 0) + 1
                key = (name, again[name], *key[2:])
            seen.add(key)
            invocation = f"{name}#{again[name] + 1}" if again.get(name) else name
            made = [
                _record(step, names.of(invocation), order.get(invocation, 0) + k, regime, place)
                for k, step in enumerate(steps)
            ]
            order[invocation] = order.get(invocation, 0) + len(made)
            records += made
        except AisimError as bad:
            skipped.append(Skipped(place, str(bad)))
    if not records and not any("warm-up" in entry.reason for entry in skipped):
        first = skipped[0] if skipped else Skipped(f"{file.name}:1", "the file is empty")
        raise SchemaError(f"{file}: no result of bench_one_batch; {first.place}: {first.reason}")
    hints: dict[str, Hint] = {"engine": "sglang", "timer": TIMER}
    remarks = ["decode times are medians over a growing context; each stands for its middle"]
    if engine_args is None:
        remarks.append("the file names no engine arguments; give them with engine_args")
    else:
        hints |= argument_hints(read_mapping(Path(engine_args)))
    remarks += [
        f"run {name!r:.60} has the same batch again: {times + 1} invocations"
        for name, times in again.items()
    ]
    return Imported(
        records=tuple(records), skipped=tuple(skipped), build_hints=hints, remarks=tuple(remarks)
    )


def argument_hints(arguments: Mapping[str, Any]) -> dict[str, Hint]:
    """Hints out of an engine's arguments: single values, under our names where we have one."""
    return {
        ARGUMENTS.get(name, f"settings.{name}"): value
        for name, value in arguments.items()
        if isinstance(value, (str, int, float, bool))
    }


def _steps(row: Mapping[str, Any]) -> list[tuple[Request, float, int, str]]:
    """Request, seconds, measurements and name of what a line times."""
    if PREFILL not in row:
        if "latency" in row or "overall_throughput" in row:
            raise SchemaError(
                "a result of bench_one_batch_server, which times whole requests over HTTP: no step"
            )
        raise SchemaError(f"no {PREFILL}: not a result of bench_one_batch")
    batch, length, output = (whole(row, name, least=1) for name in SIZES)
    prefill = _seconds(row, PREFILL, tokens=batch * length, throughput="prefill_throughput")
    if number(row, "total_latency", default=prefill) < prefill * (1 - _SAME):
        raise SchemaError(f"total_latency below {PREFILL}")
    name = f"batch {batch}, input {length}, output {output}"
    steps = [(Request(new_tokens=length, count=batch), prefill, 1, f"prefill, {name}")]
    if row.get(DECODE) is not None and output > 1:
        decode = _seconds(row, DECODE, tokens=batch, throughput="median_decode_throughput")
        middle = length + (output - 2) // 2
        request = Request(new_tokens=1, prefix_tokens=middle, kind="decode", count=batch)
        steps.append((request, decode, output - 1, f"decode, {name}"))
    return steps


def _seconds(row: Mapping[str, Any], name: str, *, tokens: int, throughput: str) -> float:
    """A time, which its own throughput must confirm to be one in seconds."""
    seconds = number(row, name)
    if seconds <= 0:
        raise SchemaError(f"{name} = {seconds:g} s")
    if row.get(throughput) is not None:
        said = number(row, throughput)
        if not math.isclose(said * seconds, tokens, rel_tol=_SAME):
            raise SchemaError(
                f"{name} = {seconds:g} s and {throughput} = {said:g}/s make "
                f"{said * seconds:g} tokens, not {tokens}"
            )
    return seconds


def _record(
    step: tuple[Request, float, int, str], run: str, order: int, regime: str, place: str
) -> StepRecord:
    request, seconds, samples, point = step
    return StepRecord(
        step=(request,),
        latency_ms=seconds / MILLISECOND,
        samples=samples,
        run=run,
        order=order,
        regime=regime,
        point=point,
        source=place,
        note="median over growing contexts" if request.kind == "decode" else "",
    )
