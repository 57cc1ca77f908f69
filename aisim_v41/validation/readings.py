"""Readings of a case: every policy that the source leaves open, and what a bound then assumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aisim_v41.validation.cases import Case
from aisim_v41.validation.conversion import Claim, Conversion, Part, Reason, Unconvertible, Way
from aisim_v41.validation.groups import KernelGroup
from aisim_v41.validation.setting import (
    LONGEST_DRAFT,
    draft_tokens,
    drafts,
    lean_policy,
    machine,
    offloads_experts,
    preset_policy,
)

PRIVATE_TRACE = "trace is not part of the data"


def conversion(
    case: Case,
    measured_ms: float,
    meaning: str,
    *claims: Mapping[str, tuple[Part, ...]],
    group: KernelGroup | None = None,
    assumptions: Sequence[str],
) -> Conversion:
    """A conversion from claims: reading of the workload -> the steps that it needs."""
    with_ways = tuple(Claim(_ways(case, claim)) for claim in claims)
    return Conversion(
        case=case,
        measured_ms=measured_ms,
        meaning=meaning,
        machine=machine(case),
        claims=with_ways,
        group=group,
        assumptions=(*_notes(case, with_ways), *assumptions),
    )


def _ways(case: Case, readings: Mapping[str, tuple[Part, ...]]) -> tuple[Way, ...]:
    """Every reading under every decoder replay that the source leaves open, the taken one first."""
    stated = case.policy.decoder_replay
    ways: list[Way] = []
    taken = bool(case.take.get("decoder_replay", False)) if stated is None else stated
    for name, parts in readings.items():
        requests = [request for part in parts for request in part.requests]
        prefills = any(request.kind == "prefill" for request in requests)
        lost = any(request.window == "missing" for request in requests)
        choices = [taken, not taken] if stated is None and prefills else [taken]
        for replay in choices:
            replays = f"replay {'on' if replay else 'off'}"
            ways.append(
                Way(
                    name=f"{name}, {replays}" if prefills else name,
                    parts=parts,
                    decoder_replay=replay,
                    policy=lean_policy(case, decoder_replay=replay, hit_without_window=lost),
                    preset=preset_policy(case, decoder_replay=replay, hit_without_window=lost),
                )
            )
    return tuple(ways)


def _notes(case: Case, claims: tuple[Claim, ...]) -> tuple[str, ...]:
    """What holds for every kind of case."""
    ways = [way for claim in claims for way in claim.ways]
    requests = [request for way in ways for part in way.parts for request in part.requests]
    notes = []
    if len({way.decoder_replay for way in ways}) > 1:
        notes.append("decoder replay not stated: the floor has it on")
    if any(request.kind != "prefill" for request in requests):
        notes += _speculation_notes(case)
    if drafts(case):
        notes.append("the draft pass is part of the time: steps are read with speculation on")
    if (case.parallel.ep or 1) > 1:
        notes.append(
            "expert parallelism: the floor holds the mean rank, the fullest has at least that"
        )
    if (case.parallel.dp or 1) > 1:
        notes.append("data parallelism: weights over all ranks, requests of one attention group")
    if offloads_experts(case):
        notes.append("experts partly on the host: weights arrive over memory and host link at once")
    if case.policy.engram not in (None, "hbm"):
        notes.append("Engram rows come from elsewhere: their transfer is not counted")
    return tuple(notes)


def _speculation_notes(case: Case) -> list[str]:
    speculation, notes = case.policy.speculation, []
    if speculation is not None and speculation.draft_tokens is None:
        notes.append(f"draft length not stated: at most {LONGEST_DRAFT} tokens")
    asks_rate = case.workload.kind == "closed_loop" or is_rate(case.quantity)
    if speculation is not None and speculation.accept_length is None and asks_rate:
        notes.append("acceptance not stated: every drafted token is taken as accepted")
    return notes


def is_rate(quantity: str) -> bool:
    """Whether a larger value is faster."""
    return quantity.startswith("tok_per_s")


def rows_per_step(case: Case) -> int:
    """Rows of one request in a decode step: 1, or draft + 1 to verify."""
    return 1 + draft_tokens(case)


def tokens_per_step(case: Case) -> float:
    """Tokens that such a step yields for one request: at most all of its rows."""
    speculation = case.policy.speculation
    if speculation is None or speculation.accept_length is None:
        return float(rows_per_step(case))
    return speculation.accept_length


def need(case: Case, value: int | None) -> int:
    """A length without which there is no bound."""
    if value is None:
        raise without_lengths(case)
    return value


def without_lengths(case: Case) -> Unconvertible:
    """Why the lengths are not known."""
    return Unconvertible(Reason.NO_TRACE if case.says(PRIVATE_TRACE) else Reason.NO_LENGTHS)
