"""Peaks of the packaged GPUs, and the least time that work takes at them.

``collectors/data/peaks.json`` repeats ``hardware/*.yaml`` of the library, in SI units, since an
engine's image has no YAML; `python -m tests.collectors.op.test_peaks` writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from collectors.errors import InputError
from collectors.op.kind import Work

_FILE = Path(__file__).resolve().parents[1] / "data" / "peaks.json"
WIDER = {
    "fp4": "fp8",
    "mxfp4_mxfp8": "fp8",
    "fp8": "bf16",
    "tf32": "bf16",
}
"""What runs an arithmetic that a GPU has not: values are widened (`aisim_v41.arithmetic`)."""


@dataclass(frozen=True)
class Peaks:
    """What a GPU can do at most.

    Attributes:
        gpu: name as in ``hardware/``.
        flop_per_s: dense peak by arithmetic [FLOP/s].
        memory_bytes_per_s: of its memory [B/s].
        memory_bytes: that a program can see [B].
        l2_bytes: last shared cache [B].
        link_bytes_per_s: to other GPUs, one direction [B/s]; 0: none.
    """

    gpu: str
    flop_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    memory_bytes: float
    l2_bytes: float
    link_bytes_per_s: float


def peaks_of(gpu: str) -> Peaks | None:
    """Peaks of a GPU by its name; None where they are not known.

    >>> peaks_of("h200").memory_bytes_per_s
    4800000000000.0
    """
    return _all().get(gpu)


def known_gpus() -> tuple[str, ...]:
    """GPUs whose peaks are known."""
    return tuple(_all())


def least_seconds(work: Work, peaks: Peaks) -> float:
    """Least time of some work: the longest of arithmetic, memory and links, each at its peak [s].

    >>> h200 = peaks_of("h200")
    >>> least_seconds(Work(read_bytes=4.8e12), h200)
    1.0
    """
    compute = sum(flops / _rate(name, peaks) for name, flops in work.flops.items())
    memory = (work.read_bytes + work.written_bytes) / peaks.memory_bytes_per_s
    link = work.sent_bytes / peaks.link_bytes_per_s if peaks.link_bytes_per_s else 0.0
    return max(compute, memory, link)


def _rate(arithmetic: str, peaks: Peaks) -> float:
    """Peak of an arithmetic, or of what it is widened to.

    Raises:
        InputError: neither is known.
    """
    name = arithmetic
    while name not in peaks.flop_per_s:
        if name not in WIDER:
            raise InputError(f"{peaks.gpu} has no peak of {arithmetic!r}")
        name = WIDER[name]
    return peaks.flop_per_s[name]


@lru_cache(maxsize=1)
def _all() -> Mapping[str, Peaks]:
    entries = json.loads(_FILE.read_text(encoding="utf-8"))["gpus"]
    return MappingProxyType({gpu: Peaks(gpu=gpu, **entry) for gpu, entry in entries.items()})
