"""Claims on Engram: shapes, table bytes, its hash, rows read for a token, all-reduces by residency.

Source of the figures: technical report §2.4.2; SGLang cookbook and LMSYS blog; fact sheet §4.6.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.claims.context import SHORT_CONTEXT, Context, Formula, decode
from aisim_v41.claims.work import paper, sglang, work
from aisim_v41.model.inventory import Totals
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import layer_tensors
from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.engram_hash import multipliers_of, primes_of
from aisim_v41.units import GIB


def tables(context: Context) -> Totals:
    """Totals of all tables."""
    return context.inventory.by_group[TensorGroup.ENGRAM_TABLE]


def table_bytes(context: Context, module: int) -> int:
    """Values and scales of one module's table [B]."""
    layer = context.model.layers[context.engram.layers[module]]
    return layer_tensors(context.model, layer)["engram.embed"].bytes


def bytes_per_token(context: Context) -> float:
    """Table rows that one decode token reads [B], all modules, from the look-up operator."""
    step = work(context, paper(context), decode(SHORT_CONTEXT))
    return step.traffic((Traffic.TABLE_READ,), "engram_lookup")


def all_reduces(residency: str) -> Formula:
    """All-reduces of Engram rows in a decode step on four ranks."""

    def value(context: Context) -> int:
        policy = sglang(context, engram_residency=residency)
        step = work(context, policy, decode(SHORT_CONTEXT), parallel=Parallel(tp=4))
        return step.calls("all_reduce_engram")

    return value


def split_difference(context: Context) -> float:
    """By how much the last module is larger than the first."""
    first, *_, last = context.engram.rows
    return (last - first) / first


FORMULAS: Mapping[str, Formula] = {
    "eng-01": lambda c: len(c.engram.layers),
    "eng-02": lambda c: c.engram.layers,
    "eng-03": split_difference,
    "eng-04": lambda c: c.engram.heads,
    "eng-05": lambda c: c.engram.max_ngram - 1,
    "eng-06": lambda c: c.engram.heads * c.engram.head_dim,
    "eng-07": lambda c: c.engram.rows[0] / c.engram.rows_per_token,
    "eng-08": lambda c: c.engram.rows[0],
    "eng-09": lambda c: tables(c).bytes / GIB,
    "eng-10": lambda c: tables(c).bytes / GIB,
    "eng-11": all_reduces("hbm"),
    "eng-11-host": all_reduces("host_sharded"),
    "eng-12": all_reduces("host_shared"),
    "eng-lookups": lambda c: c.engram.rows_per_token * len(c.engram.layers),
    "eng-primes-1": lambda c: sum(primes_of(c.engram)[0]),
    "eng-primes-14": lambda c: sum(primes_of(c.engram)[1]),
    "eng-multiplier-1": lambda c: multipliers_of(c.engram, c.engram.layers[0])[-1],
    "eng-multiplier-14": lambda c: multipliers_of(c.engram, c.engram.layers[1])[-1],
    "eng-row-bytes": lambda c: bytes_per_token(c) / len(c.engram.layers),
    "eng-token-bytes": bytes_per_token,
    "eng-table-1": lambda c: table_bytes(c, 0),
    "eng-table-14": lambda c: table_bytes(c, 1),
}
