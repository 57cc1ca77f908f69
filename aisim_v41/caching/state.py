"""What a sequence leaves behind: bytes by layer and kind, of one copy.

Every tensor-parallel rank holds such a copy whole, since one latent serves all heads
(runtime-semantics §4.2). Rows and pages are those of the engine's pool (`aisim_v41.memory.pool`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from aisim_v41.caching.kinds import require_kind
from aisim_v41.errors import InvalidInputError
from aisim_v41.memory.pool import KvPool, kv_pool
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.formats import FP32
from aisim_v41.plan.draft import block_layer
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import MAX_TOKENS

ID_BYTES = 8
"""A token id that engines keep for Engram [B] (int64, runtime-semantics §6.2)."""
SNAPSHOT_EXTRA_ROWS = 1
"""Window rows that a snapshot keeps beyond the window (TensorRT-LLM: 129, §2.3)."""


class Domain(StrEnum):
    """Kinds of state, by how long they are worth keeping."""

    ENTRIES = "entries"
    """Global entries and index keys: grow with the text, good for any longer prompt."""
    WINDOW = "window"
    """Window rows of the last tokens in every layer, draft blocks included."""
    GROUPS = "groups"
    """Rows of groups that the compressor has not finished."""
    HISTORY = "history"
    """Token ids that Engram hashes look back at."""


TAIL = (Domain.WINDOW, Domain.GROUPS, Domain.HISTORY)
"""What is good at one position only: together a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """One kind of state of one layer.

    Attributes:
        domain: which kind.
        layer: that wrote it and must find it, numbered as in the ledger: draft blocks follow the
            head (`aisim_v41.plan.draft.block_layer`).
        rows: of it.
        payload_bytes: those rows alone [B].
        bytes: the pages or rings that they lie in, which is what moves [B].
    """

    domain: Domain
    layer: int
    rows: int
    payload_bytes: int
    bytes: int


def sequence_state(
    model: Model, policy: RuntimePolicy, tokens: int, *, held_tokens: int = 0
) -> tuple[StatePart, ...]:
    """State of one sequence, in the order of layers.

    Args:
        model: from `load_model`.
        policy: the engine: rows, pages, rings, drafting.
        tokens: positions computed [tokens].
        held_tokens: entries of so many are elsewhere already and left out [tokens].

    Raises:
        InvalidInputError: an argument of the wrong kind, or lengths that no sequence has.
        MissingProfileError, UnsupportedPlanError: the policy's layout does not exist.
    """
    require_step_model(model)
    require_kind("policy", policy, RuntimePolicy)
    _check(tokens, held_tokens)
    pool = kv_pool(model, policy)
    parts = [*_entries(pool, tokens, held_tokens), *_windows(model, policy, pool, tokens)]
    parts += _groups(model, policy, tokens)
    if model.engram is not None:
        ids = min(tokens, model.engram.max_ngram - 1)
        held = ids * ID_BYTES
        first = model.engram.layers[0]
        parts.append(
            StatePart(domain=Domain.HISTORY, layer=first, rows=ids, payload_bytes=held, bytes=held)
        )
    return tuple(sorted(parts, key=lambda part: part.layer))


def snapshot_state(model: Model, policy: RuntimePolicy, tokens: int) -> tuple[StatePart, ...]:
    """What is stored to restore a sequence's end without replay, entries apart."""
    return tuple(part for part in sequence_state(model, policy, tokens) if part.domain in TAIL)


def state_bytes(parts: Iterable[StatePart], *domains: Domain) -> int:
    """Sum [B] of the named kinds, of all where none is named."""
    return sum(part.bytes for part in parts if not domains or part.domain in domains)


def draft_blocks(model: Model, policy: RuntimePolicy) -> int:
    """Draft blocks that keep a window of their own."""
    return 0 if model.draft is None or policy.speculation == "off" else model.draft.blocks


def window_rows(model: Model, policy: RuntimePolicy) -> int:
    """Window rows of one layer that the end of a sequence is kept with [rows]."""
    extra = SNAPSHOT_EXTRA_ROWS if policy.encoder_replay == "snapshot" else 0
    return model.attention.window + extra


def _entries(pool: KvPool, tokens: int, held: int) -> Iterator[StatePart]:
    for owner in pool.owners:
        rows = tokens // owner.ratio - held // owner.ratio
        pages = owner.pages(tokens) - held // owner.span_tokens
        yield StatePart(
            domain=Domain.ENTRIES,
            layer=owner.layer,
            rows=rows,
            payload_bytes=rows * owner.row_bytes,
            bytes=pages * owner.page_bytes,
        )


def _windows(model: Model, policy: RuntimePolicy, pool: KvPool, tokens: int) -> Iterator[StatePart]:
    rows = min(tokens, window_rows(model, policy))
    page = pool.window_page_rows
    pages = -(-rows // page)
    if pool.window.kind not in ("per_request", "rings") or policy.kv_blocks == "shared":
        # Pages begin at multiples of their rows, so a window may lie across one more.
        pages = -(-tokens // page) - (tokens - rows) // page
    drafting = range(draft_blocks(model, policy))
    backbone = (layer.index for layer in model.layers)
    for layer in (*backbone, *(block_layer(model, block) for block in drafting)):
        yield StatePart(
            domain=Domain.WINDOW,
            layer=layer,
            rows=rows,
            payload_bytes=rows * pool.window_row_bytes,
            bytes=pages * pool.window_page_bytes,
        )


def _groups(model: Model, policy: RuntimePolicy, tokens: int) -> Iterator[StatePart]:
    row = 2 * FP32.element_bytes(1, model.attention.head_dim)
    for owner in model.kv_owners:
        if owner.ratio > 1:
            rows = tokens % owner.ratio
            yield StatePart(
                domain=Domain.GROUPS,
                layer=owner.index,
                rows=rows,
                payload_bytes=rows * row,
                bytes=max(policy.pair_ring_rows, owner.ratio) * row if tokens else 0,
            )


def _check(tokens: int, held_tokens: int) -> None:
    for name, value, most in (
        ("tokens", tokens, MAX_TOKENS), ("held_tokens", held_tokens, tokens)
    ):  # fmt: skip
        if type(value) is not int or not 0 <= value <= most:
            raise InvalidInputError(f"{name} = {value!r}: must be a whole number from 0 to {most}")
