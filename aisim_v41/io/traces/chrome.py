"""Chrome traces of torch's profiler (``export_chrome_trace``), plain or gzipped.

Events are decoded one by one, so that a file of any size takes little memory. Kernels have the
category ``kernel`` and times in microseconds; ``gpu_user_annotation`` names stretches of the GPU's
time, such as ``ProfilerStep#3``.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.io.traces.kernels import KernelTrace, Range, TracedKernel, checked_kernels
from aisim_v41.units import MIB

CHUNK = MIB
MAX_EVENT = 16 * MIB
"""Longest event that is taken for one [characters]."""
EVENTS = '"traceEvents"'
_GZIP = b"\x1f\x8b"


def read_chrome(path: str | os.PathLike[str]) -> KernelTrace:
    """Kernels of a trace.

    Raises:
        MissingProfileError: no such file.
        SchemaError: not such a trace; says where it breaks off.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingProfileError(f"{file}: no such file")
    kernels: list[TracedKernel] = []
    ranges: list[Range] = []
    try:
        with file.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with (
                gzip.open(raw, "rt", encoding="utf-8")
                if packed
                else file.open(encoding="utf-8") as text
            ):
                for event in _events(text, file.name):
                    _take(event, kernels, ranges)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as bad:
        raise SchemaError(f"{file}: cannot be read as a trace ({bad})") from None
    return KernelTrace(
        source=f"{file.name} (torch profiler)",
        kernels=checked_kernels(kernels, file.name),
        ranges=tuple(sorted(ranges, key=lambda one: one.start_us)),
    )


def _events(text: IO[str], where: str) -> Iterator[dict[str, Any]]:
    """Objects of the list of events, one by one."""
    decoder = json.JSONDecoder()
    held = ""
    while EVENTS not in held:
        more = text.read(CHUNK)
        if not more:
            raise SchemaError(f"{where}: no traceEvents: not a Chrome trace")
        held = held[-len(EVENTS) :] + more
    held = held.partition(EVENTS)[2].lstrip(" \t\r\n:").removeprefix("[")
    number = 0
    while True:
        held = held.lstrip(" \t\r\n,")
        if held.startswith("]"):
            return
        try:
            event, end = decoder.raw_decode(held)
        except (ValueError, RecursionError):
            more = text.read(CHUNK)
            if not more or len(held) > MAX_EVENT:
                raise SchemaError(f"{where}: breaks off at event {number}") from None
            held += more
            continue
        number += 1
        held = held[end:]
        if isinstance(event, dict):
            yield event


def _take(event: dict[str, Any], kernels: list[TracedKernel], ranges: list[Range]) -> None:
    category = event.get("cat")
    if event.get("ph") != "X" or category not in ("kernel", "gpu_user_annotation"):
        return
    start, duration = event.get("ts"), event.get("dur")
    try:
        begin, lasted = float(start), float(duration)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    name = str(event.get("name", ""))
    if category == "gpu_user_annotation":
        ranges.append(Range(name, begin, begin + lasted))
        return
    said = event.get("args")
    args = said if isinstance(said, dict) else {}
    kernels.append(TracedKernel(name, begin, lasted, _whole(args.get("device"), 0),
                                _whole(args.get("stream"), 0),
                                _whole(args.get("correlation"), -1)))  # fmt: skip


def _whole(value: Any, otherwise: int) -> int:
    return value if type(value) is int else otherwise
