"""Totals over several requests, which do not determine a step.

Logs and metrics often give only "8 requests, 65,536 new tokens". What a step costs depends on how
those tokens lie on the requests: decoder replay keeps min(length, tail) rows of *each*, and reads
grow with the square of each prompt. So totals are answered as an interval where the extremes are
known, and refused otherwise; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.description import Model
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request


class Interval(NamedTuple):
    """Lowest and highest possible value."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the totals determine the value."""
        return self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Whole prompts of which only sums are known.

    Args:
        requests: How many prompts.
        new_tokens: Tokens of all of them together [tokens]; each has at least one.

    Raises:
        InvalidInputError: not whole numbers, or fewer tokens than requests.
    """

    requests: int
    new_tokens: int

    def __post_init__(self) -> None:
        for name in ("requests", "new_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInputError(f"Totals.{name} = {value!r}: must be a whole number >= 1")
        if self.new_tokens < self.requests:
            raise InvalidInputError(
                f"Totals.new_tokens = {self.new_tokens}: fewer than one for each of "
                f"{self.requests} requests"
            )

    def determined(self) -> Request:
        """The request that the totals stand for, where there is only one.

        Raises:
            UnsupportedPlanError: several requests share the total.
        """
        if self.requests > 1:
            raise UnsupportedPlanError(
                f"{self.new_tokens} new tokens over {self.requests} requests: the sum does not "
                "determine the step (windows, selections and replay tails are counted per "
                "request). Give each request's length, or ask token_layers for an interval."
            )
        return Request(new_tokens=self.new_tokens)

    def even(self) -> list[Request]:
        """The most even lengths: none differs from another by more than one token."""
        length, longer = divmod(self.new_tokens, self.requests)
        return _groups([(length, self.requests - longer), (length + 1, longer)])

    def uneven(self, longest: int) -> list[Request]:
        """The most uneven lengths: as many prompts of ``longest`` tokens as fit, the rest short."""
        spare = self.new_tokens - self.requests
        full, left = divmod(spare, longest - 1) if longest > 1 else (0, 0)
        whole = min(full, self.requests)
        last = 1 if whole < self.requests else 0
        return _groups([(longest, whole), (left + 1, last), (1, self.requests - whole - last)])


def _groups(lengths: list[tuple[int, int]]) -> list[Request]:
    """Prompts as (length, count) pairs, empty groups left out."""
    return [Request(new_tokens=length, count=count) for length, count in lengths if count]


def token_layers(model: Model, policy: RuntimePolicy, totals: Totals) -> Interval:
    """Rows x layers of a step of which only totals are known.

    Rows kept of a prompt grow less and less with its length, min(length, tail), so the sum is
    highest for even lengths and lowest for the most uneven ones that the context allows.

    Raises:
        UnsupportedPlanError: an average prompt does not fit the context.

    Example:
        >>> from aisim_v41 import load_model, policy
        >>> model = load_model("deepseek-v4.1-flash")
        >>> sglang = policy("sglang", decoder_replay=True)
        >>> token_layers(model, sglang, Totals(requests=2, new_tokens=8256))
        Interval(low=175827, high=178240)
    """
    if totals.new_tokens > totals.requests * model.max_context:
        raise UnsupportedPlanError(
            f"{totals.new_tokens} tokens do not fit {totals.requests} contexts of "
            f"{model.max_context}"
        )
    values = [
        ledger(Plan(model, requests, policy=policy)).token_layers
        for requests in (totals.uneven(model.max_context), totals.even())
    ]
    return Interval(min(values), max(values))
