"""What a case is worth: the share of a workload's uncertainty that measuring it removes.

A step's uncertainty is the sum, over its operators, of their share of the time and the error of
what their time rests on today. A line of cases removes that of its operator; its ends remove half
of it, and every halving of the gaps half of what is left.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kinds.registry import KINDS
from collectors.op.peaks import Peaks, least_seconds
from collectors.op.shapes import Line

LEVEL_SHARE = 0.5
"""Of what a line is worth, that one level of its grid takes of the rest."""
USUAL_ERROR = 0.3
"""90 % error of a kernel's time that no table has, about."""
LEAST_OPERATOR_S = 2e-6
"""No kernel of a step is shorter."""
MAX_FILE_BYTES = 1 << 26


@dataclass(frozen=True)
class Wanted:
    """What a report of `aisim_v41.coverage` misses.

    Attributes:
        case: to be measured.
        weight: its share of the time, times its 90 % error.
    """

    case: Case
    weight: float


def weights_of(lines: Sequence[Line], peaks: Peaks, rows: Sequence[int]) -> dict[str, float]:
    """Share of the uncertainty of each line, by rooflines; they add to 1.

    Args:
        lines: of the model.
        peaks: of the GPU.
        rows: of the steps that are served.
    """
    times: dict[str, float] = {}
    for line in lines:
        kind = KINDS[line.base.operator]
        total = 0.0
        for count in rows:
            sizes = {axis: _typical(axis, count) for axis in line.axes}
            case = kind.complete(line.base.having(**sizes))
            least = least_seconds(kind.work(case), peaks)
            total += line.calls * max(least, LEAST_OPERATOR_S)
        times[line.name] = total
    whole = sum(times.values())
    return {name: value / whole if whole else 0.0 for name, value in times.items()}


def _typical(axis: str, rows: int) -> int:
    return {"rows": rows, "keys_per_row": 640, "positions_per_row": 8192,
            "message_bytes": rows * 10_240}[axis]  # fmt: skip


def level_value(weight: float, level: int, cases: int) -> float:
    """Worth of one of the cases of a level of a line.

    >>> level_value(0.8, 0, 2), level_value(0.8, 1, 1)
    (0.2, 0.2)
    """
    return weight * LEVEL_SHARE ** (level + 1) / max(cases, 1)


def read_coverage(path: Path) -> tuple[list[Wanted], list[dict[str, str]]]:
    """Cases that a report misses, and entries that are no case of ours, with the reason.

    Args:
        path: JSON as ``aisim-v41 coverage --json`` prints it, or CSV with the same columns.

    Raises:
        InputError: it is no such report; names the entry.
    """
    try:
        raw = path.read_bytes()[: MAX_FILE_BYTES + 1]
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"{path}: larger than {MAX_FILE_BYTES} bytes: not a report of coverage")
    wanted, skipped = [], []
    for place, entry in enumerate(_entries(text, path)):
        said = entry.get("collector_case")
        if not said:
            continue
        try:
            case = _known(Case.from_text(str(said)))
        except InputError as error:
            skipped.append({"case": str(said)[:200], "reason": str(error)[:200]})
            continue
        weight = _number(entry, "share", path, place) * _number(entry, "error_p90", path, place)
        wanted.append(Wanted(case, weight))
    return wanted, skipped


def _entries(text: str, path: Path) -> list[Mapping[str, Any]]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({error})") from None
        reports = whole if isinstance(whole, list) else [whole]
        found: list[Any] = []
        for report in reports:
            kernels = report.get("kernels") if isinstance(report, dict) else None
            found += kernels if isinstance(kernels, list) else [report]
        if not all(isinstance(entry, dict) for entry in found):
            raise InputError(f"{path}: a report of coverage is a list of kernels")
        return found
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows or "collector_case" not in rows[0]:
        raise InputError(f"{path}: neither JSON nor CSV with a column collector_case")
    return list(rows)


def _known(case: Case) -> Case:
    """The case in our terms: without how it is timed, and without what is an outcome.

    Raises:
        InputError: no kind has it.
    """
    if case.operator not in KINDS:
        raise InputError(f"case {case.text}: no operator {case.operator} among the kinds")
    dropped = ("execution", "cache_state", "timer", "touched")
    sizes = {n: _rounded(v) for n, v in case.sizes.items() if n not in dropped}
    options = {n: w for n, w in case.options.items() if n not in dropped}
    if case.operator in _ENGINE_LIBRARIES:
        options["library"] = "nccl"
    return KINDS[case.operator].complete(Case(case.operator, sizes, options))


_ENGINE_LIBRARIES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""An engine's own collective has no kind; NCCL's is timed beside it."""


def _rounded(value: float) -> float:
    return round(value, 1) if isinstance(value, float) else value


def _number(entry: Mapping[str, Any], name: str, path: Path, place: int) -> float:
    try:
        value = float(entry[name])
    except (KeyError, TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{path}, kernel {place}: {name} is {entry.get(name)!r:.40}, must be a "
                         "number, 0 or more")  # fmt: skip
    return value
