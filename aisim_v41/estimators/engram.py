"""Engram rows in an estimate: bytes and seconds by module, and what earlier layers hide of them.

Which rows a step needs follows from its token ids, so an engine can fetch them while the layers
before a module run. What is then left, the step waits for. All of it is part of the estimate; this
reads it there (docs/updates.md, "Engram").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.breakdown import ForwardPrice
from aisim_v41.estimators.deliveries import deliveries, without_transfer_s
from aisim_v41.estimators.engram_sources import Rate, host_rate
from aisim_v41.estimators.entry import estimate
from aisim_v41.hardware import Hardware
from aisim_v41.ops.engram import looking_up, own_rows, rows_looking_up
from aisim_v41.ops.operator import Task, Traffic
from aisim_v41.ops.rank import rank_of
from aisim_v41.plan.columns import column_of
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MICROSECOND, MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

    from aisim_v41.estimators.result import Estimate

METHODS = ("auto", "sol", "op")
MOST_TIMES = 4096
"""How many times a plan's requests are multiplied in search of a break-even."""
SAYS_NOTHING = 1e-9
"""Share of a step below which waiting is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTransfer:
    """The rows of one module in one forward, for one rank.

    Attributes:
        layer: layer before which the module sits.
        times: how often the forward runs.
        tokens: rows of the rank's streams that look up.
        lookups: table rows that they look up.
        distinct: different rows among them.
        own: rows that one rank gets itself: its share of these, or of those of all ranks where a
            table lies over ranks with rows of their own.
        fetched: of its own rows, those that its cache does not have.
        link_bytes: what crosses the link to the host [B].
        disk_bytes: what is read from disk [B].
        transfer_s: time until they are there, alone [s].
        collective_s: sum of the ranks' rows afterwards [s].
        window_s: from the start of the forward to where the module needs its rows [s].
        exposed_s: what its kernels wait for them [s].
    """

    layer: int
    times: int
    tokens: float
    lookups: float
    distinct: float
    own: float
    fetched: float
    link_bytes: float
    disk_bytes: float
    transfer_s: float
    collective_s: float
    window_s: float
    exposed_s: float


@dataclass(frozen=True, kw_only=True)
class EngramReport:
    """What the rows of a step cost, given where the tables are.

    Attributes:
        estimate: the plan's, which holds all this.
        rate: how fast rows come from the host; None where none do.
        modules: module by module, forward by forward.
        without_s: time of the step if every row were there from its start [s].
    """

    estimate: Estimate
    rate: Rate | None
    modules: tuple[ModuleTransfer, ...]
    without_s: float

    @property
    def plan(self) -> Plan:
        """What was asked."""
        return self.estimate.plan

    @property
    def residency(self) -> str:
        """Where the tables are."""
        return self.plan.policy.engram_residency

    @property
    def prefetch(self) -> str:
        """From when the rows are fetched."""
        return self.plan.policy.engram_prefetch

    @property
    def hit_share(self) -> float:
        """Share of a rank's rows that its cache has."""
        return self.plan.policy.engram_hit_share

    @property
    def step_s(self) -> float:
        """Time of the step [s]."""
        return self.estimate.latency_s

    @property
    def transfer_s(self) -> float:
        """Time of all transfers alone [s]."""
        return sum(module.times * module.transfer_s for module in self.modules)

    @property
    def exposed_s(self) -> float:
        """What the step waits for rows [s]; less than its kernels do where the host is late too."""
        waited = self.step_s - self.without_s
        return waited if waited > SAYS_NOTHING * self.step_s else 0.0

    @property
    def hidden_s(self) -> float:
        """What runs beside other work [s]."""
        return self.transfer_s - self.exposed_s

    @property
    def collective_s(self) -> float:
        """Sums of the ranks' rows [s]."""
        return sum(module.times * module.collective_s for module in self.modules)

    @property
    def link_bytes(self) -> float:
        """What crosses one GPU's link to its host [B]."""
        return sum(module.times * module.link_bytes for module in self.modules)

    @property
    def disk_bytes(self) -> float:
        """What is read from disk for one GPU [B]."""
        return sum(module.times * module.disk_bytes for module in self.modules)

    def to_frame(self) -> pd.DataFrame:
        """One row a module and forward; times in µs."""
        import pandas as pd

        return pd.DataFrame([*map(_as_dict, self.modules)], columns=list(_COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "hardware": self.estimate.hardware.name,
            "method": self.estimate.method,
            "policy": self.plan.policy.name,
            "parallel": {"tp": self.plan.parallel.tp},
            "residency": self.residency,
            "prefetch": self.prefetch,
            "distinct_share": self.plan.policy.engram_distinct_share,
            "hit_share": self.hit_share,
            "host_gb_per_s": None if self.rate is None else self.rate.gb_per_s,
            "host_limit": None if self.rate is None else self.rate.limit,
            "link_bytes": self.link_bytes,
            "disk_bytes": self.disk_bytes,
            "transfer_ms": self.transfer_s / MILLISECOND,
            "hidden_ms": self.hidden_s / MILLISECOND,
            "exposed_ms": self.exposed_s / MILLISECOND,
            "collective_ms": self.collective_s / MILLISECOND,
            "without_transfer_ms": self.without_s / MILLISECOND,
            "step_ms": self.step_s / MILLISECOND,
            "modules": [_as_dict(module) for module in self.modules],
        }


_TIMES_US = ("transfer", "collective", "window", "exposed")
_COLUMNS = (
    "layer", "times", "tokens", "lookups", "distinct", "own", "fetched", "link_bytes",
    "disk_bytes", *(f"{name}_us" for name in _TIMES_US),
)  # fmt: skip


def _as_dict(module: ModuleTransfer) -> dict[str, Any]:
    return {
        name: getattr(module, f"{name[:-3]}_s") / MICROSECOND
        if name.endswith("_us")
        else getattr(module, name)
        for name in _COLUMNS
    }


def engram(plan: Plan, hardware: Hardware, method: str = "auto") -> EngramReport:
    """Transfer of a step's Engram rows, and what of it the step waits for.

    Where the tables are, which share of the rows is distinct or cached, and from when they are
    fetched, the plan's policy says (``engram_*``).

    Args:
        plan: what is run, and how.
        hardware: from `load_hardware`.
        method: "op" (likely: achieved rate of the link), "sol" (a bound: its peak), "auto" ("op").

    Raises:
        InvalidInputError: an argument of the wrong kind.
        UnsupportedPlanError: no Engram modules, ids that are not known in time, or no figure for
            the link or the disk.

    Example:
        >>> import aisim_v41 as aisim
        >>> plan = aisim.Plan(
        ...     aisim.load_model("deepseek-v4.1-flash"),
        ...     [aisim.Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=64)],
        ...     parallel=aisim.Parallel(tp=4),
        ...     policy=aisim.policy("sglang", engram_residency="host_shared"))
        >>> report = engram(plan, aisim.load_hardware("gb300"))
        >>> report.link_bytes  # 64 tokens x 2 modules x 24 rows x 264 B
        811008.0
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"plan = {plan!r:.120}: must be a Plan")
    if method not in METHODS:
        raise InvalidInputError(f"method = {method!r}: must be one of {', '.join(METHODS)}")
    if plan.model.engram is None:
        raise UnsupportedPlanError(
            f"{plan.model.name} has no Engram modules, so no rows are transferred"
        )
    answer = estimate(plan, hardware, method)
    forwards = answer.breakdown.forwards
    fetches = any(forward.compiled.backbone.fetches for forward in forwards)
    return EngramReport(
        estimate=answer,
        rate=host_rate(hardware, likely=answer.method == "op") if fetches else None,
        modules=tuple(module for forward in forwards for module in _modules(forward, plan)),
        without_s=sum(f.times * without_transfer_s(f) for f in forwards)
        if fetches
        else answer.latency_s,
    )


def break_even(plan: Plan, hardware: Hardware, method: str = "auto") -> int | None:
    """How many times the plan's requests make a step wait for Engram rows; None if up to 4096 do.

    The search doubles, then halves the last interval: where waiting comes and goes within one
    doubling, it finds one such place.

    Args:
        plan: requests that are multiplied, such as one decode.
        hardware, method: as for `engram`.

    Raises:
        InvalidInputError, UnsupportedPlanError: as for `engram`.
    """

    if not isinstance(plan, Plan):
        raise InvalidInputError(f"plan = {plan!r:.120}: must be a Plan")

    def waits(times: int) -> bool:
        requests = [replace(r, count=r.count * times, packed=b"") for r in plan.requests]
        report = engram(replace(plan, requests=requests), hardware, method)
        return report.exposed_s > SAYS_NOTHING * report.step_s

    hidden, times = 0, 1
    while not waits(times):
        hidden, times = times, 2 * times
        if times > MOST_TIMES:
            return None
    while times - hidden > 1:
        middle = (hidden + times) // 2
        hidden, times = (hidden, middle) if waits(middle) else (middle, times)
    return times


def _modules(forward: ForwardPrice, plan: Plan) -> Iterator[ModuleTransfer]:
    """Modules of one forward, in order."""
    compiled, policy, engram = forward.compiled, plan.policy, plan.model.engram
    assert engram is not None
    delivered = {one.step.layer: one for one in deliveries(forward)}
    beside = compiled.backbone.beside
    rank = rank_of(plan.model, plan.parallel, policy, has_fp4=False)
    for layer in sorted({step.layer for step in beside}):
        tasks = [t for step in beside if step.layer == layer for t in compiled.tasks_in(step.node)]
        lookup = next(task for task in tasks if "engram_lookup" in task.replaces)
        tokens = float(compiled.vector(rows_looking_up(lookup)) @ forward.counts)
        lookups = tokens * engram.rows_per_token
        where = compiled.program.classes[layer]
        asked = {column_of(count, where): n for count, n in looking_up(rank).terms.items()}
        own = own_rows(rank) * float(compiled.vector(asked) @ forward.counts)
        distinct = lookups * policy.engram_distinct_share
        one = delivered.get(layer)
        fetch = one.step.node if one is not None and isinstance(one.step.node, Task) else None

        def moved(kind: Traffic, fetch: Task | None = fetch) -> float:
            if fetch is None:
                return 0.0
            return float(compiled.vector(fetch.traffic[kind]) @ forward.counts)

        hits = policy.engram_hit_share if policy.engram_residency != "hbm" else 1.0
        yield ModuleTransfer(
            layer=layer,
            times=forward.times,
            tokens=tokens,
            lookups=lookups,
            distinct=distinct,
            own=own,
            fetched=own * (1 - hits),
            link_bytes=moved(Traffic.HOST_READ),
            disk_bytes=moved(Traffic.DISK_READ),
            transfer_s=0.0 if fetch is None else forward.task_seconds(fetch),
            collective_s=sum(
                forward.task_seconds(task) for task in tasks if "all_reduce_engram" in task.replaces
            ),
            window_s=0.0 if one is None else max(one.reached_s - one.follows_s, 0.0),
            exposed_s=0.0 if one is None else one.waits_s,
        )
