"""Which build's kernels OP prices, and how they change with the rows of a step.

A build has inventories by rows (`aisim_v41.plan.builds`); each is compiled when a step first needs
it. A policy that names no build is priced with the engine's newest one for the GPU, and all of
them say how far another one would be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aisim_v41.estimators.compiled import Floats
from aisim_v41.estimators.op.compiled import CapturedStep, CompiledOp, compiled_op
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.builds import UNNAMED, Inventory, build, builds_for
from aisim_v41.plan.captured import CapturedSteps, Mask
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.resources import kept_for_roots

_ANY_ROWS = float("inf")
PREFILL = -1
"""Place of the inventory of steps with a prefill."""
UNFUSED = "elementary"
"""Profile that stands for an older build where at most one is known: every operator apart."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Inventories of one build for a mapping; None stands for the policy's fusion profile.

    Attributes:
        limits: largest number of rows of each decode inventory, rising; the last takes any.
        decode: those inventories.
        prefill: inventory of steps with a prefill.
        fusion: profile that takes the place of the policy's where an inventory is None.
    """

    limits: tuple[float, ...]
    decode: tuple[Inventory | None, ...]
    prefill: Inventory | None
    fusion: str | None = None

    def place(self, rows: float) -> int:
        """Which decode inventory a step of so many rows runs."""
        return bisect_left(self.limits, rows)


def priced_kernels(policy: RuntimePolicy, hardware: Hardware, parallel: Parallel) -> Kernels:
    """Kernels that OP prices: the named build's, the newest's, or the profile's."""
    if policy.build != UNNAMED:
        return _of_build(policy.build, parallel.tp)
    if _chose_kernels(policy):
        return _PROFILE
    known = builds_for(policy.name, hardware.architecture)
    return _of_build(known[-1].name, parallel.tp) if known else _PROFILE


def possible_kernels(
    policy: RuntimePolicy, hardware: Hardware, parallel: Parallel
) -> tuple[Kernels, ...]:
    """Kernels that a step may meet if nothing says which build runs it.

    With one build known or none, the policy's profile and the graph without fusion stand beside it.
    """
    if policy.build != UNNAMED or _chose_kernels(policy):
        return ()
    known = builds_for(policy.name, hardware.architecture)
    found = [_of_build(one.name, parallel.tp) for one in known]
    if len(found) < 2:
        found += [_PROFILE, Kernels((_ANY_ROWS,), (None,), None, UNFUSED)]
    return tuple(dict.fromkeys(found))


_PROFILE = Kernels((_ANY_ROWS,), (None,), None)


def _of_build(name: str, ranks: int) -> Kernels:
    known = build(name)
    decode = known.of_ranks(ranks)
    limits = tuple(_ANY_ROWS if one.rows is None else float(one.rows) for one in decode)
    return Kernels(limits, decode, known.prefill)


def _chose_kernels(policy: RuntimePolicy) -> bool:
    """Whether the user overrode the fusion profile."""
    return policy.fusion != policy.origin.fusion


class CompiledBuild(CapturedStep):
    """OP for steps of any rows: each runs the kernels that its build has for it.

    Args and errors: as for `CompiledOp`.
    """

    method = "op"
    chunk_steps = CompiledOp.chunk_steps

    def __init__(
        self, model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
    ) -> None:
        require_step_model(model)
        self.model, self.hardware = model, hardware
        self.parallel, self.policy = parallel, policy
        self.kernels = priced_kernels(policy, hardware, parallel)
        self.others = possible_kernels(policy, hardware, parallel)
        self._made: dict[tuple[int, int], CompiledOp] = {}
        self.program = self._compiled(self.kernels, 0).program
        self.captured = CapturedSteps(self.program)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made from."""
        return type(self), (self.model, self.hardware, self.parallel, self.policy)

    def on(self, parallel: Parallel) -> CompiledBuild:
        """The same steps on another mapping."""
        return CompiledBuild(self.model, self.hardware, parallel, self.policy)

    def _compiled(self, kernels: Kernels, place: int) -> CompiledOp:
        """Compiled kernels of a decode inventory by its place, or of the prefill's (`PREFILL`)."""
        key = (id(kernels), place)
        if key not in self._made:
            policy = self.policy
            if kernels.fusion is not None:
                policy = policy.with_overrides(fusion=kernels.fusion)
            inventory = kernels.prefill if place == PREFILL else kernels.decode[place]
            if inventory is not None:
                inventory = inventory.running(drafts=policy.speculation != "off")
            self._made[key] = compiled_op(
                self.model, self.hardware, self.parallel, policy, inventory
            )
        return self._made[key]

    def at(
        self, counts: Floats, kernels: Kernels | None = None, prefills: bool | None = None
    ) -> CompiledOp:
        """The kernels that one forward of these counts runs.

        Args:
            counts: [columns].
            kernels: of another build than the priced one.
            prefills: whether it runs as a prefill, where that is known; by its counts otherwise.
        """
        kernels = self.kernels if kernels is None else kernels
        prefills = bool(self.prefills(counts)) if prefills is None else prefills
        place = PREFILL if prefills else kernels.place(float(self.rows(counts)))
        return self._compiled(kernels, place)

    def rows(self, counts: Floats) -> Floats:
        """Rows that enter the model [1]: a scalar array, or [steps]."""
        found: Floats = counts[self.program.tokens_place]
        return found

    def prefills(self, counts: Floats) -> Any:
        """Whether some row does not reach the head, as in every step with a prefill."""
        return counts[self.program.logits_place] < self.rows(counts)

    def seconds(self, counts: Floats, uncaptured: Mask | None = None) -> Floats:
        """Seconds of a forward.

        Args:
            counts: [columns] of one step, or [columns, steps].
            uncaptured: decode steps above every captured size, which run eagerly.
        """
        if counts.ndim == 1:
            return self.at(counts).seconds(counts, uncaptured)
        place = np.searchsorted(self.kernels.limits, self.rows(counts))
        place = np.where(self.prefills(counts), PREFILL, place)
        met = np.unique(place).tolist()
        if len(met) == 1:
            return self._compiled(self.kernels, met[0]).seconds(counts, uncaptured)
        found = np.empty(counts.shape[1])
        for one in met:
            steps = place == one
            apart = None if uncaptured is None else uncaptured[steps]
            found[steps] = self._compiled(self.kernels, one).seconds(counts[:, steps], apart)
        return found

    def range_s(self, forwards: Iterable[tuple[int, Floats, Mask | None]]) -> tuple[float, float]:
        """Shortest and longest time of forwards under any build that the policy may mean [s].

        Args:
            forwards: how often each runs, its counts, and whether it is above every captured size.
        """
        runs = list(forwards)
        times = [
            sum(n * float(self.at(counts, one).seconds(counts, eager)) for n, counts, eager in runs)
            for one in (self.kernels, *self.others)
        ]
        return min(times), max(times)


@kept_for_roots(maxsize=32)
def compiled_build(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> CompiledBuild:
    """`CompiledBuild`, kept for the next call with the same arguments and folders of data."""
    return CompiledBuild(model, hardware, parallel, policy)
