"""What a step takes if fewer or more experts are read than expected.

Locality and popularity of experts are properties of the text. A plan that leaves them at their
defaults may meet any text, so the band of OP holds a reading with few and one with many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from aisim_v41.estimators.op.builds import CompiledBuild
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.ledger import ledger_program
from aisim_v41.plan.plan import forward_passes
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request

FEWER: Final[Mapping[str, float]] = {"expert_popularity": 2.5, "expert_locality": 0.6}
"""Experts as unlike, and rows as much alike, as any model of the sources shows."""
MORE: Final[Mapping[str, float]] = {"expert_popularity": 0.0, "expert_locality": 0.2}
"""Experts all alike, and rows that share as little as any model of the sources shows."""
_DEFAULT = RuntimePolicy(name="", revision="")


class LoadSpan(NamedTuple):
    """How far the number of experts read may move the time of a step [s]."""

    below_s: float
    above_s: float


def load_span(compiled: CompiledBuild, requests: Sequence[Request]) -> LoadSpan:
    """Seconds by which a step of OP is shorter with few experts, and longer with many.

    A field that the policy sets to something else than its default is taken as known. Kernels keep
    the law of the plan's popularity; only the number of experts differs. Both are at least 0.

    Args:
        compiled: the step, compiled for its policy.
        requests: the requests of a plan.

    Source of the two readings: docs/assumptions.md, "Experts".
    """
    policy = compiled.policy
    expected = _seconds(compiled, policy, requests)
    fewer, more = (
        _seconds(compiled, policy.with_overrides(**_unknown(policy, reading)), requests)
        for reading in (FEWER, MORE)
    )
    return LoadSpan(max(0.0, expected - fewer), max(0.0, more - expected))


def _unknown(policy: RuntimePolicy, reading: Mapping[str, float]) -> dict[str, float]:
    """Of a reading, the fields that the policy leaves at their defaults."""
    return {
        name: value
        for name, value in reading.items()
        if getattr(policy, name) == getattr(_DEFAULT, name)
    }


def _seconds(compiled: CompiledBuild, policy: RuntimePolicy, requests: Sequence[Request]) -> float:
    split = compiled.program.split
    program = ledger_program(compiled.model, policy, split)
    total = 0.0
    for forward in forward_passes(requests, policy):
        columns = pack(forward.requests)
        if split is not None:
            ranks = program.of_ranks(columns, one_step=True)
            total += max(float(one) for one in compiled.priced_ranks(ranks, one_step=True))
            continue
        counts = program.count(columns, one_step=True).totals
        filled = compiled.captured.filled(columns, counts, one_step=True)
        total += forward.times * float(compiled.seconds(*filled))
    return total
