"""How many drafts of each request to verify: the choice that emits most tokens a second.

A step's time is taken to depend on how many drafts all its requests verify together
(`step_curve`). Then, for each total, the best choice takes the drafts with the largest survivals;
survival falls along a request, so a draft is never taken before the one ahead of it. What is left
is to look at every total once. What is taken as true: docs/assumptions.md, "Acceptance".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledStep
from aisim_v41.plan.request import Request
from aisim_v41.speculation.acceptance import Acceptance, require_acceptances


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Drafts that each request of a step verifies.

    Args:
        drafts: of each request [tokens].
        emitted: mean tokens that the step emits for all requests [tokens].
        step_s: time of the step [s].
    """

    drafts: tuple[int, ...]
    emitted: float
    step_s: float

    @property
    def tokens_per_s(self) -> float:
        """Mean tokens emitted a second, of all requests [tokens/s]."""
        return self.emitted / self.step_s


def confident(requests: Sequence[Acceptance], curve: Sequence[float]) -> Schedule:
    """The schedule with the highest rate of emitted tokens.

    Of schedules with one rate, that with the fewest drafts; of drafts with one survival, the
    earlier position, then the earlier request.

    Args:
        requests: acceptance of each request, for as many positions as may be verified.
        curve: time of a step that verifies 0, 1, 2, ... drafts in all [s]; a shorter curve than
            there are drafts limits the total.

    Raises:
        InvalidInputError: no request, or a time that is not positive.

    Example:
        >>> likely, unlikely = Acceptance.constant(0.9, 2), Acceptance.constant(0.2, 2)
        >>> confident([likely, unlikely], [1.0, 1.1, 1.2, 1.5, 1.6]).drafts
        (2, 0)
    """
    _check(requests, curve)
    gains = sorted(
        (-survival, position, place)
        for place, acceptance in enumerate(requests)
        for position, survival in enumerate(acceptance.survival)
    )
    emitted, best, best_total = float(len(requests)), len(requests) / curve[0], 0
    for total, ((lost, _, _), step_s) in enumerate(zip(gains, curve[1:], strict=False), 1):
        emitted -= lost
        if emitted / step_s > best:
            best, best_total = emitted / step_s, total
    drafts = [0] * len(requests)
    for _, _, place in gains[:best_total]:
        drafts[place] += 1
    return scheduled(requests, drafts, curve)


def uniform(requests: Sequence[Acceptance], curve: Sequence[float]) -> Schedule:
    """The best schedule with one number of drafts for all requests: static by batch.

    Raises:
        InvalidInputError: as for `confident`.
    """
    _check(requests, curve)
    most = min(acceptance.drafts for acceptance in requests)
    most = min(most, (len(curve) - 1) // len(requests))
    of_each = [scheduled(requests, [each] * len(requests), curve) for each in range(most + 1)]
    return max(of_each, key=lambda schedule: schedule.tokens_per_s)


def scheduled(
    requests: Sequence[Acceptance], drafts: Sequence[int], curve: Sequence[float]
) -> Schedule:
    """A schedule that is given.

    Raises:
        InvalidInputError: as for `confident`; not one number a request; more drafts than the
            positions known or than the curve reaches.
    """
    _check(requests, curve)
    if len(requests) != len(drafts):
        raise InvalidInputError(
            f"{len(requests)} requests and {len(drafts)} numbers of drafts: give one for each"
        )
    emitted = sum(
        acceptance.expected_emitted(asked)
        for acceptance, asked in zip(requests, drafts, strict=True)
    )
    if sum(drafts) >= len(curve):
        raise InvalidInputError(
            f"{sum(drafts)} drafts in all: the curve reaches {len(curve) - 1}; price a longer one"
        )
    return Schedule(drafts=tuple(drafts), emitted=emitted, step_s=curve[sum(drafts)])


def step_curve(step: CompiledStep, prefix_tokens: Sequence[int], drafts: int) -> tuple[float, ...]:
    """`batch_curve` of requests that are alike but for their contexts.

    Args:
        step: of a policy that drafts.
        prefix_tokens: context of each request [tokens].
        drafts: most drafts of one request [tokens].

    Raises:
        UnsupportedPlanError, InvalidInputError, OutOfRangeError: as for `batch_curve`.
    """
    if not prefix_tokens:
        raise InvalidInputError("prefix_tokens is empty: give the context of each request")
    alike = Counter(prefix_tokens)
    requests = [
        Request(new_tokens=1, prefix_tokens=prefix, kind="decode", count=count)
        for prefix, count in alike.items()
    ]
    return batch_curve(step, requests, drafts)


def batch_curve(step: CompiledStep, requests: Sequence[Request], drafts: int) -> tuple[float, ...]:
    """Time of a step that verifies 0 ... all drafts of its requests [s].

    Each total is priced once, spread evenly over the requests, with the dummies of the captured
    graph and the draft pass behind it. An engine whose requests verify unlike numbers of drafts has
    ``verify_lengths="ragged"``.

    Args:
        step: of a policy that drafts.
        requests: that decode.
        drafts: most drafts of one request [tokens].

    Raises:
        UnsupportedPlanError: the policy does not draft, or not as many.
        InvalidInputError, OutOfRangeError: as for the step's requests.
    """
    drafted = step.policy.draft_tokens if step.policy.speculation == "dspark" else 0
    if type(drafts) is not int or not 0 < drafts <= drafted:
        raise UnsupportedPlanError(
            f"{drafts!r} drafts of a request: steps of this policy draft {drafted}; set "
            'speculation="dspark" and draft_tokens'
        )
    count = sum(request.count for request in requests)
    return tuple(step(spread(requests, total)) for total in range(count * drafts + 1))


def spread(requests: Sequence[Request], drafts: int) -> list[Request]:
    """A verify step of so many drafts in all, as evenly over requests as can be.

    Args:
        requests: that decode.
        drafts: of all requests [tokens]; the first requests verify what is left over.

    Example:
        >>> decode = Request(new_tokens=1, prefix_tokens=100, kind="decode", count=3)
        >>> [(r.new_tokens, r.count) for r in spread([decode], 4)]
        [(3, 1), (2, 2)]
    """
    each, more = divmod(drafts, sum(request.count for request in requests))
    found = []
    for request in requests:
        longer = min(request.count, more)
        more -= longer
        for rows, count in ((2 + each, longer), (1 + each, request.count - longer)):
            if count:
                found.append(verifying(request, rows, count))
    return found


def verifying(request: Request, rows: int, count: int | None = None) -> Request:
    """A request that decodes, as one that verifies.

    Args:
        request: the decoding one.
        rows: the last token and its drafts [rows].
        count: how many; as many as decode by default.
    """
    number = request.count if count is None else count
    return replace(request, new_tokens=rows, kind="verify", count=number, packed=b"")


def _check(requests: Sequence[Acceptance], curve: Sequence[float]) -> None:
    require_acceptances(requests)
    if not requests:
        raise InvalidInputError("requests is empty: give the acceptance of each")
    if not _is_curve(curve):
        raise InvalidInputError("curve: must hold positive times [s], that of no drafts first")


def _is_curve(curve: object) -> bool:
    if isinstance(curve, str) or not isinstance(curve, Sequence) or not curve:
        return False
    numbers = all(isinstance(time, (int, float)) for time in curve)
    return numbers and all(isfinite(time) and time > 0.0 for time in curve)
