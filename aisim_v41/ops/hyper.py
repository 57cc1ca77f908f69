"""Hyper-connections (mHC): the four residual streams around a sub-layer, its norm and conversion.

A site reads the streams, makes coefficients, collapses the streams into the sub-layer's input with
coefficients of the site before, and afterwards expands the output back into the streams.
Source: report §2.4.1; model-facts §4.1. Traffic in units of the hidden width d, for n streams:
elementary (4n + 4)d, two-pass (3n + 2)d, single-pass (2n + 2)d; `aisim-v41 claims` recomputes them
from the records below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import Family, Operator
from aisim_v41.ops.rank import BF16_BYTES, FP8_BYTES, FP32_BYTES, Rank
from aisim_v41.plan.counts import Count
from aisim_v41.units import FLOP_PER_MAC

Site = Literal["attn", "ffn"]
SITES: Final[tuple[Site, Site]] = ("attn", "ffn")


def _activity(rows: Count) -> Count:
    """The 0/1 count that says whether there are any such rows."""
    return {Count.KV_ROWS: Count.KV_ACTIVE, Count.LOGIT_ROWS: Count.HEAD_ACTIVE}.get(
        rows, Count.ACTIVE
    )


def statistics(rank: Rank, weights: Mapping[str, Tensor], site: Site) -> Operator:
    """Coefficients of a site: [streams x hidden -> n(n + 2)] in FP32, then Sinkhorn.

    Kernels run the product on matrix units in TF32, so the FP32 scalar rate would not be a bound.
    """
    hyper, hidden = rank.model.hyper, rank.model.hidden
    roles = [f"hc_{site}_{part}" for part in ("fn", "base", "scale")]
    per_row = FLOP_PER_MAC * hyper.streams * hidden * hyper.coefficients
    return Operator(
        name="mhc_statistics",
        family=Family.HYPER_CONNECTIONS,
        flops={Arithmetic.TF32: per_row * Count.QUERY_ROWS},
        weights=sum(weights[role].bytes for role in roles) * Count.ACTIVE,
        inputs={"streams": hyper.streams * hidden * BF16_BYTES * Count.QUERY_ROWS},
        outputs={"coefficients": hyper.coefficients * FP32_BYTES * Count.QUERY_ROWS},
        source="model-facts §4.1: 491,520 multiply-accumulates a site",
    )


def collapse(rank: Rank, rows: Count = Count.KV_ROWS, name: str = "mhc_collapse") -> Operator:
    """Weighted sum of the streams with the previous site's coefficients."""
    hyper, hidden = rank.model.hyper, rank.model.hidden
    return Operator(
        name=name,
        family=Family.HYPER_CONNECTIONS,
        flops={Arithmetic.FP32: FLOP_PER_MAC * hyper.streams * hidden * rows},
        inputs={"streams": hyper.streams * hidden * BF16_BYTES * rows},
        outputs={"mixed": hidden * BF16_BYTES * rows},
        axes=(rows,),
        launches=1 * _activity(rows),
        source="model-facts §4.1",
    )


def site_norm(
    rank: Rank, weights: Mapping[str, Tensor], site: Site, rows: Count = Count.KV_ROWS
) -> Operator:
    """RMSNorm before the sub-layer."""
    width = rank.model.hidden * BF16_BYTES * rows
    active = _activity(rows)
    return Operator(
        name="site_norm",
        family=Family.ELEMENTWISE,
        weights=weights[f"{site}_norm"].bytes * active,
        inputs={"mixed": width},
        outputs={"normed": width},
        axes=(rows,),
        launches=1 * active,
        source="model-facts §4.1",
    )


def site_quantise(rank: Rank, rows: Count = Count.KV_ROWS) -> Operator:
    """Conversion of the normed rows to FP8 with a scale per 32 values, once for all products."""
    hidden = rank.model.hidden
    return Operator(
        name="site_quantise",
        family=Family.ELEMENTWISE,
        inputs={"normed": hidden * BF16_BYTES * rows},
        outputs={"quantised": hidden * FP8_BYTES * rows},
        axes=(rows,),
        launches=1 * _activity(rows),
        source="runtime-semantics §5.4: charged once",
    )


def expand(rank: Rank) -> Operator:
    """Sub-layer output back into the streams, and the streams mixed among themselves."""
    n, hidden = rank.model.hyper.streams, rank.model.hidden
    sublayer = "sublayer" if rank.tp == 1 else "sublayer_summed"
    return Operator(
        name="mhc_expand",
        family=Family.HYPER_CONNECTIONS,
        flops={Arithmetic.FP32: FLOP_PER_MAC * (n + n * n) * hidden * Count.QUERY_ROWS},
        inputs={
            sublayer: hidden * BF16_BYTES * Count.QUERY_ROWS,
            "streams_before": n * hidden * BF16_BYTES * Count.QUERY_ROWS,
        },
        outputs={"streams": n * hidden * BF16_BYTES * Count.QUERY_ROWS},
        source="model-facts §4.1: 20,480 + 81,920 multiply-accumulates",
    )
