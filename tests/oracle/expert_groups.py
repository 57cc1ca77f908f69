"""Rows that draw their experts one after another, and what every group of experts then has to do.

Source: experts of a group lie on the same ranks; docs/assumptions.md, "Expert parallelism".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations


def drawn_rows(weights: Sequence[float], top_k: int, rows: int, seed: int) -> list[list[int]]:
    """Experts of each row, drawn without returning any, an expert as likely as its weight."""
    chance = random.Random(seed)
    found = []
    for _ in range(rows):
        # The smallest of exponential waiting times are a weighted draw without replacement.
        waits = [(chance.expovariate(1.0) / weight, e) for e, weight in enumerate(weights)]
        found.append([expert for _, expert in sorted(waits)[:top_k]])
    return found


def fullest(rows: list[list[int]], experts: int, groups: int) -> tuple[int, int]:
    """Most choices and most distinct experts of any group of neighbouring experts."""
    own = experts // groups
    choices, distinct = [0] * groups, [set() for _ in range(groups)]
    for row in rows:
        for expert in row:
            choices[expert // own] += 1
            distinct[expert // own].add(expert)
    return max(choices), max(len(one) for one in distinct)


def groups_reached(experts: int, top_k: int, groups: int) -> float:
    """Mean number of groups that a row needs, over every row there can be."""
    own = experts // groups
    reached = [len({e // own for e in row}) for row in combinations(range(experts), top_k)]
    return sum(reached) / len(reached)
