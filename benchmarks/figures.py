"""A measured figure, and how the seconds behind it are taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure and what it should stay under."""

    name: str
    value: float
    target: float | None
    unit: str

    def __str__(self) -> str:
        target = "" if self.target is None else f"  (target {self.target:g})"
        return f"{self.name:<58}{self.value:>10.2f} {self.unit}{target}"


def best(function: Callable[[], object], *, calls: int, rounds: int = 15) -> float:
    """Seconds of one call: the best round of many, which other load on the machine spoils least."""
    function()
    shortest = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        shortest = min(shortest, (time.perf_counter() - start) / calls)
    return shortest
