"""What a batch emits, and how fast, under each way to choose how many drafts are verified.

- ``off``: a plain decode step, without a drafter.
- fixed: every request verifies the same number of drafts (SGLang's ``static``; vLLM without
  adaptive verification); ``by-batch`` is the best such number for the batch.
- ``confident``: a number for each request, by survival, that emits most tokens a second on the
  batch's own curve (report §2.4.3; SGLang's ``compact``). Graphs hold any lengths: the rows of all
  requests together are filled up to a captured number.
- ``profiled``: the same choice on a curve of another context, as vLLM's adaptive verification makes
  it: costs are profiled once, at 8,192 tokens by default. The host knows the sum of the drafts and
  launches that graph; whose they are is decided on the GPU.
- ``cap-accept``: SGLang's diagnostic mode: all drafts are computed, and as many kept at most as
  ``confident`` would have verified.

The step rate is not the output rate: `Outcome` has both. Sources: runtime-semantics §9;
sgl-project/sglang speculative/ragged_verify.py @02d548f3; vllm-project/vllm
spec_decode/adaptive_verification.py @057929c3. What is taken as true: docs/assumptions.md,
"Acceptance".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from math import fsum
from typing import Final

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.estimators.compiled import CompiledStep, listed
from aisim_v41.estimators.entry import compile as compile_step
from aisim_v41.hardware import Hardware
from aisim_v41.plan.captured import CapturedSteps
from aisim_v41.plan.compatibility import engine_warnings, pack
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request
from aisim_v41.speculation.acceptance import Acceptance, Bursts
from aisim_v41.speculation.schedule import (
    Schedule,
    batch_curve,
    confident,
    scheduled,
    spread,
    verifying,
)

PROFILE_TOKENS: Final = 8192
"""Context at which vLLM profiles the costs of adaptive verification unless it is told otherwise
(docs of vllm-project/vllm, "Adaptive Verification") [tokens]."""
MOST_REQUESTS: Final = 4096
"""Requests of a batch: a curve has a step for each of their drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Steps of one batch under one schedule.

    Args:
        schedule: its name.
        drafts: verified of each request [tokens]; of plain decode none.
        rows: that the target runs, with those that fill its graph [rows].
        emitted: mean tokens of a step, of all requests [tokens].
        step_s: time of a step [s].
        bursts: tokens that a request gets at once, averaged over the requests.
    """

    schedule: str
    drafts: tuple[int, ...]
    rows: int
    emitted: float
    step_s: float
    bursts: Bursts

    @property
    def requests(self) -> int:
        """Requests of the batch."""
        return len(self.drafts)

    @property
    def steps_per_s(self) -> float:
        """Step rate [1/s]."""
        return 1.0 / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Output rate of all requests: the step rate times what a step emits [tokens/s]."""
        return self.emitted / self.step_s

    @property
    def mean_interval_s(self) -> float:
        """Mean time from token to token of one request, over all tokens [s]. Most arrive with the
        one before them and the first of each burst a whole step later: see ``bursts``."""
        return self.step_s * self.requests / self.emitted


class Speculation:
    """A decoding batch, its acceptance, and its steps as each schedule runs them.

    Args:
        plan: requests that decode. Whether its policy drafts does not matter, how many tokens does.
        hardware: the GPU and its links.
        acceptance: of all requests, or of each entry of the plan's; known for as many positions as
            the policy drafts, or more.
        method: as for `aisim_v41.estimate`.

    Raises:
        InvalidInputError: no request, one that does not decode, acceptance of too few positions
            or of another number of requests.
        OutOfRangeError: more requests than `MOST_REQUESTS`.
        UnsupportedPlanError: the model has no drafter, or the plan cannot be priced.
    """

    def __init__(
        self,
        plan: Plan,
        hardware: Hardware,
        acceptance: Acceptance | Sequence[Acceptance],
        method: str = "auto",
    ) -> None:
        _check_requests(plan)
        self.plan, self.hardware, self.method = plan, hardware, method
        self.drafted = plan.policy.draft_tokens
        self.of_entries: tuple[Acceptance, ...] = _of_entries(plan, acceptance)
        self.acceptance: tuple[Acceptance, ...] = tuple(
            one
            for request, one in zip(plan.requests, self.of_entries, strict=True)
            for _ in range(request.count)
        )

    # --- steps ------------------------------------------------------------------------------------

    def compiled(self, policy: RuntimePolicy) -> CompiledStep:
        """The plan's step under another policy."""
        return compile_step(
            self.plan.model, self.hardware,
            parallel=self.plan.parallel, policy=policy, method=self.method,
        )  # fmt: skip

    @cached_property
    def uniform(self) -> CompiledStep:
        """A step whose requests verify alike."""
        changed = {"speculation": "dspark", "verify_lengths": "uniform"}
        return self.compiled(self.plan.policy.with_overrides(**changed))

    @cached_property
    def ragged(self) -> CompiledStep:
        """A step whose requests verify as many drafts as each is worth."""
        changed = {"speculation": "dspark", "verify_lengths": "ragged"}
        return self.compiled(self.plan.policy.with_overrides(**changed))

    @cached_property
    def curve(self) -> tuple[float, ...]:
        """Time of a ragged step of 0 ... all drafts [s]."""
        return batch_curve(self.ragged, self.plan.requests, self.drafted)

    # --- schedules --------------------------------------------------------------------------------

    @cached_property
    def off(self) -> Outcome:
        """Plain decode."""
        step = self.compiled(self.plan.policy.with_overrides(speculation="off"))
        return self._outcome("off", [0] * len(self.acceptance), step, list(self.plan.requests))

    def fixed(self, drafts: int) -> Outcome:
        """Every request verifies so many drafts; the drafter drafts all of its positions.

        Raises:
            InvalidInputError: more than the policy drafts.
        """
        if type(drafts) is not int or not 0 <= drafts <= self.drafted:
            raise InvalidInputError(
                f"drafts = {drafts!r}: must be a whole number 0 ... {self.drafted}, what the "
                "policy drafts (draft_tokens)"
            )
        requests = [verifying(request, 1 + drafts) for request in self.plan.requests]
        return self._outcome(f"fixed {drafts}", [drafts] * len(self.acceptance), self.uniform,
                             requests)  # fmt: skip

    @cached_property
    def every_fixed(self) -> tuple[Outcome, ...]:
        """`fixed`, of 0 ... all drafts."""
        return tuple(self.fixed(drafts) for drafts in range(self.drafted + 1))

    @cached_property
    def by_batch(self) -> Outcome:
        """The fixed number with the highest output rate; of equals the lowest."""
        best = max(self.every_fixed, key=lambda outcome: outcome.tokens_per_s)
        return replace(best, schedule="by-batch")

    @cached_property
    def confident(self) -> Outcome:
        """The choice of drafts with the highest output rate."""
        return self._ragged("confident", confident(self.acceptance, self.curve))

    def profiled(self, tokens: int = PROFILE_TOKENS) -> Outcome:
        """The choice that would be best if all contexts had so many tokens.

        Raises:
            InvalidInputError, OutOfRangeError: no length of a context.
        """
        alike = [
            replace(request, prefix_tokens=tokens, packed=b"") for request in self.plan.requests
        ]
        believed = batch_curve(self.ragged, alike, self.drafted)
        chosen = confident(self.acceptance, believed)
        return self._ragged("profiled", scheduled(self.acceptance, chosen.drafts, self.curve))

    @cached_property
    def cap_accept(self) -> Outcome:
        """All drafts computed, and kept up to the number that `confident` gives each request."""
        whole = self.every_fixed[-1]
        chosen = self.confident
        return replace(chosen, schedule="cap-accept", rows=whole.rows, step_s=whole.step_s)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What engines would refuse of the steps priced so far, where ``engine_rules`` are
        "warned"."""
        lengths = ("uniform", "ragged") if "ragged" in self.__dict__ else ("uniform",)
        policies = (
            self.plan.policy.with_overrides(speculation="dspark", verify_lengths=kind)
            for kind in lengths
        )
        found = (
            line
            for policy in policies
            for line in engine_warnings(policy, self.plan.parallel, self.hardware.architecture)
        )
        return tuple(dict.fromkeys(found))

    # --- parts ------------------------------------------------------------------------------------

    def _ragged(self, name: str, chosen: Schedule) -> Outcome:
        step = spread(self.plan.requests, sum(chosen.drafts))
        return Outcome(
            schedule=name, drafts=chosen.drafts, rows=_rows_run(self.ragged, step),
            emitted=chosen.emitted, step_s=chosen.step_s, bursts=self._bursts(chosen.drafts),
        )  # fmt: skip

    def _outcome(
        self, name: str, drafts: Sequence[int], step: CompiledStep, requests: list[Request]
    ) -> Outcome:
        bursts = self._bursts(drafts)
        return Outcome(
            schedule=name, drafts=tuple(drafts), rows=_rows_run(step, requests),
            emitted=bursts.mean * len(drafts), step_s=step(requests), bursts=bursts,
        )  # fmt: skip

    def _bursts(self, drafts: Sequence[int]) -> Bursts:
        each = [a.distribution(k) for a, k in zip(self.acceptance, drafts, strict=True)]
        return Bursts(tuple(fsum(shares) / len(each) for shares in zip_longest(*each, fillvalue=0)))


def _check_requests(plan: Plan) -> None:
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"plan = {plan!r:.120}: must be a Plan")
    for place, request in enumerate(plan.requests):
        if request.kind != "decode" or request.new_tokens != 1:
            raise InvalidInputError(
                f"requests[{place}] ({request!r}): must decode one token; how many drafts it "
                "verifies is what the schedules choose"
            )
    count = sum(request.count for request in plan.requests)
    if not count:
        raise InvalidInputError("the plan has no requests: give some that decode")
    if count > MOST_REQUESTS:
        raise OutOfRangeError(
            f"{count} requests: schedules are priced for up to {MOST_REQUESTS}; give those of one "
            "engine replica"
        )


def _of_entries(
    plan: Plan, acceptance: Acceptance | Sequence[Acceptance]
) -> tuple[Acceptance, ...]:
    """Of each entry of the plan, at the positions that are drafted."""
    if isinstance(acceptance, Acceptance):
        acceptance = [acceptance] * len(plan.requests)
    found = listed("acceptance", acceptance, "Acceptance")
    if len(found) != len(plan.requests):
        raise InvalidInputError(
            f"{len(found)} acceptances and {len(plan.requests)} entries of requests: give one for "
            "each, or a single one for all"
        )
    drafted = plan.policy.draft_tokens
    for known in found:
        if not isinstance(known, Acceptance):
            raise InvalidInputError(f"acceptance {known!r:.120}: must be an Acceptance")
        if known.drafts < drafted:
            raise InvalidInputError(
                f"acceptance of {known.drafts} positions, but steps draft {drafted}: give one for "
                f"each, or set draft_tokens={known.drafts}"
            )
    return tuple(Acceptance(known.by_position[:drafted]) for known in found)


def _rows_run(step: CompiledStep, requests: list[Request]) -> int:
    """Rows of the target in a step, over all ranks of a split, with those that fill their graphs; a
    bound fills none [rows]."""
    program, columns = step.program, pack(requests)
    captured = None if step.method == "sol" else CapturedSteps(program)
    if program.split is None:
        counts = program.count(columns, one_step=True).totals
        if captured is not None:
            counts, _ = captured.filled(columns, counts, one_step=True)
        return round(float(counts[program.tokens_place]))
    ranks = program.of_ranks(columns, one_step=True)
    found = [one.counts.totals for one in ranks]
    if captured is not None:
        found = [counts for counts, _ in captured.filled_ranks(ranks, one_step=True)]
    rows = [float(counts[program.tokens_place]) for counts in found]
    return round(sum(float(one.ranks) * each for one, each in zip(ranks, rows, strict=True)))
