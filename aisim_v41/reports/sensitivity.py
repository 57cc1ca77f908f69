"""What a step's time depends on: the same step on changed hardware, mapped otherwise, or resized.

Hardware changes by a share, one ceiling at a time. Mapping and sizes are halved and doubled. What
was measured as rows of a table does not change with a ceiling: the share of time that rests on such
rows is told beside the frame, since a law would have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import AisimError, InvalidInputError
from aisim_v41.estimators.entry import Estimator, estimate
from aisim_v41.estimators.result import Estimate
from aisim_v41.hardware import Hardware
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.request import Request
from aisim_v41.plan.words import plan_text

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "change", "kind", "low", "high", "low_ms", "base_ms", "high_ms", "swing_ms", "note",
)  # fmt: skip
FIXED = ("measured", "interpolated")
"""Kinds of evidence that a changed ceiling leaves as they are."""
CEILINGS = {
    "memory bandwidth": "hbm_bandwidth_bytes_per_s",
    "scale-up link": "link_bytes_per_s",
    "scale-out network": "nic_bytes_per_s",
    "link to the host": "host_link_bytes_per_s",
    "disk": "disk_bytes_per_s",
    "eager launch": "eager_launch_s",
    "gap between graph nodes": "graph_node_gap_s",
}
"""Fields of `Hardware` that change alone, besides the dense peaks."""
Setting = tuple[Plan, Hardware]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is made smaller and larger.

    Attributes:
        name: what.
        kind: "hardware", "mapping", "step" or "policy".
        low, high: how much, in words.
        less, more: the step with it, or None where it cannot be.
    """

    name: str
    kind: str
    low: str
    high: str
    less: Callable[[], Setting] | None
    more: Callable[[], Setting] | None


def sensitivity(
    plan: Plan, hardware: Hardware, *, method: str | Estimator = "auto", change: float = 0.2
) -> pd.DataFrame:
    """Time of a step when one thing at a time is changed.

    Args:
        plan: what is run, and how.
        hardware: from `aisim_v41.load_hardware`.
        method: as for `aisim_v41.estimate`.
        change: share by which ceilings and host times are lowered and raised, above 0 and below 1.

    Returns:
        Columns change, kind ("hardware", "mapping", "step", "policy"), low and high (how it was
        changed), low_ms, base_ms, high_ms (nan where it cannot be, with the reason in note) and
        swing_ms, the distance of the outermost; the largest swing first. ``attrs`` tell of what
        ("about"), the method, and the share of time that rests on measured rows ("fixed").

    Raises:
        InvalidInputError: a change that is no share, or as for `aisim_v41.estimate`.
        UnsupportedPlanError, OutOfRangeError, MissingProfileError: the unchanged step has no time.
    """
    import pandas as pd

    if isinstance(change, bool) or not isinstance(change, int | float) or not 0 < change < 1:
        raise InvalidInputError(f"change = {change!r}: must be a share above 0 and below 1")
    base = estimate(plan, hardware, method)
    rows = [_row(one, base, method) for one in _changes(plan, hardware, float(change))]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = table.sort_values("swing_ms", ascending=False, kind="stable", ignore_index=True)
    table.attrs["about"] = plan_text(plan, hardware.name)
    table.attrs["method"] = base.method
    table.attrs["fixed"] = sum(base.source_share.get(kind, 0.0) for kind in FIXED)
    return table


def _row(change: Change, base: Estimate, method: str | Estimator) -> dict[str, Any]:
    low, why_low = _milliseconds(change.less, method)
    high, why_high = _milliseconds(change.more, method)
    known = [base.latency_ms, *(time for time in (low, high) if isfinite(time))]
    reasons = ((change.low, why_low), (change.high, why_high))
    notes = [f"{how}: {why}" for how, why in reasons if why]
    return {
        "change": change.name, "kind": change.kind, "low": change.low, "high": change.high,
        "low_ms": low, "base_ms": base.latency_ms, "high_ms": high,
        "swing_ms": max(known) - min(known), "note": "; ".join(notes),
    }  # fmt: skip


def _milliseconds(
    setting: Callable[[], Setting] | None, method: str | Estimator
) -> tuple[float, str]:
    """Time [ms], and why there is none."""
    if setting is None:
        return float("nan"), ""
    try:
        return estimate(*setting(), method).latency_ms, ""
    except AisimError as error:
        return float("nan"), str(error)


def _changes(plan: Plan, hardware: Hardware, share: float) -> Iterator[Change]:
    yield from _of_hardware(plan, hardware, share)
    tp = plan.parallel.tp
    yield Change(
        "tensor-parallel ranks", "mapping", f"{tp // 2}", f"{2 * tp}",
        None if tp % 2 else lambda: (replace(plan, parallel=replace(plan.parallel, tp=tp // 2)),
                                     hardware),
        lambda: (replace(plan, parallel=replace(plan.parallel, tp=2 * tp)), hardware),
    )  # fmt: skip
    yield from _of_step(plan, hardware)
    yield from _of_policy(plan, hardware)


def _of_policy(plan: Plan, hardware: Hardware) -> Iterator[Change]:
    """Decoder replay, and how steps are launched, where the step has such requests."""

    def switched(field: str, value: Any) -> Callable[[], Setting] | None:
        if getattr(plan.policy, field) == value:
            return None
        chosen = {field: value}
        return lambda: (replace(plan, policy=plan.policy.with_overrides(**chosen)), hardware)

    running = {r.kind for r in plan.requests if r.new_tokens and r.count}
    if "prefill" in running:
        yield Change(
            "decoder replay", "policy", "off", "on",
            switched("decoder_replay", False), switched("decoder_replay", True),
        )  # fmt: skip
    for name, field, runs in (
        ("launches of prefills", "prefill_execution", "prefill" in running),
        ("launches of decodes", "decode_execution", bool(running - {"prefill"})),
    ):
        if runs:
            yield Change(
                name, "policy", "eager", "one graph",
                switched(field, "eager"), switched(field, "full_graph"),
            )  # fmt: skip


def _of_hardware(plan: Plan, hardware: Hardware, share: float) -> Iterator[Change]:
    low, high = f"-{share:.0%}", f"+{share:.0%}"

    def peaks(factor: float) -> Callable[[], Setting]:
        rates = {kind: factor * rate for kind, rate in hardware.peak_flop_per_s.items()}
        return lambda: (plan, replace(hardware, peak_flop_per_s=rates))

    def ceiling(field: str, factor: float) -> Callable[[], Setting]:
        changed: Any = {field: factor * getattr(hardware, field)}
        return lambda: (plan, replace(hardware, **changed))

    yield Change("dense peaks", "hardware", low, high, peaks(1 - share), peaks(1 + share))
    for name, field in CEILINGS.items():
        if getattr(hardware, field):
            yield Change(
                name, "hardware", low, high, ceiling(field, 1 - share), ceiling(field, 1 + share)
            )


def _of_step(plan: Plan, hardware: Hardware) -> Iterator[Change]:
    """Requests, context and prompt rows, halved and doubled."""

    def resized(
        name: str, wanted: Callable[[Request], bool], halve: bool
    ) -> Callable[[], Setting] | None:
        sizes = [getattr(r, name) for r in plan.requests if wanted(r)]
        if not sizes or not any(sizes) or (halve and any(size % 2 for size in sizes)):
            return None
        return lambda: (
            replace(
                plan,
                requests=[_resized(r, name, halve) if wanted(r) else r for r in plan.requests],
            ),
            hardware,
        )

    for label, name, wanted in (
        ("requests", "count", lambda r: True),
        ("context", "prefix_tokens", lambda r: r.prefix_tokens > 0),
        ("prompt rows", "new_tokens", lambda r: r.kind == "prefill"),
        ("rows a verification", "new_tokens", lambda r: r.kind == "verify"),
    ):
        less, more = (resized(name, wanted, halve) for halve in (True, False))
        if less is not None or more is not None:
            yield Change(label, "step", "half", "double", less, more)


def _resized(request: Request, name: str, halve: bool) -> Request:
    size = getattr(request, name)
    changed: dict[str, Any] = {name: size // 2 if halve else 2 * size, "packed": b""}
    if name != "count" and request.prompt_tokens is not None:
        changed["prompt_tokens"] = request.prompt_tokens + changed[name] - size
    return replace(request, **changed)
