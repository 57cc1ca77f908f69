"""Graphs of real plans, with their forms evaluated on exact counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.ops.backbone import Backbone
from aisim_v41.ops.forward import whole_forward
from aisim_v41.ops.graph import tasks_of
from aisim_v41.ops.operator import Columns, Task, Traffic
from aisim_v41.ops.rank import Rank, rank_of
from aisim_v41.plan.columns import ACTIVITY, Column
from aisim_v41.plan.counting import LedgerProgram
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import ledger, ledger_program
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

ELEMENTARY = policy("paper", fusion="elementary")
"""The report's runtime without fusion: every operator keeps its name."""


class Built(NamedTuple):
    rank: Rank
    program: LedgerProgram
    backbone: Backbone

    @property
    def tasks(self) -> list[Task]:
        """Every task of the graph, as often as it occurs."""
        return list(tasks_of(self.backbone.graph))

    @property
    def by_layer(self) -> dict[int, list[Task]]:
        """The same by layer; -1 is before the first, 40 after the last, draft blocks from 41."""
        found = defaultdict(list)
        for step in self.backbone.steps:
            found[step.layer] += tasks_of(step.node)
        return dict(found)


@cache
def model() -> Model:
    return load_model("deepseek-v4.1-flash")


@cache
def built(
    runtime: RuntimePolicy, tp: int = 1, *, has_fp4: bool = True, of: Model | None = None
) -> Built:
    chosen = model() if of is None else of
    rank = rank_of(chosen, Parallel(tp=tp), runtime, has_fp4=has_fp4)
    program = ledger_program(chosen, runtime)
    return Built(rank, program, whole_forward(rank, program))


def counts(runtime: RuntimePolicy, *requests: Request) -> dict[Column, Fraction]:
    """Every column of a step that takes one forward."""
    counted = ledger(Plan(model(), requests, policy=runtime))
    ((_, found),) = counted.passes
    totals = [Fraction(value) for value in found.totals.tolist()]
    return dict(zip(counted.program.columns, totals, strict=True))


def everything_once(program: LedgerProgram, experts: int) -> dict[Column, Fraction]:
    """Every layer active, ``experts`` routed experts touched in each, nothing else."""
    ones = {**dict.fromkeys(ACTIVITY, 1), Count.EXPERTS_TOUCHED: experts}
    return {column: Fraction(ones.get(column.quantity, 0)) for column in program.columns}


def amount(form: Columns, found: dict[Column, Fraction]) -> Fraction:
    """A form on some counts, exactly."""
    return sum((Fraction(value) * found[column] for column, value in form.items()), Fraction(0))


def flop(tasks: Iterable[Task], found: dict[Column, Fraction], *names: str) -> Fraction:
    """FLOP of the named tasks, of all if none is named."""
    chosen = [task for task in tasks if not names or task.name in names]
    forms = [form for task in chosen for form in task.flops.values()]
    return sum((amount(form, found) for form in forms), Fraction(0))


def moved(tasks: Iterable[Task], found: dict[Column, Fraction], *kinds: Traffic) -> Fraction:
    """Bytes of some kinds."""
    forms = [task.traffic[kind] for task in tasks for kind in kinds]
    return sum((amount(form, found) for form in forms), Fraction(0))


def added(forms: Iterable[Columns]) -> dict[Column, Fraction]:
    """Sum of forms, column by column, without zeros."""
    total: Counter[Column] = Counter()
    for form in forms:
        for column, value in form.items():
            total[column] += Fraction(value)  # type: ignore[assignment]
    return {column: value for column, value in total.items() if value}  # type: ignore[misc]


def decode(tokens: int, **changed: int) -> Request:
    """The decode step that makes the context ``tokens`` long."""
    return Request(new_tokens=1, prefix_tokens=tokens - 1, kind="decode", **changed)
