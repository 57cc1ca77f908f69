"""Fusion: which elementary operators an engine runs as one kernel.

A profile is a list of groups, and so are the kernels of a build (`aisim_v41.plan.builds`).
`Fusion.chain` makes one kernel of each run of consecutive operators that belong to one group and
work on the same rows. A test proves that every profile and every build does the work of every
elementary operator exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.ops.graph import Node, seq
from aisim_v41.ops.operator import Task, fuse
from aisim_v41.plan.builds import Inventory


@dataclass(frozen=True, slots=True)
class Group:
    """Elementary operators of one kernel."""

    name: str
    members: frozenset[str]
    kept: frozenset[str] = frozenset()
    """Tensors made inside that later operators need too."""


def _group(name: str, members: str, *, kept: str = "") -> Group:
    return Group(name, frozenset(members.split()), frozenset(kept.split()))


_STREAMS = "streams coefficients"
_NOTHING: frozenset[str] = frozenset()

_QUANTISED_PROJECTIONS = (
    _group("q_down_norm", "q_down q_norm"),
    _group("o_down_quantised", "inverse_rope o_down"),
    _group("q_up_rope", "q_up q_rope"),
    _group("kv_down_store", "kv_down kv_store"),
)

_SELECTION = _group("index_select_pool", "index_select candidate_pool")
"""Selection and candidate pool of the pool's source, which read the same scores. Small kernels of
an engine beside them are counted in its builds."""

PROFILES: dict[str, tuple[Group, ...]] = {
    # Every elementary operator is a kernel of its own.
    "elementary": (),
    # Report §2.4.1: the post of one site, the coefficients, collapse, pre-norm and FP8 conversion
    # of the next in a single pass; norms and conversions inside their GEMMs.
    "single_pass": (
        _group(
            "mhc_single_pass",
            "mhc_expand mhc_statistics mhc_collapse site_norm site_quantise",
            kept=_STREAMS,
        ),
        *_QUANTISED_PROJECTIONS,
        _group("index_query_with_rope", "index_query index_query_rope"),
        _group("compress_store", "compress_pool main_store", kept="entry_latent"),
        _group("index_key_with_store", "index_key index_key_store"),
        _group("index_score_select", "index_score index_select candidate_pool"),
        _group("router", "router_gate router_select"),
        _group("final_collapse_norm", "head_collapse final_norm"),
    ),
    # Runtime-semantics §5.2: SGLang decode on Blackwell, at most 8 rows. The statistics run beside
    # the sub-layer; all-reduce, post, collapse, norm and conversion are one kernel.
    "sglang_decode": (
        _group(
            "all_reduce_mhc",
            "all_reduce_attention all_reduce_experts mhc_expand mhc_collapse site_norm "
            "site_quantise",
            kept="streams",
        ),
        *_QUANTISED_PROJECTIONS,
        _group("index_query_with_rope", "index_query index_query_rope"),
        _group("compress_store", "compress_pool main_store", kept="entry_latent"),
        _group("index_key_with_store", "index_key index_key_store"),
        _SELECTION,
        _group("router", "router_gate router_select"),
        _group("final_collapse_norm", "head_collapse final_norm"),
    ),
    # Runtime-semantics §5.3: vLLM on SM100; mega-mHC ends in BF16, conversion is separate. Not
    # usable where Engram stands between the sites.
    "vllm_mega_mhc": (
        _group(
            "mega_mhc",
            "mhc_expand mhc_statistics mhc_collapse site_norm",
            kept=_STREAMS,
        ),
        _group("kv_down_store", "kv_down kv_store"),
        _group("q_up_rope", "q_up q_rope"),
        _group("o_down_quantised", "inverse_rope o_down"),
        _group("index_query_with_rope", "index_query index_query_rope"),
        _group("compress_store", "compress_pool main_store", kept="entry_latent"),
        _SELECTION,
        _group("router", "router_gate router_select"),
    ),
}


_READ_LATER = frozenset({"streams", "coefficients", "entry_latent"})
"""Tensors that more operators read than the one they are handed to."""


def groups_of(inventory: Inventory) -> tuple[Group, ...]:
    """Kernels of a build as groups."""
    read = (Group(name, members, _READ_LATER) for name, members in inventory.kernels)
    return (*read, _SELECTION)


class Fusion:
    """Groups at work; fused tasks are made once and shared.

    Args:
        kernels: name of a profile, or groups.

    Raises:
        InvalidInputError: no profile of that name.
    """

    def __init__(self, kernels: str | tuple[Group, ...]) -> None:
        if isinstance(kernels, str):
            if kernels not in PROFILES:
                raise InvalidInputError(
                    f"no fusion profile {kernels!r}; {nearest(kernels, PROFILES)}"
                )
            kernels = PROFILES[kernels]
        self._group_of = {name: group for group in kernels for name in group.members}
        self._made: dict[tuple[object, ...], Task] = {}
        self._alive: list[Task] = []

    def together(self, first: str, second: str) -> bool:
        """Whether two elementary operators belong to one group."""
        group = self._group_of.get(first)
        return group is not None and second in group.members

    def chain(self, *tasks: Task | None, needed: frozenset[str] = _NOTHING) -> list[Task]:
        """Consecutive tasks, with runs of one group fused.

        Args:
            *tasks: in order; None is left out.
            needed: tensors that other operators read too, so that they are written in any case.
        """
        fused: list[Task] = []
        run: list[Task] = []
        for task in [t for t in tasks if t is not None]:
            if run and not self._joins(run, task):
                fused.append(self._close(run, needed))
                run = []
            run.append(task)
        if run:
            fused.append(self._close(run, needed))
        return fused

    def sequence(self, *tasks: Task | None) -> Node:
        """`chain` as a node."""
        return seq(*self.chain(*tasks))

    def _joins(self, run: Sequence[Task], task: Task) -> bool:
        last = run[-1]
        return (
            self.together(last.replaces[-1], task.replaces[0])
            and last.rows == task.rows
            and not any(name in task.replaces for member in run for name in member.replaces)
        )

    def _close(self, run: Sequence[Task], needed: frozenset[str]) -> Task:
        if len(run) == 1:
            return run[0]
        key = (needed, *(id(task) for task in run))
        if key not in self._made:
            group = self._group_of[run[0].replaces[0]]
            self._made[key] = fuse(group.name, run, kept=group.kept | needed)
            self._alive.extend(run)
        return self._made[key]
