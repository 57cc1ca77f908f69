"""Memory of the hosts: Engram tables or their caches, and what loading needs for a while.

Sources: deployment questions 14-20; start-up of vLLM with pinned tables as in P0717 (264 GiB for
188.8 GiB of tables) and in vllm issue 57469 (workers killed while loading).
"""

from __future__ import annotations

from dataclasses import dataclass

from aisim_v41.hardware import Hardware
from aisim_v41.memory.row_cache import cache_on_hosts
from aisim_v41.memory.terms import Kind, Place, Term, round_up, size, total
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import local
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import layer_tensors
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.units import MIB

_HOST_FIGURE = "host.memory_gb"
HUGE_PAGE_BYTES = 2 * MIB
"""Transparent huge pages of SGLang's shards and vLLM's ``use_thp`` (their Engram documentation)."""
_ROUNDED = {
    "exact": "",
    "huge": ", tensors in whole pages of 2 MiB",
    "power_of_two": ", tensors rounded to powers of two",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """What all ranks of a replica together need on their hosts.

    Attributes:
        terms: What stays, over all hosts of the replica.
        load_terms: What is needed besides while the weights are being loaded; an upper figure.
        available_bytes: Memory of those hosts [B]; None where it is not known.
        unified: CPU and GPU share one memory, so the tables are in the GPU's budget instead.
    """

    terms: tuple[Term, ...]
    load_terms: tuple[Term, ...]
    available_bytes: int | None
    unified: bool = False

    @property
    def bytes(self) -> int:
        """What stays resident [B]."""
        return total(self.terms)

    @property
    def load_bytes(self) -> int:
        """The most while loading [B], if every rank stages its weights at once."""
        return self.bytes + total(self.load_terms)

    @property
    def fits(self) -> bool | None:
        """Whether what stays fits; None where the memory of the hosts is not known."""
        if not self.bytes:
            return True
        return None if self.available_bytes is None else self.bytes <= self.available_bytes

    @property
    def loads(self) -> bool | None:
        """Whether it still fits while the weights are loaded; None where it is not known."""
        return None if self.available_bytes is None else self.load_bytes <= self.available_bytes

    @property
    def verdict(self) -> str:
        """One line for a report."""
        stay = f"{size(self.bytes)} stay" if self.bytes else "nothing stays"
        need = f"{stay}, up to {size(self.load_bytes)} while loading"
        if self.unified:
            return "shared with the GPU: tables are part of its budget"
        if self.available_bytes is None:
            return f"{need}; memory of the host is not known (argument host_memory_bytes)"
        of = f"of {size(self.available_bytes)}"
        if not self.fits:
            return f"{need} {of}: does not fit"
        return f"{need} {of}: fits" if self.loads else f"{need} {of}: loading may be killed"


def is_unified(hardware: Hardware) -> bool:
    """Whether the file says that the host has no memory apart from the GPU's."""
    return any(f.path == _HOST_FIGURE and f.value is None for f in hardware.figures)


def host_memory(
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
    *,
    loaded_bytes: int,
    hosts: int = 1,
    available_bytes: int | None = None,
) -> HostMemory:
    """Tables and load-time copies on the hosts of one replica.

    Args:
        model: From `load_model`.
        hardware: For the memory that its host has for each GPU.
        parallel: Ranks per dimension.
        policy: Residency of the tables and how their memory is allocated.
        loaded_bytes: Weights that each rank loads onto its GPU [B].
        hosts: Hosts that the replica spans; "host_shared" keeps a copy on each.
        available_bytes: Memory of all those hosts [B], if the file does not know better.
    """
    if available_bytes is None and hardware.host_memory_bytes is not None:
        available_bytes = hardware.host_memory_bytes * parallel.gpus
    unified = available_bytes is None and is_unified(hardware)
    if unified:
        return HostMemory(terms=(), load_terms=(), available_bytes=None, unified=True)
    staged = Term(
        name="weights staged while loading",
        kind=Kind.WEIGHTS,
        place=Place.HOST,
        bytes=loaded_bytes * parallel.gpus,
        formula=f"{parallel.gpus} ranks x {loaded_bytes} B",
        source="vllm issue 57469: 143 GiB of shared memory a worker at TP4, about its pinned "
        "tables and its own weights once",
        estimate=True,
    )
    return HostMemory(
        terms=(
            *_table_terms(model, parallel, policy, hosts),
            *cache_on_hosts(model, parallel, policy),
        ),
        load_terms=(staged,),
        available_bytes=available_bytes,
    )


def disk_terms(model: Model, policy: RuntimePolicy) -> tuple[Term, ...]:
    """Tables that are read from disk."""
    if policy.engram_residency != "disk" or model.engram is None:
        return ()
    whole = sum(table_parts(model, Parallel(), policy))
    return (
        Term(
            name="Engram tables",
            kind=Kind.ENGRAM,
            place=Place.DISK,
            bytes=whole,
            formula="one copy, values and scales",
            source="model-facts §4.6",
        ),
    )


def table_parts(model: Model, parallel: Parallel, policy: RuntimePolicy) -> list[int]:
    """Values and scales of each table [B], as one rank allocates them."""
    parts = []
    for index in model.engram.layers if model.engram is not None else ():
        for tensor in layer_tensors(model, model.layers[index]).values():
            if tensor.group is TensorGroup.ENGRAM_TABLE:
                own = local(tensor, parallel, policy.sharding)
                parts += [own.element_bytes, own.scale_bytes]
    return parts


def _table_terms(
    model: Model, parallel: Parallel, policy: RuntimePolicy, hosts: int
) -> tuple[Term, ...]:
    if model.engram is None or policy.engram_residency not in ("host_sharded", "host_shared"):
        return ()
    shared = policy.engram_residency == "host_shared"
    copies, owner = (hosts, "hosts") if shared else (parallel.gpus, "ranks")
    mapping = Parallel() if shared else parallel
    one = sum(_pinned(part, policy) for part in table_parts(model, mapping, policy))
    rounded = _ROUNDED[policy.engram_host_pages]
    return (
        Term(
            name="Engram tables",
            kind=Kind.ENGRAM,
            place=Place.HOST,
            bytes=copies * one,
            formula=f"{copies} {owner} x {one} B{rounded}",
            source="model-facts §4.6; policy fields engram_residency, engram_host_pages",
        ),
    )


def _pinned(amount: int, policy: RuntimePolicy) -> int:
    if policy.engram_host_pages == "exact" or amount == 0:
        return amount
    if policy.engram_host_pages == "huge":
        return round_up(amount, HUGE_PAGE_BYTES)
    return 1 << (amount - 1).bit_length()
