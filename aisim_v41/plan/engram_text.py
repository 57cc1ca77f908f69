"""Token ids of a request, and which of its positions a step computes.

What a position looks up depends on it and a few positions before it, wherever a chunk begins: an
engine that reads its token history finds them there (runtime-semantics §8), so a text is always
given whole and cut by positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError

Step = tuple["RequestText", ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestText:
    """Positions of one request that a step computes, with the ids before them.

    Args:
        token_ids: of the whole request from its first position; what stands at image positions
            does not matter.
        start: first position that is computed.
        stop: end of what is computed; by default that of the text.
        images: image tokens as pairs of first position and end.
        ids: the token ids as an array; filled at construction.

    Raises:
        InvalidInputError: ids that are no whole numbers, or positions outside the text.

    >>> RequestText(token_ids=[5, 6, 7, 8], start=1, stop=3).tokens
    2
    """

    token_ids: Sequence[int] | npt.NDArray[np.int64]
    start: int = 0
    stop: int = -1
    images: tuple[tuple[int, int], ...] = ()
    ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), repr=False)

    def __post_init__(self) -> None:
        ids = np.asarray(self.token_ids)
        if ids.size == 0:
            ids = ids.astype(np.int64)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or (ids.size and ids.min() < 0):
            raise InvalidInputError(
                f"RequestText.token_ids: must be a list of whole numbers from 0; found "
                f"{ids.dtype} of shape {ids.shape}"
            )
        object.__setattr__(self, "ids", ids.astype(np.int64))
        if self.stop == -1:
            object.__setattr__(self, "stop", len(ids))
        if not 0 <= self.start <= self.stop <= len(ids):
            raise InvalidInputError(
                f"RequestText computes positions {self.start} to {self.stop} of {len(ids)}: must "
                "be 0 <= start <= stop <= length"
            )
        for first, end in self.images:
            if not 0 <= first <= end <= len(ids):
                raise InvalidInputError(
                    f"RequestText.images: ({first}, {end}) is no span of the {len(ids)} positions"
                )

    @property
    def tokens(self) -> int:
        """Positions computed, image tokens included."""
        return self.stop - self.start

    def image_mask(self, first: int) -> npt.NDArray[np.bool_]:
        """Which positions from ``first`` to the end of the computed ones are image tokens."""
        mask = np.zeros(self.stop - first, bool)
        for begin, end in self.images:
            mask[max(begin - first, 0) : max(end - first, 0)] = True
        return mask


def chunks(texts: Iterable[RequestText], chunk_tokens: int) -> tuple[Step, ...]:
    """Steps that compute texts side by side, so many positions of each at a time.

    Args:
        texts: one a request; what each computes is cut into chunks from its start.
        chunk_tokens: positions of a request in a step; 1 is a decode.

    Raises:
        InvalidInputError: ``chunk_tokens`` below 1.

    >>> steps = chunks([RequestText(token_ids=range(5)), RequestText(token_ids=range(2))], 3)
    >>> [[text.tokens for text in step] for step in steps]
    [[3, 2], [2]]
    """
    if type(chunk_tokens) is not int or chunk_tokens < 1:
        raise InvalidInputError(f"chunk_tokens = {chunk_tokens!r}: must be a whole number >= 1")
    listed = tuple(texts)
    steps: list[Step] = []
    for number in range(-(-max((t.tokens for t in listed), default=0) // chunk_tokens)):
        parts = []
        for text in listed:
            start = text.start + number * chunk_tokens
            if start < text.stop:
                parts.append(_part(text, start, min(start + chunk_tokens, text.stop)))
        steps.append(tuple(parts))
    return tuple(steps)


def _part(text: RequestText, start: int, stop: int) -> RequestText:
    """The same text, checked already, with other positions computed."""
    part = copy(text)
    object.__setattr__(part, "start", start)
    object.__setattr__(part, "stop", stop)
    return part
