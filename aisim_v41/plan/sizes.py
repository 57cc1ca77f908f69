"""Lists of batch sizes as short text: ``1, 2, 4, 8, 12, 16-256/8`` (first-last/step)."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final

from aisim_v41.errors import InvalidInputError

EVERY: Final = "every"
LARGEST: Final = 1 << 20
_PART = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?:/(\d{1,7}))?)?")


@lru_cache(maxsize=64)
def captured_sizes(text: str, where: str = "captured sizes") -> tuple[int, ...] | None:
    """The sizes of a list, in order; None for ``every``.

    Args:
        text: ``every``, or sizes and ranges in rising order, separated by commas.
        where: what the list is, for a refusal.

    Raises:
        InvalidInputError: not such a list; names the part and shows an example.

    Example:
        >>> captured_sizes("1, 2, 4, 8-24/8")
        (1, 2, 4, 8, 16, 24)
    """
    if text == EVERY:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise _refused(where, text, f"{part.strip()!r} is neither a size nor first-last/step")
        first, last, step = (int(group) if group else None for group in match.groups())
        assert first is not None
        last = first if last is None else last
        if step == 0 or last < first or last > LARGEST:
            raise _refused(where, text, f"{part.strip()!r} is an empty range or beyond {LARGEST}")
        found.extend(range(first, last + 1, step or 1))
    if found[0] < 1 or any(later <= earlier for earlier, later in pairwise(found)):
        raise _refused(where, text, "sizes must start at 1 or more and rise")
    return tuple(found)


def _refused(where: str, text: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where} = {text!r}: {why}; write {EVERY!r}, or a list such as '1, 2, 4, 8-256/8'"
    )
