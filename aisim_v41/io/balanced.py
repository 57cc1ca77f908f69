"""Benchmark points that name totals only, and how their makers spread those over requests.

Dynamo's self-benchmark and the tables made from it ("balanced_v1") give the first requests one
more than the others: new tokens and contexts of decodes one by one, cached prefixes in whole cache
blocks (ai-dynamo/dynamo, `vllm/instrumented_scheduler.py`, `_balanced_partition`). The size of a
block is in neither file, so a prefix is spread only where every usual size gives the same.
"""

from __future__ import annotations

from typing import Final, Literal

from aisim_v41.forwards.records import StepTotals
from aisim_v41.io.forward_pass import population_variance, same_variance
from aisim_v41.plan.request import Request

BLOCK_TOKENS = (1, 16, 32, 64, 128, 256)
"""Sizes of cache blocks that engines use [tokens]; 1 is for prefixes that no cache holds."""
FAKE_REGIME = "fake_kv"
"""Regime of steps that read KV which no model computed, where they are kept."""
FakeKv = Literal["skip", "mark"]
FAKE_KV: Final = ("skip", "mark")

Spread = tuple[tuple[int, int], ...]
"""Lengths and how many requests have each, in the order of the requests."""
Prompts = tuple[tuple[int, int, int], ...]
"""New tokens, prefix, and how many requests have both."""


def spread(total: int, count: int, unit: int = 1) -> Spread | None:
    """Whole units of a total over requests, at least one each; None where that is not possible.

    Example:
        >>> spread(7, 3)
        ((3, 1), (2, 2))
        >>> spread(48, 2, unit=16)
        ((32, 1), (16, 1))
    """
    units, left = divmod(total, unit)
    if left or count < 1 or units < count:
        return None
    each, longer = divmod(units, count)
    groups = (((each + 1) * unit, longer), (each * unit, count - longer))
    return tuple(group for group in groups if group[1])


def decode_point(batch: int, kv_tokens: int) -> tuple[Request, ...] | StepTotals:
    """Decodes whose contexts, current token not counted, sum to ``kv_tokens``.

    Raises:
        InvalidInputError: sums that no requests can have.
    """
    totals = StepTotals(decode_requests=batch, decode_kv_tokens=kv_tokens)
    lengths = spread(kv_tokens, batch)
    if lengths is None:
        return totals
    return tuple(
        Request(new_tokens=1, prefix_tokens=length, kind="decode", count=times)
        for length, times in lengths
    )


def prefill_point(
    batch: int,
    new_tokens: int,
    kv_tokens: int,
    *,
    block_tokens: int | None = None,
    prompt_variance: float | None = None,
) -> tuple[Request, ...] | StepTotals:
    """Prefills of known sums; sums again where blocks of different sizes would differ.

    Args:
        batch: Requests.
        new_tokens: Tokens to compute, of all [tokens].
        kv_tokens: Cached prefixes, of all [tokens].
        block_tokens: Size of a cache block, where it is known [tokens].
        prompt_variance: Population variance of whole prompts, where it is reported [tokens²].

    Raises:
        InvalidInputError: sums that no requests can have.
    """
    totals = StepTotals(
        prefill_requests=batch,
        prefill_tokens=new_tokens,
        prefill_kv_tokens=kv_tokens,
        prefill_length_variance=prompt_variance,
    )
    new = spread(new_tokens, batch)
    units = BLOCK_TOKENS if block_tokens is None else (block_tokens,)
    prefixes = [spread(kv_tokens, batch, u) for u in units] if kv_tokens else [((0, batch),)]
    if new is None:
        return totals
    fitting = {_paired(new, past) for past in prefixes if past is not None}
    fitting = {prompts for prompts in fitting if _fits(prompts, prompt_variance)}
    if len(fitting) != 1:
        return totals.determined() or totals
    return tuple(
        Request(new_tokens=n, prefix_tokens=p, count=times) for n, p, times in fitting.pop()
    )


def _paired(new: Spread, past: Spread) -> Prompts:
    """Two spreads over the same requests, side by side."""
    prompts: list[tuple[int, int, int]] = []
    rest = list(past)
    for tokens, count in new:
        while count:
            prefix, many = rest[0]
            taken = min(count, many)
            prompts.append((tokens, prefix, taken))
            count -= taken
            rest[0] = (prefix, many - taken)
            if taken == many:
                rest.pop(0)
    return tuple(prompts)


def _fits(prompts: Prompts, variance: float | None) -> bool:
    if variance is None:
        return True
    found = population_variance((new + past, times) for new, past, times in prompts)
    return same_variance(variance, found)
