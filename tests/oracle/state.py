"""What a sequence leaves behind, token by token: entries as they close, rows as they slide out.

Sources: runtime-semantics §0 (entry arithmetic), §3 (pages), §6.1 (rows).
"""

from __future__ import annotations


def entries_of(ratio: int, tokens: int, held: int) -> int:
    """Entries that close behind the held tokens."""
    return sum((position + 1) % ratio == 0 for position in range(held, tokens))


def pages_of(span: int, tokens: int, held: int) -> int:
    """Pages of ``span`` tokens that hold a position the receiver has no whole page of."""
    whole = set(range(held // span))
    return len({position // span for position in range(tokens)} - whole)


def window_of(window: int, tokens: int) -> list[int]:
    """Positions whose window rows are live at the end."""
    live: list[int] = []
    for position in range(tokens):
        live.append(position)
        if len(live) > window:
            live.pop(0)
    return live


def aligned_pages(rows: list[int], page: int) -> int:
    """Pages that begin at multiples of their rows and hold any of these positions."""
    return len({position // page for position in rows})


def open_rows(ratio: int, tokens: int) -> int:
    """Rows that wait for the rest of their group."""
    waiting = 0
    for _ in range(tokens):
        waiting = (waiting + 1) % ratio
    return waiting
