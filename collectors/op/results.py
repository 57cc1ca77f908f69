"""What became of a case: one line of a journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.case import Case
from collectors.errors import InputError

OK, OOM, UNSUPPORTED, FAILED, INVALID, TIMEOUT = STATUSES = (
    "ok", "oom", "unsupported", "failed", "invalid", "timeout",
)  # fmt: skip
"""``invalid``: the answer differs from the reference, and so was not timed; ``unsupported``: this
machine, engine or kernel cannot run it; ``failed``: an error or a crash."""
MAX_ERROR = 2000
"""Longest text of an error [characters]."""
_TEXTS = ("asked", "engine", "kernel_source", "engine_version", "error")


@dataclass(frozen=True)
class Result:
    """A case that was tried.

    Attributes:
        case: with its defaults filled in, and without words that say how to time it.
        asked: text of the case as the plan has it.
        status: one of `STATUSES`.
        engine, kernel_source, engine_version: whose kernel ran; empty where none was found.
        timing: as `collectors.timing.Timing.to_dict`; only where the status is ok.
        difference: of the answer from the reference, relative to its size.
        outcome: what the inputs turned out to be, such as the experts that were touched.
        seconds: that setting up, checking and timing took.
        error: what went wrong.
    """

    case: Case
    status: str
    asked: str = ""
    engine: str = ""
    kernel_source: str = ""
    engine_version: str = ""
    timing: Mapping[str, Any] | None = None
    difference: float | None = None
    outcome: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise InputError(f"status {self.status!r:.40}: must be one of {', '.join(STATUSES)}")
        if (self.timing is not None) != (self.status == OK):
            raise InputError(
                f"case {self.case.text}: {self.status} with timing {self.timing!r:.80}"
            )
        object.__setattr__(self, "error", self.error[:MAX_ERROR])
        object.__setattr__(self, "asked", self.asked or self.case.text)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "case": self.case.text,
            "status": self.status,
            **{name: getattr(self, name) for name in _TEXTS},
            "timing": None if self.timing is None else dict(self.timing),
            "difference": self.difference,
            "outcome": dict(self.outcome),
            "seconds": dict(self.seconds),
        }

    @staticmethod
    def from_dict(entry: Mapping[str, Any]) -> Result:
        """Read plain data.

        Raises:
            InputError: it is not what `to_dict` gives.
        """
        if not isinstance(entry, Mapping):
            raise InputError(f"a result must be an object, found {entry!r:.80}")
        texts = {name: entry.get(name, "") for name in _TEXTS}
        maps = {name: entry.get(name, {}) for name in ("outcome", "seconds")}
        timing, difference = entry.get("timing"), entry.get("difference")
        good = (
            all(isinstance(text, str) for text in texts.values())
            and all(isinstance(one, Mapping) for one in maps.values())
            and (timing is None or isinstance(timing, Mapping))
            and (difference is None or isinstance(difference, (int, float)))
        )
        if not good:
            raise InputError(f"a field of a result has another form: {dict(entry)!r:.200}")
        case = Case.from_text(entry.get("case", ""))
        status = entry.get("status", "")
        return Result(case, status, **texts, timing=timing, difference=difference, **maps)
