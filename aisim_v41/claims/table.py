"""The list of published figures: ``profiles/deepseek-v4.1-flash/claims.csv``, read as data.

One row a figure: what was said, where, with which unit and conditions, how it is recomputed, what
counts as agreement, and what the row is expected to turn out to be. The file holds no result of
this library; ``independent`` is an arithmetic that others did apart from it, and guards rows in
which the published figure itself does not reproduce.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from aisim_v41.claims.verdict import (
    PRINTED_DIGITS,
    STATED,
    Check,
    Parsed,
    Verdict,
    parse_value,
)
from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.resources import find
from aisim_v41.units import MIB

FOLDER = "profiles"
NAME = "deepseek-v4.1-flash/claims"
SUFFIX = ".csv"
MAX_FILE_BYTES = MIB
CONFIDENCES = ("A", "B", "C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One published figure; every field is the text of the file.

    Args:
        id: short name, unique.
        topic: group in the report.
        statement: what the source says, in our words.
        quantity: what is compared.
        value: as published, several numbers separated by ``;``; empty: no number is printed.
        unit: of the value.
        conditions: under which it holds.
        how: how it is recomputed.
        check: what counts as agreement; empty: nothing is compared.
        expected: what the row turns out to be, a `Verdict` other than mismatch.
        reason: why it is not reproduced, not computable, or what it waits for.
        independent: the same quantity by an arithmetic apart from this library.
        independent_check: agreement with that; empty: ten digits.
        source: document, section and confidence mark below.
        confidence: A read in code, config or report; B one primary source; C inferred.
    """

    id: str
    topic: str
    statement: str
    quantity: str
    value: str
    unit: str
    conditions: str
    how: str
    check: str
    expected: str
    reason: str
    independent: str
    independent_check: str
    source: str
    confidence: str

    @property
    def published(self) -> Parsed | None:
        """The published value, None where no number is printed."""
        return parse_value(self.value) if self.value else None

    @property
    def agreement(self) -> Check | None:
        """What counts as agreement with the published value."""
        return Check.parse(self.check, where=f"claim {self.id}: check") if self.check else None

    @property
    def expected_verdict(self) -> Verdict:
        """What the row is expected to turn out to be."""
        return STATED[self.expected]

    @property
    def guard(self) -> tuple[Parsed, Check] | None:
        """The independent value and what counts as agreement with it."""
        if not self.independent:
            return None
        text, where = self.independent_check, f"claim {self.id}: independent_check"
        check = Check.parse(text, where=where) if text else PRINTED_DIGITS
        return parse_value(self.independent), check


COLUMNS = tuple(field.name for field in fields(Claim))


def load_claims() -> tuple[Claim, ...]:
    """The packaged list.

    Raises:
        MissingProfileError: the file is not there.
        SchemaError: it is not such a list; the message names line, field and value.
    """
    return read_claims(find(FOLDER, NAME, SUFFIX))


def read_claims(path: Path) -> tuple[Claim, ...]:
    """The list in a file; see `load_claims`."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise MissingProfileError(f"{path.name}: cannot be read ({error.strerror})") from None
    if len(raw) > MAX_FILE_BYTES:
        raise SchemaError(f"{path.name}: larger than {MAX_FILE_BYTES} bytes, not a list of claims")
    try:
        reader = csv.DictReader(io.StringIO(raw.decode("utf-8"), newline=""), strict=True)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"{path.name}: not CSV in UTF-8 ({error})") from None
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise SchemaError(
            f"{path.name}: columns are {', '.join(reader.fieldnames or ())}; "
            f"must be {', '.join(COLUMNS)}"
        )
    claims = tuple(_claim(row, f"{path.name}, row {number}") for number, row in enumerate(rows, 1))
    ids = [claim.id for claim in claims]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise SchemaError(f"{path.name}: id {repeated[0]!r} occurs twice")
    return claims


def _claim(row: Mapping[str, str | None], where: str) -> Claim:
    if any(not isinstance(row.get(column), str) for column in COLUMNS) or len(row) > len(COLUMNS):
        raise SchemaError(f"{where}: must have {len(COLUMNS)} fields")
    claim = Claim(**{column: row[column] or "" for column in COLUMNS})
    where = f"{where} ({claim.id})"
    for column in ("id", "topic", "statement", "quantity", "source"):
        if not getattr(claim, column):
            raise SchemaError(f"{where}: {column} is empty")
    if claim.expected not in STATED:
        raise SchemaError(
            f"{where}: expected = {claim.expected!r}: must be one of {', '.join(STATED)}"
        )
    if claim.confidence not in CONFIDENCES:
        raise SchemaError(
            f"{where}: confidence = {claim.confidence!r}: must be one of {', '.join(CONFIDENCES)}"
        )
    if claim.check:
        Check.parse(claim.check, where=f"{where}: check")
        if not claim.value:
            raise SchemaError(f"{where}: a check, but no published value to compare with")
    if claim.independent_check:
        Check.parse(claim.independent_check, where=f"{where}: independent_check")
    verdict = claim.expected_verdict
    if verdict is Verdict.REPRODUCED and not claim.check:
        raise SchemaError(f"{where}: expected to be reproduced, but has no check")
    if verdict is not Verdict.REPRODUCED and not claim.reason:
        raise SchemaError(f"{where}: expected {claim.expected!r} needs a reason")
    return claim
