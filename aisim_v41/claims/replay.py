"""Claims on encoder replay and cache hits: published vectors, rows that a hit schedules, forwards.

Source of the figures: ledger vectors 30-35 and 40 (runtime-semantics §10, from SGLang's test of the
folded replay and its replay code); vLLM pull request 56227; a public report on eight B200. Rows are
ledger counts, hits what `aisim_v41.caching` makes of a lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from aisim_v41.caching.adoption import Adoption, adopt
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.claims.context import Context, Formula
from aisim_v41.claims.storage import encoder_window_bytes
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import Ledger
from aisim_v41.plan.plan import forward_passes
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request
from aisim_v41.units import GB

LONG_HIT, BRANCH, NEW, SHORT_HIT = 1 << 13, 1 << 16, 512, 100
"""Hits of the vectors and of the pull request, and the new tokens behind the latter [tokens]."""
EXTEND = 64
"""New tokens behind the long hit of the vectors [tokens]."""
BATCH, REPORT_HIT, REPORT_NEW = 8, 7936, 256
"""Hits of the report's batch, each as long, with as many new tokens."""
POOL_GB = 100


def _policy(context: Context, name: str, *, decoder_replay: bool) -> RuntimePolicy:
    """A preset that folds, with hits of any length; replay keeps one window of this model."""
    return policy(
        "custom", base=name, encoder_replay="folded", decoder_replay=decoder_replay,
        encoder_replay_rows=context.window, replay_tail_rows=context.window, hit_page_tokens=1,
        hit_min_tokens=0,
    )  # fmt: skip


def _hit(prefix: int, new: int = 0) -> Request:
    return Request(new_tokens=new, prefix_tokens=prefix, window="missing")


VECTORS: Mapping[int, tuple[str, bool, tuple[Request, ...]]] = {
    30: ("sglang", True, (Request(new_tokens=40), _hit(512, 30), _hit(64, 20))),
    31: ("sglang", False, (_hit(SHORT_HIT),)),
    32: ("sglang", False, (_hit(128),)),
    33: ("sglang", False, (_hit(LONG_HIT),)),
    34: ("sglang", True, (_hit(LONG_HIT, EXTEND),)),
    35: ("vllm", True, (_hit(LONG_HIT, EXTEND),)),
    40: ("sglang", True, (_hit(LONG_HIT + 1, EXTEND),)),
}
"""Engine, decoder replay and requests of the published vectors."""


def counted(context: Context, vector: int) -> Ledger:
    """The ledger of one vector."""
    name, decoder_replay, requests = VECTORS[vector]
    return context.ledger(*requests, policy=_policy(context, name, decoder_replay=decoder_replay))


def _count(vector: int, count: Count, which: Literal["last owner", "last layer"]) -> Formula:
    def value(context: Context) -> int:
        layer = context.boundary if which == "last owner" else len(context.model.layers) - 1
        return counted(context, vector).total(count, layer)

    return value


def _token_layers(vector: int) -> Callable[[Context], int]:
    return lambda context: counted(context, vector).token_layers


def late_floors(context: Context, vector: int) -> tuple[int, ...]:
    """Oldest position that the late rows of each request see."""
    frame = counted(context, vector).to_frame()
    return tuple(frame.loc[frame.layer == len(context.model.layers) - 1, "window_floor"].tolist())


def late_rows(context: Context, vector: int) -> tuple[int, ...]:
    """Rows of each request that the last layer runs."""
    step = counted(context, vector)
    layer = len(context.model.layers) - 1
    return tuple(
        step.value(Count.QUERY_ROWS, layer, request=place)
        for place in range(len(step.plan.requests))
    )


def adopted(context: Context, *, hit: int, new: int) -> Adoption:
    """What vLLM makes of a hit of the entries alone."""
    runtime = policy("vllm", encoder_replay_rows=context.window, hit_min_tokens=context.window)
    return adopt(context.model, CacheLookup(prompt_tokens=hit + new, global_tokens=hit), runtime)


def forwards_of_a_batch(context: Context) -> int:
    """Forwards of a step of eight hits where each is replayed on its own."""
    hit = Request(new_tokens=REPORT_NEW, prefix_tokens=REPORT_HIT, window="missing", count=BATCH)
    runtime = policy("sglang", encoder_replay="separate", encoder_replay_rows=context.window)
    return sum(forward.times for forward in forward_passes((hit,), runtime))


def replayed_rows_of_a_batch(context: Context) -> int:
    """Rows that those forwards compute again in one layer."""
    hit = _hit(REPORT_HIT)
    runtime = policy("sglang", encoder_replay="separate", encoder_replay_rows=context.window)
    return BATCH * context.ledger(hit, policy=runtime).total(Count.QUERY_ROWS, 0)


FORMULAS: Mapping[str, Formula] = {
    **{f"vec-{number}-token-layers": _token_layers(number) for number in VECTORS},
    "vec-30-late-rows": partial(late_rows, vector=30),
    "vec-30-late-floors": partial(late_floors, vector=30),
    "vec-30-window-pairs": _count(30, Count.WINDOW_PAIRS, "last layer"),
    "vec-33-scored": _count(33, Count.SCORED_POSITIONS, "last owner"),
    "vec-34-late-floor": partial(late_floors, vector=34),
    "vec-34-scored": _count(34, Count.SCORED_POSITIONS, "last owner"),
    "vec-34-selected": _count(34, Count.SELECTED_ENTRIES, "last owner"),
    "vec-40-late-floor": partial(late_floors, vector=40),
    "vec-40-scored": _count(40, Count.SCORED_POSITIONS, "last owner"),
    "hit-rows-long": lambda c: adopted(c, hit=BRANCH, new=NEW).rows,
    "hit-rows-short": lambda c: adopted(c, hit=SHORT_HIT, new=NEW).rows,
    "hit-batch-rows": replayed_rows_of_a_batch,
    "hit-batch-forwards": forwards_of_a_batch,
    "stor-05-snapshots": lambda c: POOL_GB * GB / encoder_window_bytes(c),
}
