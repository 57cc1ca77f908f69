"""The list of cases to run, with what each costs and is worth, as a JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from collectors.case import Case
from collectors.errors import InputError
from collectors.writing import reason, replace_file

FORMAT = "aisim_v41 collection plan"
VERSION = 1
MAX_FILE_BYTES = 1 << 28
_NUMBERS = ("minutes", "memory_bytes", "value", "sol_us")


@dataclass(frozen=True)
class PlannedCase:
    """A case of a plan.

    Attributes:
        case: what is timed.
        minutes: that it is expected to take, set-up and check of the answer included.
        memory_bytes: that it needs at its peak, on one GPU [B].
        value: share of the workload's uncertainty that it removes.
        sol_us: the least time of one call on the GPU of the plan [us]; 0 where that is not known.
        line: cases of one line differ in sizes that are interpolated over.
    """

    case: Case
    minutes: float
    memory_bytes: float
    value: float
    sol_us: float
    line: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {"case": self.case.text, **numbers, "line": self.line}


@dataclass(frozen=True)
class PlanFile:
    """A plan.

    Attributes:
        header: model, mapping, policy, workload, GPU: what the cases are for.
        cases: in the order in which they should run.
        skipped: cases that were left out, with the reason.
    """

    header: Mapping[str, Any]
    cases: Sequence[PlannedCase]
    skipped: Sequence[Mapping[str, str]] = field(default=())

    @property
    def digest(self) -> str:
        """Of the header and the set of cases; their order and costs do not count."""
        cases = sorted(planned.case.text for planned in self.cases)
        return sha256(_canonical({"header": dict(self.header), "cases": cases})).hexdigest()

    def write(self, path: Path) -> None:
        """Write the plan.

        Raises:
            WriteError: it cannot be written.
        """
        whole = {
            "format": FORMAT,
            "version": VERSION,
            "digest": self.digest,
            "header": dict(self.header),
            "cases": [planned.to_dict() for planned in self.cases],
            "skipped": [dict(one) for one in self.skipped],
        }
        replace_file(path, (json.dumps(whole, indent=1) + "\n").encode())

    @staticmethod
    def read(path: Path) -> PlanFile:
        """Read a plan.

        Raises:
            InputError: no such file, or not one of these; the message names the case.
        """
        try:
            with path.open("rb") as stream:
                raw = stream.read(MAX_FILE_BYTES + 1)
            whole = json.loads(raw) if len(raw) <= MAX_FILE_BYTES else None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason(error)})") from None
        except (ValueError, RecursionError) as bad:
            raise InputError(f"{path}: not a plan ({bad})") from None
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise InputError(f"{path}: not a plan: it must say {FORMAT!r}")
        if whole.get("version") != VERSION:
            raise InputError(f"{path}: version {whole.get('version')!r:.40}, this is {VERSION}")
        header, cases, skipped = (whole.get(name) for name in ("header", "cases", "skipped"))
        if not isinstance(header, dict) or not isinstance(cases, list):
            raise InputError(f"{path}: header and cases are missing")
        planned = [_planned(entry, f"{path}, case {place}") for place, entry in enumerate(cases)]
        texts = [one.case.text for one in planned]
        if len(set(texts)) != len(texts):
            raise InputError(f"{path}: a case occurs twice")
        plan = PlanFile(header, planned, skipped if isinstance(skipped, list) else [])
        if whole.get("digest") != plan.digest:
            raise InputError(f"{path}: its digest is not that of its cases; make the plan again")
        return plan


def _planned(entry: Any, where: str) -> PlannedCase:
    if not isinstance(entry, dict):
        raise InputError(f"{where}: must be an object")
    numbers = {}
    for name in _NUMBERS:
        value = entry.get(name, 0.0)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value < 0:
            raise InputError(f"{where}: {name} must be a number, 0 or more; found {value!r:.40}")
        numbers[name] = float(value)
    return PlannedCase(
        case=Case.from_text(entry.get("case")), line=str(entry.get("line", "")), **numbers
    )


def _canonical(value: Any) -> bytes:
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False).encode()
    except ValueError as bad:
        raise InputError(f"a plan's header must be plain data ({bad})") from None
