"""What sums over several requests can stand for: the one reading, or those at the ends.

Lengths are written as groups, (length, how many), so that a step of thousands stays short.

Rows that decoder replay keeps, window rows and selected entries of a decode grow less and less with
its context, so that their sum is largest for even contexts and smallest for the most uneven ones
(a sum of concave functions falls where the lengths spread, Karamata's inequality). Work that grows
with the square of a prompt does the opposite. Which counts lie between the readings, and which
need not: docs/forwards.md, "Sums".
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from aisim_v41.errors import InvalidInputError

Lengths = tuple[tuple[int, int], ...]
"""Groups of equal requests: (length [tokens], how many)."""
Prompts = tuple[tuple[int, int, int], ...]
"""Groups of equal prompts: (new [tokens], prefix [tokens], how many)."""

ROUNDING = 1e-7
"""Relative error of a variance that was summed up in doubles."""
SMALLEST = 1e-9
"""Below this a variance is none [tokens²]."""


def require_variance(name: str, value: object, count: int, total: int | None) -> None:
    """Refuse a variance that ``count`` numbers, of sum ``total`` where it is known, cannot have.

    Raises:
        InvalidInputError: names the field, and the limits where there are some.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidInputError(f"{name} = {value!r:.80}: must be a finite number, 0 or more")
    low, high = (0.0, math.inf) if count > 1 else (0.0, 0.0)
    if total is not None and count > 1:
        low = _variance(even(total, count))
        high = float(total) ** 2 * (count - 1) / count**2
    if not low * (1 - ROUNDING) - SMALLEST <= value <= high * (1 + ROUNDING) + SMALLEST:
        of = "" if total is None else f" of sum {total}"
        raise InvalidInputError(
            f"{name} = {value!r}: {count} lengths{of} have a variance from {low:g} to {high:g}"
        )


def require_fit(name: str, total: int, count: int, longest: int) -> None:
    """Refuse a sum that does not fit its contexts.

    Raises:
        InvalidInputError: names the field, its value and the contexts.
    """
    if total > count * longest:
        raise InvalidInputError(
            f"StepTotals.{name} = {total}: does not fit {count} contexts of {longest} tokens"
        )


def even(total: int, count: int) -> Lengths:
    """Whole lengths that differ by one at most."""
    if not count:
        return ()
    length, longer = divmod(total, count)
    return _groups([(length, count - longer), (length + 1, longer)])


def uneven(total: int, count: int, shortest: int, longest: int) -> Lengths:
    """Whole lengths as far apart as the limits allow: at either limit, but for one between them."""
    if not count:
        return ()
    spare, room = total - shortest * count, longest - shortest
    full, left = divmod(spare, room) if room else (0, 0)
    between = 1 if full < count else 0
    return _groups(
        [(longest, full), (shortest + left, between), (shortest, count - full - between)]
    )


def decode_lengths_determined(count: int, total: int, variance: float | None) -> Lengths | None:
    """The contexts of decodes, where sum and variance leave one choice."""
    if count <= 1 or total == 0:
        return even(total, count)
    if variance is None:
        return None
    least = even(total, count)
    if math.isclose(variance, _variance(least), rel_tol=ROUNDING, abs_tol=SMALLEST):
        return least
    if count > 2:
        return None
    # Two numbers: mean ± deviation, and their difference is as odd as their sum.
    apart = round(math.sqrt(variance) - total % 2 / 2) * 2 + total % 2
    return _groups([((total + apart) // 2, 1), ((total - apart) // 2, 1)])


def decode_readings(
    count: int, total: int, variance: float | None, max_context: int
) -> tuple[Lengths, ...]:
    """Contexts of decodes: as even as their sum allows, and as uneven as sum and variance allow.

    No length is further from the mean than deviation x sqrt(count - 1).

    Raises:
        InvalidInputError: the sum does not fit the contexts.
    """
    known = decode_lengths_determined(count, total, variance)
    require_fit("decode_kv_tokens", total, count, max_context - 1)
    if known is not None:
        return (known,)
    shortest, longest = 0, min(total, max_context - 1)
    if variance is not None:
        mean, reach = total / count, math.sqrt(variance * (count - 1)) * (1 + ROUNDING)
        shortest = max(shortest, math.floor(mean - reach))
        longest = min(longest, math.ceil(mean + reach))
    return (even(total, count), uneven(total, count, shortest, longest))


def prefill_readings(count: int, tokens: int, past: int, max_context: int) -> tuple[Prompts, ...]:
    """Prompts of known sums, in the readings between which their work lies.

    With n new tokens after p, the pairs of a prompt are about (end² - p²) / 2. So they are most
    where ends are uneven and pasts even, least where pasts are uneven and ends even.

    Args:
        count: Prompts.
        tokens: New tokens of all of them, one each at least [tokens].
        past: Positions before them [tokens].
        max_context: Longest end of one [tokens].

    Returns:
        Even prompts; the most pairs; the least pairs; the most uneven new tokens with the past on
        the other prompts; new tokens uneven alone; pasts uneven alone.

    Raises:
        InvalidInputError: the sums do not fit the contexts.
    """
    require_fit("prefill_tokens + prefill_kv_tokens", tokens + past, count, max_context)
    if not count:
        return ((),)
    readings = (
        _grouped(_listed(even(tokens, count)), _listed(even(past, count))[::-1]),
        _most_pairs(count, tokens, past, max_context),
        _least_pairs(count, tokens, past, max_context),
        _tokens_apart(count, tokens, past, max_context),
        _only_tokens_uneven(count, tokens, past, max_context),
        _only_pasts_uneven(count, tokens, past, max_context),
    )
    return tuple(dict.fromkeys(readings))


def _most_pairs(count: int, tokens: int, past: int, max_context: int) -> Prompts:
    ends = _listed(uneven(tokens + past, count, 1, max_context))
    pasts = _poured(past, [0] * count, [end - 1 for end in ends])
    return _grouped([end - p for end, p in zip(ends, pasts, strict=True)], pasts)


def _least_pairs(count: int, tokens: int, past: int, max_context: int) -> Prompts:
    pasts = _listed(uneven(past, count, 0, max_context - 1))
    ends = _poured(tokens - count, [p + 1 for p in pasts], [max_context] * count)
    return _grouped([end - p for end, p in zip(ends, pasts, strict=True)], pasts)


def _tokens_apart(count: int, tokens: int, past: int, max_context: int) -> Prompts:
    news = _listed(uneven(tokens, count, 1, max_context))
    pasts, left = [0] * count, past
    for place in reversed(range(count)):
        pasts[place] = min(left, max_context - news[place])
        left -= pasts[place]
    return _grouped(news, pasts)


def _only_tokens_uneven(count: int, tokens: int, past: int, max_context: int) -> Prompts:
    news = _listed(uneven(tokens, count, 1, max_context))
    return _grouped(news, _poured(past, [0] * count, [max_context - new for new in news]))


def _only_pasts_uneven(count: int, tokens: int, past: int, max_context: int) -> Prompts:
    pasts = _listed(uneven(past, count, 0, max_context - 1))
    return _grouped(_poured(tokens - count, [1] * count, [max_context - p for p in pasts]), pasts)


def _poured(total: int, floors: list[int], caps: list[int]) -> list[int]:
    """Floors raised by ``total`` in all, lowest first, as water would, none above its cap."""
    levels = sorted({*floors, *caps})

    def held(level: int) -> int:
        return sum(max(0, min(level, cap) - f) for f, cap in zip(floors, caps, strict=True))

    low = levels[bisect_right(levels, total, key=held) - 1]
    high = low + total  # held rises by one at least with each level until all is held
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held(middle) <= total else (low, middle - 1)
    filled = [max(f, min(low, cap)) for f, cap in zip(floors, caps, strict=True)]
    left = total - held(low)
    for place, (value, cap) in enumerate(zip(filled, caps, strict=True)):
        if left and value == low < cap:
            filled[place] += 1
            left -= 1
    return filled


def _listed(lengths: Lengths) -> list[int]:
    return [length for length, count in lengths for _ in range(count)]


def _grouped(news: list[int], pasts: list[int]) -> Prompts:
    pairs = Counter(zip(news, pasts, strict=True))
    return tuple((new, past, count) for (new, past), count in pairs.items())


def _groups(lengths: Sequence[tuple[int, int]]) -> Lengths:
    merged: Counter[int] = Counter()
    for length, count in lengths:
        merged[length] += count
    return tuple((length, count) for length, count in merged.items() if count)


def _variance(lengths: Lengths) -> float:
    count = sum(n for _, n in lengths)
    total = sum(length * n for length, n in lengths)
    squares = sum(length**2 * n for length, n in lengths)
    return (count * squares - total**2) / count**2
