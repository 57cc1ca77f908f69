"""Claims on DSpark, Engram, vision and serving that follow from shapes, plans and GPU files.

Source of the figures: technical report §2.1.1, §2.4.2, §2.4.3; SGLang cookbook and blog; vLLM
recipe; fact sheet §4.6, §7. Their *times* need later issues and are listed as not yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from aisim_v41.claims.context import SHORT_CONTEXT, Context, decode
from aisim_v41.claims.verdict import Value
from aisim_v41.claims.work import paper, sglang, work
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.tensors import layer_tensors
from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.counts import Count
from aisim_v41.plan.request import Request
from aisim_v41.units import GB

Formula = Callable[[Context], Value]

RUNNING = 128
"""Running sequences of the recipe's tuning section."""
SMALLER_BLOCK = 3
"""Draft positions that the cookbook compares with the shipped block."""
START_UP_FACTOR = 1.2
"""The recipe's rule: memory at start-up over checkpoint bytes (vLLM recipe, memory section)."""
TRAY_GPUS = 4
"""GPUs of a GB200 NVL4 tray (vLLM recipe, memory section)."""


# --- DSpark -----------------------------------------------------------------------------------


def verify(drafts: int, *, count: int = 1) -> Request:
    """A verify step: the last token and its drafts."""
    return Request(new_tokens=1 + drafts, prefix_tokens=SHORT_CONTEXT, kind="verify", count=count)


def verify_rows(count: int) -> Formula:
    """Rows of a verify step of ``count`` requests through the last layer."""

    def value(context: Context) -> int:
        request = verify(context.draft.positions, count=count)
        counted = context.ledger(request, policy=paper(context))
        return counted.total(Count.QUERY_ROWS, len(context.model.layers) - 1)

    return value


def experts_touched(context: Context, drafts: int) -> float:
    """Distinct routed experts that the first layer of a verify step reads."""
    counted = context.ledger(verify(drafts), policy=paper(context))
    ((_, counts),) = counted.passes
    place = counted.program.position(Count.EXPERTS_TOUCHED, counted.program.classes[0])
    return float(counts.totals[place])


# --- Engram -----------------------------------------------------------------------------------


def table_bytes_per_token(context: Context) -> float:
    """Table rows that one decode token reads [B], both modules, from the look-up operator."""
    step = work(context, paper(context), decode(SHORT_CONTEXT))
    return step.traffic((Traffic.TABLE_READ,), "engram_lookup")


def engram_all_reduces(residency: str) -> Formula:
    """All-reduces of Engram rows in a decode step on four ranks."""

    def value(context: Context) -> int:
        policy = sglang(context, engram_residency=residency)
        parallel = Parallel(tp=4)
        return work(context, policy, decode(SHORT_CONTEXT), parallel=parallel).calls(
            "all_reduce_engram"
        )

    return value


def tables_per_module(context: Context) -> int:
    """Hash tables that one module's rows are divided into: one per order and head."""
    return context.engram.rows_per_token


def table_bytes(context: Context, module: int) -> int:
    """Values and scales of one module's table [B]."""
    layer = context.model.layers[context.engram.layers[module]]
    return layer_tensors(context.model, layer)["engram.embed"].bytes


def split_difference(context: Context) -> float:
    """By how much the second module is larger than the first."""
    first, *_, last = context.engram.rows
    return (last - first) / first


# --- Serving ----------------------------------------------------------------------------------


def tray_memory(context: Context) -> float:
    """Memory that programs see on the tray's GPUs [GB]."""
    return TRAY_GPUS * context.hardware("gb200").hbm_bytes / GB


FORMULAS: Mapping[str, Formula] = {
    "spec-01": lambda c: c.draft.blocks,
    "spec-02": lambda c: c.draft.positions,
    "spec-03": lambda c: c.draft.experts.routed,
    "spec-04": lambda c: c.draft.experts.top_k,
    "spec-05": verify_rows(1),
    "spec-09": lambda c: experts_touched(c, c.draft.positions) / experts_touched(c, SMALLER_BLOCK),
    "eng-01": lambda c: len(c.engram.layers),
    "eng-02": lambda c: c.engram.layers,
    "eng-03": split_difference,
    "eng-04": lambda c: c.engram.heads,
    "eng-05": lambda c: c.engram.max_ngram - 1,
    "eng-06": lambda c: c.engram.heads * c.engram.head_dim,
    "eng-07": lambda c: c.engram.rows[0] / tables_per_module(c),
    "eng-08": lambda c: c.engram.rows[0],
    "eng-11": engram_all_reduces("hbm"),
    "eng-12": engram_all_reduces("host_shared"),
    "eng-11-host": engram_all_reduces("host_sharded"),
    "eng-row-bytes": lambda c: table_bytes_per_token(c) / len(c.engram.layers),
    "eng-token-bytes": table_bytes_per_token,
    "eng-table-1": lambda c: table_bytes(c, 0),
    "eng-table-14": lambda c: table_bytes(c, 1),
    "vis-01": lambda c: c.vision.layers,
    "vis-02": lambda c: c.vision.patch,
    "vis-03": lambda c: c.vision.downsample**2,
    "vis-05": lambda c: math.sqrt(c.vision.min_pixels),
    "vis-06": lambda c: c.vision.max_image_tokens,
    "vis-07": lambda c: c.vision.min_pixels,
    "serv-07": tray_memory,
    "serv-09": verify_rows(RUNNING),
}
