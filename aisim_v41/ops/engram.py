"""Engram: n-gram memory rows added to the streams before a layer.

Rows are found by hashing token ids, so fetch, look-up, all-reduce and projection depend on no
hidden state and can run beside earlier layers; only the gate waits for the streams. All run on the
rows whose streams the layer reads. Source: model-facts §4.6; placement runtime-semantics §8;
docs/assumptions.md, "Engram".
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops.operator import (
    PAGE_BYTES,
    ZERO,
    Collective,
    Columns,
    Family,
    Form,
    Operator,
    Task,
)
from aisim_v41.ops.projections import projection
from aisim_v41.ops.rank import BF16_BYTES, Rank
from aisim_v41.plan.counts import Count, LinearForm
from aisim_v41.units import FLOP_PER_MAC

PAGES_PER_ROW = 2
"""Values and scales of a row lie apart in the checkpoint (model-facts §2)."""
_LOOKING_UP = 1 * Count.KV_ROWS + -1 * Count.IMAGE_ROWS
"""Rows of a layer that ask for table rows: all but those of images."""
_IN_GPU_MEMORY = {"hbm": 1.0, "disk": 0.0}
"""Share of a rank's rows that its own memory has; of host tables, what a cache holds."""


def own_rows(rank: Rank) -> float:
    """Distinct table rows that a rank gets for one token of the step."""
    engram, policy = rank.model.engram, rank.policy
    assert engram is not None
    owners = 1 if policy.engram_residency == "host_shared" else rank.table_ranks
    return engram.rows_per_token * policy.engram_distinct_share / owners


def _over_all(rank: Rank) -> bool:
    """Whether a table over ranks with rows of their own is asked for the rows of all
    (runtime-semantics §4.4)."""
    return rank.table_ranks != rank.tp and rank.policy.engram_residency != "host_shared"


def looking_up(rank: Rank) -> LinearForm:
    """Rows that ask a rank's part of a table."""
    return 1 * Count.REPLICA_ROWS if _over_all(rank) else _LOOKING_UP


def engram_fetch(rank: Rank, weights: Mapping[str, Tensor]) -> Operator | None:
    """A rank's distinct rows that its memory does not have, over the link to its host; from disk in
    whole pages before that. It needs token ids alone.

    Nothing is launched: copies run beside the kernels, or the look-up itself reads host memory.
    """
    engram, policy = rank.model.engram, rank.policy
    assert engram is not None
    missing = own_rows(rank) * (1 - policy.engram_hit_share)
    crossing = own_rows(rank) if policy.engram_residency == "disk" else missing
    if policy.engram_residency == "hbm" or not crossing:
        return None
    row = weights["engram.embed"].format.bytes(1, engram.head_dim)
    pages: Form = ZERO
    if policy.engram_residency == "disk" and missing:
        pages = missing * PAGES_PER_ROW * PAGE_BYTES * looking_up(rank)
    return Operator(
        name="engram_fetch",
        family=Family.ENGRAM,
        host_reads=crossing * row * looking_up(rank),
        disk_reads=pages,
        launches=ZERO,
        axes=(Count.KV_ROWS,),
        source="runtime-semantics §8; model-facts §4.6: 264 B a row",
    )


def engram_lookup(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Table rows of every text token: 24 x (256 + 8) B, of which a rank holds its share.

    Image rows look nothing up. Rows that are distinct within the step are read, from a table or a
    cache in the rank's memory; what is elsewhere, `engram_fetch` brings.
    """
    engram, policy = rank.model.engram, rank.policy
    assert engram is not None
    row = weights["engram.embed"].format.bytes(1, engram.head_dim)
    here = _IN_GPU_MEMORY.get(policy.engram_residency, policy.engram_hit_share)
    read: Form = own_rows(rank) * here * row * looking_up(rank) if here else ZERO
    return Operator(
        name="engram_lookup",
        family=Family.ENGRAM,
        table_reads=read,
        outputs={"engram_rows": engram.width * BF16_BYTES * Count.KV_ROWS},
        launches=1 * Count.KV_ACTIVE,
        axes=(Count.KV_ROWS,),
        source="model-facts §4.6: 6,336 B a token and module",
    )


def rows_looking_up(lookup: Task) -> Columns:
    """Rows of a placed look-up that ask for table rows: all but those of images."""
    return {lookup.rows: 1, lookup.rows._replace(quantity=Count.IMAGE_ROWS): -1}


def all_reduce_engram(rank: Rank) -> Operator | None:
    """Sum of the ranks' partial rows; a shared host copy needs none."""
    engram = rank.model.engram
    assert engram is not None
    if rank.table_ranks == 1 or rank.policy.engram_residency == "host_shared":
        return None
    over_all = _over_all(rank)
    rows = Count.REPLICA_ROWS if over_all else Count.KV_ROWS
    return Operator(
        name="all_reduce_engram",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_REDUCE,
        payload=engram.width * BF16_BYTES * rows,
        group=rank.table_ranks,
        launches=1 * (Count.REPLICA_ACTIVE if over_all else Count.KV_ACTIVE),
        axes=(rows,),
        source="runtime-semantics §4.3: 12,288 B a row and table",
    )


def engram_project(weights: Mapping[str, Tensor]) -> Operator:
    """``engram.wkv``: [24 x 256 -> 5 x hidden], one key a stream and a shared value, replicated."""
    return projection(
        "engram_project", weights["engram.wkv"], reads="engram_rows", writes="engram_keys",
        family=Family.ENGRAM, rows=Count.KV_ROWS, active=Count.KV_ACTIVE,
        source="model-facts §4.6",
    )  # fmt: skip


def engram_gate(rank: Rank, weights: Mapping[str, Tensor]) -> Operator:
    """Gate per stream from the normalised dot of stream and key, and the gated addition."""
    n, hidden = rank.model.hyper.streams, rank.model.hidden
    streams = n * hidden * BF16_BYTES * Count.KV_ROWS
    gates = [weights[role].bytes for role in ("engram.q_weight", "engram.k_weight")]
    return Operator(
        name="engram_gate",
        family=Family.ENGRAM,
        flops={Arithmetic.FP32: FLOP_PER_MAC * 3 * n * hidden * Count.KV_ROWS},
        weights=sum(gates) * Count.KV_ACTIVE,
        inputs={
            "streams": streams,
            "engram_keys": weights["engram.wkv"].rows * BF16_BYTES * Count.KV_ROWS,
        },
        outputs={"streams_with_memory": streams},
        launches=1 * Count.KV_ACTIVE,
        axes=(Count.KV_ROWS,),
        source="model-facts §4.6: about 4 x 3 x 5,120 multiply-accumulates",
    )
