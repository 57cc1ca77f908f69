"""How rows of a call share requests, and how many keys each of them sees.

A case gives means; what a kernel runs is made from them here, in one way, so that its least work
and its inputs agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kind import SizeRule

DECODE_ROWS = 512
"""Rows of the largest captured decode step; beyond, rows are taken to be of one prompt."""

ROWS = SizeRule("rows", "rows of the call", highest=1 << 20)
ROWS_PER_REQUEST = SizeRule(
    "rows_per_request",
    f"consecutive rows of one request, which read the same keys; 0: 1 up to {DECODE_ROWS} rows, "
    "as in decode, all of them beyond, as in a prefill",
    lowest=0, default=0,
)  # fmt: skip


@dataclass(frozen=True)
class Requests:
    """Rows of a call by request.

    Attributes:
        count: requests.
        rows: consecutive rows of each.
    """

    count: int
    rows: int


def requests_of(case: Case) -> Requests:
    """The requests that the rows of a case belong to.

    Raises:
        InputError: rows are no multiple of the rows of a request.
    """
    rows, each = case.whole("rows"), case.whole("rows_per_request")
    if each == 0:
        each = 1 if rows <= DECODE_ROWS else rows
    if rows % each:
        raise InputError(f"case {case.text}: rows must be a multiple of rows_per_request")
    return Requests(rows // each, each)


def whole_parts(mean: float, rows: int) -> list[int]:
    """Whole numbers with a mean: they differ by at most one and are spread evenly."""
    return [int(mean * (row + 1)) - int(mean * row) for row in range(rows)]


@dataclass(frozen=True)
class Ramp:
    """Positions that consecutive rows of a request see: each row as many as the one before, or
    more by ``step``; their mean is that of the case.

    Attributes:
        first: positions of the first row.
        step: what a row adds: 1, or less where the mean asks for it (compressed entries).
        rows: rows of the request.
    """

    first: float
    step: float
    rows: int

    @property
    def last(self) -> int:
        """Positions of the last row, and so the distinct ones of the request."""
        return self.count(self.rows - 1)

    def count(self, row: int) -> int:
        """Positions of one row."""
        return max(1, int(self.first + self.step * row + 0.5))


def ramp_of(case: Case, requests: Requests) -> Ramp:
    """Causal positions of the rows of each request.

    Raises:
        InputError: fewer than one position a row.
    """
    mean = float(case.size("positions_per_row"))
    if mean < 1:
        raise InputError(f"case {case.text}: positions_per_row must be 1 or more")
    if requests.rows == 1:
        return Ramp(mean, 0.0, 1)
    step = min(1.0, 2.0 * (mean - 1.0) / (requests.rows - 1))
    return Ramp(mean - step * (requests.rows - 1) / 2.0, step, requests.rows)
