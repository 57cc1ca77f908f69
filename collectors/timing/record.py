"""What is asked of a timing, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from collectors.errors import InputError

BACKENDS = ("cupti", "graph", "events", "cpu")
"""In the order in which they are tried; ``cpu`` only where there is no GPU."""
AUTO = "auto"
GRAPH, EAGER = EXECUTIONS = ("graph", "eager")
COLD, WARM = CACHE_STATES = ("cold", "warm")


@dataclass(frozen=True)
class TimingOptions:
    """How to time.

    Attributes:
        timer: one of `BACKENDS`, or ``auto``: the first that is here.
        execution: calls replayed in a captured graph, or issued one by one.
        cache_state: ``cold``: inputs rotate through more memory than the L2 holds; ``warm``: one
            set of inputs, called again and again. Two identities, never mixed.
        samples: timings behind a median, at least.
        seconds: that a case's samples may take together [s]; a slow case has fewer samples, but
            never fewer than `LEAST_SAMPLES`.
        spread_bound: (p90 - p10) / median above which a case is timed once more, and then marked.
        memory_bytes: that copies of the inputs may take together [B]; 0: half of what is free.
    """

    timer: str = AUTO
    execution: str = GRAPH
    cache_state: str = COLD
    samples: int = 30
    seconds: float = 1.0
    spread_bound: float = 0.10
    memory_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name, known in (
            ("timer", (AUTO, *BACKENDS)),
            ("execution", EXECUTIONS),
            ("cache_state", CACHE_STATES),
        ):
            if getattr(self, name) not in known:
                raise InputError(f"{name} {getattr(self, name)!r:.40}: one of {', '.join(known)}")
        for name, least in (
            ("samples", LEAST_SAMPLES),
            ("seconds", 0.0),
            ("spread_bound", 0.0),
            ("memory_bytes", 0.0),
        ):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not least <= value < float("inf"):
                raise InputError(f"{name} = {value!r:.40}: must be a number, {least} or more")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @staticmethod
    def from_dict(entry: Mapping[str, Any]) -> TimingOptions:
        """Read plain data.

        Raises:
            InputError: a field that is not known, or a value that cannot be.
        """
        known = {field.name for field in fields(TimingOptions)}
        unknown = sorted(set(entry) - known)
        if unknown:
            raise InputError(f"timing option {unknown[0]!r:.40} is not known")
        return TimingOptions(**entry)


LEAST_SAMPLES = 5


@dataclass(frozen=True)
class Timing:
    """The time of one call, summed up over all samples.

    Attributes:
        timer, execution, cache_state: how it was taken.
        median_us, p10_us, p90_us, min_us: over the samples [us].
        samples: timings behind them.
        calls_per_sample: calls that one timing holds, divided by (N of a batch in one graph).
        copies: sets of inputs that rotate.
        flushed: the L2 was written over between calls, since copies would not fit.
        resolution_us: step of the clock, for one call [us].
        empty_us: a call that does nothing, timed the same way in a batch of its own [us].
        spread: (p90 - p10) / median.
        reran: it was timed twice, since the first time spread too widely.
        noisy: so did the second.
        ranks: processes; every sample is the slowest one's.
        device: clocks, power, temperature and throttle reasons before and after.
    """

    timer: str
    execution: str
    cache_state: str
    median_us: float
    p10_us: float
    p90_us: float
    min_us: float
    samples: int
    calls_per_sample: int
    copies: int
    flushed: bool
    resolution_us: float
    empty_us: float
    spread: float
    reran: bool
    noisy: bool
    ranks: int
    device: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
