"""A model, mapping and policy on a GPU, compiled once: the hot path of simulations and sweeps.

`CompiledStep` turns requests into counts and asks for their seconds. `CompiledGraph` holds the
graph and the resource forms of its tasks; what a forward costs is added by the estimators
(`CompiledSol` here). The detailed `Estimate` and the bare number of a step come from the same
arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.program import ProgramBuilder, TimeProgram
from aisim_v41.estimators.resources import Price, Resource, price
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import check_mapping
from aisim_v41.ops.backbone import Backbone, whole
from aisim_v41.ops.forward import whole_forward
from aisim_v41.ops.fusion import Fusion
from aisim_v41.ops.graph import Node, tasks_of
from aisim_v41.ops.operator import Columns, Task
from aisim_v41.ops.rank import rank_of
from aisim_v41.plan.builds import check_build
from aisim_v41.plan.compatibility import (
    check_engine_model,
    check_policy,
    check_requests,
    check_speculation,
    pack,
    stored_model,
)
from aisim_v41.plan.counting import LedgerProgram, RankCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit, check_ranks, decode_mapping
from aisim_v41.plan.ledger import ledger_program
from aisim_v41.plan.mappings import (
    check_mapping_is_modelled,
    check_prompts_of_interleaved,
    check_split,
)
from aisim_v41.plan.plan import forward_passes
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request
from aisim_v41.plan.spans import PREFILL, RequestColumns
from aisim_v41.plan.words import setting_text
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
CHUNK_STEPS = 8192
"""Steps of a sweep evaluated at once: bounds the memory of a sweep of any length."""


class CompiledStep(ABC):
    """A step function: seconds of one step, or of many in a frame.

    Attributes:
        method: as in `aisim_v41.estimate`.
        model: the model.
        parallel: the mapping.
        policy: the runtime policy.
        program: counts of a step from its requests.
    """

    method: ClassVar[str]
    chunk_steps: ClassVar[int] = CHUNK_STEPS
    """Steps of a sweep that are evaluated at once, unless it is told otherwise."""
    distinct_experts: ClassVar[Count] = Count.REPLICA_EXPERTS_TOUCHED
    """The count that weights of experts follow."""
    model: Model
    hardware: Hardware
    parallel: Parallel
    policy: RuntimePolicy
    program: LedgerProgram

    @abstractmethod
    def priced(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Seconds of requests as columns: of one forward, or of one a column [steps]."""

    def priced_ranks(self, ranks: Sequence[RankCounts], *, one_step: bool) -> list[Floats]:
        """Seconds of every rank of a forward, or of one a column [steps] each.

        Raises:
            UnsupportedPlanError: the method prices one rank for all.
        """
        raise self._one_rank_for_all()

    def on(self, parallel: Parallel) -> CompiledStep:
        """The same steps on another mapping.

        Raises:
            UnsupportedPlanError: the method prices one rank for all.
        """
        raise self._one_rank_for_all()

    def _one_rank_for_all(self) -> UnsupportedPlanError:
        named = ", ".join(f"{name} = {size}" for name, size in self.parallel.named().items())
        return UnsupportedPlanError(
            f"method {self.method!r} with {named}: it prices no ranks that hold "
            "rows of their own; use dp=1 and cp=1, or another method"
        )

    @cached_property
    def decoding(self) -> CompiledStep | None:
        """Steps without a prefill, where another mapping runs them."""
        mapping = decode_mapping(self.parallel)
        return None if mapping == self.parallel else self.on(mapping)

    def slowest(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Seconds of requests as columns where ranks run different rows: of the slowest rank."""
        if self.decoding is not None:
            decodes = (requests.kind != PREFILL) & (requests.new > 0) & (requests.count > 0)
            if decodes.any() and (one_step or decodes.all()):
                return self.decoding.priced(requests, one_step=one_step)
            if decodes.any():
                found = np.empty(len(decodes))
                for steps, step in ((decodes, self.decoding.priced), (~decodes, self.slowest)):
                    part = requests.chosen(np.flatnonzero(steps))
                    found[steps] = step(part, one_step=False)
                return found
        counted = self.program.of_ranks(requests, one_step=one_step)
        longest: Floats = np.maximum.reduce(self.priced_ranks(counted, one_step=one_step))
        return longest

    def __call__(self, requests: Sequence[Request]) -> float:
        """Seconds of one step.

        Raises:
            InvalidInputError, OutOfRangeError, UnsupportedPlanError: as for `Plan`.
        """
        if not isinstance(requests, (list, tuple)):
            requests = listed("requests", requests)
        columns = check_requests(self.model, self.policy, requests, self.parallel)
        if self.program.split is not None:
            return float(self.slowest(columns, one_step=True))
        if self.policy.encoder_replay != "separate":
            return float(self.priced(columns, one_step=True))
        total = 0.0
        for forward in forward_passes(requests, self.policy):
            total += forward.times * float(self.priced(pack(forward.requests), one_step=True))
        return total

    def sweep(self, frame: pd.DataFrame, *, chunk_steps: int | None = None) -> pd.DataFrame:
        """Seconds of many steps, one a row, each of identical requests.

        Args:
            frame: columns named as the fields of `Request`: new_tokens, and where they differ from
                the defaults prefix_tokens, count, kind, prompt_tokens, window, window_start,
                prompt_logprobs, image_tokens, rank. Other columns are carried along;
                ``latency_ms`` must be free.
            chunk_steps: rows evaluated at once; by default as many as the method's arrays fit a
                processor's cache.

        Returns:
            The frame with a column ``latency_ms``; ``attrs["about"]`` says of what the times are.

        Raises:
            InvalidInputError, OutOfRangeError, UnsupportedPlanError: naming column and row.
        """
        from aisim_v41.plan.frames import request_columns

        chunk_steps = self.chunk_steps if chunk_steps is None else chunk_steps
        if type(chunk_steps) is not int or chunk_steps < 1:
            raise InvalidInputError(f"chunk_steps = {chunk_steps!r}: must be a whole number >= 1")
        columns = request_columns(frame, self.model, self.policy)
        check_ranks(columns, self.parallel.dp)
        if self.parallel.cp > 1:
            check_prompts_of_interleaved(columns)
        seconds_of = self.priced if self.program.split is None else self.slowest
        if "latency_ms" in frame.columns:
            raise InvalidInputError(
                "the frame has a column latency_ms, which a sweep adds; rename yours, or drop it"
            )
        seconds = np.empty(len(frame))
        for first in range(0, len(frame), chunk_steps):
            part = columns.rows(first, first + chunk_steps)
            seconds[first : first + chunk_steps] = seconds_of(part, one_step=False)
        timed = frame.assign(latency_ms=seconds / MILLISECOND)
        of = setting_text(self.model.name, self.hardware.name, self.parallel, self.policy)
        timed.attrs["about"] = f"{of}; method {self.method}"
        return timed

    def sweep_frames(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """`sweep` of a stream of frames, one at a time, for sweeps larger than memory.

        Raises:
            InvalidInputError, OutOfRangeError, UnsupportedPlanError: as for `sweep`.
        """
        if not isinstance(frames, Iterable):
            raise InvalidInputError(
                f"frames = {frames!r}: must be a list or stream of frames, not "
                f"{type(frames).__name__}"
            )
        for frame in frames:
            yield self.sweep(frame)


class CompiledGraph(CompiledStep):
    """Steps of one model, mapping and policy on one GPU, as one graph of kernels.

    Args:
        model: the model.
        hardware: the GPU and its links.
        parallel: the mapping.
        policy: the runtime policy.
        fusion: which operators are one kernel; the policy's profile if not given.

    Raises:
        UnsupportedPlanError: the mapping or the policy is refused.
    """

    def __init__(
        self,
        model: Model,
        hardware: Hardware,
        parallel: Parallel,
        policy: RuntimePolicy,
        fusion: Fusion | None = None,
    ) -> None:
        require_step_model(model)
        model = stored_model(model, policy)
        check_policy(policy, parallel, hardware.architecture)
        check_mapping_is_modelled(parallel)
        check_split(policy, parallel)
        drafts = policy.speculation != "off"
        check_mapping(model, parallel, policy.sharding, drafts=drafts)
        check_mapping(model, decode_mapping(parallel), policy.sharding, drafts=drafts)
        _check_one_domain(parallel, hardware)
        check_speculation(model, policy)
        check_engine_model(model, policy)
        check_build(policy.build, policy.name, hardware.architecture)
        self.model, self.hardware = model, hardware
        self.parallel, self.policy = parallel, policy
        self.program = ledger_program(model, policy, RowSplit.of(parallel))
        has_fp4 = Arithmetic.FP4 in hardware.peak_flop_per_s
        rank = rank_of(
            model, parallel, policy, has_fp4=has_fp4, distinct_experts=self.distinct_experts
        )
        kernels = () if fusion is None else (fusion,)
        self.backbone: Backbone = whole_forward(rank, self.program, *kernels)
        self.target: Node = self.backbone.target
        self.drafting: Node | None = self.backbone.drafting
        self.graph: Node = whole(self.target, self.drafting)
        self._prices: dict[int, Price] = {}
        columns = {column: place for place, column in enumerate(self.program.columns)}
        self.builder = ProgramBuilder(columns, self.price)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made from: tasks and nodes are known by their id."""
        return type(self), (self.model, self.hardware, self.parallel, self.policy)

    def on(self, parallel: Parallel) -> CompiledStep:
        """The same steps on another mapping."""
        return type(self)(self.model, self.hardware, parallel, self.policy)

    def price(self, task: Task) -> Price:
        """Seconds of a task on each resource, as forms."""
        key = id(task)
        if key not in self._prices:
            self._prices[key] = price(task, self.hardware)
        return self._prices[key]

    # --- details for reports ------------------------------------------------------------------

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Distinct tasks of the graph, in order of first occurrence."""
        return tuple({id(task): task for task in tasks_of(self.graph)}.values())

    @cached_property
    def resource_forms(self) -> Floats:
        """[tasks, resources, columns]: seconds a count."""
        return np.array(
            [
                [self.builder.vector(self.price(task).seconds[r]) for r in Resource]
                for task in self.tasks
            ]
        )

    @cached_property
    def certain_forms(self) -> Floats:
        """[resources, columns]: what no cache, selection or overlap can avoid, whole graph."""
        total = np.zeros((len(Resource), len(self.program.columns)))
        for task in tasks_of(self.graph):
            for place, resource in enumerate(Resource):
                total[place] += self.builder.vector(self.price(task).certain[resource])
        return total

    @cached_property
    def launch_form(self) -> Floats:
        """[columns]: kernels launched by a forward."""
        total = np.zeros(len(self.program.columns))
        for task in tasks_of(self.graph):
            total += self.builder.vector(task.launches)
        return total

    @cached_property
    def resource_totals(self) -> Floats:
        """[resources, columns]: seconds of the whole graph on each resource."""
        return self.totals(self.graph)

    def totals(self, node: Node) -> Floats:
        """[resources, columns]: seconds of a subgraph on each resource."""
        return self.builder.totals(node)

    def vector(self, form: Columns) -> Floats:
        """A form as a dense vector [columns]."""
        return self.builder.vector(form)

    def tasks_in(self, node: Node) -> Iterator[Task]:
        """Tasks of a subgraph, in order."""
        return tasks_of(node)


def _check_one_domain(parallel: Parallel, hardware: Hardware) -> None:
    """Refuse rows that are interleaved over more GPUs than one link domain has.

    Raises:
        UnsupportedPlanError: naming both numbers.
    """
    if 1 < hardware.link_domain_gpus < parallel.cp:
        raise UnsupportedPlanError(
            f"cp = {parallel.cp} on {hardware.name}: rows are interleaved inside one link domain "
            f"(runtime-semantics §4.4), which has {hardware.link_domain_gpus} GPUs; use "
            f"cp <= {hardware.link_domain_gpus}"
        )


class CompiledSol(CompiledGraph):
    """Speed-of-light time of steps: their graph bound.

    Args and errors: as for `CompiledGraph`.
    """

    method = "sol"

    def __init__(
        self, model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
    ) -> None:
        super().__init__(model, hardware, parallel, policy)
        self.time: TimeProgram = self.builder.build(self.graph)

    def priced(self, requests: RequestColumns, *, one_step: bool) -> Floats:
        """Seconds of requests as columns: of one forward, or of one a column [steps]."""
        return self.seconds(self.program.count(requests, one_step=one_step).totals)

    def priced_ranks(self, ranks: Sequence[RankCounts], *, one_step: bool) -> list[Floats]:
        """Seconds of every rank of a forward, or of one a column [steps] each."""
        return [self.seconds(one.counts.totals) for one in ranks]

    def seconds(self, counts: Floats) -> Floats:
        """Graph bound of a forward [s]."""
        return self.time.seconds(counts)


def listed(name: str, values: object, of: str = "Request") -> list[Any]:
    """What an argument iterates over.

    Raises:
        InvalidInputError: it does not.
    """
    if not isinstance(values, Iterable):
        raise InvalidInputError(
            f"{name} = {values!r:.120}: must be a list of {of}, not {type(values).__name__}"
        )
    return list(values)


@lru_cache(maxsize=32)
def compiled_sol(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> CompiledSol:
    """`CompiledSol`, kept for the next call with the same arguments."""
    return CompiledSol(model, hardware, parallel, policy)
