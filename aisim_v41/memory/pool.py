"""The KV pool of one rank: bytes of tokens, requests and sessions, and the exact inverses.

Everything is counted in whole pages, in integers. For any pool and any number of bytes ``b``:

- ``bytes_for(tokens_for(b, r), r) <= b``, and one page more would not fit;
- ``tokens_for(bytes_for(t, r), r)`` is ``t`` for whole pages, else ``t`` rounded up to its page;
- ``sessions_for(bytes_for_sessions(n, length), length) == n``.

Every tensor-parallel rank stores all of it: one latent serves all heads (runtime-semantics §4.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from aisim_v41.errors import InvalidInputError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.memory.blocks import SharedBlocks, shared_blocks
from aisim_v41.memory.pages import OwnerPages, owner_pages, ring_bytes, window_page_bytes
from aisim_v41.memory.terms import Kind, Term, round_up, total
from aisim_v41.memory.window import WindowRule, window_rule
from aisim_v41.model.cache_rows import cache_rows
from aisim_v41.model.description import Model
from aisim_v41.plan.policy import RuntimePolicy

MOST = 1 << 40
"""Largest number of tokens, requests or sessions; also the answer where nothing grows."""
_SOURCE = "runtime-semantics §6.1-§6.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """Sizes of everything that grows with tokens or requests, for one model and engine layout."""

    layout: str
    owners: tuple[OwnerPages, ...]
    window: WindowRule
    window_page_bytes: int
    """One page of window rows of one layer [B]."""
    window_page_rows: int
    window_row_bytes: int
    """One window row without rounding [B]."""
    window_layers: int
    """Layers that keep window rows: the backbone, and draft blocks that are counted."""
    pair_bytes: int
    """State of unfinished groups of one request [B]."""
    share: Fraction
    """By how much the engine enlarges the pool for a drafter (1: not at all)."""
    blocks: SharedBlocks | None = None
    """The rule of a pool in which everything draws blocks of one size."""

    @property
    def page_tokens(self) -> int:
        """Smallest step in tokens at which the pool grows [tokens]."""
        return math.gcd(*(owner.span_tokens for owner in self.owners)) if self.owners else 1

    @property
    def bytes_per_token(self) -> Fraction:
        """Slope [B/token] with pages rounded; windows belong to it only under the ratio rule."""
        if self.blocks is not None:
            return self.blocks.bytes_per_token
        slope = sum(
            (Fraction(owner.page_bytes, owner.span_tokens) for owner in self.owners), Fraction(0)
        )
        if self.window.kind == "ratio":
            slope += self.window.ratio * self._window_bytes_per_row
        return slope * self.share

    @property
    def payload_bytes_per_token(self) -> Fraction:
        """The same slope [B/token] of rows alone, without the rounding of pages."""
        slope = sum((Fraction(owner.row_bytes, owner.ratio) for owner in self.owners), Fraction(0))
        if self.window.kind == "ratio":
            slope += self.window.ratio * self.window_layers * self.window_row_bytes
        return slope * self.share

    @property
    def fixed_bytes_per_request(self) -> int:
        """What one more running request takes before it has a single token [B]."""
        if self.blocks is not None:
            return self.blocks.stride_bytes * self.blocks.request_blocks
        ring = self.window.ring_rows
        rows = {"per_request": ring, "rings": ring, "request_cap": self.window.request_rows}
        windows = rows.get(self.window.kind, 0) * self._window_bytes_per_row
        return math.ceil(windows * self.share) + self.pair_bytes

    def bytes_for(self, tokens: int, requests: int) -> int:
        """KV [B] of a pool of ``tokens`` tokens for ``requests`` running requests."""
        _check(tokens=tokens, requests=requests)
        tokens = round_up(tokens, self.page_tokens)
        if self.blocks is not None:
            held = self.blocks.token_blocks(tokens) + requests * self.blocks.request_blocks
            return held * self.blocks.stride_bytes
        return self._bytes(self._global_bytes(tokens), tokens, requests)

    def tokens_for(self, kv_bytes: int, requests: int) -> int:
        """Most tokens [tokens] that fit beside the windows and state of ``requests`` requests.

        0 when not even those fit.
        """
        _check(kv_bytes=kv_bytes, requests=requests)
        step = self.page_tokens
        return step * _most(
            lambda pages: self.bytes_for(pages * step, requests) <= kv_bytes, MOST // step
        )

    def session_bytes(self, length: int) -> int:
        """KV [B] of one session of ``length`` tokens on its own."""
        return self.bytes_for_sessions(1, length)

    def bytes_for_sessions(self, sessions: int, length: int, slots: int | None = None) -> int:
        """KV [B] of ``sessions`` running sessions of ``length`` tokens each.

        Args:
            sessions: Sessions at once.
            length: Tokens of each [tokens].
            slots: Running requests that the engine set aside windows for; as many as sessions
                when left out.
        """
        _check(sessions=sessions, length=length)
        requests = sessions if slots is None else max(slots, sessions)
        _check(requests=requests)
        if self.blocks is not None:
            held = sessions * self.blocks.token_blocks(length)
            return (held + requests * self.blocks.request_blocks) * self.blocks.stride_bytes
        own = sum(owner.pages(length) * owner.page_bytes for owner in self.owners)
        if self.window.kind != "ratio":
            return self._bytes(sessions * own, 0, requests)
        tokens = max(
            sessions * self._whole_pages(length),
            self.window.tokens_for_rows(sessions * self.window.live_rows),
        )
        return self._bytes(max(sessions * own, self._global_bytes(tokens)), tokens, requests)

    def sessions_for(self, kv_bytes: int, length: int, slots: int | None = None) -> int:
        """Most sessions of ``length`` tokens that fit; at most ``slots`` if given."""
        _check(kv_bytes=kv_bytes, length=length)
        return _most(
            lambda count: self.bytes_for_sessions(count, length, slots) <= kv_bytes,
            MOST if slots is None else slots,
        )

    def admitted_bytes(self, length: int) -> int:
        """KV [B] that one session of ``length`` tokens must find to be admitted.

        More than `session_bytes` where the engine also counts a whole chunk of window rows.
        """
        _check(length=length)
        if self.blocks is None:
            return self.session_bytes(length)
        return self.blocks.admitted_blocks(length) * self.blocks.stride_bytes

    def concurrency(self, kv_bytes: int, length: int) -> Fraction:
        """Sessions of ``length`` tokens as a fraction, the way vLLM prints it.

        Its "GPU KV cache size" is this number times ``length``, not a rate (deployment question 4).
        """
        if self.blocks is None:
            return Fraction(kv_bytes, self.session_bytes(length))
        blocks = kv_bytes // self.blocks.stride_bytes
        return Fraction(blocks, max(1, self.blocks.admitted_blocks(length)))

    def window_rows(self, end: int) -> int:
        """Window rows that a request of ``end`` tokens holds, in whole pages [rows]."""
        held = round_up(min(end, self.window.live_rows), self.window_page_rows)
        if self.blocks is None:
            return held
        return min(
            round_up(end, self.window_page_rows), self.blocks.window_pages * self.window_page_rows
        )

    def parts(self, tokens: int, requests: int) -> tuple[Term, ...]:
        """What `bytes_for` consists of, by owner and kind of row; the bytes add up to it."""
        _check(tokens=tokens, requests=requests)
        tokens = round_up(tokens, self.page_tokens)
        found = [part for owner in self.owners for part in _owner_terms(owner, tokens)]
        rows = self.window.rows(tokens, requests)
        found.append(
            Term(
                name="window KV",
                kind=Kind.KV,
                bytes=self._window_pages_bytes(rows),
                formula=f"{rows} rows ({self.window.kind}) x {self.window_layers} layers, pages of "
                f"{self.window_page_rows} rows = {self.window_page_bytes} B",
                source=_SOURCE,
            )
        )
        base = total(found)
        if self.share != 1:
            found.append(
                Term(
                    name="share of the draft blocks",
                    kind=Kind.KV,
                    bytes=math.ceil(base * self.share) - base,
                    formula=f"{base} B x ({self.share} - 1)",
                    source="runtime-semantics §6.3: (target + draft) / target layers",
                )
            )
        found.append(
            Term(
                name="state of unfinished groups",
                kind=Kind.KV,
                bytes=requests * self.pair_bytes,
                formula=f"{requests} requests x {self.pair_bytes} B",
                source="runtime-semantics §6.2",
            )
        )
        if self.blocks is not None:
            found.append(padding_term(self.blocks, self.bytes_for(tokens, requests), total(found)))
        return tuple(found)

    @property
    def _window_bytes_per_row(self) -> Fraction:
        return Fraction(self.window_layers * self.window_page_bytes, self.window_page_rows)

    def _window_pages_bytes(self, rows: int) -> int:
        pages = -(-rows // self.window_page_rows)
        return pages * self.window_layers * self.window_page_bytes

    def _global_bytes(self, tokens: int) -> int:
        return sum(owner.pages(tokens) * owner.page_bytes for owner in self.owners)

    def _bytes(self, global_bytes: int, tokens: int, requests: int) -> int:
        rows = self.window.rows(tokens, requests)
        pool = global_bytes + self._window_pages_bytes(rows)
        return math.ceil(pool * self.share) + requests * self.pair_bytes

    def _whole_pages(self, tokens: int) -> int:
        spans = math.lcm(*(owner.span_tokens for owner in self.owners)) if self.owners else 1
        return -(-tokens // spans) * spans


def kv_pool(model: Model, policy: RuntimePolicy) -> KvPool:
    """The pool of an engine for a model; tensor parallelism does not change it.

    Raises:
        MissingProfileError: the policy names a row layout that does not exist.
        UnsupportedPlanError: shared blocks with a window rule that needs a pool of its own.
    """
    rows = cache_rows(model, policy.kv_layout)
    layers = len(model.layers)
    drafts = model.draft is not None and policy.speculation != "off"
    by_share = policy.draft_pool == "pool_share"
    counted = model.draft.blocks if model.draft is not None and drafts and not by_share else 0
    window, rings = window_rule(model, policy), ring_bytes(model, policy)
    pool = KvPool(
        layout=rows.name,
        owners=owner_pages(model, rows, policy),
        window=window,
        window_page_bytes=window_page_bytes(rows, policy),
        window_page_rows=policy.window_page_rows,
        window_row_bytes=rows.window_bytes,
        window_layers=layers + counted,
        pair_bytes=sum(rings),
        share=Fraction(layers + 1, layers) if drafts and by_share else Fraction(1),
    )
    return pool if policy.kv_blocks == "own" else _shared(pool, rings, policy)


def padding_term(blocks: SharedBlocks, held_bytes: int, used_bytes: int) -> Term:
    """What whole blocks of one size take beyond the pages that lie in them."""
    return Term(
        name="padding of shared blocks",
        kind=Kind.KV,
        bytes=held_bytes - used_bytes,
        formula=f"{held_bytes // blocks.stride_bytes} blocks x {blocks.stride_bytes} B - "
        f"{used_bytes} B of pages",
        source="vllm/v1/core/kv_cache_utils.py; policy field kv_blocks",
    )


def _shared(pool: KvPool, rings: tuple[int, ...], policy: RuntimePolicy) -> KvPool:
    for name, wanted in (("window_pool", "per_request"), ("draft_pool", "layers")):
        if getattr(policy, name) != wanted:
            raise UnsupportedPlanError(
                f"kv_blocks = 'shared' and {name} = {getattr(policy, name)!r} exclude each other "
                f"({policy.revision}): windows and draft blocks draw blocks from the one pool. Use "
                f"{name} = {wanted!r}, or kv_blocks = 'own'."
            )
    blocks = shared_blocks(
        owners=pool.owners,
        window=pool.window,
        window_page_bytes=pool.window_page_bytes,
        window_page_rows=pool.window_page_rows,
        window_layers=pool.window_layers,
        ring_bytes=rings,
        chunk_tokens=policy.chunk_tokens,
    )
    ring = replace(pool.window, ring_rows=blocks.window_pages * pool.window_page_rows)
    return replace(pool, blocks=blocks, window=ring)


def _owner_terms(owner: OwnerPages, tokens: int) -> tuple[Term, Term]:
    pages = owner.pages(tokens)
    shown = f"{pages} pages of {owner.span_tokens} tokens"
    return (
        Term(
            name=f"entries of layer {owner.layer}",
            kind=Kind.KV,
            bytes=pages * owner.main_bytes,
            formula=f"{shown} x {owner.main_bytes} B",
            source=_SOURCE,
        ),
        Term(
            name=f"index keys of layer {owner.layer}",
            kind=Kind.KV,
            bytes=pages * owner.index_bytes,
            formula=f"{shown} x {owner.index_bytes} B",
            source=_SOURCE,
        ),
    )


def _most(fits: Callable[[int], bool], bound: int) -> int:
    """Largest count up to ``bound`` that fits, 0 if none; ``fits`` must be monotone."""
    if fits(bound):
        return bound
    low, high = 0, bound
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _check(**values: int) -> None:
    for name, value in values.items():
        if type(value) is not int:
            raise InvalidInputError(
                f"{name} = {value!r}: must be a whole number, found {type(value).__name__}"
            )
        if name == "kv_bytes":
            continue  # a budget may be overdrawn
        if not 0 <= value <= MOST:
            raise OutOfRangeError(f"{name} = {value}: must be from 0 to {MOST}")
