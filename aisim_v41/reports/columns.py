"""A table as plain lines, for text that other tools may read too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> list[str]:
    """Lines of a table: the first ``words`` columns to the left, numbers to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
