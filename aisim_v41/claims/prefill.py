"""Claims on prefill: rows and FLOPs that replay saves, and rows that it recomputes.

Source of the figures: technical report §2.2, §3.2.2; engines' blog posts; ledger vectors
(runtime-semantics §10). Rows are ledger counts, FLOPs the operators' forms over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal

from aisim_v41.claims.context import Context, Formula, decode
from aisim_v41.claims.work import paper, sglang, work
from aisim_v41.model.layers import LayerKind
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request, chunked
from aisim_v41.units import BILLION

Runtime = Callable[..., RuntimePolicy]

PROMPT, LONG_PROMPT, VERY_LONG_PROMPT = 1 << 13, 1 << 15, 1 << 17
"""8K, 32K and 128K prompts of the publications [tokens]."""
CHUNK, SMALL_CHUNK = 1 << 13, 1 << 11
PERCENT = 100
_NOT_LINEAR = ("sparse_attention", "index_score")


def token_layers(
    context: Context, runtime: RuntimePolicy, *, tokens: int, chunk: int | None = None
) -> int:
    """Rows summed over layers of one prompt, chunk by chunk."""
    steps = chunked(tokens, chunk_tokens=tokens if chunk is None else chunk)
    return sum(context.ledger(step, policy=runtime).token_layers for step in steps)


def _rows(
    runtime: Runtime, tokens: int, *, replay: bool, chunk: int | None = None
) -> Callable[[Context], int]:
    return lambda context: token_layers(
        context, runtime(context, replay=replay), tokens=tokens, chunk=chunk
    )


def row_ratio(runtime: Runtime, tokens: int) -> Callable[[Context], Fraction]:
    """Layer rows with replay over those without."""
    return lambda c: Fraction(
        _rows(runtime, tokens, replay=True)(c), _rows(runtime, tokens, replay=False)(c)
    )


def flop_ratio(runtime: Runtime, tokens: int) -> Formula:
    """FLOP of a cold prompt in one chunk, with replay over without; every operator counted."""

    def value(context: Context) -> float:
        request = Request(new_tokens=tokens)
        with_replay, without = (
            work(context, runtime(context, replay=replay), request).flops()
            for replay in (True, False)
        )
        return with_replay / without

    return value


def linear_flops(context: Context, tokens: int) -> float:
    """FLOP of a cold prompt under the report's replay, without core and index scoring."""
    step = work(context, paper(context, replay=True), Request(new_tokens=tokens))
    return step.flops() - step.flops(*_NOT_LINEAR)


def linear_slope(context: Context) -> float:
    """The same for each further token [GFLOP/token]: the replayed tail does not grow."""
    more = linear_flops(context, 2 * PROMPT) - linear_flops(context, PROMPT)
    return more / PROMPT / BILLION


def replayed_rows(context: Context) -> int:
    """Rows that encoder replay recomputes in front of one new token after a long hit."""
    runtime = paper(context, encoder_replay="folded", encoder_replay_rows=context.window)
    hit = Request(new_tokens=1, prefix_tokens=PROMPT, window="missing")
    return context.ledger(hit, policy=runtime).total(Count.QUERY_ROWS, 0) - hit.new_tokens


def replay_window_pairs(context: Context) -> int:
    """Causal pairs of the late layers' window in a replay of one window's rows."""
    counted = context.ledger(Request(new_tokens=PROMPT), policy=sglang(context, replay=True))
    return counted.total(Count.WINDOW_PAIRS, len(context.model.layers) - 1)


def exact_halo_rows(context: Context) -> int:
    """Rows that make the last window of the layers after the last owner exact."""
    runtime = sglang(context, replay=True, replay_exact=True, replay_exact_multiple=1)
    counted = context.ledger(Request(new_tokens=LONG_PROMPT), policy=runtime)
    return counted.total(Count.QUERY_ROWS, len(context.model.layers) - 1)


def window_rows_to_rebuild(which: Literal["all", "decoder"]) -> Formula:
    """Tokens that rebuild all window KV, one window a layer: L x n_win of the report."""

    def value(context: Context) -> int:
        counted = context.ledger(decode(context.max_context), policy=paper(context))
        return sum(
            counted.total(Count.WINDOW_ROWS, layer.index)
            for layer in context.model.layers
            if which == "all" or layer.index >= context.boundary
        )

    return value


def saved_percent(context: Context) -> Fraction:
    """Token-layers that SGLang's replay saves of an 8,192-token prompt [%]."""
    return PERCENT * (1 - row_ratio(sglang, PROMPT)(context))


def reindex_scores(runtime: Runtime) -> Formula:
    """Index positions scored by one Reindex layer in a replayed 32,768-token prompt."""

    def value(context: Context) -> int:
        counted = context.ledger(
            Request(new_tokens=LONG_PROMPT), policy=runtime(context, replay=True)
        )
        layer = next(x for x in context.model.layers if x.kind is LayerKind.REINDEX)
        return counted.total(Count.SCORED_POSITIONS, layer.index)

    return value


FORMULAS: Mapping[str, Formula] = {
    "flop-09": row_ratio(paper, PROMPT),
    "flop-10": flop_ratio(paper, LONG_PROMPT),
    "flop-11": flop_ratio(sglang, VERY_LONG_PROMPT),
    "flop-11-low": flop_ratio(sglang, LONG_PROMPT),
    "flop-12": window_rows_to_rebuild("all"),
    "flop-13": window_rows_to_rebuild("decoder"),
    "flop-13-halo": exact_halo_rows,
    "flop-14": replayed_rows,
    "flop-linear-token": linear_slope,
    "flop-linear-8192": lambda c: linear_flops(c, PROMPT) / BILLION,
    "led-8192": _rows(sglang, PROMPT, replay=False),
    "led-8192-replay": _rows(sglang, PROMPT, replay=True),
    "led-8192-replay-kv-only": _rows(paper, PROMPT, replay=True),
    "led-8192-saved": saved_percent,
    "led-32768": _rows(sglang, LONG_PROMPT, replay=False),
    "led-32768-replay": _rows(sglang, LONG_PROMPT, replay=True),
    "led-32768-replay-4": _rows(sglang, LONG_PROMPT, replay=True, chunk=CHUNK),
    "led-32768-replay-16": _rows(sglang, LONG_PROMPT, replay=True, chunk=SMALL_CHUNK),
    "led-32768-reindex": reindex_scores(sglang),
    "stor-06": replay_window_pairs,
}
