"""A forward whose whole time was measured or fitted, shown with the operators that OP finds in it.

Only the whole was measured. Rows, path and timeline divide it as OP would: operators keep OP's
times, and what the whole takes beyond them is shown as "host" (launches, waits, everything that no
kernel explains); where the whole is shorter than OP's kernels, all of them are shortened alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aisim_v41.estimators.breakdown import Breakdown
from aisim_v41.estimators.compiled import CompiledGraph, Floats, compiled_sol
from aisim_v41.estimators.fpm.prediction import Prediction
from aisim_v41.estimators.op.builds import compiled_build
from aisim_v41.estimators.op.estimator import OpForward, op_forwards
from aisim_v41.estimators.resources import RESOURCES
from aisim_v41.estimators.result import Estimate
from aisim_v41.estimators.sol import assumptions, sol_bounds
from aisim_v41.hardware import Hardware
from aisim_v41.ops.graph import Node
from aisim_v41.ops.operator import Task
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan

if TYPE_CHECKING:
    from aisim_v41.estimators.fpm.estimator import Fpm


@dataclass(frozen=True)
class WholeForward:
    """One forward, its time known as a whole.

    Args:
        inside: the forward as OP prices it.
        total_s: time of one run [s].
        kind: of evidence: "measured", "interpolated" or "extrapolated".
    """

    inside: OpForward
    total_s: float
    kind: str

    @property
    def compiled(self) -> CompiledGraph:
        """The graph of its kernels."""
        return self.inside.compiled

    @property
    def times(self) -> int:
        """How often it runs in the step."""
        return self.inside.times

    @property
    def rank(self) -> int | None:
        """Only the whole was measured: all ranks are alike."""
        return self.inside.rank

    @property
    def counts(self) -> Floats:
        """The ledger's columns."""
        return self.inside.counts

    @property
    def scale(self) -> float:
        """What OP's kernel times are multiplied by, at most 1."""
        kernels = self.inside.device_s
        return min(1.0, self.total_s / kernels) if kernels else 1.0

    @property
    def waits_s(self) -> float:
        """What the whole takes beyond its kernels [s]."""
        return max(0.0, self.total_s - self.inside.device_s)

    @property
    def host_s(self) -> float:
        """What the host needs to issue it, as OP has it [s]."""
        return self.inside.host_s

    def task_seconds(self, task: Task) -> float:
        """Time of one call alone [s]."""
        return self.scale * self.inside.task_seconds(task)

    def source(self, task: Task) -> str:
        """Kind of evidence behind the whole."""
        return f"share of a whole ({self.kind})"

    def error(self, task: Task) -> None:
        """Only the whole has one."""

    def shared(self, node: Node) -> Floats:
        """Time of a block on each resource [s], shortened like its kernels."""
        return self.scale * self.inside.shared(node)

    def arranged(self, node: Node) -> Node:
        """The node as this forward runs it."""
        return self.inside.arranged(node)


def whole_estimate(fpm: Fpm, plan: Plan, hardware: Hardware, *, extrapolate: bool) -> Estimate:
    """A plan's prediction as an `Estimate`, beside its bounds and the operators inside it.

    Args:
        fpm: of the plan's identity.
        plan, hardware: what is run.
        extrapolate: whether steps outside what was measured are answered.

    Raises:
        OutOfRangeError: a forward of the plan lies outside, and no extrapolation was asked for.
    """
    counted = ledger(plan)
    build = compiled_build(plan.model, hardware, plan.parallel, plan.policy)
    inside = op_forwards(build, counted)
    said = [fpm.predict_forward(f.requests, extrapolate) for f, _ in counted.passes]
    forwards = tuple(
        WholeForward(within, prediction.latency_s, prediction.source)
        for within, prediction in zip(inside, said, strict=True)
    )
    bounds = sol_bounds(compiled_sol(plan.model, hardware, plan.parallel, plan.policy), counted)
    low, high = (
        sum(f.times * p.band_s[end] for f, p in zip(forwards, said, strict=True)) for end in (0, 1)
    )
    busy = np.zeros(len(RESOURCES))
    for forward in inside:
        busy += forward.times * (forward.compiled.resource_totals @ forward.counts)
    return Estimate(
        plan=plan,
        hardware=hardware,
        method=fpm.method,
        latency_s=max(sum(f.times * f.total_s for f in forwards), bounds.graph_s),
        band_s=(max(bounds.graph_s, low), max(bounds.graph_s, high)),
        bounds=bounds,
        source_share=_shares(forwards),
        resource_s={str(r): float(busy[i]) for i, r in enumerate(RESOURCES)},
        warnings=(*plan.warnings, *assumptions(plan, hardware), *_warnings(fpm, said)),
        breakdown=Breakdown(forwards),
        beyond=tuple(dict.fromkeys(p.domain.text for p in said if p.domain.text)),
        kernels_s=sum(f.times * min(f.total_s, f.inside.device_s) for f in forwards),
    )


def _shares(forwards: Sequence[WholeForward]) -> dict[str, float]:
    """Share of the time by kind of evidence."""
    shares: dict[str, float] = {}
    for forward in forwards:
        shares[forward.kind] = shares.get(forward.kind, 0.0) + forward.times * forward.total_s
    total = sum(shares.values())
    return {name: value / total for name, value in sorted(shares.items())} if total else {}


def _warnings(fpm: Fpm, said: Sequence[Prediction]) -> tuple[str, ...]:
    identity = fpm.table.identity
    found = [
        f"whole forwards of {identity.slug()}, timed by {identity.build.timer}; operators are "
        "shown as OP divides the whole"
    ]
    verdicts = {p.domain.verdict for p in said}
    if "edge" in verdicts:
        found.append("at the edge of what was measured")
    if "outside" in verdicts:
        found.append("outside what was measured: the physical part alone, extrapolated")
    return tuple(found)
