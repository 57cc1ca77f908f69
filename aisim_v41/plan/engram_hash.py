"""The hash of Engram: which table rows a text's token ids ask for.

Token ids become classes, the last 2, 3, ... classes of a position are multiplied and XORed, and
the result modulo one prime a head is a row of that head's part of the table. A predecessor that is
missing, before the start or behind an image, reads as the class of the pad token and hides what is
older. Sources: model-facts §4.6, runtime-semantics §8; constants: docs/updates.md, "Engram".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Engram, Model
from aisim_v41.plan.engram_text import RequestText

Ids = npt.NDArray[np.int64]
SEED_OF_LAYER = 10_007
"""Seed of a module's multipliers: this times its layer."""
PRODUCTS_BELOW = 1 << 64
"""Class times multiplier stays below this, so that the product is that of whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngramHash:
    """The hash of every module of a model. Made by `engram_hash`.

    Attributes:
        engram: the modules.
        primes: of each module, in the order of its columns: n-gram orders, then heads.
        multipliers: of each module, from the newest position to the oldest.
        classes: class of every token id; None: each id is its own class.
        ids: token ids there are.
        pad: class that stands for a missing predecessor.
    """

    engram: Engram
    primes: tuple[tuple[int, ...], ...]
    multipliers: tuple[tuple[int, ...], ...]
    classes: Ids | None
    ids: int
    pad: int

    def classes_of(self, text: RequestText) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Classes that the computed positions see, newest first, and which positions are text.

        Returns:
            [positions, orders + 1] classes, with pads for what is missing; [positions] of bool.

        Raises:
            InvalidInputError: a token id that the model does not have.
        """
        deepest = self.engram.max_ngram - 1
        first = max(text.start - deepest, 0)
        ids = text.ids[first : text.stop]
        images = text.image_mask(first)
        unknown = (ids >= self.ids) & ~images
        if unknown.any():
            place = first + int(np.argmax(unknown))
            raise InvalidInputError(
                f"token id {text.ids[place]} at position {place}: the model has ids 0 to "
                f"{self.ids - 1}"
            )
        known = np.where(images, 0, ids)
        found = known if self.classes is None else self.classes[known]
        before = deepest - (text.start - first)
        found = np.concatenate([np.full(before, self.pad), found])
        missing = np.concatenate([np.ones(before, bool), images])
        count = text.stop - text.start
        seen = np.empty((count, deepest + 1), np.int64)
        blocked = np.zeros(count, bool)
        for back in range(deepest + 1):
            there = slice(deepest - back, deepest - back + count)
            blocked = blocked | missing[there]
            seen[:, back] = np.where(blocked, self.pad, found[there])
        return seen, ~missing[deepest:]

    def rows(self, text: RequestText) -> Ids:
        """Table rows that the text's computed positions look up.

        Image positions look nothing up; they are left out.

        Returns:
            [text positions, modules, columns], each row counted from the start of its module.

        Raises:
            InvalidInputError: a token id that the model does not have.
        """
        seen, is_text = self.classes_of(text)
        seen = seen[is_text].astype(np.uint64)
        heads = self.engram.heads
        rows = np.empty((len(seen), len(self.primes), self.engram.rows_per_token), np.int64)
        for module, (primes, multipliers) in enumerate(
            zip(self.primes, self.multipliers, strict=True)
        ):
            starts = np.cumsum([0, *primes[:-1]])
            mixed = seen[:, 0] * np.uint64(multipliers[0])
            for order in range(1, self.engram.max_ngram):
                mixed = mixed ^ (seen[:, order] * np.uint64(multipliers[order]))
                columns = slice((order - 1) * heads, order * heads)
                within = mixed[:, None] % np.array(primes[columns], np.uint64)
                rows[:, module, columns] = within.astype(np.int64) + starts[columns]
        return rows


def engram_hash(
    model: Model,
    *,
    classes: Sequence[int] | Ids | None = None,
    multipliers: Sequence[Sequence[int]] | None = None,
    primes: Sequence[Sequence[int]] | None = None,
    pad: int | None = None,
) -> EngramHash:
    """The hash that a model was trained with, as far as its config says.

    Args:
        model: with Engram modules.
        classes: class of every token id, from the model's tokenizer: ids whose normalised text is
            the same share one (" The" and "the"). By default every id is its own class, which can
            only tell more n-grams apart: counts of distinct n-grams are then upper limits.
        multipliers: odd numbers of each module, from the newest position to the oldest. By default
            those of the published code, drawn by NumPy's generator from a seed a layer.
        primes: rows of each head, a module at a time, orders outside. By default the primes from
            the config's ``engram_vocab_size`` up, each used once.
        pad: class of a missing predecessor; by default that of the config's pad token.

    Raises:
        InvalidInputError: no modules, constants that do not fit them, or none that the config
            determines.
    """
    engram = model.engram
    if engram is None:
        raise InvalidInputError(f"{model.name} has no Engram modules, so nothing is looked up")
    table = None if classes is None else _class_table(classes, model)
    found = primes_of(engram) if primes is None else tuple(tuple(map(int, p)) for p in primes)
    _check_primes(engram, found)
    if multipliers is None:
        drawn = tuple(multipliers_of(engram, layer) for layer in engram.layers)
    else:
        drawn = tuple(tuple(map(int, m)) for m in multipliers)
    if pad is None:
        if engram.pad_token is None:
            raise InvalidInputError(
                "the config has no engram_pad_token_id: say which class stands for missing "
                "history (argument pad)"
            )
        pad = engram.pad_token if table is None else int(table[engram.pad_token])
    largest = max(pad, model.vocab - 1 if table is None else int(table.max()))
    _check_multipliers(engram, drawn, largest)
    return EngramHash(
        engram=engram, primes=found, multipliers=drawn, classes=table, ids=model.vocab, pad=pad
    )


def multipliers_of(engram: Engram, layer: int) -> tuple[int, ...]:
    """Multipliers of a layer as the published code draws them."""
    below = max(int(np.iinfo(np.int64).max) // engram.compressed_vocab // 2, 1)
    draws = np.random.default_rng(SEED_OF_LAYER * layer).integers(
        0, below, size=engram.max_ngram, dtype=np.int64
    )
    return tuple(int(draw) * 2 + 1 for draw in draws)


def primes_of(engram: Engram) -> tuple[tuple[int, ...], ...]:
    """Rows of every head: the primes from the start that the config gives, each used once.

    Returns:
        One tuple a module, n-gram orders outside and heads inside.

    Raises:
        InvalidInputError: the config does not say where the search starts.
    """
    if engram.primes_from is None:
        raise InvalidInputError(
            "the config has no engram_vocab_size, where the search for primes starts: give them "
            "(argument primes)"
        )
    of_module, wanted = engram.rows_per_token, engram.rows_per_token * len(engram.layers)
    found: list[int] = []
    number = max(engram.primes_from, 2)
    while len(found) < wanted:
        if _is_prime(number):
            found.append(number)
        number += 1
    return tuple(tuple(found[at : at + of_module]) for at in range(0, wanted, of_module))


def _is_prime(number: int) -> bool:
    if number % 2 == 0 or number < 3:
        return number == 2
    divisors = np.arange(3, int(number**0.5) + 1, 2)
    return bool((number % divisors != 0).all())


def _class_table(classes: Sequence[int] | Ids, model: Model) -> Ids:
    table = np.asarray(classes)
    if table.ndim != 1 or len(table) != model.vocab or table.dtype.kind not in "iu":
        raise InvalidInputError(
            f"classes: must be {model.vocab} whole numbers, one a token id; found shape "
            f"{table.shape} of {table.dtype}"
        )
    assert model.engram is not None
    most = model.engram.compressed_vocab
    if table.min() < 0 or table.max() >= most:
        raise InvalidInputError(
            f"classes: from {table.min()} to {table.max()}; the config has {most} classes, 0 to "
            f"{most - 1}"
        )
    return table.astype(np.int64)


def _check_primes(engram: Engram, primes: tuple[tuple[int, ...], ...]) -> None:
    shape = (len(engram.layers), engram.rows_per_token)
    if len(primes) != shape[0] or any(len(module) != shape[1] for module in primes):
        raise InvalidInputError(f"primes: must be {shape[0]} modules of {shape[1]} numbers")
    for layer, rows, module in zip(engram.layers, engram.rows, primes, strict=True):
        if min(module) < 1 or sum(module) != rows:
            raise InvalidInputError(
                f"primes of the module before layer {layer} add up to {sum(module)} rows; its "
                f"table has {rows}: give those that the model was trained with (argument primes)"
            )


def _check_multipliers(
    engram: Engram, multipliers: tuple[tuple[int, ...], ...], largest: int
) -> None:
    shape = (len(engram.layers), engram.max_ngram)
    if len(multipliers) != shape[0] or any(len(module) != shape[1] for module in multipliers):
        raise InvalidInputError(f"multipliers: must be {shape[0]} modules of {shape[1]} numbers")
    for number in (number for module in multipliers for number in module):
        if number < 1 or number % 2 == 0 or number * largest >= PRODUCTS_BELOW:
            raise InvalidInputError(
                f"multiplier {number}: must be odd, positive, and below 2^64 / {largest}, the "
                "largest class"
            )
