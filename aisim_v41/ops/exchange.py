"""Messages between ranks that do not hold the same rows: gathers before, sums and shares after.

Ranks of attention data parallelism or context parallelism gather their rows before the experts,
of which each runs its part, and get the sums of their own rows back. Under context parallelism the
rows of one request lie on different ranks, each of which stores the KV of all: the projection of
window KV, and the input of the compressor at an owner, are gathered too.
Source: runtime-semantics §4.4; what is taken as true: docs/assumptions.md, "Ranks".
"""

from __future__ import annotations

from aisim_v41.ops.operator import Collective, Family, Operator
from aisim_v41.ops.rank import BF16_BYTES, Rank
from aisim_v41.plan.counts import Count

_SOURCE = "runtime-semantics §4.4"


def gather_rows(rank: Rank) -> Operator | None:
    """Normalised rows of every rank before router and experts; None where all have the same."""
    if rank.exchanging == 1:
        return None
    row = rank.model.hidden * BF16_BYTES
    return Operator(
        name="gather_rows",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_GATHER,
        payload=row * Count.REPLICA_ROWS,
        group=rank.exchanging,
        inputs={"normed": row * Count.QUERY_ROWS},
        outputs={"gathered": row * Count.REPLICA_ROWS},
        launches=1 * Count.REPLICA_ACTIVE,
        axes=(Count.REPLICA_ROWS,),
        source=_SOURCE,
    )


def return_rows(rank: Rank) -> Operator | None:
    """Sums of the ranks' partial expert outputs, to the rank of each row."""
    if rank.exchanging == 1:
        return None
    row = rank.model.hidden * BF16_BYTES
    scattered = rank.policy.exchange_return == "reduce_scatter"
    return Operator(
        name="return_rows",
        family=Family.COLLECTIVE,
        collective=Collective.REDUCE_SCATTER if scattered else Collective.ALL_REDUCE,
        payload=row * Count.REPLICA_ROWS,
        group=rank.exchanging,
        inputs={"routed": row * Count.REPLICA_ROWS},
        outputs={"sublayer": row * Count.QUERY_ROWS},
        launches=1 * Count.REPLICA_ACTIVE,
        axes=(Count.REPLICA_ROWS,),
        source=_SOURCE,
    )


def gather_latents(rank: Rank) -> Operator | None:
    """Window latents of the rows of every rank, each of which stores all of them."""
    if rank.parallel.cp == 1:
        return None
    row = rank.model.attention.head_dim * BF16_BYTES
    return Operator(
        name="gather_latents",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_GATHER,
        payload=row * Count.STORED_ROWS,
        group=rank.parallel.cp,
        inputs={"kv_latent": row * Count.KV_ROWS},
        outputs={"kv_latents": row * Count.STORED_ROWS},
        launches=1 * Count.STORED_ACTIVE,
        axes=(Count.STORED_ROWS,),
        source=f"{_SOURCE}: the 512-wide projection",
    )


def gather_inputs(rank: Rank) -> Operator | None:
    """Inputs of an owner's compressor, which every rank runs on all rows."""
    if rank.parallel.cp == 1:
        return None
    row = rank.model.hidden * BF16_BYTES
    return Operator(
        name="gather_inputs",
        family=Family.COLLECTIVE,
        collective=Collective.ALL_GATHER,
        payload=row * Count.COMPRESSED_ROWS,
        group=rank.parallel.cp,
        inputs={"normed": row * Count.KV_ROWS},
        outputs={"normed_rows": row * Count.COMPRESSED_ROWS},
        launches=1 * Count.COMPRESS_ACTIVE,
        axes=(Count.COMPRESSED_ROWS,),
        source=f"{_SOURCE}: the 5,120-wide input at the four owners",
    )
