"""How many sets of inputs keep a cache cold."""

from __future__ import annotations

import math
from typing import NamedTuple

TIMES_L2 = 5
"""Memory that a cold timing walks through, in sizes of the L2: the last set is gone before it is
read again, whichever lines the cache keeps (ecosystem.md §4)."""
MAX_COPIES = 1024
FLUSH_TIMES_L2 = 2
"""Size of the buffer that is written over before a sample, in sizes of the L2."""


class Rotation(NamedTuple):
    """Sets of inputs to make, and whether the L2 is written over before every sample.

    Without a flush, sets follow each other until the first is gone from the cache. With one, every
    call of a sample has a set of its own, which nothing has touched since.
    """

    copies: int
    flush: bool


def rotation(input_bytes: float, l2_bytes: float, free_bytes: float, calls: int) -> Rotation:
    """How a cold timing is kept cold.

    Args:
        input_bytes: of one set [B].
        l2_bytes: of the GPU [B]; 0 where it is not known.
        free_bytes: that copies may take together [B].
        calls: of a sample.

    >>> rotation(10e6, 50e6, 10e9, calls=40)
    Rotation(copies=26, flush=False)
    >>> rotation(10e6, 50e6, 10e9, calls=8)
    Rotation(copies=8, flush=True)
    >>> rotation(4e9, 50e6, 6e9, calls=1)
    Rotation(copies=1, flush=False)
    >>> rotation(40e6, 50e6, 100e6, calls=8)
    Rotation(copies=2, flush=True)
    """
    one = max(input_bytes, 1.0)
    if input_bytes >= TIMES_L2 * l2_bytes:
        return Rotation(1, flush=False)
    needed = 1 + math.ceil(TIMES_L2 * l2_bytes / one)
    fitting = max(1, min(MAX_COPIES, int(free_bytes // one), calls))
    return Rotation(min(needed, fitting), flush=fitting < needed)
