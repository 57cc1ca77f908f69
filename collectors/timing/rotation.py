"""How many sets of inputs keep a cache cold."""

from __future__ import annotations

import math
from typing import NamedTuple

TIMES_L2 = 5
"""Memory that a cold timing walks through, in sizes of the L2: the last set is gone before it is
read again, whichever lines the cache keeps (ecosystem.md §4)."""
MAX_COPIES = 1024
FLUSH_TIMES_L2 = 2
"""Size of the buffer that is written over where copies do not fit, in sizes of the L2."""


class Rotation(NamedTuple):
    """Sets of inputs to make, and whether to flush between calls as well."""

    copies: int
    flush: bool


def rotation(input_bytes: float, l2_bytes: float, free_bytes: float) -> Rotation:
    """How a cold timing is kept cold.

    Args:
        input_bytes: of one set [B].
        l2_bytes: of the GPU [B]; 0 where there is none to speak of.
        free_bytes: that copies may take together [B].

    >>> rotation(10e6, 50e6, 10e9)
    Rotation(copies=26, flush=False)
    >>> rotation(4e9, 50e6, 6e9)
    Rotation(copies=1, flush=False)
    >>> rotation(40e6, 50e6, 100e6)
    Rotation(copies=2, flush=True)
    """
    needed = 1 + math.ceil(TIMES_L2 * l2_bytes / max(input_bytes, 1.0)) if l2_bytes > 0 else 1
    if input_bytes >= TIMES_L2 * l2_bytes:
        return Rotation(1, flush=False)
    fitting = max(1, min(MAX_COPIES, int(free_bytes // max(input_bytes, 1.0))))
    return Rotation(min(needed, fitting), flush=fitting < needed)
