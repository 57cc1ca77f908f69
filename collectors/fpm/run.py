"""Running a plan of forwards: warm-up, then A B C, A B C, each sample on the disk at once."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from collectors.errors import InputError
from collectors.fpm.bench import lines_of
from collectors.fpm.drive import FAILED, OK, Prompts, Sample, measure
from collectors.fpm.engine import Engine
from collectors.fpm.events import Events
from collectors.fpm.points import ForwardsPlan, Point
from collectors.journal import Journal

HTTP, EVENTS, BENCH = DRIVERS = ("http", "events", "bench_one_batch")
TIMERS = {HTTP: "http", EVENTS: "scheduler_wall", BENCH: "sync_wall"}
"""Between which moments a time was taken, as `aisim_v41.forwards.identity` names it."""
SIGNAL_BASE = 128
Ask = Callable[[Point], "list[dict[str, Any]]"]


@dataclass
class Told:
    """How far a run is: samples that are there, wanted, by status; the signal that ended it."""

    done: int = 0
    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    last: str = ""
    stopped: int = 0


def run(
    plan: ForwardsPlan,
    results: Path,
    *,
    driver: str,
    facts: Mapping[str, Any],
    ask: Ask,
    run_name: str,
    tell: Callable[[Told], None] = lambda _: None,
) -> Told:
    """Ask for every point so often, in rounds; goes on with a file that is there.

    Args:
        plan: points, repeats and warm-ups.
        results: one file a process run of the engine.
        driver: one of `DRIVERS`.
        facts: of the engine; they must be those that the file was begun with.
        ask: from a point to records of what was executed.
        run_name: of this process run.
        tell: hears of every sample.

    Raises:
        ConflictError: the file is of another plan, engine or run, or in use.
        WriteError: a sample cannot be written.
    """
    header = {
        "kind": "fpm", "plan": plan.digest, "driver": driver, "timer": TIMERS[driver],
        "engine": dict(facts), "run": run_name,
    }  # fmt: skip
    wanted = [(turn, place) for turn in range(plan.repeats) for place in range(len(plan.points))]
    with _stoppable() as stop, Journal.resume(results, header) as journal:
        there = {(record["round"], record["place"]) for record in journal.records}
        told = Told(len(there), len(wanted))
        for record in journal.records:
            told.counts[record["samples"][0]["status"]] += 1
        left = [entry for entry in wanted if entry not in there]
        for _ in range(plan.warm_ups if left else 0):
            for point in plan.points:
                if stop.signal:
                    break
                ask(point)
        for turn, place in left:
            if stop.signal:
                break
            point = plan.points[place]
            samples = ask(point)
            if stop.signal:
                break
            journal.append({"round": turn, "place": place, "point": point.name,
                            "order": len(journal.records), "samples": samples})  # fmt: skip
            told.done += 1
            told.counts[samples[0]["status"]] += 1
            told.last = f"{point.name}: {_said(samples)}"
            tell(told)
        told.stopped = stop.signal
    return told


def by_http(engine: Engine, prompts: Prompts, facts: dict[str, Any]) -> Ask:
    """Ask a server, timed over HTTP."""
    return lambda point: [measure(engine, point, prompts, facts).to_dict()]


def by_events(engine: Engine, prompts: Prompts, facts: dict[str, Any], events: Events) -> Ask:
    """Ask a server, timed by its scheduler: every iteration that a point caused."""

    def ask(point: Point) -> list[dict[str, Any]]:
        events.new(quiet_s=0.0)
        sample = measure(engine, point, prompts, facts)
        messages = events.new()
        if sample.status == FAILED:
            return [sample.to_dict()]
        if not messages:
            return [Sample(FAILED, error="no event came: is the listener running?").to_dict()]
        return [{"status": OK, "event": message} for message in messages]

    return ask


def by_bench(command: str) -> Ask:
    """Run SGLang's bench of one batch."""

    def ask(point: Point) -> list[dict[str, Any]]:
        try:
            lines = lines_of(command, point)
        except InputError as error:
            return [Sample(FAILED, error=str(error)).to_dict()]
        if not lines:
            return [Sample(FAILED, error="no JSON line came").to_dict()]
        return [{"status": OK, "line": line} for line in lines]

    return ask


def _said(samples: list[dict[str, Any]]) -> str:
    first = samples[0]
    if first["status"] != OK:
        return f"{first['status']} {first.get('error', '')}"[:100]
    if "seconds" in first:
        return f"{first['seconds'] * 1000:.2f} ms"
    return f"{len(samples)} records"


class _Stop:
    """Whether a signal asked the run to end; a second one ends it at once."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self.signal:
            raise SystemExit(SIGNAL_BASE + number)
        self.signal = number


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
