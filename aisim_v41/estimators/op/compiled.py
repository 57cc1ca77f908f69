"""OP compiled: every task priced by its evidence, composed over the same graph as SOL.

Steps with a prefill run their kernels one after another; others let side streams overlap where the
engine has them, a block never being shorter than its share of any one resource. How a task gets its
price: `aisim_v41.estimators.op.prices`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.compiled import CompiledGraph, CompiledStep, Floats
from aisim_v41.estimators.execution import HostPath
from aisim_v41.estimators.op.cases import Rank, case_of
from aisim_v41.estimators.op.evidence import (
    Kernel,
    KernelEvidence,
    evidence_of,
    with_collected,
)
from aisim_v41.estimators.op.formats import foreign_format
from aisim_v41.estimators.op.inventory import as_built, on_streams, policy_of
from aisim_v41.estimators.op.laws import Routing, bindings_of
from aisim_v41.estimators.op.prices import TaskPrices
from aisim_v41.estimators.op.program import composition
from aisim_v41.estimators.program import whole_blocks
from aisim_v41.evidence.calibration import Calibration, load_calibration
from aisim_v41.hardware import Hardware
from aisim_v41.model.cache_rows import cache_rows
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.fusion import Fusion, groups_of
from aisim_v41.ops.graph import Fed, Node, fed, inline, seq, tasks_of
from aisim_v41.ops.operator import Task
from aisim_v41.plan.builds import Inventory
from aisim_v41.plan.captured import CapturedSteps, Mask
from aisim_v41.plan.counting import RankCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.spans import RequestColumns
from aisim_v41.resources import kept_for_roots

SIDE_STREAM_GPUS = {"sglang": ("sm10", "sm12")}
"""Architectures on which a preset's engine overlaps kernels; other engines do on any NVIDIA GPU."""
ENGINE_OF_POLICY = {"sglang": "sglang", "vllm": "vllm", "atom": "sglang", "paper": "sglang",
                    "trtllm": "trtllm"}  # fmt: skip
"""Whose measured kernels stand for a preset."""


class CapturedStep(CompiledStep):
    """A step whose decode graphs exist at some sizes.

    Attributes:
        captured: fills steps up to them.
    """

    captured: CapturedSteps

    @abstractmethod
    def seconds(self, counts: Floats, uncaptured: Mask | None = None) -> Floats:
        """Seconds of a forward.

        Args:
            counts: [columns] of one step, or [columns, steps].
            uncaptured: decode steps above every captured size, which run eagerly.
        """

    def priced(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Seconds of requests as columns, filled up to captured sizes."""
        totals = self.program.count(requests, one_step=one_step).totals
        return self.seconds(*self.captured.filled(requests, totals, one_step=one_step))

    def priced_ranks(self, ranks: Sequence[RankCounts], *, one_step: bool) -> list[Floats]:
        """Seconds of every rank of a forward, filled up to captured sizes."""
        filled = self.captured.filled_ranks(ranks, one_step=one_step)
        return [self.seconds(*one) for one in filled]


class CompiledOp(CapturedStep, CompiledGraph):
    """Time of steps from measured and calibrated operators, for one inventory of kernels.

    Args and errors: as for `CompiledGraph`.

    Args:
        inventory: kernels of a build; None: those of the policy's fusion profile.

    Raises:
        MissingProfileError: no calibration for the GPU or its family.
    """

    method = "op"
    chunk_steps = 2048
    distinct_experts = Count.REPLICA_EXPERTS_EXPECTED

    def __init__(
        self,
        model: Model,
        hardware: Hardware,
        parallel: Parallel,
        policy: RuntimePolicy,
        inventory: Inventory | None = None,
    ) -> None:
        fusion = None if inventory is None else Fusion(groups_of(inventory))
        super().__init__(model, hardware, parallel, policy_of(policy, inventory), fusion)
        self.inventory = inventory
        self.engine = ENGINE_OF_POLICY.get(policy.name, "sglang")
        self.calibration: Calibration = load_calibration(hardware, self.engine)
        self.routing = Routing(
            self.program.load.variation,
            parallel.ep,
            policy.sharding.redundant_experts,
            policy.expert_imbalance or 0.0,
        )
        rows = cache_rows(self.model, self.policy.kv_layout)
        self.rank = Rank(self.model, parallel, self.policy, rows)
        self.device_execution = "graph"
        """Kernels are timed as a graph replays them, also where the host issues them one by one."""
        self.evidence: tuple[tuple[KernelEvidence, ...], ...] = tuple(
            tuple(self._evidence(task)) for task in self.tasks
        )
        self.prices = TaskPrices(self, self.evidence)
        number = dict(zip(map(id, self.tasks), self.prices.same.tolist(), strict=True))
        calls = calls_of_ways(serial(self.graph), number, self.prices.size)
        self.calls_at_price = calls[0] if len(calls) == 1 else calls
        """Calls of a forward at each price [prices]; [ways, prices] where it waits for rows."""
        self.side_by_side = on_streams(self.graph, inventory)
        self.overlapped = composition(self.builder, number, self.prices.size, self.side_by_side)
        self.host = HostPath(self, self.calibration.launch, self.engine)
        self.captured = CapturedSteps(self.program)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made from: tasks and nodes are known by their id."""
        made_from = (self.model, self.hardware, self.parallel, self.policy, self.inventory)
        return type(self), made_from

    def _evidence(self, task: Task) -> Iterator[KernelEvidence]:
        plain = bindings_of(
            task, self.price(task), self.hardware, self.engine, self.model, self.routing
        )
        foreign = foreign_format(task, self.model)
        for binding in as_built(plain, task, self.inventory):
            for evidence in evidence_of(binding, self.calibration, self.hardware):
                same = evidence.binding.key == binding.key
                case = case_of(binding if same else evidence.binding, self.rank)
                if foreign:
                    yield replace(evidence, foreign=foreign, case=case)
                else:
                    yield with_collected(
                        evidence, case, self.hardware, self.engine, self.device_execution
                    )

    def task_seconds(self, counts: Floats) -> Floats:
        """Seconds of one call of every distinct task: [tasks] or [tasks, steps]; never below its
        resources at peak."""
        seconds: Floats = self.prices.seconds(counts)[self.prices.same]
        return seconds

    def kernels(self, counts: Floats) -> Iterator[Kernel]:
        """Every kernel of one forward, with the seconds of all its calls and their evidence."""
        return self.prices.kernels(counts, self.calls)

    def seconds(self, counts: Floats, uncaptured: Mask | None = None) -> Floats:
        """Seconds of a forward: the longer of what its kernels and what its host takes.

        Args:
            counts: [columns] of one step, or [columns, steps].
            uncaptured: decode steps above every captured size, which run eagerly.
        """
        return np.maximum(self.device_seconds(counts), self.host.seconds(counts, uncaptured))

    def device_seconds(self, counts: Floats) -> Floats:
        """Seconds of a forward's kernels, as if the host were never late."""
        wide = counts.ndim > 1
        steps = whole_blocks(counts) if wide else counts
        overlaps, spent = self.overlaps(steps), self.prices.seconds(steps)
        if not wide:
            if overlaps:
                return self.overlapped.seconds(spent, steps)
            return self.one_by_one(spent)
        total = self.one_by_one(spent)
        if overlaps.any():
            total = np.where(overlaps, self.overlapped.seconds(spent, steps), total)
        return total[: counts.shape[1]]

    def one_by_one(self, spent: Floats) -> Floats:
        """Seconds of a forward on one stream.

        Args:
            spent: seconds of one call at each price, [prices] or [prices, steps].
        """
        total: Floats = self.calls_at_price @ spent
        return total if self.calls_at_price.ndim == 1 else total.max(axis=0)

    def overlaps(self, counts: Floats) -> npt.NDArray[np.bool_]:
        """Whether side streams run: every row reaches the head, as in decode and verify steps."""
        program = self.program
        every: npt.NDArray[np.bool_] = counts[program.logits_place] >= counts[program.tokens_place]
        return every & self.side_streams

    @cached_property
    def side_streams(self) -> bool:
        """Whether the engine uses side streams on this GPU (runtime-semantics §5.2, §5.3)."""
        if self.inventory is not None:
            return self.policy.decode_streams == "side" and bool(self.inventory.beside)
        built_for = SIDE_STREAM_GPUS.get(self.policy.name, "sm")
        return self.policy.decode_streams == "side" and self.hardware.architecture.startswith(
            built_for
        )

    def arranged(self, node: Node, counts: Floats) -> Node:
        """The node as a forward of these counts runs it: on its streams, or one after another."""
        return on_streams(node, self.inventory) if self.overlaps(counts) else serial(node)

    @cached_property
    def calls(self) -> Floats:
        """Calls of every distinct task in a forward [tasks]."""
        times = Counter(id(task) for task in tasks_of(self.graph))
        return np.array([float(times[id(task)]) for task in self.tasks])

    def place_of(self, task: Task) -> int:
        """Place of a task among `tasks`."""
        return self._places[id(task)]

    @cached_property
    def _places(self) -> dict[int, int]:
        return {id(task): place for place, task in enumerate(self.tasks)}


def serial(node: Node) -> Node:
    """The same kernels one after another; what another queue delivers stays beside them."""
    if isinstance(node, Task):
        return node
    if isinstance(node, Fed):
        one = inline(node)
        segments = [serial(segment) for segment in one.segments]
        return fed(segments, one.before, one.deliveries, one.gates)
    return seq(*(serial(member) for member in node.members))


def calls_of_ways(node: Node, price_of: Mapping[int, int], prices: int) -> Floats:
    """Calls at each price on every way through a graph on one stream [ways, prices].

    Args:
        node: from `serial`.
        price_of: id of a task -> number of its price.
        prices: how many there are.
    """
    if isinstance(node, Fed):
        return np.concatenate([calls_of_ways(way, price_of, prices) for way in node.members])
    calls = np.zeros((1, prices))
    for member in (node,) if isinstance(node, Task) else node.members:
        if isinstance(member, Task):
            calls[:, price_of[id(member)]] += 1.0
        else:
            own = calls_of_ways(member, price_of, prices)
            calls = (calls[:, None] + own[None]).reshape(-1, prices)
    return calls


@kept_for_roots(maxsize=128)
def compiled_op(
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
    inventory: Inventory | None = None,
) -> CompiledOp:
    """`CompiledOp`, kept for the next call with the same arguments and folders of data."""
    return CompiledOp(model, hardware, parallel, policy, inventory)
