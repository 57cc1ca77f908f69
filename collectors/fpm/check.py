"""Whether measured forwards can be believed: spread, drift, warm-up, shapes, identity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from collectors.errors import InputError
from collectors.fpm.drive import OK, UNKNOWN
from collectors.journal import read_journal

ERROR, NOTE = "error", "note"
SPREAD = 0.15
"""(longest - shortest) / median of a point's repeats above which it is noted."""
DRIFT = 0.05
"""Last third of a run over its first, by the median of ratios to each point's median."""
WARM_UP = 1.3
RUNS_APART = 0.10
NEEDED = ("model", "version", "tp_size")
"""What an engine must say, or a user must, to tell its forwards from another's."""


class Finding(NamedTuple):
    """What a rule found."""

    severity: str
    rule: str
    where: str
    said: str


@dataclass(frozen=True)
class Forwards:
    """Samples of one process run."""

    name: str
    header: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]

    def timed(self) -> dict[str, list[tuple[int, float]]]:
        """By point: order and seconds of each good sample."""
        found: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for record in self.records:
            times = [seconds_of(sample) for sample in record["samples"] if sample["status"] == OK]
            known = [one for one in times if one is not None]
            if known:
                found[record["point"]].append((record["order"], sum(known)))
        return dict(found)


def seconds_of(sample: Mapping[str, Any]) -> float | None:
    """Seconds of a sample, whatever took it; None where it has none of its own."""
    if "event" in sample:
        return float(sample["event"].get("wall_time", 0.0)) or None
    if "line" in sample:
        value = sample["line"].get("total_latency")
        return float(value) if isinstance(value, (int, float)) else None
    return float(sample.get("seconds", 0.0)) or None


def read_forwards(path: Path) -> Forwards:
    """A file of samples.

    Raises:
        InputError: it is not one.
    """
    header, records = read_journal(path)
    if header.get("kind") != "fpm":
        raise InputError(f"{path}: not a file of forwards")
    for number, record in enumerate(records, 2):
        samples = record.get("samples")
        if not isinstance(samples, list) or not samples or not isinstance(record.get("point"), str):
            raise InputError(f"{path}, line {number}: not a sample of a point")
    return Forwards(path.name, header, records)


def checked(paths: Sequence[Path]) -> list[Finding]:
    """What there is to say of some files, errors first."""
    runs = [read_forwards(path) for path in paths]
    found = [finding for one in runs for finding in _of_run(one)]
    found += _between(runs)
    return sorted(found, key=lambda finding: (finding.severity != ERROR, finding.rule))


def _of_run(one: Forwards) -> list[Finding]:
    found: list[Finding] = []
    timed = one.timed()
    for point, samples in timed.items():
        times = [seconds for _, seconds in samples]
        middle = median(times)
        if (max(times) - min(times)) / middle > SPREAD:
            said = f"{min(times) * 1e3:.2f} to {max(times) * 1e3:.2f} ms"
            found.append(Finding(NOTE, "spread", f"{one.name}: {point}", said))
        if len(times) > 2 and times[0] > WARM_UP * median(times[1:]):
            said = f"the first sample is {times[0] / median(times[1:]):.1f} times the others"
            found.append(Finding(NOTE, "warm_up", f"{one.name}: {point}", said))
    ratios = sorted((order, seconds / median([s for _, s in samples]))
                    for samples in timed.values() for order, seconds in samples)  # fmt: skip
    third = len(ratios) // 3
    if third >= 3:
        drift = median(r for _, r in ratios[-third:]) / median(r for _, r in ratios[:third]) - 1
        if abs(drift) > DRIFT:
            found.append(Finding(NOTE, "drift", one.name, f"the end is {drift:+.0%} to the start"))
    for record in one.records:
        for sample in record["samples"]:
            if sample["status"] != OK:
                rule = "shape" if sample["status"] in (UNKNOWN, "several_forwards") else "failed"
                found.append(Finding(NOTE, rule, f"{one.name}: {record['point']}",
                                     str(sample.get("error", ""))[:120]))  # fmt: skip
            elif _differs(record["point"], sample):
                found.append(Finding(NOTE, "executed", f"{one.name}: {record['point']}",
                                     f"executed {_shape(sample)}"))  # fmt: skip
    said = one.header.get("engine") or {}
    missing = [field for field in NEEDED if not said.get(field)]
    if missing and one.header.get("driver") != "bench_one_batch":
        found.append(Finding(NOTE, "identity", one.name, f"the engine does not say "
                             f"{', '.join(missing)}: give them in the identity file"))  # fmt: skip
    if not timed:
        found.append(Finding(ERROR, "empty", one.name, "no sample has a time"))
    return found


def _between(runs: Sequence[Forwards]) -> list[Finding]:
    found = []
    for one in runs[1:]:
        for field in ("driver", "timer", "engine", "plan"):
            if one.header.get(field) != runs[0].header.get(field):
                found.append(Finding(ERROR, "identity", one.name, f"{field} differs from that of "
                                     f"{runs[0].name}: another identity"))  # fmt: skip
        first, mine = runs[0].timed(), one.timed()
        ratios = [median(s for _, s in mine[p]) / median(s for _, s in first[p])
                  for p in mine if p in first]  # fmt: skip
        if ratios and abs(median(ratios) - 1) > RUNS_APART:
            found.append(Finding(NOTE, "runs", one.name, f"{median(ratios) - 1:+.0%} to "
                                 f"{runs[0].name} in the median"))  # fmt: skip
    names = [one.header.get("run") for one in runs]
    if len(set(names)) < len(names):
        found.append(Finding(ERROR, "identity", runs[0].name, "two files name the same run"))
    return found


def _shape(sample: Mapping[str, Any]) -> str:
    shapes = sample.get("requests") or []
    if not shapes:
        return ""
    first = shapes[0]
    return f"{len(shapes)}x{first['new_tokens']}@{first['prefix_tokens']}"


def _differs(point: str, sample: Mapping[str, Any]) -> bool:
    """Whether a prefill ran otherwise than it was asked for."""
    return point.startswith("prefill") and bool(_shape(sample)) and _shape(sample) not in point
