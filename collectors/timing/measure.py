"""The time of a prepared call: one function, whatever the clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from collectors.errors import UnavailableError
from collectors.machine import l2_bytes, nvml_place
from collectors.nvml import readings
from collectors.op.prepared import Prepared
from collectors.timing.batches import Call, as_graph, one_by_one
from collectors.timing.clocks import Clock, EventClock, HostClock
from collectors.timing.cupti import cupti_clock
from collectors.timing.record import (
    AUTO,
    BACKENDS,
    COLD,
    EAGER,
    GRAPH,
    LEAST_SAMPLES,
    WARM,
    Timing,
    TimingOptions,
)
from collectors.timing.rotation import FLUSH_TIMES_L2, rotation
from collectors.timing.summary import Summary, summed_up

Inputs = tuple[Any, ...]
Slowest = Callable[[Sequence[float]], list[float]]
"""Of samples of one rank, the slowest rank's, sample by sample."""
LONG_ENOUGH_S = 200e-6
"""A sample of short calls lasts about so long: N calls, whose time is divided by N."""
MAX_CALLS = 1024
UNKNOWN_L2_BYTES = {"cuda": 256 << 20, "cpu": 4 << 20}
"""Where a device does not say: more than any has."""
CPU_COPIES_BYTES = 512e6
"""That copies take on a CPU unless told otherwise [B]."""
_FREE_SHARE = 0.5


class _Way(NamedTuple):
    """A clock, and whether its batches are graphs."""

    timer: str
    execution: str
    clock: Clock


class _Found(NamedTuple):
    """A summary of seconds of one call, and what it was taken of."""

    summary: Summary
    calls: int
    reran: bool


def alone(samples: Sequence[float]) -> list[float]:
    """The slowest rank of one."""
    return list(samples)


def measure(
    prepared: Prepared,
    device: torch.device,
    options: TimingOptions,
    *,
    input_bytes: float,
    generator: torch.Generator,
    first: Inputs,
    slowest: Slowest = alone,
    ranks: int = 1,
) -> Timing:
    """Time a prepared call.

    Args:
        prepared: whose answer was found right.
        device: where it runs.
        options: how to time.
        input_bytes: of one set of inputs [B].
        generator: for further sets.
        first: the set that was checked; it is the first that rotates.
        slowest: exchanges samples between ranks, and waits for all of them.
        ranks: processes that take part.

    Raises:
        UnavailableError: the clock or the execution that is asked for is not here.
    """
    before = readings(nvml_place(device))
    if prepared.samples is not None:
        return _of_samples(prepared, options, slowest, ranks, before, device)
    way = _way(device, options)
    alone_s = _once(_call(prepared.run, first), way.clock, slowest)
    sets, flush = [first], None
    if options.cache_state == COLD:
        cache = l2_bytes(device) or UNKNOWN_L2_BYTES[device.type]
        turn = rotation(input_bytes, cache, _free_bytes(device, options),
                        _calls_per_sample(alone_s))  # fmt: skip
        sets += [prepared.make(generator) for _ in range(turn.copies - 1)]
        flush = _flush(device) if turn.flush else None
    calls = [_call(prepared.run, one) for one in sets]
    found = _timed(calls, way, options, flush, device, slowest, alone_s)
    idle = _nothing(device)
    empty = _timed([idle], way, options, None, device, slowest, _once(idle, way.clock, slowest))
    after = readings(nvml_place(device))
    return _timing(found, way, options, empty.summary.median, len(sets), flush is not None, ranks,
                   {"before": before, "after": after})  # fmt: skip


class _Batch(NamedTuple):
    """Calls that are timed together, and what runs before the clock starts."""

    run: Callable[[], None]
    calls: int
    before: Call | None


def _timed(
    calls: Sequence[Call],
    way: _Way,
    options: TimingOptions,
    flush: Call | None,
    device: torch.device,
    slowest: Slowest,
    alone_s: float,
) -> _Found:
    """Samples of some calls in turn, taken again once where they spread too widely."""
    number = len(calls) if flush else _whole_turns(_calls_per_sample(alone_s), len(calls))
    batch = _batch(calls, number, way, flush, device)
    first = _samples(batch, 1, way.clock, slowest)[0]
    wanted = options.samples
    if first > 0:
        wanted = max(LEAST_SAMPLES, min(wanted, int(options.seconds / first)))
    summary = _summary(batch, wanted, way.clock, slowest)
    reran = summary.spread > options.spread_bound
    if reran:
        summary = _summary(batch, wanted, way.clock, slowest)
    return _Found(summary, batch.calls, reran)


def _once(call: Call, clock: Clock, slowest: Slowest) -> float:
    """Seconds of a call that was made before."""
    call()
    return _samples(_Batch(one_by_one([call]), 1, None), 1, clock, slowest)[0]


def _summary(batch: _Batch, wanted: int, clock: Clock, slowest: Slowest) -> Summary:
    return summed_up([one / batch.calls for one in _samples(batch, wanted, clock, slowest)])


def _samples(batch: _Batch, wanted: int, clock: Clock, slowest: Slowest) -> list[float]:
    """Seconds of a batch, so many times; ranks begin together and the slowest counts."""
    slowest([0.0])
    samples = []
    for _ in range(wanted):
        if batch.before is not None:
            batch.before()
        samples.append(clock.seconds(batch.run))
    return slowest(samples)


def _batch(
    calls: Sequence[Call], number: int, way: _Way, flush: Call | None, device: torch.device
) -> _Batch:
    """``number`` calls, in turn through all sets of inputs."""
    turn = [calls[place % len(calls)] for place in range(number)]
    run = as_graph(turn, device) if way.execution == GRAPH else one_by_one(turn)
    return _Batch(run, number, flush)


def _calls_per_sample(alone_s: float) -> int:
    """Calls of one sample: one of a long call, many of tiny ones.

    >>> _calls_per_sample(1e-3), _calls_per_sample(2e-6), _calls_per_sample(1e-9)
    (1, 100, 1024)
    """
    return max(1, min(MAX_CALLS, math.ceil(LONG_ENOUGH_S / max(alone_s, 1e-7))))


def _whole_turns(calls: int, copies: int) -> int:
    """At least so many calls, through every copy equally often.

    >>> _whole_turns(100, 26), _whole_turns(1, 1)
    (104, 1)
    """
    return math.ceil(calls / copies) * copies


def _timing(
    found: _Found,
    way: _Way,
    options: TimingOptions,
    empty_s: float,
    copies: int,
    flushed: bool,
    ranks: int,
    device: dict[str, Any],
) -> Timing:
    summary = found.summary
    return Timing(
        timer=way.timer,
        execution=way.execution,
        cache_state=options.cache_state,
        median_us=summary.median * 1e6,
        p10_us=summary.p10 * 1e6,
        p90_us=summary.p90 * 1e6,
        min_us=summary.least * 1e6,
        samples=summary.n,
        calls_per_sample=found.calls,
        copies=copies,
        flushed=flushed,
        resolution_us=way.clock.resolution_s / found.calls * 1e6,
        empty_us=empty_s * 1e6,
        spread=summary.spread,
        reran=found.reran,
        noisy=found.reran and summary.spread > options.spread_bound,
        ranks=ranks,
        device=device,
    )


def _of_samples(
    prepared: Prepared,
    options: TimingOptions,
    slowest: Slowest,
    ranks: int,
    before: dict[str, Any],
    device: torch.device,
) -> Timing:
    """A case that takes its own samples."""
    assert prepared.samples is not None
    if options.timer not in (AUTO, prepared.samples_timer):
        raise UnavailableError(f"this case takes its own samples, by {prepared.samples_timer}")
    way = _Way(prepared.samples_timer, prepared.samples_execution, HostClock())
    options = replace(options, cache_state=WARM)
    summary = summed_up(slowest(prepared.samples(options.samples)))
    reran = summary.spread > options.spread_bound
    if reran:
        summary = summed_up(slowest(prepared.samples(options.samples)))
    after = readings(nvml_place(device))
    return _timing(_Found(summary, 1, reran), way, options, 0.0, 1, False, ranks,
                   {"before": before, "after": after})  # fmt: skip


def _way(device: torch.device, options: TimingOptions) -> _Way:
    """The first clock that is here, or the one that is asked for.

    Raises:
        UnavailableError: it is not here; says why.
    """
    if device.type != "cuda":
        if options.timer not in (AUTO, "cpu"):
            raise UnavailableError(f"timer {options.timer} needs a GPU; this is {device}")
        return _Way("cpu", EAGER, HostClock())
    asked = BACKENDS if options.timer == AUTO else (options.timer,)
    reasons = []
    for timer in asked:
        try:
            if timer == "cupti":
                return _Way(timer, options.execution, cupti_clock(device))
            if timer == "graph" and options.execution == GRAPH:
                return _Way(timer, GRAPH, EventClock(device))
            if timer == "events" and options.execution == EAGER:
                return _Way(timer, EAGER, EventClock(device))
            reasons.append(f"{timer}: not for execution {options.execution}")
        except UnavailableError as error:
            reasons.append(f"{timer}: {error}")
    raise UnavailableError("no timer: " + "; ".join(reasons))


def _call(run: Callable[..., Any], inputs: Inputs) -> Call:
    return lambda: run(*inputs)


def _nothing(device: torch.device) -> Call:
    """A call without work: one kernel over one element on a GPU, nothing on a CPU."""
    if device.type != "cuda":
        return lambda: None
    one = torch.zeros(1, device=device)
    return lambda: one.add_(1)


def _flush(device: torch.device) -> Call:
    size = int(FLUSH_TIMES_L2 * (l2_bytes(device) or UNKNOWN_L2_BYTES[device.type]))
    buffer = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
    return buffer.zero_


def _free_bytes(device: torch.device, options: TimingOptions) -> float:
    if options.memory_bytes:
        return options.memory_bytes
    if device.type != "cuda":
        return CPU_COPIES_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return _FREE_SHARE * free
