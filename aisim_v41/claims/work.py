"""The operators of one step with their counts: what FLOP, traffic and launch claims are read from.

Nothing is priced: the linear forms of the operators (`aisim_v41.ops`) are evaluated on the ledger's
counts. No fusion, so that each operator keeps its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.claims.context import Context
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.backbone import backbone
from aisim_v41.ops.graph import tasks_of
from aisim_v41.ops.operator import Columns, Task, Traffic
from aisim_v41.ops.rank import rank_of
from aisim_v41.plan.columns import Column
from aisim_v41.plan.ledger import ledger_program
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

CACHE_READS = (Traffic.KV_READ, Traffic.KV_REREAD)
"""Every read of cache rows, whether or not an earlier layer has read the same row."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """All operators of one rank in one step; each occurs as often as it runs."""

    tasks: tuple[Task, ...]
    counts: Mapping[Column, float]

    def flops(self, *names: str) -> float:
        """FLOP of the named operators, of all if none is named."""
        return sum(self.flops_by_arithmetic(*names).values())

    def flops_by_arithmetic(self, *names: str) -> dict[Arithmetic, float]:
        """The same [FLOP] by the precision in which they multiply."""
        total: dict[Arithmetic, float] = defaultdict(float)
        for task in self._named(names):
            for arithmetic, form in task.flops.items():
                total[arithmetic] += self._value(form)
        return dict(total)

    def weighted(self, weights: Mapping[Arithmetic, float], *names: str) -> float:
        """FLOP in which each arithmetic class counts with its weight."""
        by_class = self.flops_by_arithmetic(*names)
        return sum(weights[arithmetic] * flop for arithmetic, flop in by_class.items())

    def traffic(self, kinds: Iterable[Traffic], *names: str) -> float:
        """Bytes [B] of some kinds that the named operators move."""
        return sum(self._value(task.traffic[kind]) for task in self._named(names) for kind in kinds)

    def calls(self, name: str) -> int:
        """How often an operator runs in the step."""
        return sum(1 for _ in self._named((name,)))

    def launches(self, name: str) -> float:
        """Kernels that all calls of an operator launch."""
        return sum(self._value(task.launches) for task in self._named((name,)))

    def _named(self, names: tuple[str, ...]) -> Iterable[Task]:
        return (task for task in self.tasks if not names or task.name in names)

    def _value(self, form: Columns) -> float:
        return sum(value * self.counts[column] for column, value in form.items())


def work(
    context: Context, runtime: RuntimePolicy, *requests: Request, parallel: Parallel | None = None
) -> Work:
    """Operators and counts of one step that takes one forward."""
    mapping = Parallel() if parallel is None else parallel
    runtime = runtime.with_overrides(fusion="elementary")
    counted = context.ledger(*requests, policy=runtime, parallel=mapping)
    ((_, counts),) = counted.passes
    totals = counts.totals.tolist()
    columns = dict(zip(counted.program.columns, totals, strict=True))
    return Work(_tasks(context.model, runtime, mapping), columns)


@lru_cache(maxsize=64)
def _tasks(model: Model, runtime: RuntimePolicy, mapping: Parallel) -> tuple[Task, ...]:
    rank = rank_of(model, mapping, runtime, has_fp4=True)
    return tuple(tasks_of(backbone(rank, ledger_program(model, runtime)).graph))


def paper(context: Context, *, replay: bool = False, **overrides: Any) -> RuntimePolicy:
    """The report's runtime; replay keeps one window of this model's length."""
    return _replaying("paper", context, replay, overrides)


def sglang(context: Context, *, replay: bool = False, **overrides: Any) -> RuntimePolicy:
    """SGLang's, likewise."""
    return _replaying("sglang", context, replay, overrides)


def _replaying(
    name: str, context: Context, replay: bool, overrides: Mapping[str, Any]
) -> RuntimePolicy:
    return policy(name, decoder_replay=replay, replay_tail_rows=context.window, **dict(overrides))
