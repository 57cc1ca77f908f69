"""What a case is expected to take: minutes and memory.

A case is set up, checked once against its reference, and timed. Each part follows from the case's
least work and a few constants of the harness, which `python -m benchmarks.collect_plan` compares
with a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collectors.case import Case
from collectors.op.kind import Kind
from collectors.op.peaks import Peaks, least_seconds
from collectors.timing.record import LEAST_SAMPLES, TimingOptions
from collectors.timing.rotation import rotation

USUAL_EFFICIENCY = 0.15
"""Share of its peaks that a portable kernel reaches, roughly."""
CALL_S = {"cuda": 12e-6, "cpu": 120e-6}
"""Least time of one call."""
BUILD_S = {"cuda": 0.15, "cpu": 0.003}
"""Setting a case up; kernels that are compiled once are in `COMPILE_S`."""
COMPILE_S = {"cuda": 4.0, "cpu": 0.0}
"""The first case of a line compiles its kernels."""
START_S = {"cuda": 12.0, "cpu": 2.5}
"""Imports and drivers of the processes that run cases."""
RANDOM_BYTES_PER_S = {"cuda": 1e11, "cpu": 1.5e8}
"""Rate at which inputs are drawn."""
REFERENCE_SHARE = {"cuda": 0.1, "cpu": 0.3}
"""Share of the peak rate that a plain reference reaches."""
REFERENCE_ROW_S = {"cuda": 3e-4, "cpu": 8e-5}
"""A row or entry of a reference that is a loop."""
LOOPS = {
    "sparse_attention": 1.0, "index_score": 1.0, "index_select": 1.0, "index_select_pool": 2.0,
    "router_select": 1.0, "engram_hash": 1.0, "engram_lookup": 6.0, "embedding": 0.1,
    "kv_store": 1.0, "main_store": 1.0, "compress_store": 2.0, "compress_pool": 1.0,
    "index_key_store": 1.0,
}  # fmt: skip
"""Steps of the loop a row, by operator; others are not loops."""
RERUN_SHARE = 0.3
"""Of the cases that spread too widely and are timed twice."""
CPU_PEAKS = Peaks(
    gpu="cpu",
    flop_per_s={"bf16": 5e10, "fp32": 5e10, "fp8": 5e10},
    memory_bytes_per_s=8e9,
    memory_bytes=8e9,
    l2_bytes=1 << 20,
    link_bytes_per_s=2e9,
)
"""A core of a server, for plans that run on a CPU; not a ceiling of anything."""


@dataclass(frozen=True)
class Cost:
    """Of a case.

    Attributes:
        seconds: expected.
        memory_bytes: at its peak, on one GPU [B].
        sol_s: least time of one call at the GPU's peaks [s]; 0 on a CPU.
    """

    seconds: float
    memory_bytes: float
    sol_s: float


def cost_of(case: Case, kind: Kind, peaks: Peaks, options: TimingOptions, *, first: bool) -> Cost:
    """What a case costs.

    Args:
        case: with its defaults filled in.
        kind: of it.
        peaks: of the GPU that runs it.
        options: how it is timed.
        first: it is the first of its line, which compiles.
    """
    on = "cpu" if peaks.gpu == "cpu" else "cuda"
    least = least_seconds(kind.work(case), peaks)
    call = max(CALL_S[on], least / USUAL_EFFICIENCY)
    one = kind.input_bytes(case)
    calls = max(1, min(MAX_CALLS, math.ceil(LONG_ENOUGH_S / call)))
    turn = rotation(one, peaks.l2_bytes, _FREE_SHARE * peaks.memory_bytes, calls)
    sample = max(call, LONG_ENOUGH_S) + (FLUSH_S[on] if turn.flush else 0.0)
    timed = min(options.samples * sample, max(options.seconds, LEAST_SAMPLES * sample))
    timed = (timed + 3 * sample) * (1 + RERUN_SHARE) + _empty_s(options)
    drawn = turn.copies * one / RANDOM_BYTES_PER_S[on]
    loop = LOOPS.get(case.operator, 0.0) * float(case.sizes.get("rows", 0))
    checked = least / REFERENCE_SHARE[on] * 4 + loop * REFERENCE_ROW_S[on]
    seconds = BUILD_S[on] + drawn + checked + timed + (COMPILE_S[on] if first else 0.0)
    return Cost(
        seconds=seconds,
        memory_bytes=turn.copies * one + 4 * one,
        sol_s=0.0 if on == "cpu" else least,
    )


_FREE_SHARE = 0.5
LONG_ENOUGH_S = 200e-6
MAX_CALLS = 1024
"""As `collectors.timing.measure` has them, which needs torch."""
FLUSH_S = {"cuda": 80e-6, "cpu": 250e-6}
"""Writing over the L2 before a sample."""


def _empty_s(options: TimingOptions) -> float:
    """The harness times a call that does nothing as well."""
    return options.samples * LONG_ENOUGH_S
