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


def bytes_sent(experts: int, top_k: int, inside: int, domains: int) -> tuple[float, float]:
    """Copies of a row that leave its rank over the links and over the network, mean of all rows.

    A copy goes to each other rank of the own domain that holds an expert of the row, and one to
    each other domain that does.
    """
    ranks = inside * domains
    own = experts // ranks
    link = network = rows = 0
    for source in range(ranks):
        for row in combinations(range(experts), top_k):
            needed = {expert // own for expert in row}
            link += sum(r != source and r // inside == source // inside for r in needed)
            network += sum(d != source // inside for d in {r // inside for r in needed})
            rows += 1
    return link / rows, network / rows
