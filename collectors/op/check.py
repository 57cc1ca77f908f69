"""Whether results can be believed: a table of rules, each a function from results to findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from collectors.case import Case
from collectors.errors import InputError
from collectors.journal import difference, read_journal
from collectors.nvml import SLOWING
from collectors.op.kinds.registry import KINDS
from collectors.op.peaks import least_seconds, peaks_of
from collectors.op.results import INVALID, OK, Result
from collectors.op.run import latest
from collectors.plan_file import PlanFile

ERROR, NOTE = "error", "note"
SPREAD_BOUND = 0.10
"""(p90 - p10) / median above which a time is not qualified."""
FALLS = 0.03
"""A larger case of a line that is faster by more than this contradicts the smaller one."""
AGREE = 0.10
"""Two times of one case that differ by more than this contradict each other."""
CLOCK_DROP = 0.05
"""Clocks after a case lower than before it by more than this are worth a note."""
SIZES_OF_WORK = ("rows", "keys_per_row", "positions_per_row", "message_bytes")
"""Sizes along which more is never less work."""
NEEDED = ("gpu", "device", "driver", "cuda", "packages", "image")
"""Fields of a machine without which its results cannot be told from another's."""
NOT_STATED = ("", "not stated", "not known", "unknown")


class Finding(NamedTuple):
    """What a rule found."""

    severity: str
    rule: str
    where: str
    said: str


@dataclass(frozen=True)
class Run:
    """Results of a file.

    Attributes:
        name: of the file.
        header: what its results share.
        results: every line, oldest first.
    """

    name: str
    header: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def gpu(self) -> str:
        """Name of the GPU."""
        return str(self.header.get("machine", {}).get("gpu", ""))

    @property
    def timed(self) -> list[Result]:
        """The newest good result of every case."""
        return [one for one in latest(iter(self.results)).values() if one.status == OK]


def read_run(path: Path) -> Run:
    """Results of a file.

    Raises:
        InputError: it is not one of operators' results, or a line is not one.
    """
    header, records = read_journal(path)
    if header.get("kind") != "op" or not isinstance(header.get("machine"), dict):
        raise InputError(f"{path}: not a file of operators' results")
    results = []
    for number, record in enumerate(records, 2):
        try:
            results.append(Result.from_dict(record))
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
    return Run(path.name, header, results)


def checked(paths: Sequence[Path], plan: PlanFile | None = None) -> list[Finding]:
    """What every rule finds in some files, errors first.

    Raises:
        InputError: a file is not one of operators' results.
    """
    runs = [read_run(path) for path in paths]
    found = [finding for rule in RULES.values() for finding in rule(runs)]
    if plan is not None:
        found += _unfinished(runs, plan)
    return sorted(found, key=lambda finding: (finding.severity != ERROR, finding.rule))


def _spread(runs: Sequence[Run]) -> Iterator[Finding]:
    """Samples of a case lie too far apart, twice."""
    for run in runs:
        for result in run.timed:
            spread = _number(result, "spread")
            if spread > SPREAD_BOUND:
                yield Finding(NOTE, "spread", f"{run.name}: {result.asked}",
                              f"p10 to p90 is {spread:.0%} of the median")  # fmt: skip


def _bound(runs: Sequence[Run]) -> Iterator[Finding]:
    """A time is shorter than the work takes at peak."""
    for run in runs:
        peaks = peaks_of(run.gpu)
        if peaks is None:
            continue
        for result in run.timed:
            kind = KINDS.get(result.case.operator)
            if kind is None:
                continue
            least_us = least_seconds(kind.work(result.case), peaks) * 1e6
            if _is_cold(result) and _number(result, "median_us") < least_us:
                yield Finding(ERROR, "bound", f"{run.name}: {result.asked}",
                              f"{_number(result, 'median_us'):.2f} us, its work takes "
                              f"{least_us:.2f} at peak")  # fmt: skip


def _duplicates(runs: Sequence[Run]) -> Iterator[Finding]:
    """A case was timed more than once under one identity; far apart is a contradiction."""
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        for result in run.results:
            if result.status == OK:
                seen[(identity_text(run, result), result.case.text)].append(
                    _number(result, "median_us")
                )
    for (_, text), times in seen.items():
        if len(times) > 1:
            apart = max(times) / min(times) - 1 if min(times) > 0 else 0.0
            severity = ERROR if apart > AGREE else NOTE
            yield Finding(severity, "duplicates", text, f"timed {len(times)} times, the longest "
                          f"{apart:.0%} above the shortest")  # fmt: skip


def _monotone(runs: Sequence[Run]) -> Iterator[Finding]:
    """More work along a line is faster by more than noise."""
    for run in runs:
        lines: dict[tuple[str, str], list[tuple[float, Result]]] = defaultdict(list)
        for result in run.timed:
            for size in SIZES_OF_WORK:
                if size in result.case.sizes:
                    rest = _without(result.case, size)
                    key = (f"{size} of {rest}", identity_text(run, result))
                    lines[key].append((float(result.case.sizes[size]), result))
        for along in lines.values():
            along.sort(key=lambda entry: entry[0])
            for (_, below), (_, above) in pairwise(along):
                less, more = _number(below, "median_us"), _number(above, "median_us")
                if more < (1 - FALLS) * less:
                    said = f"{more:.2f} us, less than {less:.2f} of {below.asked}"
                    yield Finding(NOTE, "monotone", f"{run.name}: {above.asked}", said)


def _identity(runs: Sequence[Run]) -> Iterator[Finding]:
    """Something that tells results apart is not stated, or files differ in it."""
    for run in runs:
        machine = run.header["machine"]
        for field in NEEDED:
            if machine.get(field) in (None, *NOT_STATED):
                severity = NOTE if field == "image" else ERROR
                yield Finding(severity, "identity", run.name, f"machine.{field} is not stated; "
                              f"{_remedy(field)}")  # fmt: skip
        for result in run.timed:
            if not result.engine or not result.kernel_source:
                yield Finding(ERROR, "identity", f"{run.name}: {result.asked}",
                              "no kernel is named")  # fmt: skip
    for run in runs[1:]:
        apart = difference(runs[0].header["machine"], run.header["machine"])
        if apart is not None:
            yield Finding(NOTE, "identity", run.name, f"machine.{apart[0]} is {apart[2]!r:.80}, "
                          f"{runs[0].name} has {apart[1]!r:.80}: another identity")  # fmt: skip


def _throttled(runs: Sequence[Run]) -> Iterator[Finding]:
    """The GPU slowed down while a case was timed."""
    for run in runs:
        for result in run.timed:
            device = (result.timing or {}).get("device") or {}
            before, after = device.get("before") or {}, device.get("after") or {}
            why = sorted(
                (set(before.get("throttle", ())) | set(after.get("throttle", ()))) & SLOWING
            )
            if why:
                yield Finding(NOTE, "throttled", f"{run.name}: {result.asked}", ", ".join(why))
            first, last = before.get("sm_mhz", 0), after.get("sm_mhz", 0)
            if first and last < (1 - CLOCK_DROP) * first:
                yield Finding(NOTE, "throttled", f"{run.name}: {result.asked}",
                              f"{first} MHz before, {last} after")  # fmt: skip


def _failed(runs: Sequence[Run]) -> Iterator[Finding]:
    """A case has no time; a wrong answer is an error of the kernel or of ours."""
    for run in runs:
        for result in latest(iter(run.results)).values():
            if result.status != OK:
                severity = ERROR if result.status == INVALID else NOTE
                said = result.error.splitlines()[0][:120] if result.error else ""
                yield Finding(severity, result.status, f"{run.name}: {result.asked}", said)


RULES: Mapping[str, Callable[[Sequence[Run]], Iterator[Finding]]] = {
    "spread": _spread,
    "bound": _bound,
    "duplicates": _duplicates,
    "monotone": _monotone,
    "identity": _identity,
    "throttled": _throttled,
    "failed": _failed,
}
"""Every rule, by name."""


def identity_text(run: Run, result: Result) -> str:
    """What must agree before two times of a case may be compared."""
    timing = result.timing or {}
    machine = run.header["machine"]
    fields = [result.engine, result.engine_version, result.kernel_source,
              *(timing.get(name, "") for name in ("execution", "cache_state", "timer")),
              *(machine.get(name, "") for name in ("gpu", "driver", "cuda", "image")),
              sorted(dict(machine.get("packages") or {}).items())]  # fmt: skip
    return repr(fields)


def _unfinished(runs: Sequence[Run], plan: PlanFile) -> Iterator[Finding]:
    done = {result.asked for run in runs for result in run.results}
    left = [planned for planned in plan.cases if planned.case.text not in done]
    if left:
        minutes = sum(planned.minutes for planned in left)
        yield Finding(NOTE, "unfinished", "plan", f"{len(left)} of {len(plan.cases)} cases have no "
                      f"result; {minutes:.0f} minutes by the plan")  # fmt: skip


def _without(case: Case, size: str) -> str:
    rest = {name: value for name, value in case.sizes.items() if name not in (size, "touched")}
    return Case(case.operator, rest, case.options).text


def _is_cold(result: Result) -> bool:
    return (result.timing or {}).get("cache_state") == "cold"


def _number(result: Result, name: str) -> float:
    value = (result.timing or {}).get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InputError(f"{result.asked}: timing.{name} is {value!r:.40}, must be a number")
    return float(value)


def _remedy(field: str) -> str:
    if field == "image":
        return "give its digest in AISIM_V41_IMAGE before a run"
    return "run again with these programs"
