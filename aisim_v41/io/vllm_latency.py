"""The JSON of `vllm bench latency` (docs/io.md, "vllm_latency").

It times whole calls of ``generate``: schedule, every forward, sampling and detokenisation. Only
with one output token does such a call hold one step. Its arguments are in a twin beside it,
`<name>.pytorch.json` (vllm-project/vllm, `vllm/benchmarks/latency.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from aisim_v41.errors import InvalidInputError, SchemaError
from aisim_v41.forwards.records import StepRecord
from aisim_v41.io.fields import entries, mapping, number, require_size, whole
from aisim_v41.io.imported import Hint, Imported, Skipped
from aisim_v41.plan.request import Request
from aisim_v41.reading import parse_document, read_bytes, read_mapping
from aisim_v41.units import MILLISECOND

TIMER = "other"
TWIN = ".pytorch.json"
SIZES = ("input_len", "output_len", "batch_size")
_SAME = 1e-6


class _Batch(NamedTuple):
    """What a call was given."""

    input_len: int
    output_len: int
    size: int

    @property
    def tokens(self) -> int:
        return self.size * self.input_len

    @property
    def text(self) -> str:
        return f"{self.size} requests of {self.input_len} + {self.output_len} tokens"


def read_vllm_latency(
    path: str | os.PathLike[str],
    *,
    input_len: int | None = None,
    output_len: int | None = None,
    batch_size: int | None = None,
    run: str | None = None,
    regime: str = "",
) -> Imported:
    """One record where the call was one step; else none, and a remark that says what it was.

    Args:
        path: The file with ``avg_latency`` and ``latencies``.
        input_len: Prompt of each request [tokens]; by default as the twin says, which it may not
            contradict.
        output_len: Tokens generated for each; likewise.
        batch_size: Requests in a call; likewise.
        run: Name of the process run; by default that of the file.
        regime: Label for the conditions.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: not such a file, or a twin of another one.
        InvalidInputError: neither argument nor twin say how long the requests were, or they say
            different things.
    """
    file = Path(path)
    document = read_mapping(file)
    try:
        seconds = _latencies(document)
    except SchemaError as bad:
        raise SchemaError(f"{file}: {bad}") from None
    arguments = _arguments(file, seconds)
    asked = {"input_len": input_len, "output_len": output_len, "batch_size": batch_size}
    batch = _sizes(file, asked, arguments)
    hints: dict[str, Hint] = {"engine": "vllm", "timer": TIMER, **_hints(arguments)}
    reason = _no_step(batch, arguments)
    if reason:
        times = f"{len(seconds)} calls, median {median(seconds) / MILLISECOND:g} ms"
        return Imported(
            records=(),
            skipped=(Skipped(file.name, reason),),
            build_hints=hints,
            remarks=(f"whole calls: {batch.text}: {times}",),
        )
    record = StepRecord(
        step=(Request(new_tokens=batch.input_len, count=batch.size),),
        latency_ms=median(seconds) / MILLISECOND,
        samples_ms=tuple(value / MILLISECOND for value in seconds),
        samples=len(seconds),
        run=run or file.stem,
        regime=regime,
        point=batch.text,
        source=file.name,
        note="a call of generate: schedule, forward, sampling, detokenisation",
    )
    remarks = [
        "a call of generate, of which the forward is a part: never pool it with other timers"
    ]
    if arguments.get("max_num_batched_tokens") is None:
        remarks.append(
            f"one step only if the engine takes {batch.tokens} tokens at once; it does not say"
        )
    return Imported(records=(record,), skipped=(), build_hints=hints, remarks=tuple(remarks))


def _latencies(document: Mapping[str, Any]) -> list[float]:
    if "latencies" not in document or "avg_latency" not in document:
        raise SchemaError("no latencies and avg_latency: not a result of vllm bench latency")
    values = entries(document, "latencies")
    seconds = [number({"latencies": value}, "latencies") for value in values]
    if not seconds or min(seconds) <= 0:
        raise SchemaError("latencies: must be times above 0, at least one")
    said = number(document, "avg_latency")
    if not math.isclose(said, fmean(seconds), rel_tol=_SAME):
        raise SchemaError(
            f"avg_latency = {said:g}, but the mean of latencies is {fmean(seconds):g}"
        )
    return seconds


def _arguments(file: Path, seconds: list[float]) -> Mapping[str, Any]:
    """Arguments of the run, from the twin; nothing where there is none."""
    twin = file.with_name(file.stem + TWIN)
    if not twin.exists():
        return {}
    records = parse_document(read_bytes(twin), where=str(twin))
    first = records[0] if isinstance(records, list) and records else None
    try:
        if not isinstance(first, dict):
            raise SchemaError("must be a list of benchmark records")
        if entries(mapping(first, "metric"), "benchmark_values") != seconds:
            raise SchemaError(f"its benchmark_values are not the latencies of {file.name}")
        arguments = mapping(mapping(mapping(first, "benchmark"), "extra_info"), "args")
        for name in SIZES:
            whole(arguments, name, least=1)
    except SchemaError as bad:
        raise SchemaError(f"{twin}: {bad}") from None
    return arguments


def _sizes(file: Path, asked: Mapping[str, int | None], arguments: Mapping[str, Any]) -> _Batch:
    sizes = {name: arguments.get(name) if v is None else v for name, v in asked.items()}
    lacking = [name for name, value in sizes.items() if value is None]
    if lacking:
        raise InvalidInputError(
            f"{file}: {', '.join(lacking)} not known: the file does not say, and there is no "
            f"{file.stem}{TWIN} beside it; give them as arguments"
        )
    for name, value in sizes.items():
        require_size(name, value)
        if value != arguments.get(name, value):
            raise InvalidInputError(
                f"{file}: {name} = {value}, but {file.stem}{TWIN} beside it says {arguments[name]}"
            )
    return _Batch(*(int(sizes[name] or 0) for name in SIZES))


def _no_step(batch: _Batch, arguments: Mapping[str, Any]) -> str:
    """Why a call is not one step; nothing where it is."""
    if batch.output_len > 1:
        return (
            f"a call generates {batch.output_len} tokens a request: {batch.output_len} steps and "
            "what lies between them, no single step; measure with --output-len 1"
        )
    if arguments.get("use_beam_search") is True or arguments.get("n", 1) != 1:
        return "beam search, or several sequences a prompt: the batch is not that of the prompts"
    if arguments.get("enable_prefix_caching") is True:
        return "prefix caching was on and every call has the same prompts: they were not computed"
    budget = arguments.get("max_num_batched_tokens")
    if isinstance(budget, int) and batch.tokens > budget:
        return f"{batch.tokens} tokens in steps of at most {budget}: several steps"
    most = arguments.get("max_num_seqs")
    if isinstance(most, int) and batch.size > most:
        return f"{batch.size} requests in steps of at most {most}: several steps"
    return ""


def _hints(arguments: Mapping[str, Any]) -> dict[str, Hint]:
    names = {"model": "checkpoint", "tensor_parallel_size": "tp", "data_parallel_size": "dp"}
    settings = ("enforce_eager", "kv_cache_dtype", "quantization", "dtype")
    named = {**names, **{name: f"settings.{name}" for name in settings}}
    return {
        ours: value
        for theirs, ours in named.items()
        if isinstance(value := arguments.get(theirs), (str, int, float, bool))
    }
