"""Curves of what-if questions, fast enough to be asked with every move of a slider.

Each takes a compiled step (`aisim_v41.compile`) and prices all points of a curve in one sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.compiled import CompiledStep

Curve = npt.NDArray[np.float64]
MAX_CHUNKS = 1 << 16
"""Most steps of all prompts of a curve."""


def prompt_ms(step: CompiledStep, lengths: Sequence[int], chunk_tokens: int) -> Curve:
    """Time of whole prompts computed chunk after chunk, alone on the engine [ms].

    What an idle engine needs to the first token, without queueing, tokenising or sampling.

    Args:
        step: of one setting.
        lengths: of the prompts [tokens].
        chunk_tokens: largest chunk [tokens].

    Raises:
        InvalidInputError: a length or chunk below 1, or too many chunks.
        OutOfRangeError: a prompt that the model cannot hold.
    """
    prompts = _whole("lengths", lengths)
    if type(chunk_tokens) is not int or chunk_tokens < 1:
        raise InvalidInputError(f"chunk_tokens = {chunk_tokens!r}: must be a whole number >= 1")
    chunks = -(-prompts // chunk_tokens)
    if chunks.sum() > MAX_CHUNKS:
        raise InvalidInputError(f"{chunks.sum()} chunks, at most {MAX_CHUNKS}; use longer ones")
    owner = np.repeat(np.arange(len(prompts)), chunks)
    done = chunk_tokens * (np.arange(len(owner)) - np.repeat(np.cumsum(chunks) - chunks, chunks))
    spent = _sweep(
        step,
        new_tokens=np.minimum(chunk_tokens, prompts[owner] - done),
        prefix_tokens=done,
        prompt_tokens=prompts[owner],
    )
    found: Curve = np.bincount(owner, spent, minlength=len(prompts)).astype(np.float64)
    return found


def decode_ms(step: CompiledStep, batches: Sequence[int], context_tokens: int) -> Curve:
    """Time of decode steps of so many requests of one context [ms].

    Where the policy speculates, every step verifies all drafts and drafts the next ones; with
    `accept_length` tokens a step, a request's mean interval is this time over that length.

    Args:
        step: of one setting.
        batches: requests of each step.
        context_tokens: of every request [tokens].

    Raises:
        InvalidInputError: a batch below 1, or a context that is no whole number.
        OutOfRangeError: a context that the model cannot hold.
    """
    counts = _whole("batches", batches)
    policy = step.policy
    drafts = policy.draft_tokens if policy.speculation != "off" else 0
    return _sweep(
        step,
        new_tokens=np.full(len(counts), 1 + drafts),
        prefix_tokens=np.full(len(counts), context_tokens),
        count=counts,
        kind="verify" if drafts else "decode",
    )


def _sweep(step: CompiledStep, **columns: Any) -> Curve:
    import pandas as pd

    found: Curve = step.sweep(pd.DataFrame(columns))["latency_ms"].to_numpy()
    return found


def _whole(name: str, values: Sequence[int]) -> npt.NDArray[np.int64]:
    found = np.asarray(values)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu" or found.min() < 1:
        raise InvalidInputError(f"{name} = {values!r:.80}: must be whole numbers >= 1")
    return found.astype(np.int64)
