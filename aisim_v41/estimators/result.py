"""What an estimator answers: a time, its bounds, and where both come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aisim_v41.estimators.breakdown import Breakdown, Row
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from aisim_v41.hardware import Hardware
    from aisim_v41.memory import StepMemory
    from aisim_v41.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Three nested lower bounds of a step [s].

    Attributes:
        resource_s: total unavoidable work over the peak of each resource, perfectly overlapped:
            what holds whatever is cached, selected or fused.
        graph_s: rooflines of tasks along the dependency graph; every task moves its own inputs
            and outputs through memory once.
        launch_s: the graph bound with the launch floor of the execution mode.
    """

    resource_s: float
    graph_s: float
    launch_s: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The answer to one plan.

    Attributes:
        plan, hardware, method: what was asked.
        latency_s: the estimate [s].
        band_s: interval that should hold the true value [s]; a bound has no upper end.
        bounds: speed-of-light bounds.
        source_share: share of the time by kind of evidence.
        resource_s: total time on each resource [s].
        warnings: what a reader may misread.
        beyond: sizes that lie outside what their evidence covers, one text each.
        breakdown: what `rows`, `path` and `timeline` are made from when they are asked for.
        kernels_s: time of the kernels as if the host were never late [s]; 0 for a bound.
        host_s: time that the host needs to issue the step's eager parts [s]; it decides where it
            is longer than that of the kernels. 0 for a bound, and where one graph is replayed.
        rank: the rank that the step waits for, where ranks run different rows; what is broken down
            is its forward.
    """

    plan: Plan
    hardware: Hardware
    method: str
    latency_s: float
    band_s: tuple[float, float]
    bounds: Bounds
    source_share: Mapping[str, float]
    resource_s: Mapping[str, float]
    warnings: tuple[str, ...]
    breakdown: Breakdown = field(repr=False, compare=False)
    beyond: tuple[str, ...] = ()
    kernels_s: float = 0.0
    host_s: float = 0.0
    rank: int | None = None

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Breakdown by operator and layer class."""
        return self.breakdown.rows()

    @cached_property
    def path(self) -> Mapping[str, float]:
        """Operators on the critical path [s], longest first; they add up to the time."""
        return self.breakdown.path()

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Time of the "target" and, under speculation, of the "draft" pass behind it [s]."""
        return self.breakdown.parts()

    @property
    def latency_ms(self) -> float:
        """Estimated time of the step [ms]."""
        return self.latency_s / MILLISECOND

    @property
    def sol_ms(self) -> float:
        """Speed of light: the graph bound [ms]."""
        return self.bounds.graph_s / MILLISECOND

    @property
    def band_ms(self) -> tuple[float, float]:
        """Interval [ms] that should hold the true value."""
        return (self.band_s[0] / MILLISECOND, self.band_s[1] / MILLISECOND)

    @property
    def utilisation(self) -> dict[str, float]:
        """Share of the estimated time for which each resource is busy."""
        if self.latency_s == 0:
            return dict.fromkeys(self.resource_s, 0.0)
        return {name: seconds / self.latency_s for name, seconds in self.resource_s.items()}

    @cached_property
    def memory(self) -> StepMemory:
        """Whether the step fits next to the weights."""
        from aisim_v41.memory import demand

        return demand(self.plan, self.hardware)

    def to_frame(self) -> pd.DataFrame:
        """One row an operator and layer class.

        Columns: operator, family, layers, calls, rows, flop, bytes, message_bytes, launches,
        time_ms (all calls, alone), bound, source.
        """
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "operator": row.operator,
                    "family": row.family,
                    "layers": layer_span(row.layers),
                    "calls": row.calls,
                    "rows": row.rows,
                    "flop": row.flop,
                    "bytes": sum(row.bytes_by_kind.values()),
                    "message_bytes": row.message_bytes,
                    "launches": row.launches,
                    "time_ms": row.seconds / MILLISECOND,
                    "bound": row.bound,
                    "source": row.source,
                }
                for row in self.rows
            ],
            columns=[
                "operator", "family", "layers", "calls", "rows", "flop", "bytes", "message_bytes",
                "launches", "time_ms", "bound", "source",
            ],
        )  # fmt: skip

    def timeline(self) -> pd.DataFrame:
        """Every task that takes time: forward, layer, operator, lane, start_ms, end_ms, bound.

        Members of a parallel block start together, each in lanes of its own. What a block takes
        beyond its members, because they share a resource, is a row "shared <resource>"; what layers
        wait for Engram rows, a row "waiting <resource>". A forward that runs several times is
        shown once.
        """
        import pandas as pd

        from aisim_v41.estimators.timeline import timeline

        columns = ["forward", "layer", "operator", "lane", "start_ms", "end_ms", "bound"]
        rows = [
            (one.forward, one.layer, one.operator, one.lane, one.start_s / MILLISECOND,
             one.end_s / MILLISECOND, one.bound)
            for one in timeline(self.breakdown.forwards)
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Where the time goes, as `aisim_v41.pictures.breakdown`; needs the extra ``plots``.

        Raises:
            MissingProfileError: matplotlib is not installed.
        """
        from aisim_v41.pictures import breakdown

        return breakdown(self, ax)

    def explain(self) -> str:
        """The answer and its reasons on one screen."""
        from aisim_v41.estimators.explain import explain

        return explain(self)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data for JSON; an absent upper end of the band is None."""
        upper = self.band_ms[1]
        return {
            "method": self.method,
            "hardware": self.hardware.name,
            "model": self.plan.model.name,
            "parallel": self.plan.parallel.named(),
            **({} if self.rank is None else {"rank": self.rank}),
            "policy": self.plan.policy.name,
            "policy_revision": self.plan.policy.revision,
            "policy_changed_fields": {
                key: str(value) for key, value in self.plan.policy.changed_fields().items()
            },
            "requests": [repr(request) for request in self.plan.requests],
            "latency_ms": self.latency_ms,
            "sol_ms": self.sol_ms,
            "band_ms": [self.band_ms[0], upper if upper != float("inf") else None],
            "bounds_ms": {
                "resource": self.bounds.resource_s / MILLISECOND,
                "graph": self.bounds.graph_s / MILLISECOND,
                "launch": self.bounds.launch_s / MILLISECOND,
            },
            "parts_ms": {name: seconds / MILLISECOND for name, seconds in self.parts.items()},
            "kernels_ms": self.kernels_s / MILLISECOND,
            "host_ms": self.host_s / MILLISECOND,
            "utilisation": self.utilisation,
            "source_share": dict(self.source_share),
            "beyond": list(self.beyond),
            "critical_path_ms": {k: v / MILLISECOND for k, v in self.path.items()},
            "operators": self.to_frame().to_dict(orient="records"),
            "warnings": list(self.warnings),
        }


def layer_span(layers: tuple[int, ...]) -> str:
    """Layer numbers as runs, for example ``0-1, 21-23``.

    -1 and the number of layers are ends; draft blocks have the numbers after them.
    """
    runs: list[list[int]] = []
    for layer in dict.fromkeys(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
