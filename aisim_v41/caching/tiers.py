"""Where state is kept between requests: how much a tier holds, for how long, at what rate it reads.

The report keeps windows in a small host pool for minutes and entries in a large store for days
(§3.2.1): windows are large and good for one position, entries small and good for any longer text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from aisim_v41.caching.kinds import require_kind
from aisim_v41.caching.state import TAIL, Domain, sequence_state, snapshot_state, state_bytes
from aisim_v41.caching.ways import HOST, Way, way_to
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.compiled import listed
from aisim_v41.hardware import Hardware
from aisim_v41.memory.capacity import capacity
from aisim_v41.memory.pool import kv_pool
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.units import GIB, HOUR, MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

HOST_SHARE_FOR_WINDOWS = Fraction(1, 10)
"""Share of host memory that the report's window pool takes (§3.2.1)."""
ENTRIES_LIVE_S = 72 * HOUR
"""How long the report's store keeps entries at least [s] (§3.2.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One place to keep state.

    Args:
        name: in words.
        domains: what is kept there.
        bytes: its size [B]; None: not limited.
        way: from it to a GPU; None: it is the GPU's own memory.

    Raises:
        InvalidInputError: a size that nothing has, no domain, or no `Way`.
    """

    name: str
    domains: tuple[Domain, ...]
    bytes: float | None = None
    way: Way | None = None

    def __post_init__(self) -> None:
        kinds = listed("Tier.domains", self.domains, "Domain")
        object.__setattr__(self, "domains", tuple(kinds))
        if not kinds or not all(isinstance(d, Domain) for d in kinds):
            raise InvalidInputError(
                f"Tier.domains = {self.domains!r}: must be some of {', '.join(Domain)}"
            )
        if self.bytes is not None and not _is_amount(self.bytes):
            raise InvalidInputError(f"Tier.bytes = {self.bytes!r}: must be above 0, or None")
        if self.way is not None:
            require_kind("Tier.way", self.way, Way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one tier does for a stream of turns.

    Attributes:
        tier: which.
        bytes_per_token: of entries kept there [B/token]; 0 where none are.
        bytes_per_tail: of what is kept for one end of a text [B]; 0 where nothing is.
        turn_bytes: written by one turn [B].
        tokens: that fit, if it holds nothing else; None where it has no entries or no limit.
        tails: ends that fit, likewise.
        lasts_s: time from writing to eviction at the given rate, oldest first [s]; None: no limit.
        read_s: of one prefix over its way [s].
    """

    tier: Tier
    bytes_per_token: Fraction
    bytes_per_tail: int
    turn_bytes: float
    tokens: int | None
    tails: int | None
    lasts_s: float | None
    read_s: float


def kept(
    model: Model,
    policy: RuntimePolicy,
    tiers: tuple[Tier, ...],
    *,
    prefix_tokens: int,
    turn_tokens: int,
    turns_per_s: float,
    tails_per_turn: int = 1,
) -> tuple[Kept, ...]:
    """What each tier holds, and for how long, while turns keep coming.

    Args:
        model: from `load_model`.
        policy: the engine's rows and pages.
        tiers: places, each with what it keeps.
        prefix_tokens: length of a prefix that is read back [tokens].
        turn_tokens: entries that one turn adds, prompt and answer [tokens].
        turns_per_s: turns that end in a second, over all that write to the tier [1/s].
        tails_per_turn: ends that one turn keeps: of its answer, and perhaps of its prompt.

    Raises:
        InvalidInputError: an argument of the wrong kind, or a number that no workload has.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> from aisim_v41.plan.policy import policy
        >>> pool = Tier(name="host", domains=(Domain.WINDOW,), bytes=100e9)
        >>> (found,) = kept(load_model("deepseek-v4.1-flash"), policy("paper"), (pool,),
        ...                 prefix_tokens=8192, turn_tokens=1000, turns_per_s=10.0)
        >>> found.tails  # 40 layers x 128 rows x 528 B each
        36991
    """
    for place, tier in enumerate(listed("tiers", tiers, "Tier")):
        require_kind(f"tiers[{place}]", tier, Tier)
    if not _is_amount(turns_per_s):
        raise InvalidInputError(f"turns_per_s = {turns_per_s!r}: must be above 0")
    for name, value in (("turn_tokens", turn_tokens), ("tails_per_turn", tails_per_turn)):
        if type(value) is not int or value < 0:
            raise InvalidInputError(f"{name} = {value!r}: must be a whole number of at least 0")
    state = sequence_state(model, policy, prefix_tokens)
    tail = snapshot_state(model, policy, max(prefix_tokens, model.attention.window))
    owners = kv_pool(model, policy).owners
    slope = sum((Fraction(o.row_bytes, o.ratio) for o in owners), start=Fraction(0))
    found = []
    for tier in tiers:
        per_token = slope if Domain.ENTRIES in tier.domains else Fraction(0)
        ends = tuple(domain for domain in tier.domains if domain in TAIL)
        per_tail = sum(part.payload_bytes for part in tail if part.domain in ends)
        turn = float(per_token * turn_tokens) + tails_per_turn * per_tail
        size = tier.bytes
        moved = state_bytes(state, *tier.domains)
        found.append(
            Kept(
                tier=tier,
                bytes_per_token=per_token,
                bytes_per_tail=per_tail,
                turn_bytes=turn,
                tokens=int(size / per_token) if size is not None and per_token else None,
                tails=int(size // per_tail) if size is not None and per_tail else None,
                lasts_s=size / (turn * turns_per_s) if size is not None and turn else None,
                read_s=0.0 if tier.way is None else tier.way.seconds(moved),
            )
        )
    return tuple(found)


def gpu_tier(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> Tier | None:
    """Entries in the KV pool of one rank, beside the windows of as many requests as may run.

    None where nothing is left for them, or the engine does not start.

    Raises:
        InvalidInputError, UnsupportedPlanError: as for `aisim_v41.memory.capacity.capacity`.
    """
    found = capacity(model, hardware, parallel=parallel, policy=policy)
    left = found.kv_bytes - found.pool.bytes_for(0, found.setting.rank_requests)
    if left <= 0:
        return None
    return Tier(name="GPU memory", domains=(Domain.ENTRIES,), bytes=float(left))


def report_tiers(hardware: Hardware, store: Way) -> tuple[Tier, Tier]:
    """The two places of the report: a tenth of the host's memory for windows, a store for entries.

    The window pool is one rank's share, in which it keeps a copy of its own.

    Args:
        hardware: whose host.
        store: from the store to a GPU.

    Raises:
        UnsupportedPlanError: the file does not say how much memory the host has.
    """
    require_kind("hardware", hardware, Hardware)
    if hardware.host_memory_bytes is None:
        raise UnsupportedPlanError(
            f"{hardware.name} has no host.memory_gb: add it to the file, or make a Tier with a size"
        )
    size = float(HOST_SHARE_FOR_WINDOWS * hardware.host_memory_bytes)
    pool = Tier(name="host window pool", domains=TAIL, bytes=size, way=way_to(hardware, HOST))
    return pool, Tier(name="store of entries", domains=(Domain.ENTRIES,), way=store)


def needed_bytes(found: Kept, *, lives_s: float, turns_per_s: float) -> float:
    """Size at which a tier keeps what it gets for so long [B]: rate times lifetime."""
    return found.turn_bytes * turns_per_s * lives_s


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value > 0


def to_frame(found: tuple[Kept, ...]) -> pd.DataFrame:
    """One row a tier; sizes in GiB, times in the unit of their name."""
    import pandas as pd

    return pd.DataFrame([row_of(one) for one in found])


def row_of(found: Kept) -> dict[str, Any]:
    """One tier as plain data."""
    tier = found.tier
    return {
        "tier": tier.name,
        "keeps": ", ".join(tier.domains),
        "size_gib": None if tier.bytes is None else tier.bytes / GIB,
        "bytes_per_token": float(found.bytes_per_token),
        "bytes_per_tail": found.bytes_per_tail,
        "tokens": found.tokens,
        "tails": found.tails,
        "lasts_s": found.lasts_s,
        "read_ms": found.read_s / MILLISECOND,
    }
