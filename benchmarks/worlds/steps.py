"""Which steps are measured, and which are asked about.

Measured steps are what a careful engineer would choose: a grid of sizes in powers of two with the
known knees on it, spread out over the grid when there is time for few of them only. Asked steps are
drawn log-uniformly within the same ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

import numpy as np

from aisim_v41.plan.request import Request

Step = tuple[Request, ...]

NEW_TOKENS: Final = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PREFIXES: Final = (0, 128, 512, 1026, 4096, 16_384, 65_536, 131_072)
PREFILLS: Final = (1, 2, 4)
MOST_NEW: Final = 16_384
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS: Final = (16, 128, 512, 1026, 4096, 16_384, 65_536, 131_072)
MOST_KV: Final = 4 << 20


def prefill(new: int, prefix: int, count: int = 1) -> Step:
    """Prompts alike, or chunks of them."""
    return (Request(new_tokens=new, prefix_tokens=prefix, count=count),)


def decode(batch: int, context: int) -> Step:
    """Decodes alike."""
    return (Request(new_tokens=1, prefix_tokens=context, kind="decode", count=batch),)


def grid(points: int, rng: np.random.Generator) -> list[Step]:
    """So many measured steps, half of them decodes, in random order."""
    prefills = [
        (new, prefix, count)
        for new, prefix, count in product(NEW_TOKENS, PREFIXES, PREFILLS)
        if new * count <= MOST_NEW
    ]
    decodes = [
        (batch, context)
        for batch, context in product(BATCHES, CONTEXTS)
        if batch * context <= MOST_KV
    ]
    decoded = min(points // 2, len(decodes))
    steps = [decode(*decodes[place]) for place in spread(decodes, decoded, rng)]
    steps += [prefill(*prefills[place]) for place in spread(prefills, points - decoded, rng)]
    return [steps[place] for place in rng.permutation(points)]


def spread(
    candidates: Sequence[tuple[int, ...]], number: int, rng: np.random.Generator
) -> list[int]:
    """Places of candidates as far apart as can be in powers of two: ends first, then between."""
    sizes = np.log2(1.0 + np.array(candidates))
    sizes /= np.ptp(sizes, axis=0)
    sizes += 1e-3 * rng.random(sizes.shape)
    chosen = [int(np.argmin(sizes.sum(axis=1)))]
    distance = np.full(len(sizes), np.inf)
    while len(chosen) < number:
        distance = np.minimum(distance, ((sizes - sizes[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(np.argmax(distance)))
    return chosen


def asked(points: int, rng: np.random.Generator) -> list[Step]:
    """So many steps within the same ranges, half of them decodes."""
    return [_asked_decode(rng) if place % 2 else _asked_prefill(rng) for place in range(points)]


def _asked_prefill(rng: np.random.Generator) -> Step:
    count = int(rng.choice(PREFILLS))
    new = _log_uniform(rng, NEW_TOKENS[0], min(NEW_TOKENS[-1], MOST_NEW // count))
    prefix = 0 if rng.random() < 0.25 else _log_uniform(rng, 128, PREFIXES[-1])
    return prefill(new, prefix, count)


def _asked_decode(rng: np.random.Generator) -> Step:
    batch = _log_uniform(rng, BATCHES[0], BATCHES[-1])
    return decode(batch, _log_uniform(rng, CONTEXTS[0], min(CONTEXTS[-1], MOST_KV // batch)))


def ragged(points: int, rng: np.random.Generator) -> list[Step]:
    """Steps of live traffic: prefill chunks, decodes of unlike lengths, and both together."""
    kinds: tuple[Callable[[np.random.Generator], Step], ...] = (
        _chunks,
        _decodes,
        lambda rng: (*_chunks(rng), *_decodes(rng)),
    )
    steps = [kinds[place % 3](rng) for place in range(points)]
    return [steps[place] for place in rng.permutation(points)]


def _chunks(rng: np.random.Generator) -> Step:
    return tuple(
        Request(
            new_tokens=_log_uniform(rng, 32, 4096),
            prefix_tokens=0 if rng.random() < 0.3 else _log_uniform(rng, 128, 65_536),
        )
        for _ in range(int(rng.integers(1, 4)))
    )


def _decodes(rng: np.random.Generator) -> Step:
    """Contexts of one step lie around a middle, within a factor of e or so."""
    middle = np.exp(rng.uniform(np.log(256), np.log(32_768)))
    contexts = middle * np.exp(0.9 * rng.standard_normal(_log_uniform(rng, 1, 128)))
    return tuple(
        Request(new_tokens=1, prefix_tokens=int(context), kind="decode")
        for context in np.clip(contexts, 16, CONTEXTS[-1])
    )


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.clip(round(np.exp(rng.uniform(np.log(low), np.log(high)))), low, high))
