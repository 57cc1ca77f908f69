"""What `run_claims` answers: one row a figure, as text, frame and plain data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aisim_v41.claims.table import Claim
from aisim_v41.claims.verdict import Value, Verdict, exact, parse_value, show

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100
"""Columns of a terminal that the text fits into."""
_NAME, _NUMBER = 46, 15
_MEANING = {
    Verdict.MISMATCH: "should reproduce and does not, or the reverse: the check fails",
    Verdict.NOT_REPRODUCED: "published and ours differ, or two publications do; does not pass",
    Verdict.MEASURED_ELSEWHERE: "somebody's measurement, ours beside it if any; does not pass",
    Verdict.NOT_YET: "needs a part that a later issue brings",
    Verdict.NOT_COMPUTABLE: "no number is printed, or a policy that no configuration decides",
    Verdict.REPRODUCED: "ours agrees within the stated check",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One published figure and ours.

    Args:
        claim: what was published, where, and what counts as agreement.
        ours: our value in the unit of the claim; None where nothing is computed.
        verdict: what became of it.
        note: why, where it is not simply reproduced.
        difference: (ours - published) / published where that has a meaning.
    """

    claim: Claim
    ours: Value | None
    verdict: Verdict
    note: str
    difference: float | None

    @property
    def published_text(self) -> str:
        """The published value as a person reads it."""
        value = parse_value(self.claim.value) if self.claim.value else None
        return show(value)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data: every field of the claim, then ours and the verdict."""
        claim = {name: getattr(self.claim, name) for name in self.claim.__slots__}
        return {
            **claim,
            "published": _plain(parse_value(self.claim.value)) if self.claim.value else None,
            "ours": None if self.ours is None else _plain(exact(self.ours)),
            "difference": self.difference,
            "verdict": str(self.verdict),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsReport:
    """All rows, in the order of the list."""

    rows: tuple[ClaimRow, ...]

    @property
    def ok(self) -> bool:
        """Whether no row is a mismatch."""
        return not self.of(Verdict.MISMATCH)

    @property
    def counts(self) -> dict[Verdict, int]:
        """Rows by verdict."""
        return {verdict: len(self.of(verdict)) for verdict in Verdict}

    def of(self, verdict: Verdict) -> tuple[ClaimRow, ...]:
        """Rows with one verdict."""
        return tuple(row for row in self.rows if row.verdict is verdict)

    def to_frame(self) -> pd.DataFrame:
        """One row a claim: the fields of `Claim`, then published, ours, difference, verdict, note.

        ``published`` and ``ours`` are numbers, lists of numbers, words or None.
        """
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "ok": self.ok,
            "counts": {str(verdict): count for verdict, count in self.counts.items()},
            "claims": [row.to_dict() for row in self.rows],
        }

    def to_text(self) -> str:
        """The report for a terminal of 100 columns, what failed first."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)
        yield from _wrapped(f"{len(self.rows)} published figures: {counts}.")
        for verdict in Verdict:
            rows = self.of(verdict)
            if not rows:
                continue
            yield ""
            yield from _wrapped(f"{verdict.value.upper()} ({len(rows)}): {_MEANING[verdict]}")
            yield _columns("claim and quantity", "published", "ours", "unit")
            ordered = sorted(rows, key=lambda row: row.claim.topic)
            for topic, group in groupby(ordered, key=lambda row: row.claim.topic):
                yield f" {topic}"
                yield from _topic(tuple(group))
        yield ""
        yield "ok: every row is what the list says" if self.ok else "FAILED: see MISMATCH above"


def _topic(rows: tuple[ClaimRow, ...]) -> Iterator[str]:
    """Rows of one topic; a note or source that neighbours share is printed after the last."""
    for source, of_source in groupby(rows, key=lambda row: row.claim.source):
        for note, group in groupby(of_source, key=lambda row: row.note):
            for row in group:
                name = f"{row.claim.id} {row.claim.quantity}"
                yield _columns(name, row.published_text, show(row.ours), row.claim.unit)
            yield from _wrapped(note, indent=6)
        yield from _wrapped(f"source: {source}", indent=6)


def _columns(name: str, published: str, ours: str, unit: str) -> str:
    return f"  {name:<{_NAME}} {published:>{_NUMBER}} {ours:>{_NUMBER}} {unit}".rstrip()


def _wrapped(text: str, *, indent: int = 0) -> Iterator[str]:
    pad = " " * indent
    return iter(textwrap.wrap(text, WIDTH, initial_indent=pad, subsequent_indent=pad))


def _plain(value: Any) -> Any:
    """Exact numbers as int or float, one alone or in a list; words as they are."""
    if isinstance(value, str):
        return value
    numbers = [number.numerator if number.denominator == 1 else float(number) for number in value]
    return numbers[0] if len(numbers) == 1 else numbers
