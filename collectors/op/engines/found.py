"""Whose kernels an operator has: those of the engines first, then the collectors' own."""

from __future__ import annotations

from collections.abc import Iterator

from collectors.op.kind import Implementation, Kind

ENGINES: tuple[tuple[str, tuple[Implementation, ...]], ...] = ()
"""Operators, and the kernels that engines have for them."""


def implementations(kind: Kind) -> Iterator[Implementation]:
    """Every implementation of a kind, best first; whether one is here shows when it is built."""
    for operator, kernels in ENGINES:
        if operator == kind.operator:
            yield from kernels
    yield from kind.implementations
