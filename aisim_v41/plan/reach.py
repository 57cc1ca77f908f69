"""Closed forms: how many entries the queries of a span can reach.

A query at position p sees ``v = floor((p + 1) / ratio)`` entries and reaches

    g(v) = v                              while v <= cap
    g(v) = cap - ((-v) mod block)         beyond

With block 1 this is min(v, cap): a sliding window (ratio 1, cap W, positions counted from the
window floor), the top-k of the indexer, or everything (cap `UNLIMITED`). With block 8 and cap
16,384 it is the candidate pool, whose newest block is kept whole although it is partly filled
(model-facts §4.3; runtime-semantics §7).

A sum over a span [a, b) is a difference of sums over [0, n). The query that completes t positions
sees floor(t / ratio) entries, so with Φ(q) = g(1) + ... + g(q) the sum over t = 1 .. n is

    Φ(floor(n / ratio)) + Φ(floor((n - 1) / ratio)) + ... + Φ(floor((n - ratio + 1) / ratio))

one term for each place of t within its group of ``ratio``. `tests/oracle` counts the same position
by position.

Numbers are float64: every value and intermediate is a whole number below 2**53, hence exact.
Twice Φ stays below it up to the longest context that `aisim_v41.model.config` accepts, 2**26.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

UNLIMITED: Final = 1 << 41
"""A cap that no context reaches."""


class Reach(NamedTuple):
    """Which entries a query reaches: one rule g."""

    ratio: int
    cap: int
    block: int = 1


def twice_phi(
    visible: Floats, caps: Floats, twice_caps: Floats, *, total: Floats, last: Floats
) -> None:
    """2 Φ(q) and g(q) of rules with block 1, for each q in ``visible``.

    Args:
        visible: q, whole numbers >= -1 [rules, width].
        caps, twice_caps: [rules, 1].
        total: receives 2 Φ(q) = m (m + 1) + 2 cap (q - m) with m = min(q, cap).
        last: receives g(q) = m.
    """
    np.minimum(visible, caps, out=last)
    np.add(last, 1.0, out=total)
    total *= last
    beyond = visible - last
    beyond *= twice_caps
    total += beyond


def subtract_newest_block(visible: Floats, rule: Reach, *, total: Floats, last: Floats) -> None:
    """What a pool of whole blocks reaches less than its cap: the newest block is partly filled.

    With x = q - cap positions beyond the cap, g loses y = (-x) mod block = (-q) mod block (a cap is
    whole blocks), and Φ loses the sum of those, (x (block - 1) + (block - y) y) / 2.

    Args:
        visible: q [rows, width].
        rule: one whose cap is a multiple of its block.
        total: 2 Φ(q) with block 1, corrected in place.
        last: g(q) with block 1, corrected in place.
    """
    missing = np.mod(-visible, rule.block)
    missing *= visible > rule.cap
    lost = (rule.block - missing) * missing
    lost += (rule.block - 1.0) * (visible - last)
    total -= lost
    last -= missing
