"""Running a plan: case after case, each result on the disk before the next begins."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from collectors.case import Case
from collectors.errors import InputError, UnavailableError
from collectors.journal import Journal
from collectors.op.results import FAILED, OK, STATUSES, TIMEOUT, UNSUPPORTED, Result
from collectors.op.workers import WorkerDiedError, Workers
from collectors.plan_file import PlanFile, PlannedCase
from collectors.timing.record import TimingOptions

SIGNAL_BASE = 128
"""Exit code of a process that a signal ended, less the signal."""
LEAST_TIMEOUT_S = 120.0
TIMES_PLANNED = 20.0
"""A case is given up after so many times what the plan says."""
HARNESS_OPTIONS = ("execution", "cache_state", "timer")
"""Words of a case that say how to time it; the run's own options decide them."""


@dataclass(frozen=True)
class RunOptions:
    """How to run a plan.

    Attributes:
        device: ``cpu`` or ``cuda``.
        timing: how to time.
        engine: only kernels of this engine; empty: the best that is here.
        retry: results of these statuses are tried again.
        only: parts of cases' texts; a case must hold one of them. Empty: every case.
        limit_minutes: stop after the case that passes it; 0: no limit.
        timeout_s: for each case; 0: by the plan.
    """

    device: str
    timing: TimingOptions = field(default_factory=TimingOptions)
    engine: str = ""
    retry: Collection[str] = ()
    only: Sequence[str] = ()
    limit_minutes: float = 0.0
    timeout_s: float = 0.0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.retry) - set(STATUSES))
        if unknown:
            raise InputError(f"--retry {unknown[0]}: must be some of {', '.join(STATUSES)}")
        if self.device not in ("cpu", "cuda"):
            raise InputError(f"--device {self.device!r:.40}: must be cpu or cuda")


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        done, total: cases of the plan, those of earlier runs included.
        counts: results by status.
        seconds, planned_seconds: of the cases of this run.
        left_seconds: that the rest is expected to take, at the ratio seen so far.
        last: the newest result.
        stopped: the signal that ended the run; 0: none.
    """

    done: int
    total: int
    counts: dict[str, int]
    seconds: float = 0.0
    planned_seconds: float = 0.0
    left_seconds: float = 0.0
    last: Result | None = None
    stopped: int = 0


Tell = Callable[[Progress], None]


def run(
    plan: PlanFile,
    results: Path,
    options: RunOptions,
    tell: Tell = lambda _: None,
    *,
    command: Sequence[str] = (),
) -> Progress:
    """Run the cases of a plan that have no result yet.

    Args:
        plan: from `PlanFile.read`.
        results: file that gets a line a case; a run that was stopped goes on with it.
        options: how to run.
        tell: hears of every result.
        command: of the processes that run cases, for tests.

    Returns:
        How far it came.

    Raises:
        ConflictError: the file is of another plan, machine or option, or in use.
        UnavailableError: no process comes up on the device.
        WriteError: a result cannot be written.
    """
    with _stoppable() as stop, _pool(options.device, command, stop) as pool:
        try:
            machine = pool.of(1).machine
        except UnavailableError:
            if not stop.signal:
                raise
            return Progress(0, len(plan.cases), dict.fromkeys(STATUSES, 0), stopped=stop.signal)
        with Journal.resume(results, header_of(plan, machine, options)) as journal:
            return _run(plan, journal, options, tell, pool, stop)


def header_of(plan: PlanFile, machine: Mapping[str, Any], options: RunOptions) -> dict[str, Any]:
    """What all results of a file share."""
    timing = options.timing
    return {
        "kind": "op",
        "plan": {"digest": plan.digest, **plan.header},
        "machine": dict(machine),
        "timing": {name: getattr(timing, name) for name in HARNESS_OPTIONS},
        "engine": options.engine or "any",
    }


def _run(
    plan: PlanFile,
    journal: Journal,
    options: RunOptions,
    tell: Tell,
    pool: _Pool,
    stop: _Stop,
) -> Progress:
    tried = latest(Result.from_dict(record) for record in journal.records)
    chosen = [one for one in plan.cases if _is_chosen(one.case, options.only)]
    waiting = [
        one for one in chosen
        if one.case.text not in tried or tried[one.case.text].status in options.retry
    ]  # fmt: skip
    counts = dict.fromkeys(STATUSES, 0)
    for one in chosen:
        if one.case.text in tried and one not in waiting:
            counts[tried[one.case.text].status] += 1
    progress = Progress(len(chosen) - len(waiting), len(chosen), counts)
    progress.left_seconds = 60 * sum(one.minutes for one in waiting)
    for place, planned in enumerate(waiting):
        if stop.signal:
            break
        began = time.monotonic()
        result = _tried(planned, options, pool, stop)
        if result is None:
            break
        journal.append(result.to_dict())
        progress.done += 1
        progress.counts[result.status] += 1
        progress.seconds += time.monotonic() - began
        progress.planned_seconds += 60 * planned.minutes
        rest = 60 * sum(one.minutes for one in waiting[place + 1 :])
        progress.left_seconds = rest * _ratio(progress)
        progress.last = result
        tell(progress)
        if options.limit_minutes and progress.seconds > 60 * options.limit_minutes:
            break
    progress.stopped = stop.signal
    return progress


def latest(results: Iterator[Result]) -> dict[str, Result]:
    """The newest result of every case, by the text that was asked for; one that was timed stays."""
    found: dict[str, Result] = {}
    for result in results:
        text = result.asked
        if text not in found or found[text].status != OK or result.status == OK:
            found[text] = result
    return found


def _tried(planned: PlannedCase, options: RunOptions, pool: _Pool, stop: _Stop) -> Result | None:
    """The result of a case, whatever happens to its processes; None if the run is stopped."""
    case = planned.case
    plain = Case(case.operator, case.sizes,
                 {n: w for n, w in case.options.items() if n not in HARNESS_OPTIONS})  # fmt: skip
    request = {
        "case": plain.text, "timing": options.timing.to_dict(), "engine": options.engine,
    }  # fmt: skip
    timeout_s = options.timeout_s or max(LEAST_TIMEOUT_S, TIMES_PLANNED * 60 * planned.minutes)
    ranks = int(case.sizes.get("ranks", 1))
    try:
        workers = pool.of(ranks)
    except UnavailableError as error:
        return None if stop.signal else _without(planned, plain, UNSUPPORTED, error)
    if stop.signal:
        return None
    stop.workers = workers
    try:
        answer = workers.ask(request, timeout_s)
    except WorkerDiedError as died:
        pool.forget(ranks)
        status = TIMEOUT if died.timed_out else FAILED
        return None if stop.signal else _without(planned, plain, status, died)
    finally:
        stop.workers = None
    return Result.from_dict({**answer, "asked": case.text})


def _without(planned: PlannedCase, plain: Case, status: str, error: Exception) -> Result:
    """The result of a case that no process could answer for."""
    return Result(plain, status, asked=planned.case.text, error=str(error))


def _is_chosen(case: Case, only: Sequence[str]) -> bool:
    return not only or any(part in case.text for part in only)


def _ratio(progress: Progress) -> float:
    """What cases took over what was planned, once enough was seen to say so."""
    if progress.planned_seconds <= 0:
        return 1.0
    return progress.seconds / progress.planned_seconds


class _Pool:
    """The processes in use, by their number of ranks; those that wait do not disturb."""

    def __init__(self, device: str, command: Sequence[str], stop: _Stop) -> None:
        self._device, self._command, self._stop = device, command, stop
        self._workers: dict[int, Workers] = {}

    def of(self, ranks: int) -> Workers:
        """Processes for so many ranks, started if they are not.

        Raises:
            UnavailableError: they do not come up.
        """
        if ranks not in self._workers:
            workers = Workers(ranks, self._device, self._command)
            self._stop.workers = workers
            try:
                workers.start()
            finally:
                self._stop.workers = None
            self._workers[ranks] = workers
        return self._workers[ranks]

    def forget(self, ranks: int) -> None:
        """Processes that died."""
        self._workers.pop(ranks, None)

    def close(self) -> None:
        """End all."""
        for workers in self._workers.values():
            workers.kill()
        self._workers.clear()


@contextmanager
def _pool(device: str, command: Sequence[str], stop: _Stop) -> Iterator[_Pool]:
    pool = _Pool(device, command, stop)
    try:
        yield pool
    finally:
        pool.close()


class _Stop:
    """Whether a signal has asked the run to end; it kills what is running."""

    def __init__(self) -> None:
        self.signal = 0
        self.workers: Workers | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        again, self.signal = bool(self.signal), number
        if self.workers is not None:
            self.workers.interrupt()
        if again:
            raise SystemExit(SIGNAL_BASE + number)


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    """Catch SIGINT and SIGTERM; what was there comes back at the end."""
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
