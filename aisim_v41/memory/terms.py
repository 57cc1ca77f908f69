"""One term of a memory budget: how many bytes, where, how computed, and how sure.

Terms are sums of integers: a budget is the sum of its terms, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from aisim_v41.units import GIB, MIB


class Place(StrEnum):
    """Where the bytes lie."""

    GPU = "gpu"
    HOST = "host"
    DISK = "disk"


class Kind(StrEnum):
    """What the bytes are for."""

    WEIGHTS = "weights"
    ENGRAM = "engram"
    """Embedding tables of the n-gram memory."""
    WORKSPACE = "workspace"
    """Buffers of the largest step."""
    RESERVE = "reserve"
    """Allowances: context, graphs, collectives."""
    KV = "kv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Bytes of one rank (or of one host) for one purpose.

    Attributes:
        name: What it is, in words.
        kind: What it is for.
        place: Where it lies.
        bytes: How much [B].
        formula: How it was computed, with the numbers in it.
        source: Where the rule or the number was read.
        estimate: An allowance or an inference, not a count.
    """

    name: str
    kind: Kind
    bytes: int
    formula: str
    source: str
    place: Place = Place.GPU
    estimate: bool = False


def total(terms: Iterable[Term]) -> int:
    """Sum [B]."""
    return sum(term.bytes for term in terms)


def size(amount: int) -> str:
    """Bytes as text in GiB, or in MiB where that says more."""
    if 0 < abs(amount) < GIB // 10:
        return f"{amount / MIB:.2f} MiB"
    return f"{amount / GIB:.2f} GiB"


def round_up(count: int, multiple: int) -> int:
    """The smallest multiple that is not below ``count``."""
    return -(-count // multiple) * multiple
