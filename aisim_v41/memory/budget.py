"""The budget of one GPU: what it has, what is charged to it, and what is left for KV.

Two rules, by ``policy.fraction_covers``:

- "all" (vLLM): the engine takes ``memory_fraction`` of the GPU for everything; KV gets what
  weights, buffers and reserves leave of it.
- "static" (SGLang): the engine takes that share of the memory that is free at start for weights and
  KV; buffers and graphs must live in the rest.

Source: runtime-semantics §6.3; docs/assumptions.md, "Memory".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from aisim_v41.hardware import Hardware
from aisim_v41.memory.host import is_unified
from aisim_v41.memory.row_cache import cache_on_gpu
from aisim_v41.memory.terms import Kind, Term, total
from aisim_v41.memory.weights import weight_terms
from aisim_v41.memory.workspace import LargestStep, graph_terms, reserve_terms, workspace_terms
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Memory of one GPU, shared out.

    Attributes:
        gpu_bytes: What a program can see of the GPU's memory [B].
        budget_bytes: The part that ``memory_fraction`` grants [B].
        charged: Terms that the budget must hold besides KV.
        outside: Terms that must fit beside the budget.
        room_bytes: Memory beside the budget [B].
    """

    gpu_bytes: int
    budget_bytes: int
    charged: tuple[Term, ...]
    outside: tuple[Term, ...]
    room_bytes: int

    @property
    def kv_bytes(self) -> int:
        """What the budget leaves for KV [B]; negative when it is overdrawn."""
        return self.budget_bytes - total(self.charged)

    @property
    def room_left_bytes(self) -> int:
        """What is left beside the budget [B]; negative when buffers do not fit there."""
        return self.room_bytes - total(self.outside)

    def first_beyond(self) -> Term | None:
        """The term with which the charged terms, in order, first exceed the budget."""
        sums = accumulate(term.bytes for term in self.charged)
        for term, used in zip(self.charged, sums, strict=True):
            if used > self.budget_bytes:
                return term
        return None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Everything but KV, and the memory that nobody was given."""
        unused = Term(
            name="not given to the engine",
            kind=Kind.RESERVE,
            bytes=max(0, self.room_left_bytes),
            formula=f"{self.gpu_bytes} B of the GPU - {self.budget_bytes} B of the budget"
            + (" - buffers beside it" if self.outside else ""),
            source="policy field memory_fraction",
        )
        return (*self.charged, *self.outside, unused)


def budget(
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
    step: LargestStep,
) -> Budget:
    """Share out the memory of one GPU.

    Raises:
        UnsupportedPlanError: the mapping does not divide the model.
    """
    unified = is_unified(hardware)
    weights = (
        *weight_terms(model, parallel, policy, unified=unified),
        *cache_on_gpu(model, policy, unified=unified),
    )
    buffers = (*workspace_terms(model, hardware, parallel, policy, step), *graph_terms(policy))
    reserves = reserve_terms(parallel, policy)
    gpu = hardware.hbm_bytes
    if policy.fraction_covers == "all":
        granted = int(policy.memory_fraction * gpu)
        return Budget(
            gpu_bytes=gpu,
            budget_bytes=granted,
            charged=(*weights, *reserves, *buffers),
            outside=(),
            room_bytes=gpu - granted,
        )
    free = max(0, gpu - total(reserves))
    granted = int(policy.memory_fraction * free)
    return Budget(
        gpu_bytes=gpu,
        budget_bytes=granted,
        charged=weights,
        outside=(*reserves, *buffers),
        room_bytes=gpu - granted,
    )
