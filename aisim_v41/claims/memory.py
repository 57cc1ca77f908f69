"""Claims on memory of one rank: weights, Engram tables, buffers, KV pools, what starts.

Every value is read from `aisim_v41.memory`; the settings are those of the start-up logs that print
the figures. Source: InferenceX and vLLM pull requests, LMSYS blog (each row names its own).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from aisim_v41.claims.context import Context, Formula
from aisim_v41.errors import InvalidInputError
from aisim_v41.hardware import Hardware
from aisim_v41.memory import CapacityReport, Kind, capacity
from aisim_v41.memory.weights import group_bytes
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.units import GIB

ON_HOST: dict[str, Any] = {"engram_residency": "host_sharded"}
AS_LOGGED: dict[str, Any] = {**ON_HOST, "speculation": "dspark", "wo_a": "bf16"}
"""The start-up logs without Engram: draft and vision loaded, ``wo_a`` widened (vLLM)."""
MI300X_RUN: dict[str, Any] = {**ON_HOST, "chunk_tokens": 1 << 12}
"""InferenceX pull request 3336: 4,096 batched tokens, tables on the host, contexts of 1M."""
MI300X_LOG: dict[str, Any] = {
    **MI300X_RUN, "kv_layout": "vllm_packed", "speculation": "dspark", "vision_weights": False,
}  # fmt: skip
"""What the log of that run says beyond: ROCm rows, FP8 keys, draft loaded, text only."""
STATED_LENGTH = 1 << 18
"""Contexts for which ours is computed where a source does not state its own [tokens]."""


@lru_cache(maxsize=64)
def _capacity(
    model: Model, gpu: Hardware, parallel: Parallel, runtime: RuntimePolicy, max_length: int | None
) -> CapacityReport:
    return capacity(model, gpu, parallel, runtime, max_length=max_length)


def ask(
    context: Context,
    gpu: str,
    parallel: Parallel,
    engine: str,
    *,
    max_length: int | None = None,
    **fields: Any,
) -> CapacityReport:
    """Memory of a deployment."""
    runtime = policy(engine, **fields)
    return _capacity(context.model, context.hardware(gpu), parallel, runtime, max_length)


def weights_gib(gpu: str, ranks: int) -> Formula:
    """Weights of one rank without Engram tables [GiB]."""
    return lambda c: (
        ask(c, gpu, Parallel(tp=ranks), "vllm", **AS_LOGGED).bytes_of(Kind.WEIGHTS) / GIB
    )


def weights_with_tables_gib(engine: str, gpu: str, ranks: int) -> Formula:
    """Everything loaded on one rank, tables included, drafter loaded [GiB]."""
    return lambda c: (
        ask(c, gpu, Parallel(tp=ranks), engine, speculation="dspark").weights_bytes / GIB
    )


def table_gib(ranks: int, *, tables: int) -> Formula:
    """So many Engram tables of one rank [GiB], the modules taken alike."""

    def value(context: Context) -> float:
        held = ask(context, "gb300", Parallel(tp=ranks), "vllm").bytes_of(Kind.ENGRAM)
        modules = len(context.engram.layers)
        return held * tables / modules / GIB

    return value


def experts_gib(ranks: int, groups: int) -> Callable[[Context], float]:
    """Routed experts of one rank, sliced and padded or whole [GiB]."""

    def value(context: Context) -> float:
        rules = policy("vllm").sharding
        held = group_bytes(context.model, Parallel(tp=ranks, ep=groups), rules)
        return held[TensorGroup.ROUTED_EXPERTS] / GIB

    return value


def index_scores_gib(rows: int) -> Formula:
    """Buffer of index scores of a step of ``rows`` rows at contexts of 1M, kept whole [GiB]."""

    def value(context: Context) -> float:
        report = ask(
            context, "b300", Parallel(tp=4), "vllm",
            **ON_HOST, chunk_tokens=rows, index_workspace="full",
        )  # fmt: skip
        for term in report.budget.terms:
            if term.name == "index scores":
                return term.bytes / GIB
        raise InvalidInputError("this model has no index scores")

    return value


def kv_gib(context: Context, gpu: str, parallel: Parallel, engine: str, **fields: Any) -> float:
    """KV pool of one rank [GiB]."""
    return ask(context, gpu, parallel, engine, **fields).kv_bytes / GIB


def tables_to_host(
    gpu: str, parallel: Parallel, engine: str, **fields: Any
) -> Callable[[Context], tuple[float, float]]:
    """KV pool with the tables on the GPU and with them on the host [GiB]."""
    return lambda c: (
        kv_gib(c, gpu, parallel, engine, **fields),
        kv_gib(c, gpu, parallel, engine, **ON_HOST, **fields),
    )


def gain(pools: Callable[[Context], tuple[float, float]]) -> Formula:
    """By which fraction the pool grows."""

    def value(context: Context) -> float:
        before, after = pools(context)
        return after / before - 1

    return value


def _freed(context: Context) -> float:
    before, after = GB300_POOLS(context)
    return after - before


def starts(gpu: str, ranks: int, **fields: Any) -> Formula:
    """1 if the deployment starts, else 0."""
    return lambda c: int(ask(c, gpu, Parallel(tp=ranks), "vllm", **fields).starts)


GB300_POOLS = tables_to_host("gb300", Parallel(tp=4, ep=4), "sglang")
MI355X_TP4 = tables_to_host("mi355x", Parallel(tp=4), "vllm", max_length=STATED_LENGTH)
MI355X_TP2 = tables_to_host("mi355x", Parallel(tp=2, dp=2), "vllm", max_length=STATED_LENGTH)

FORMULAS: Mapping[str, Formula] = {
    "mem-weights-tp8": weights_gib("h200", 8),
    "mem-weights-tp4": weights_gib("gb300", 4),
    "mem-weights-tp2": weights_gib("gb200", 2),
    "mem-weights-tp1": weights_gib("gb300", 1),
    "mem-weights-fit-tp8": weights_gib("h200", 8),
    "mem-weights-fit-tp4": weights_gib("gb300", 4),
    "mem-weights-fit-tp2": weights_gib("gb200", 2),
    "mem-weights-h200": weights_with_tables_gib("sglang", "h200", 8),
    "mem-table-tp8": table_gib(8, tables=1),
    "mem-table-tp4": table_gib(4, tables=1),
    "mem-table-tp2": table_gib(2, tables=1),
    "mem-tables-tp4": table_gib(4, tables=2),
    "mem-tables-tp2": table_gib(2, tables=2),
    "mem-experts-sliced": experts_gib(8, 1),
    "mem-experts-whole": experts_gib(8, 8),
    "mem-experts-ratio": lambda c: experts_gib(8, 1)(c) / experts_gib(8, 8)(c),
    "mem-index-scores-8k": index_scores_gib(1 << 13),
    "mem-index-scores-16k": index_scores_gib(1 << 14),
    "mem-mi300x-tp2": starts("mi300x", 2, **MI300X_RUN),
    "mem-mi300x-tp4": starts("mi300x", 4, **MI300X_RUN),
    "mem-mi300x-tp8": starts("mi300x", 8, **MI300X_RUN),
    "mem-mi300x-deficit": lambda c: kv_gib(c, "mi300x", Parallel(tp=2), "vllm", **MI300X_LOG),
    "mem-kv-gain": gain(GB300_POOLS),
    "mem-kv-pool": lambda c: GB300_POOLS(c)[0],
    "mem-kv-gain-mi355x-tp4": gain(MI355X_TP4),
    "mem-kv-gain-mi355x-tp2": gain(MI355X_TP2),
    "mem-freed": _freed,
    "serv-04": gain(GB300_POOLS),
}
