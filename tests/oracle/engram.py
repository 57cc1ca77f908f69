"""Rows that Engram looks up, position by position, in plain Python.

Sources: model-facts §4.6, runtime-semantics §8.
"""

from __future__ import annotations

from collections.abc import Sequence


def primes_from(start: int, count: int) -> list[int]:
    found: list[int] = []
    number = start
    while len(found) < count:
        if number > 1 and all(number % d for d in range(2, int(number**0.5) + 1)):
            found.append(number)
        number += 1
    return found


def ngram(
    ids: Sequence[int],
    position: int,
    length: int,
    images: Sequence[tuple[int, int]],
    classes: Sequence[int],
    pad: int,
) -> tuple[int, ...]:
    """Classes of the n-gram that ends at a position, newest first."""
    found: list[int] = []
    blocked = False
    for back in range(length):
        at = position - back
        if at < 0 or any(first <= at < end for first, end in images):
            blocked = True
        found.append(pad if blocked else classes[ids[at]])
    return tuple(found)


def rows_of_position(
    ids: Sequence[int],
    position: int,
    *,
    images: Sequence[tuple[int, int]],
    classes: Sequence[int],
    pad: int,
    primes: Sequence[Sequence[int]],
    multipliers: Sequence[Sequence[int]],
    heads: int,
) -> list[list[int]]:
    """[modules][columns] of rows."""
    result = []
    for of_module, factors in zip(primes, multipliers, strict=True):
        rows, column = [], 0
        for length in range(2, len(factors) + 1):
            mixed = 0
            for item, factor in zip(
                ngram(ids, position, length, images, classes, pad), factors, strict=False
            ):
                mixed ^= item * factor
            for _ in range(heads):
                rows.append(sum(of_module[:column]) + mixed % of_module[column])
                column += 1
        result.append(rows)
    return result


def least_recently_used(steps: Sequence[Sequence[int]], capacity: int) -> tuple[int, int]:
    """Rows asked and hits, each different row of a step asked once; a list, newest last."""
    kept: list[int] = []
    asked = hits = 0
    for rows in steps:
        for row in dict.fromkeys(rows):
            asked += 1
            if row in kept:
                hits += 1
                kept.remove(row)
            kept.append(row)
            kept = kept[-capacity:] if capacity else []
    return asked, hits
