"""Engram rows from where the tables lie: bytes, seconds, and what earlier layers hide of them.

Which rows a step needs follows from its token ids, so an engine can fetch them while the layers
before a module run. What is then left, the step waits for. `estimate` does not hold it; this does,
beside the estimate of the same plan (docs/updates.md, "Engram").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from aisim_v41.errors import InvalidInputError, MissingProfileError, UnsupportedPlanError
from aisim_v41.estimators.breakdown import ForwardPrice, seconds_of
from aisim_v41.estimators.engram_sources import Disk, Rate, host_rate
from aisim_v41.estimators.entry import estimate
from aisim_v41.hardware import Hardware
from aisim_v41.ops.backbone import Step
from aisim_v41.ops.engram import rows_looking_up
from aisim_v41.ops.graph import Par
from aisim_v41.plan.engram_rows import row_bytes
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MICROSECOND, MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

    from aisim_v41.estimators.result import Estimate

Prefetch = Literal["previous", "step", "none"]
PREFETCHES: tuple[Prefetch, ...] = ("previous", "step", "none")
PREFETCH_OF_POLICY: dict[str, Prefetch] = {"vllm": "none"}
"""vLLM gathers the rows of all modules before layer 0; others look up beside earlier layers
(runtime-semantics §8)."""
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
        tokens: rows of the streams that look up.
        lookups: table rows that they look up.
        distinct: different rows among them, over all ranks.
        own: of those, rows that one rank gets for itself.
        fetched: of its own rows, those that its cache does not have.
        link_bytes: what crosses the link to the host [B].
        disk_bytes: what is read from disk [B].
        transfer_s: time until they are there, alone [s].
        collective_s: sum of the ranks' rows afterwards, already part of the estimate [s].
        window_s: from the start of the forward to where the module needs its rows [s].
        exposed_s: what the forward waits for them [s].
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
        estimate: the same plan without the transfer.
        residency: where the tables are.
        prefetch: from when the rows are fetched.
        hit_share: share of a rank's rows that its cache has.
        rate: how fast they come from the host; None where they do not.
        modules: module by module, forward by forward.
        step_s: time of the step with what it waits for rows [s].
    """

    estimate: Estimate
    residency: str
    prefetch: Prefetch
    hit_share: float
    rate: Rate | None
    modules: tuple[ModuleTransfer, ...]
    step_s: float

    @property
    def plan(self) -> Plan:
        """What was asked."""
        return self.estimate.plan

    @property
    def transfer_s(self) -> float:
        """Time of all transfers alone [s]."""
        return sum(module.times * module.transfer_s for module in self.modules)

    @property
    def exposed_s(self) -> float:
        """What the step waits for rows [s]."""
        return sum(module.times * module.exposed_s for module in self.modules)

    @property
    def hidden_s(self) -> float:
        """What runs beside other work [s]."""
        return self.transfer_s - self.exposed_s

    @property
    def collective_s(self) -> float:
        """Sums of the ranks' rows [s], part of the estimate."""
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
            "without_transfer_ms": self.estimate.latency_ms,
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


def engram(
    plan: Plan,
    hardware: Hardware,
    method: str = "auto",
    *,
    prefetch: Prefetch | None = None,
    hit_share: float = 0.0,
    disk: Disk | None = None,
) -> EngramReport:
    """Transfer of a step's Engram rows, and what of it the step waits for.

    Where the tables are, and which share of the rows is distinct, the plan's policy says
    (``engram_residency``, ``engram_distinct_share``).

    Args:
        plan: what is run, and how.
        hardware: from `load_hardware`.
        method: "op" (likely: achieved rate of the link), "sol" (a bound: its peak), "auto" ("op").
        prefetch: rows are fetched during the step before ("previous"; only prompts know their ids
            then), from the start of the step beside earlier layers ("step"), or when nothing else
            runs ("none"). By default what the policy's engine does.
        hit_share: share of a rank's distinct rows in a cache: of host-resident tables in GPU
            memory, of tables on disk in host memory. `cached_rows` counts it from a text.
        disk: the disk of tables that are on one.

    Raises:
        InvalidInputError: an argument of the wrong kind.
        UnsupportedPlanError: no Engram modules, or ids that are not known in time.
        MissingProfileError: no figure for the link or the disk.

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
    if method not in METHODS:
        raise InvalidInputError(f"method = {method!r}: must be one of {', '.join(METHODS)}")
    chosen = _prefetch(plan, prefetch)
    if isinstance(hit_share, bool) or not isinstance(hit_share, (int, float)):
        raise InvalidInputError(f"hit_share = {hit_share!r}: must be a number")
    if not 0 <= hit_share <= 1:
        raise InvalidInputError(f"hit_share = {hit_share!r}: must be from 0 to 1")
    answer = estimate(plan, hardware, method)
    source = _Source(plan, hardware, answer.method, float(hit_share), disk)
    modules: list[ModuleTransfer] = []
    chain_s = 0.0
    for forward in answer.breakdown.forwards:
        found, chain = _waits(forward, source, chosen)
        modules += found
        chain_s += forward.times * chain
    waited = sum(module.times * module.exposed_s for module in modules)
    # A bound may not add what else runs beside the chain of layers to what that chain waits for.
    before = chain_s if answer.method == "sol" else answer.latency_s
    return EngramReport(
        estimate=answer,
        residency=plan.policy.engram_residency,
        prefetch=chosen,
        hit_share=float(hit_share),
        rate=source.rate,
        modules=tuple(modules),
        step_s=max(answer.latency_s, before + waited),
    )


def break_even(
    plan: Plan,
    hardware: Hardware,
    method: str = "auto",
    *,
    prefetch: Prefetch | None = None,
    hit_share: float = 0.0,
    disk: Disk | None = None,
) -> int | None:
    """How many times the plan's requests make a step wait for Engram rows; None if up to 4096 do.

    The search doubles, then halves the last interval: where waiting comes and goes within one
    doubling, it finds one such place.

    Args:
        plan: requests that are multiplied, such as one decode.
        hardware, method, prefetch, hit_share, disk: as for `engram`.

    Raises:
        InvalidInputError, UnsupportedPlanError, MissingProfileError: as for `engram`.
    """

    def waits(times: int) -> bool:
        requests = [replace(r, count=r.count * times, packed=b"") for r in plan.requests]
        many = replace(plan, requests=requests)
        report = engram(many, hardware, method, prefetch=prefetch, hit_share=hit_share, disk=disk)
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


def _prefetch(plan: Plan, asked: Prefetch | None) -> Prefetch:
    if plan.model.engram is None:
        raise UnsupportedPlanError(
            f"{plan.model.name} has no Engram modules, so no rows are transferred"
        )
    if asked is None:
        return PREFETCH_OF_POLICY.get(plan.policy.name, "step")
    if asked not in PREFETCHES:
        raise InvalidInputError(f"prefetch = {asked!r}: must be one of {', '.join(PREFETCHES)}")
    if asked == "previous" and any(r.kind != "prefill" for r in plan.requests):
        raise UnsupportedPlanError(
            "prefetch='previous' with decode or verify requests: their token ids are made by the "
            "step before, so that step cannot fetch their rows; use 'step'"
        )
    return asked


class _Source:
    """Where one rank gets its rows from."""

    def __init__(
        self, plan: Plan, hardware: Hardware, method: str, hit_share: float, disk: Disk | None
    ) -> None:
        engram = plan.model.engram
        assert engram is not None
        self.residency = plan.policy.engram_residency
        self.engram, self.hit_share, self.disk = engram, hit_share, disk
        self.distinct_share = plan.policy.engram_distinct_share
        self.ranks = 1 if self.residency == "host_shared" else plan.parallel.tp
        self.row_bytes = row_bytes(plan.model)
        self.rate: Rate | None = None
        if self.residency != "hbm":
            self.rate = host_rate(hardware, likely=method == "op")
        if self.residency == "disk" and disk is None:
            raise MissingProfileError(
                "engram_residency='disk': no hardware file has a disk; give one "
                "(argument disk, such as Disk(bytes_per_s=6e9))"
            )

    def transfer(self, tokens: float) -> dict[str, float]:
        """Rows, bytes and seconds of one module."""
        lookups = tokens * self.engram.rows_per_token
        distinct = lookups * self.distinct_share
        own = distinct / self.ranks
        fetched = link = from_disk = seconds = 0.0
        if self.rate is not None:
            fetched = own * (1 - self.hit_share)
            crossing = own if self.residency == "disk" else fetched
            link = crossing * self.row_bytes
            seconds = link / self.rate.bytes_per_s
            if self.disk is not None and self.residency == "disk":
                from_disk = self.disk.bytes(fetched)
                seconds = max(seconds, self.disk.seconds(fetched))
        return {
            "tokens": tokens, "lookups": lookups, "distinct": distinct, "own": own,
            "fetched": fetched, "link_bytes": link, "disk_bytes": from_disk,
            "transfer_s": seconds,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a module sits in a forward's time."""

    layer: int
    tokens: float
    reached_s: float
    """When the layers before it are done."""
    follows_s: float
    """What has to run between its rows and its gate, where that is not part of ``reached_s``."""
    collective_s: float


def _waits(
    forward: ForwardPrice, source: _Source, prefetch: Prefetch
) -> tuple[list[ModuleTransfer], float]:
    """Transfers of one forward, one after another over the link, and the time of its chain [s]."""
    places, chain_s = _places(forward)
    start = -forward.total_s if prefetch == "previous" else 0.0
    there, delay = start, 0.0
    found: list[ModuleTransfer] = []
    for place in places:
        moved = source.transfer(place.tokens)
        reached = place.reached_s + delay
        if prefetch == "none":
            exposed = moved["transfer_s"]
        else:
            there += moved["transfer_s"]
            waiting = max(reached, there + place.follows_s)
            exposed = waiting - max(reached, place.follows_s)
        delay += exposed
        found.append(
            ModuleTransfer(
                layer=place.layer,
                times=forward.times,
                collective_s=place.collective_s,
                window_s=max(place.reached_s - place.follows_s, 0.0),
                exposed_s=exposed,
                **moved,
            )
        )
    return found, chain_s


def _places(forward: ForwardPrice) -> tuple[list[_Place], float]:
    compiled = forward.compiled
    known: dict[int, float] = {}

    def length(step: Step) -> float:
        key = id(step.node)
        if key not in known:
            known[key] = seconds_of(forward, step.node)
        return known[key]

    # Where the host is late, its kernels start later in proportion.
    busy = forward.total_s - forward.waits_s
    slower = forward.total_s / busy if busy > 0 else 1.0
    backbone = compiled.backbone
    beside = {layer: [s for s in backbone.beside if s.layer == layer] for layer in _layers(forward)}
    serial = not _is_apart(forward)
    places: list[_Place] = []
    clock = 0.0
    waiting = iter(beside)
    module = next(waiting, None)
    for step in backbone.chain:
        if module is not None and step.layer >= module:
            own = [(task, length(s)) for s in beside[module] for task in compiled.tasks_in(s.node)]
            lookup = next(task for task, _ in own if "engram_lookup" in task.replaces)
            sums = sum(length for task, length in own if "all_reduce_engram" in task.replaces)
            after = sum(length for task, length in own if task is not lookup)
            places.append(
                _Place(
                    layer=module,
                    tokens=float(compiled.vector(rows_looking_up(lookup)) @ forward.counts),
                    reached_s=clock * slower,
                    follows_s=0.0 if serial else after * slower,
                    collective_s=sums,
                )
            )
            clock += sum(length(s) for s in beside[module]) if serial else 0.0
            module = next(waiting, None)
        clock += length(step)
    drafting = sum(length(step) for step in backbone.draft)
    return places, clock + drafting


def _layers(forward: ForwardPrice) -> Iterator[int]:
    """Layers with a module, in order."""
    steps: Sequence[Step] = forward.compiled.backbone.beside
    yield from sorted({step.layer for step in steps})


def _is_apart(forward: ForwardPrice) -> bool:
    """Whether look-ups run beside the layers, and not in between."""
    return isinstance(forward.arranged(forward.compiled.target), Par)
