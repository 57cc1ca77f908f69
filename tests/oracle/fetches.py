"""Rows from a host or disk counted one by one, and a step that waits for them, event by event."""

from __future__ import annotations

from collections.abc import Sequence

ROW_BYTES = 256 + 8
ROWS_PER_TOKEN = 3 * 8
PAGE_BYTES = 4096


def moved_bytes(
    tokens: int, residency: str, ranks: int, distinct_every: int = 1, hit_every: int = 0
) -> tuple[int, int]:
    """Bytes over the host links and from the disks of all ranks, for one module.

    Args:
        tokens: of a step.
        residency: of the tables.
        ranks: that share them.
        distinct_every: only every so many looked-up rows is one that the step has not had.
        hit_every: of these, every so many of a rank is in its cache; 0: none.
    """
    link = disk = number = 0
    seen = [0] * ranks
    for _token in range(tokens):
        for _row in range(ROWS_PER_TOKEN):
            number += 1
            if residency == "hbm" or number % distinct_every:
                continue
            asking = range(ranks) if residency == "host_shared" else [number % ranks]
            for rank in asking:
                seen[rank] += 1
                cached = hit_every and seen[rank] % hit_every == 0
                if residency == "disk":
                    link += ROW_BYTES
                    disk += 0 if cached else 2 * PAGE_BYTES
                else:
                    link += 0 if cached else ROW_BYTES
    return link, disk


def waits(
    transfers: Sequence[float], reached: Sequence[float], follows: Sequence[float]
) -> list[float]:
    """What a chain waits before each module [s]: a link serves in order, and a chain that stopped
    for one module comes later to the next.

    Args:
        transfers: of each module alone [s].
        reached: when the chain comes to it if it never stops [s].
        follows: what runs between its rows and its gate beside the chain [s].
    """
    link = late = 0.0
    found = []
    for transfer, at, after in zip(transfers, reached, follows, strict=True):
        link += transfer
        wait = max(0.0, link + after - (at + late))
        late += wait
        found.append(wait)
    return found
