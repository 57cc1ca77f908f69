"""Names of kernels to operators: patterns kept as data, the first that is found decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from aisim_v41 import resources
from aisim_v41.errors import SchemaError
from aisim_v41.io.traces.kernels import KernelTrace, TracedKernel
from aisim_v41.reading import read_mapping

UNKNOWN = "unknown"
PATH = "deepseek-v4.1-flash/kernels"


@dataclass(frozen=True, slots=True)
class NameRule:
    """A pattern and what it stands for."""

    pattern: re.Pattern[str]
    operator: str
    also: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """What an operator took in a step.

    Attributes:
        operator: `UNKNOWN` for names that no pattern fits.
        also: operators that may be in the same kernels.
        calls: kernels a step, in the median over steps.
        time_us: all of them, in the median over steps [us].
        median_us: of one kernel [us].
        share: of all kernels' time.
        kernels: names, the longest time first.
    """

    operator: str
    also: tuple[str, ...]
    calls: float
    time_us: float
    median_us: float
    share: float
    kernels: tuple[str, ...]


def name_rules(path: Path | None = None) -> tuple[NameRule, ...]:
    """Patterns of a file, or the packaged ones.

    Raises:
        SchemaError: a pattern that is none, or an entry of another form.
    """
    file = path or resources.find("profiles", PATH, ".yaml")
    return _read(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _read(file: Path, _stamp: int) -> tuple[NameRule, ...]:
    whole = read_mapping(file)
    entries, sources = whole.get("patterns"), whole.get("sources")
    if not isinstance(entries, list) or not isinstance(sources, dict) or not entries:
        raise SchemaError(f"{file}: must have sources, and a list of patterns")
    return tuple(_rule(entry, sources, f"{file}, pattern {place}")
                 for place, entry in enumerate(entries, 1))  # fmt: skip


def _rule(entry: Any, sources: Mapping[str, Any], where: str) -> NameRule:
    if not isinstance(entry, dict) or not set(entry) <= {"pattern", "operator", "source", "also"}:
        raise SchemaError(f"{where}: must have pattern, operator and source, and may have also")
    also = entry.get("also", [])
    texts = [entry.get(name) for name in ("pattern", "operator", "source")]
    if not all(isinstance(text, str) for text in [*texts, *also]):
        raise SchemaError(f"{where}: pattern, operator, source and also must be text")
    if entry["source"] not in sources:
        raise SchemaError(f"{where}: source {entry['source']!r} is not among {sorted(sources)}")
    try:
        pattern = re.compile(entry["pattern"])
    except re.error as bad:
        raise SchemaError(f"{where}: not a regular expression ({bad})") from None
    return NameRule(pattern, entry["operator"], tuple(also), entry["source"])


def operator_of(name: str, rules: Iterable[NameRule]) -> NameRule | None:
    """The rule of a kernel's name; None where none fits."""
    return next((rule for rule in rules if rule.pattern.search(name)), None)


def by_operator(
    trace: KernelTrace,
    *,
    named: str | None = None,
    device: int = 0,
    rules: Iterable[NameRule] | None = None,
) -> tuple[list[OperatorTime], int]:
    """Time of each operator in a step, longest first, and how many steps there were.

    Args:
        trace: kernels of a file.
        named, device: which steps, as in `KernelTrace.steps`.
        rules: from `name_rules`; the packaged ones by default.

    Raises:
        InvalidInputError: no such step.
    """
    known = tuple(name_rules() if rules is None else rules)
    steps = trace.steps(named=named, device=device)
    found: dict[str, NameRule | None] = {}
    grouped: dict[str, list[list[TracedKernel]]] = {}
    also: dict[str, set[str]] = {}
    for place, step in enumerate(steps):
        for kernel in step:
            if kernel.name not in found:
                found[kernel.name] = operator_of(kernel.name, known)
            rule = found[kernel.name]
            operator = UNKNOWN if rule is None else rule.operator
            also.setdefault(operator, set()).update(() if rule is None else rule.also)
            per_step = grouped.setdefault(operator, [[] for _ in steps])
            per_step[place].append(kernel)
    times = {
        operator: median(sum(kernel.duration_us for kernel in step) for step in per_step)
        for operator, per_step in grouped.items()
    }
    whole = sum(times.values()) or 1.0
    rows = []
    for operator, per_step in grouped.items():
        every = [kernel for step in per_step for kernel in step]
        spent: dict[str, float] = {}
        for kernel in every:
            spent[kernel.name] = spent.get(kernel.name, 0.0) + kernel.duration_us
        rows.append(OperatorTime(
            operator=operator, also=tuple(sorted(also[operator])),
            calls=float(median(len(step) for step in per_step)), time_us=times[operator],
            median_us=median(kernel.duration_us for kernel in every),
            share=times[operator] / whole,
            kernels=tuple(sorted(spent, key=lambda name: -spent[name])),
        ))  # fmt: skip
    return sorted(rows, key=lambda row: -row.time_us), len(steps)
