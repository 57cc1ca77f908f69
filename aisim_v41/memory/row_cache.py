"""Memory of the cache of hot Engram rows, where the tables are outside the GPU.

Tables on a host have it in GPU memory, tables on disk in host memory; where CPU and GPU share one
memory, both are the GPU's. What it saves is the policy's ``engram_hit_share``.
"""

from __future__ import annotations

from aisim_v41.memory.terms import Kind, Place, Term
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.units import MIB


def cache_on_gpu(model: Model, policy: RuntimePolicy, *, unified: bool) -> tuple[Term, ...]:
    """The cache of one rank, where it is in GPU memory."""
    if not _exists(model, policy) or (policy.engram_residency == "disk" and not unified):
        return ()
    return (_term(1, policy, Place.GPU),)


def cache_on_hosts(model: Model, parallel: Parallel, policy: RuntimePolicy) -> tuple[Term, ...]:
    """The caches of all ranks, where they are in the hosts' own memory."""
    if not _exists(model, policy) or policy.engram_residency != "disk":
        return ()
    return (_term(parallel.gpus, policy, Place.HOST),)


def _exists(model: Model, policy: RuntimePolicy) -> bool:
    return (
        model.engram is not None
        and policy.engram_residency != "hbm"
        and policy.engram_cache_mib > 0
    )


def _term(ranks: int, policy: RuntimePolicy, place: Place) -> Term:
    return Term(
        name="cache of Engram rows",
        kind=Kind.WORKSPACE,
        place=place,
        bytes=ranks * policy.engram_cache_mib * MIB,
        formula=f"{ranks} x {policy.engram_cache_mib} MiB",
        source="policy field engram_cache_mib",
    )
