"""Restore a prefix, or compute it again: time to the prompt's last row, and from when it pays.

Three ways to the same place: recompute the prefix; fetch its entries and the window stored with
them; fetch the entries alone and replay the window. Which of them an engine can go,
`aisim_v41.caching.adoption` says (docs/updates.md, "Where KV lives, and moving it").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from aisim_v41.caching.adoption import Adoption, adopt
from aisim_v41.caching.kinds import require_kind
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.caching.overlap import LayerTimes, end_behind_loads, layer_times, slowest_rate
from aisim_v41.caching.state import Domain, StatePart, sequence_state
from aisim_v41.caching.ways import Way
from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.estimators.entry import compile, estimate
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import engine_warnings
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

How = Literal["recompute", "restore", "replay"]
HOWS: tuple[How, ...] = ("recompute", "restore", "replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to have a prefix.

    Attributes:
        how: "recompute", "restore" (entries and window) or "replay" (entries alone).
        adoption: what the engine then runs.
        moved_bytes: of one copy; every rank fetches its own [B].
        transfer_s: time of that alone [s].
        compute_s: forwards, as if everything were there [s].
        exposed_s: of the transfer, what the forwards wait for [s].
    """

    how: How
    adoption: Adoption
    moved_bytes: int
    transfer_s: float
    compute_s: float
    exposed_s: float

    @property
    def total_s(self) -> float:
        """Until the prompt's last row is computed [s]."""
        return self.compute_s + self.exposed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """The choices for one prefix.

    Attributes:
        model, hardware, parallel, policy, way, method: what was asked.
        prefix_tokens: that a store holds [tokens].
        new_tokens: of the prompt behind it [tokens].
        choices: that the engine has, "recompute" first.
        left_out: why it does not have the others.
        warnings: which engines would refuse it, where the policy's ``engine_rules`` are "warned".
    """

    model: str
    hardware: str
    parallel: Parallel
    policy: RuntimePolicy
    way: Way
    method: str
    prefix_tokens: int
    new_tokens: int
    choices: tuple[Choice, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> Choice:
        """The fastest; where two are alike, the one that computes less."""
        return min(self.choices, key=lambda choice: (choice.total_s, choice.compute_s))

    def choice(self, how: str) -> Choice | None:
        """The choice of that name; None where the engine has none."""
        return next((choice for choice in self.choices if choice.how == how), None)

    def to_frame(self) -> pd.DataFrame:
        """One row a choice; times in ms."""
        import pandas as pd

        return pd.DataFrame([self._row(choice) for choice in self.choices])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.model,
            "hardware": self.hardware,
            "tp": self.parallel.tp,
            "policy": self.policy.name,
            "policy_revision": self.policy.revision,
            "way": self.way.name,
            "bytes_per_s": self.way.bytes_per_s,
            "way_limit": self.way.limit,
            "method": self.method,
            "prefix_tokens": self.prefix_tokens,
            "new_tokens": self.new_tokens,
            "choices": [self._row(choice) for choice in self.choices],
            "left_out": list(self.left_out),
            "warnings": list(self.warnings),
            "best": self.best.how,
        }

    def _row(self, choice: Choice) -> dict[str, Any]:
        return {
            "how": choice.how,
            "prefix_tokens": self.prefix_tokens,
            "hit_tokens": choice.adoption.hit_tokens,
            "rows": choice.adoption.rows,
            "moved_bytes": choice.moved_bytes,
            "transfer_ms": choice.transfer_s / MILLISECOND,
            "compute_ms": choice.compute_s / MILLISECOND,
            "exposed_ms": choice.exposed_s / MILLISECOND,
            "total_ms": choice.total_s / MILLISECOND,
        }


def restore_or_recompute(
    model: Model,
    hardware: Hardware,
    prefix_tokens: int,
    *,
    new_tokens: int,
    way: Way,
    policy: RuntimePolicy,
    parallel: Parallel | None = None,
    method: str = "auto",
    layerwise: bool = True,
) -> RestoreReport:
    """What it takes to compute the rest of a prompt whose prefix is stored somewhere.

    Args:
        model: from `load_model`.
        hardware: from `load_hardware`.
        prefix_tokens: length of the stored prefix [tokens].
        new_tokens: of the prompt behind it [tokens].
        way: from the store to a GPU, see `aisim_v41.caching.ways.way_to`.
        policy, parallel: as for a plan.
        method: as for `estimate`.
        layerwise: a layer starts when its own state is there; else the first waits for all of it.

    Raises:
        InvalidInputError: an argument of the wrong kind.
        OutOfRangeError: a prompt beyond the model's context.
        UnsupportedPlanError, MissingProfileError: as for `estimate`.
    """
    _check(prefix_tokens, new_tokens, way)
    parallel = Parallel() if parallel is None else parallel
    choices: list[Choice] = []
    left_out: list[str] = []
    for how in HOWS:
        lookup = _lookup(how, prefix_tokens, new_tokens)
        adoption = adopt(model, lookup, policy)
        reason = _not_this_way(how, adoption)
        if reason is not None:
            left_out.append(f"{how}: {reason}")
            continue
        choices.append(_choice(how, adoption, model, hardware, parallel, way, method, layerwise))
    return RestoreReport(
        model=model.name,
        hardware=hardware.name,
        parallel=parallel,
        policy=policy,
        way=way,
        method=method,
        prefix_tokens=prefix_tokens,
        new_tokens=new_tokens,
        choices=tuple(choices),
        left_out=tuple(left_out),
        warnings=_warnings(choices, policy, parallel, hardware),
    )


def break_even_tokens(
    model: Model,
    hardware: Hardware,
    how: str,
    *,
    new_tokens: int,
    way: Way,
    policy: RuntimePolicy,
    parallel: Parallel | None = None,
    method: str = "auto",
    layerwise: bool = True,
) -> int | None:
    """Shortest prefix, in whole pages, from which fetching is faster than computing; None: never.

    The search doubles, then halves the last interval: where fetching wins, loses and wins again
    (a chunk more), it finds one such place.

    Args:
        how: "restore" or "replay".
        model, hardware, new_tokens, way, policy, parallel, method, layerwise: as for
            `restore_or_recompute`.

    Raises:
        InvalidInputError, OutOfRangeError, UnsupportedPlanError, MissingProfileError: as for
            `restore_or_recompute`.
    """
    if how not in HOWS[1:]:
        raise InvalidInputError(f"how = {how!r}: must be 'restore' or 'replay'")
    _check(0, new_tokens, way)
    require_step_model(model)
    require_kind("policy", policy, RuntimePolicy)
    page = policy.hit_page_tokens
    if new_tokens > model.max_context:
        raise OutOfRangeError(
            f"new_tokens = {new_tokens}: {model.name} has a context of {model.max_context}"
        )
    most = (model.max_context - new_tokens) // page
    asked = partial(
        restore_or_recompute, model, hardware, new_tokens=new_tokens, way=way, policy=policy,
        parallel=parallel, method=method, layerwise=layerwise,
    )  # fmt: skip

    def wins(pages: int) -> bool:
        report = asked(pages * page)
        fetched, computed = report.choice(how), report.choice("recompute")
        return fetched is not None and computed is not None and fetched.total_s < computed.total_s

    loses, won = 0, 1
    while not wins(min(won, most)):
        if won >= most:
            return None
        loses, won = won, 2 * won
    won = min(won, most)
    while won - loses > 1:
        middle = (loses + won) // 2
        loses, won = (loses, middle) if wins(middle) else (middle, won)
    return won * page


def break_even_rate(
    model: Model,
    hardware: Hardware,
    prefix_tokens: int,
    how: str,
    *,
    new_tokens: int,
    policy: RuntimePolicy,
    parallel: Parallel | None = None,
    method: str = "auto",
    start_s: float = 0.0,
) -> float | None:
    """Slowest rate of a way at which fetching takes no longer than computing [B/s]; None: at none.

    Layer by layer, see `restore_or_recompute`.

    Args:
        how: "restore" or "replay".
        start_s: of the way, before its first byte [s].
        model, hardware, prefix_tokens, new_tokens, policy, parallel, method: as for
            `restore_or_recompute`.

    Raises:
        InvalidInputError, OutOfRangeError, UnsupportedPlanError, MissingProfileError: as for
            `restore_or_recompute`.
    """
    if how not in HOWS[1:]:
        raise InvalidInputError(f"how = {how!r}: must be 'restore' or 'replay'")
    parallel = Parallel() if parallel is None else parallel
    report = restore_or_recompute(
        model, hardware, prefix_tokens, new_tokens=new_tokens, policy=policy, parallel=parallel,
        way=Way(name="any", bytes_per_s=1.0, start_s=start_s), method=method,
    )  # fmt: skip
    fetched, computed = report.choice(how), report.choice("recompute")
    if fetched is None or computed is None:
        return None
    layers, loads = _first_step(fetched.adoption, model, hardware, parallel, method)
    spare = computed.compute_s - fetched.compute_s
    deadline = sum(seconds for _, seconds in layers) + spare
    return slowest_rate(layers, loads, deadline_s=deadline, start_s=start_s)


def fetched_state(model: Model, policy: RuntimePolicy, adoption: Adoption) -> tuple[StatePart, ...]:
    """State that a hit brings to one rank; token ids are those of the prompt and not fetched."""
    wanted = {Domain.ENTRIES}
    if adoption.window in ("cached", "snapshot"):
        wanted |= {Domain.WINDOW, Domain.GROUPS}
    held = sequence_state(model, policy, adoption.hit_tokens)
    return tuple(part for part in held if part.domain in wanted)


def _lookup(how: How, prefix: int, new: int) -> CacheLookup:
    if how == "recompute":
        return CacheLookup(prompt_tokens=prefix + new)
    window = prefix if how == "restore" else 0
    return CacheLookup(
        prompt_tokens=prefix + new, global_tokens=prefix, window_tokens=window, snapshot=window > 0
    )


def _warnings(
    choices: Sequence[Choice], policy: RuntimePolicy, parallel: Parallel, hardware: Hardware
) -> tuple[str, ...]:
    of_steps = (line for choice in choices for line in choice.adoption.warnings)
    of_mapping = engine_warnings(policy, parallel, hardware.architecture)
    return tuple(dict.fromkeys((*of_mapping, *of_steps)))


def _not_this_way(how: How, adoption: Adoption) -> str | None:
    """Why an engine has no such choice; None if it has."""
    wanted = {"recompute": ("none",), "restore": ("cached", "snapshot"), "replay": ("replayed",)}
    if adoption.window in wanted[how]:
        return None
    return adoption.reasons[-1] if adoption.reasons else "nothing is stored"


def _choice(
    how: How,
    adoption: Adoption,
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    way: Way,
    method: str,
    layerwise: bool,
) -> Choice:
    policy = adoption.policy
    step = compile(model, hardware, parallel=parallel, policy=policy, method=method)
    fetched = fetched_state(model, policy, adoption)
    moved = sum(part.bytes for part in fetched)
    transfer = way.seconds(moved)
    waits = transfer
    if moved and layerwise:
        layers, loads = _first_step(adoption, model, hardware, parallel, method)
        ended = end_behind_loads(layers, loads, bytes_per_s=way.bytes_per_s, start_s=way.start_s)
        waits = max(ended - sum(seconds for _, seconds in layers), 0.0)
    return Choice(
        how=how,
        adoption=adoption,
        moved_bytes=moved,
        transfer_s=transfer,
        compute_s=sum(step([request]) for request in adoption.requests),
        exposed_s=min(waits, transfer),
    )


def _first_step(
    adoption: Adoption, model: Model, hardware: Hardware, parallel: Parallel, method: str
) -> tuple[LayerTimes, dict[int, float]]:
    """Layers of the step that waits for a hit, and what each waits for [B]."""
    first = Plan(model, adoption.requests[:1], parallel, adoption.policy)
    loads: dict[int, float] = {}
    for part in fetched_state(model, adoption.policy, adoption):
        loads[part.layer] = loads.get(part.layer, 0.0) + part.bytes
    return layer_times(estimate(first, hardware, method)), loads


def _check(prefix_tokens: object, new_tokens: object, way: object) -> None:
    for name, value, low in (("prefix_tokens", prefix_tokens, 0), ("new_tokens", new_tokens, 1)):
        if type(value) is not int or value < low:
            raise InvalidInputError(f"{name} = {value!r}: must be a whole number of at least {low}")
    require_kind("way", way, Way)


def frame_of(reports: Sequence[RestoreReport]) -> pd.DataFrame:
    """Choices of several prefixes, one row each."""
    import pandas as pd

    return pd.concat([report.to_frame() for report in reports], ignore_index=True)
