"""Claims on the FLOPs of a decode step: raw by operator, and weighted as in the report's Fig. 2.

Every figure is the sum of the operators' linear forms over the ledger of one decode step. Fig. 2
weights a FLOP by its precision but prints no list of terms; which class an operator belongs to is
the convention, and the rows show what each choice gives (fact sheet §6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.claims.context import SHORT_CONTEXT, Context, Formula, decode
from aisim_v41.claims.work import Work, paper, work
from aisim_v41.model.layers import LayerKind
from aisim_v41.model.sharding import StoredAs
from aisim_v41.plan.counts import Count
from aisim_v41.units import BILLION, FLOP_PER_MAC

ATTENTION_PROJECTIONS = ("q_down", "q_up", "kv_down", "o_down", "o_up")
HYPER = ("mhc_statistics", "mhc_collapse", "mhc_expand")
INDEX_SMALL = ("index_weights", "index_key")
LAYER_LINEAR = (*ATTENTION_PROJECTIONS, *HYPER, "router_gate", "routed_experts", "shared_expert")
"""What every layer runs, whatever its kind, without core and index scoring."""
THIRTY_TWO_K, LONG_CONTEXT = 1 << 15, 1 << 17
MILLION = 10**6
"""1M read as a decimal million instead of 2**20 [tokens]."""

PRECISION_WEIGHTS: Mapping[Arithmetic, float] = {
    Arithmetic.FP32: 1.0,
    Arithmetic.TF32: 1.0,
    Arithmetic.BF16: 1.0,
    Arithmetic.FP8: 0.5,
    Arithmetic.FP4: 0.25,
}
"""Caption of Fig. 2 (claim flop-02); FP32 parts count as BF16 (fact sheet §6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One reading of Fig. 2.

    Args:
        experts: class of the routed experts: the rate of their FP8 activations, or of the FP4
            weights.
        wo_a: grouped output projection as stored, or in BF16 as the reference multiplies it.
        reindex: Reindex layers score the candidate pool, or everything.
    """

    experts: Arithmetic = Arithmetic.FP8
    wo_a: StoredAs = StoredAs.CHECKPOINT
    reindex: Literal["candidates", "dense"] = "candidates"

    @property
    def weights(self) -> dict[Arithmetic, float]:
        """Weight of each arithmetic class."""
        experts = PRECISION_WEIGHTS[self.experts]
        return {**PRECISION_WEIGHTS, Arithmetic.MXFP4_MXFP8: experts}


CONVENTIONS: Mapping[str, Convention] = {
    "fp8-bf16": Convention(wo_a=StoredAs.BF16),
    "fp8-fp8": Convention(),
    "fp4-bf16": Convention(experts=Arithmetic.FP4, wo_a=StoredAs.BF16),
    "fp4-fp8": Convention(experts=Arithmetic.FP4),
    "dense": Convention(reindex="dense"),
}
"""Rows of the fact sheet's table: precision of experts, then of ``wo_a``."""
PLAIN = CONVENTIONS["fp8-fp8"]


def decode_work(context: Context, length: int, convention: Convention = PLAIN) -> Work:
    """Operators of one decode token whose context is ``length`` tokens."""
    policy = paper(context, wo_a=convention.wo_a, reindex_scoring=convention.reindex)
    return work(context, policy, decode(length))


def weighted_flops(context: Context, length: int, convention: Convention) -> float:
    """Weighted FLOP of one decode token."""
    return decode_work(context, length, convention).weighted(convention.weights)


def growth(context: Context, convention: Convention, *, longest: int | None = None) -> float:
    """Growth of weighted FLOPs from 4K to the longest context, as a fraction."""
    last = context.max_context if longest is None else longest
    first = weighted_flops(context, SHORT_CONTEXT, convention)
    return weighted_flops(context, last, convention) / first - 1


def _raw(*names: str, length: int = SHORT_CONTEXT) -> Formula:
    """FLOP of some operators of one decode token; of all if none is named."""
    return lambda context: decode_work(context, length).flops(*names)


def _flops_at_end(context: Context) -> float:
    """FLOP of one decode token at full context."""
    return decode_work(context, context.max_context).flops()


def index_small(context: Context) -> float:
    """Head weights and index keys [FLOP/token]: mean over as many steps as an entry takes."""
    steps = max(owner.ratio for owner in context.model.kv_owners)
    lengths = range(SHORT_CONTEXT, SHORT_CONTEXT + steps)
    return sum(decode_work(context, n).flops(*INDEX_SMALL) for n in lengths) / steps


def _growth_of(which: Literal["full", "reindex", "all"]) -> Formula:
    """Weighted FLOP [1e9] that index scoring adds from 4K to the end, by kind of layer."""

    def value(context: Context) -> float:
        weights = PLAIN.weights

        def at(length: int) -> float:
            return decode_work(context, length).weighted(weights, "index_score")

        both = at(context.max_context) - at(SHORT_CONTEXT)
        reindex = _reindex_scores(context, context.max_context)
        reindex -= _reindex_scores(context, SHORT_CONTEXT)
        reindex *= weights[Arithmetic.FP4]
        return {"all": both, "reindex": reindex, "full": both - reindex}[which] / BILLION

    return value


def _reindex_scores(context: Context, length: int) -> float:
    """FLOP of index scoring in Reindex layers: scored positions times the FLOP of one score."""
    counted = context.ledger(decode(length), policy=paper(context))
    by_kind = {
        kind: sum(
            counted.total(Count.SCORED_POSITIONS, layer.index)
            for layer in context.model.layers
            if layer.kind is kind
        )
        for kind in (LayerKind.FULL, LayerKind.REINDEX)
    }
    per_score = decode_work(context, length).flops("index_score") / sum(by_kind.values())
    return by_kind[LayerKind.REINDEX] * per_score


def _macs_per_layer(*names: str) -> Formula:
    """Multiply-accumulates a token and layer of operators that every layer runs."""
    return lambda context: _raw_value(context, names) / len(context.model.layers)


def _macs_per_call(*names: str) -> Formula:
    """Multiply-accumulates a token of operators that run in some layers only."""

    def value(context: Context) -> float:
        return _raw_value(context, names) / decode_work(context, SHORT_CONTEXT).calls(names[0])

    return value


def _raw_value(context: Context, names: tuple[str, ...]) -> float:
    return decode_work(context, SHORT_CONTEXT).flops(*names) / FLOP_PER_MAC


def _table() -> dict[str, Formula]:
    """The weighted table: GFLOP at both ends, growth, growth with a decimal million."""
    rows: dict[str, Formula] = {}
    for name, convention in CONVENTIONS.items():
        rows[f"flop-{name}-4k"] = _weighted(convention, SHORT_CONTEXT)
        rows[f"flop-{name}-1m"] = _weighted(convention, None)
        rows[f"flop-{name}-growth"] = _growth(convention, None)
        if convention.reindex == "candidates":
            rows[f"flop-{name}-growth-decimal"] = _growth(convention, MILLION)
    return rows


def _weighted(convention: Convention, length: int | None) -> Formula:
    return lambda c: (
        weighted_flops(c, c.max_context if length is None else length, convention) / BILLION
    )


def _growth(convention: Convention, longest: int | None) -> Formula:
    return lambda context: growth(context, convention, longest=longest)


def _raw_score(context: Context, length: int) -> float:
    """FLOP [1e9] of index scoring of one decode token."""
    return decode_work(context, length).flops("index_score") / BILLION


FORMULAS: Mapping[str, Formula] = {
    "flop-03": _growth(CONVENTIONS["fp8-fp8"], None),
    "flop-04": _growth(CONVENTIONS["fp4-fp8"], None),
    "flop-05": _growth(CONVENTIONS["dense"], None),
    "flop-06": _weighted(CONVENTIONS["fp8-fp8"], SHORT_CONTEXT),
    "flop-07": _weighted(CONVENTIONS["fp8-fp8"], None),
    "flop-25": _growth(CONVENTIONS["fp8-bf16"], None),
    "flop-raw-projections": _raw(*ATTENTION_PROJECTIONS),
    "flop-raw-routed": _raw("routed_experts"),
    "flop-raw-shared": _raw("shared_expert"),
    "flop-raw-core": _raw("sparse_attention"),
    "flop-raw-head": _raw("output_head"),
    "flop-raw-engram": _raw("engram_project"),
    "flop-raw-router": _raw("router_gate"),
    "flop-raw-mhc": _raw(*HYPER),
    "flop-raw-index-query": _raw("index_query"),
    "flop-raw-compressor": _raw("compress_project"),
    "flop-raw-index-small": index_small,
    "flop-raw-score-4k": lambda c: _raw_score(c, SHORT_CONTEXT),
    "flop-raw-score-32k": lambda c: _raw_score(c, THIRTY_TWO_K),
    "flop-raw-score-128k": lambda c: _raw_score(c, LONG_CONTEXT),
    "flop-raw-score-1m": lambda c: _raw_score(c, c.max_context),
    "flop-raw-sum-4k": lambda c: decode_work(c, SHORT_CONTEXT).flops() / BILLION,
    "flop-raw-sum-1m": lambda c: _flops_at_end(c) / BILLION,
    "flop-raw-growth": lambda c: _flops_at_end(c) / decode_work(c, SHORT_CONTEXT).flops(),
    "flop-growth-all": _growth_of("all"),
    "flop-growth-full": _growth_of("full"),
    "flop-growth-reindex": _growth_of("reindex"),
    "mac-projections": _macs_per_layer(*ATTENTION_PROJECTIONS),
    "mac-experts": _macs_per_layer("routed_experts", "shared_expert"),
    "mac-router": _macs_per_layer("router_gate"),
    "mac-layer": _macs_per_layer(*LAYER_LINEAR),
    "mac-reindex": _macs_per_call("index_query", "index_weights"),
    "mac-engram": _macs_per_call("engram_project"),
    **_table(),
}
