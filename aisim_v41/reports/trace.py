"""A step as a trace that Perfetto and Chrome open: who does what when, and what the step waits for.

The form is the public Trace Event Format, JSON object form: complete events (``ph`` "X", times in
microseconds), metadata that names processes and threads, flows along the critical path. A rank is a
process; its streams, links, transfers and host are threads (docs/traces.md).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

from aisim_v41 import __version__
from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.breakdown import ForwardPrice
from aisim_v41.estimators.result import Estimate
from aisim_v41.estimators.timeline import Stretch, laid_out
from aisim_v41.ops.operator import Family, Task, Traffic
from aisim_v41.reports.trace_path import RELATIVE, critical_path
from aisim_v41.units import MICROSECOND, MILLISECOND, NANOSECOND, NANOSECONDS_PER_MICROSECOND
from aisim_v41.writing import replace_file

Event = dict[str, Any]
SUFFIXES: Final = (".json", ".gz")
MAX_STEPS: Final = 512
"""Most steps of one trace."""
MAX_EVENTS: Final = 600_000
"""Most events of one trace: a step is one or two thousand on each rank, 300 bytes each."""
COLOURS: Final[Mapping[Family, str]] = {
    Family.PROJECTION: "thread_state_runnable",
    Family.ATTENTION: "rail_response",
    Family.COMPRESSOR: "thread_state_running",
    Family.INDEXER: "rail_animation",
    Family.EXPERTS: "thread_state_iowait",
    Family.HYPER_CONNECTIONS: "light_memory_dump",
    Family.ENGRAM: "detailed_memory_dump",
    Family.ENDS: "olive",
    Family.ELEMENTWISE: "rail_load",
    Family.COLLECTIVE: "yellow",
}
"""Chrome's names of colours, the only ones that it takes; Perfetto colours by name of operator."""
WAITING: Final = "grey"
_ROUNDING_S: Final = 1e-15
_OUTSIDE: Final = (Traffic.HOST_READ, Traffic.DISK_READ)


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a rank.

    Attributes:
        name: as shown; lanes after the first are numbered.
        first: number of its first lane.
    """

    name: str
    first: int

    def numbered(self, lane: int) -> str:
        """Name of one of its lanes."""
        return f"{self.name} {lane}" if lane else self.name


STEPS: Final = Thread("steps", 1)
HOST: Final = Thread("host", 2)
STREAM: Final = Thread("stream", 100)
LINKS: Final = Thread("links", 10_000)
TRANSFERS: Final = Thread("transfers", 20_000)
THREADS: Final = (TRANSFERS, LINKS, STREAM, HOST, STEPS)
"""By falling first number."""
THREADS_OF_PROCESS: Final = 100_000
"""Perfetto takes the number of a thread for the whole machine's, and 0 for none."""


def trace(estimates: Estimate | Sequence[Estimate]) -> dict[str, Any]:
    """One step, or several one after another, as a trace.

    Args:
        estimates: of one method, model and mapping; such as the chunks of a prompt.

    Returns:
        A document for ``json.dump``: ``traceEvents``, ``displayTimeUnit`` and ``otherData``, which
        says what was asked, the times and their bands.

    Raises:
        InvalidInputError: no estimate, too many, or estimates of different GPUs or mappings.
    """
    steps = [estimates] if isinstance(estimates, Estimate) else list(estimates)
    _check(steps)
    events: list[Event] = []
    clock, arrows = 0.0, count(1)
    for number, step in enumerate(steps):
        events += _Step(step, number, clock, arrows).events()
        if len(events) > MAX_EVENTS:
            raise InvalidInputError(
                f"trace: more than {MAX_EVENTS} events in {number + 1} of {len(steps)} steps; "
                "give fewer steps, or a mapping with fewer ranks that run other rows"
            )
        clock += step.latency_s
    return {
        "traceEvents": [*_names(events, steps[0]), *events],
        "displayTimeUnit": "ms",
        "otherData": _about(steps),
    }


def write_trace(document: dict[str, Any], path: Path) -> None:
    """A trace as a file, gzipped where its name ends in ``.gz``; whole or not at all.

    Raises:
        InvalidInputError: another name, or a folder that is not there or cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise InvalidInputError(f"trace {path}: its name must end in .json or .json.gz")
    raw = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    try:
        replace_file(path, gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    except OSError as error:
        raise InvalidInputError(f"trace {path}: cannot be written ({error.strerror})") from None


def _check(steps: list[Estimate]) -> None:
    if not 0 < len(steps) <= MAX_STEPS:
        raise InvalidInputError(f"trace: {len(steps)} estimates; from 1 to {MAX_STEPS}")
    for step in steps:
        if not isinstance(step, Estimate):
            raise InvalidInputError(f"trace: {step!r:.80} is no estimate")
    first = steps[0]
    for step in steps[1:]:
        for what in ("method", "hardware"):
            if getattr(step, what) != getattr(first, what):
                raise InvalidInputError(f"trace: steps of different {what}")
        if step.plan.parallel != first.plan.parallel or step.plan.model != first.plan.model:
            raise InvalidInputError("trace: steps of different models or mappings")


# --- one step -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Step:
    """Events of one step that begins at a time [s]."""

    estimate: Estimate
    number: int
    begin_s: float
    arrows: Iterator[int]
    """Numbers for arrows, none twice."""
    _work: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Arguments by forward and task."""

    def events(self) -> Iterator[Event]:
        """Everything that happens on every rank."""
        breakdown = self.estimate.breakdown
        clock = self.begin_s
        for place, slowest in enumerate(breakdown.forwards):
            ranks = breakdown.ranks[place] if breakdown.ranks else (slowest,)
            for forward in ranks:
                yield from self._forward(forward, place, clock)
                yield from self._rest(forward, slowest, clock)
            clock += slowest.times * slowest.total_s
        yield from self._ends(clock)

    def _forward(self, forward: ForwardPrice, place: int, clock: float) -> Iterator[Event]:
        stretches = laid_out(forward, place, clock)
        path = critical_path(stretches, clock, clock + forward.total_s)
        process = forward.rank or 0
        on_path = {id(stretch) for stretch in path}
        for stretch in stretches:
            yield self._event(forward, stretch, process, id(stretch) in on_path)
        yield from self._flows(path, process)
        if forward.host_s:
            # Where a whole was measured, OP's host may need longer than it took.
            issued = clock + min(forward.host_s, forward.total_s)
            yield _complete(
                "issue kernels", "host", process, HOST.first, clock, issued,
                {"forward": place, "step": self.number, "source": "host",
                 "decides": forward.waits_s > 0},
            )  # fmt: skip

    def _event(
        self, forward: ForwardPrice, stretch: Stretch, process: int, critical: bool
    ) -> Event:
        task = stretch.task
        said: dict[str, Any] = {
            "step": self.number,
            "forward": stretch.forward,
            "layer": stretch.layer,
            "bound": stretch.bound,
            "critical": critical,
        }
        category, thread = "wait" if task is None else "kernel", _thread(stretch)
        if task is not None:
            said |= {"device": process, "stream": thread} | self._work_of(forward, task)
        event = _complete(
            stretch.operator, category, process, thread, stretch.start_s, stretch.end_s, said
        )
        return event | {"cname": WAITING if task is None else COLOURS[task.family]}

    def _work_of(self, forward: ForwardPrice, task: Task) -> dict[str, Any]:
        """FLOP, bytes by kind, message, floor, evidence and its error, of one call."""
        key = (id(forward), id(task))
        if key not in self._work:
            compiled, counts = forward.compiled, forward.counts
            flop = sum(float(compiled.vector(form) @ counts) for form in task.flops.values())
            moved = {
                f"{kind}_bytes": float(compiled.vector(form) @ counts)
                for kind, form in task.traffic.items()
                if form
            }
            error = forward.error(task)
            self._work[key] = {
                "family": str(task.family),
                "replaces": list(task.replaces),
                "flop": flop,
                **{name: number for name, number in moved.items() if number},
                "message_bytes": float(compiled.vector(task.payload) @ counts),
                "floor_us": float((compiled.totals(task) @ counts).max()) / MICROSECOND,
                "source": forward.source(task),
                **({} if error is None else {"error_p90": error}),
            }
        return self._work[key]

    def _flows(self, path: Sequence[Stretch], process: int) -> Iterator[Event]:
        """An arrow wherever the critical path changes threads."""
        for one, following in pairwise(path):
            if _thread(one) == _thread(following):
                continue
            common = {"name": "critical path", "cat": "critical", "id": next(self.arrows)}
            there = _at(process, _thread(following))
            yield {"ph": "s", "ts": _begin_us(one), **_at(process, _thread(one)), **common}
            yield {"ph": "f", "bp": "e", "ts": _begin_us(following), **there, **common}

    def _rest(self, forward: ForwardPrice, slowest: ForwardPrice, clock: float) -> Iterator[Event]:
        """What a rank waits for a slower one, and further runs of the same forward."""
        process, end = forward.rank or 0, clock + slowest.total_s
        said = {"step": self.number, "critical": False}
        if end - (clock + forward.total_s) > _ROUNDING_S:
            yield _complete(
                f"waiting for rank {slowest.rank}", "wait", process, STREAM.first,
                clock + forward.total_s, end, said,
            )  # fmt: skip
        if slowest.times > 1:
            yield _complete(
                f"the same forward, {slowest.times - 1} more times", "repeat", process,
                STREAM.first, end, clock + slowest.times * slowest.total_s,
                {"step": self.number, "critical": forward is slowest},
            )  # fmt: skip

    def _ends(self, clock: float) -> Iterator[Event]:
        """The step as a whole, and what a bound adds to its kernels."""
        step, end = self.estimate, self.begin_s + self.estimate.latency_s
        for process in _processes(step):
            if end - clock > max(_ROUNDING_S, RELATIVE * step.latency_s):
                said = {"step": self.number, "critical": True, "bound": "graph bound"}
                yield _complete("up to the bound", "wait", process, STREAM.first, clock, end, said)
            yield _complete(
                f"step {self.number}", "step", process, STEPS.first, self.begin_s, end,
                {"requests": [repr(request) for request in step.plan.requests],
                 "latency_ms": step.latency_ms, "sol_ms": step.sol_ms},
            )  # fmt: skip


def _thread(stretch: Stretch) -> int:
    """Number of the thread that a stretch is drawn on."""
    task = stretch.task
    if task is not None and any(task.traffic.get(kind) for kind in _OUTSIDE):
        return TRANSFERS.first + stretch.lane
    if task is not None and task.family is Family.COLLECTIVE:
        return LINKS.first + stretch.lane
    return STREAM.first + stretch.lane


def _at(rank: int, thread: int) -> dict[str, int]:
    """Where an event is drawn."""
    return {"pid": rank + 1, "tid": (rank + 1) * THREADS_OF_PROCESS + thread}


def _begin_us(stretch: Stretch) -> float:
    return _nanoseconds(stretch.start_s) / NANOSECONDS_PER_MICROSECOND


def _complete(
    name: str, category: str, rank: int, thread: int, start_s: float, end_s: float,
    said: dict[str, Any],
) -> Event:  # fmt: skip
    begin, end = _nanoseconds(start_s), _nanoseconds(end_s)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        **_at(rank, thread),
        "ts": begin / NANOSECONDS_PER_MICROSECOND,
        "dur": (end - begin) / NANOSECONDS_PER_MICROSECOND,
        "args": said,
    }


def _nanoseconds(seconds: float) -> int:
    """Readers count whole nanoseconds: what ends where another begins must end there for them."""
    return round(seconds / NANOSECOND)


# --- names ----------------------------------------------------------------------------------------


def _processes(step: Estimate) -> list[int]:
    ranks = step.breakdown.ranks or tuple((one,) for one in step.breakdown.forwards)
    return sorted({forward.rank or 0 for ranks_of in ranks for forward in ranks_of})


def _names(events: list[Event], step: Estimate) -> Iterator[Event]:
    """Metadata that names processes and threads, and puts threads into order."""
    mapping = ", ".join(f"{name}={size}" for name, size in step.plan.parallel.named().items())
    alike = len({event["pid"] for event in events}) == 1
    threads = sorted({(event["pid"], event["tid"]) for event in events})
    for process in sorted({process for process, _ in threads}):
        who = f"every rank ({mapping}: all alike)" if alike else f"rank {process - 1} ({mapping})"
        first = process * THREADS_OF_PROCESS + STEPS.first
        yield _named("process_name", process, first, {"name": f"{step.hardware.name}, {who}"})
        yield _named("process_sort_index", process, first, {"sort_index": process})
    for process, thread in threads:
        number = thread % THREADS_OF_PROCESS
        kind = next(one for one in THREADS if number >= one.first)
        name = kind.numbered(number - kind.first)
        yield _named("thread_name", process, thread, {"name": name})
        yield _named("thread_sort_index", process, thread, {"sort_index": number})


def _named(what: str, process: int, thread: int, said: dict[str, Any]) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": said}


def _about(steps: list[Estimate]) -> dict[str, Any]:
    """What a reader needs to know of the whole."""
    first = steps[0]
    upper = sum(step.band_s[1] for step in steps)
    return {
        "library": f"aisim_v41 {__version__}",
        "model": first.plan.model.name,
        "hardware": first.hardware.name,
        "parallel": first.plan.parallel.named(),
        "policy": first.plan.policy.name,
        "method": first.method,
        "steps": len(steps),
        "latency_ms": sum(step.latency_s for step in steps) / MILLISECOND,
        "band_ms": [
            sum(step.band_s[0] for step in steps) / MILLISECOND,
            None if upper == float("inf") else upper / MILLISECOND,
        ],
        "warnings": sorted({warning for step in steps for warning in step.warnings}),
        "note": "An estimate, not a recording. Kernels of a late host are drawn one after another "
        "and what they wait for it together at the end.",
    }
