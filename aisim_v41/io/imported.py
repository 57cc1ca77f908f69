"""What an importer hands back: records, and everything that did not become one, with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from aisim_v41.forwards.records import StepRecord

Hint = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a source that became no record.

    Attributes:
        place: File and line, row or entry.
        reason: Why.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one source held.

    Attributes:
        records: Measured forwards, in the order of the source.
        skipped: Every line, row or entry that is none, with its reason.
        build_hints: What the source, or the caller, says of the build: fields of
            `aisim_v41.forwards.identity.Build` under their names, ``gpu``, sizes of the mapping
            (``tp``, ``dp``, ...), and everything else as ``settings.<name>``. Hints, because no
            source knows all; who measured confirms them.
        remarks: How the numbers were read, and what a reader may misread.
    """

    records: tuple[StepRecord, ...]
    skipped: tuple[Skipped, ...]
    build_hints: Mapping[str, Hint]
    remarks: tuple[str, ...]

    def reasons(self) -> dict[str, int]:
        """How often each reason for skipping occurred, most frequent first."""
        return dict(Counter(entry.reason for entry in self.skipped).most_common())


@dataclass(slots=True)
class RunNames:
    """Names of the process runs in one source, where the caller gave a name.

    Each run keeps its name when the source grows.

    Example:
        >>> names = RunNames("monday")
        >>> [names.of(own) for own in ("w", "w", "w#2", "w")]
        ['monday', 'monday', 'monday#2', 'monday']
        >>> RunNames(None).of("w")
        'w'
    """

    given: str | None
    places: dict[str, int] = field(default_factory=dict)

    def of(self, own: str) -> str:
        """The name of a run that the source calls by a name of its own."""
        if not self.given:
            return own
        place = self.places.setdefault(own, len(self.places) + 1)
        return self.given if place == 1 else f"{self.given}#{place}"
