"""How many drafted tokens a verify step keeps: acceptance by position, emitted tokens, bursts.

A verify step runs the last token of a request and its drafts. Drafts are kept from the first on,
up to the first that is rejected; the target's own token at that place, or after the last draft, is
emitted too. So a step with ``drafts`` drafts emits 1 ... 1 + ``drafts`` tokens at once. Acceptance
of a position is conditional: given that all drafts before it were kept. Source: model-facts §8;
runtime-semantics §9; what is taken as true: docs/assumptions.md, "Acceptance".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal, Self

import numpy as np

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.plan.reach import Floats

BISECTIONS = 200
"""More halvings of [0, 1] than a double can tell apart: the search ends earlier."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Conditional acceptance of each drafted position.

    Args:
        by_position: probability that a draft is kept if all before it were; at least one position.

    Raises:
        InvalidInputError: no position, or a value that is no probability.

    Example:
        >>> halves = Acceptance.constant(0.5, 2)
        >>> halves.survival
        (0.5, 0.25)
        >>> halves.expected_emitted()
        1.75
        >>> halves.distribution()
        (0.5, 0.25, 0.25)
    """

    by_position: tuple[float, ...]

    def __post_init__(self) -> None:
        values = _probabilities("by_position", self.by_position)
        if not values:
            raise InvalidInputError("by_position = (): must hold at least one drafted position")
        object.__setattr__(self, "by_position", values)

    @classmethod
    def constant(cls, probability: float, drafts: int) -> Self:
        """The same conditional acceptance at ``drafts`` positions."""
        return cls((probability,) * _drafts(drafts))

    @classmethod
    def of_accept_length(cls, accept_length: float, drafts: int) -> Self:
        """The constant acceptance whose steps of ``drafts`` drafts emit a given mean.

        Args:
            accept_length: mean tokens that a step emits, the target's own included [tokens].
            drafts: drafted tokens a step [tokens].

        Raises:
            OutOfRangeError: no acceptance gives that mean: it lies outside 1 ... 1 + drafts.

        Example:
            >>> round(Acceptance.of_accept_length(3.51, 5).by_position[0], 4)
            0.7785
        """
        drafts = _drafts(drafts)
        _check_length(accept_length, drafts)
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            if cls.constant(middle, drafts).expected_emitted() < accept_length:
                low = middle
            else:
                high = middle
        ends = (cls.constant(low, drafts), cls.constant(high, drafts))
        return min(ends, key=lambda found: abs(found.expected_emitted() - accept_length))

    @classmethod
    def of_survival(cls, survival: Sequence[float]) -> Self:
        """From what engines log as acceptance rate by position: the share of all steps in which
        that draft was kept, and so every one before it.

        Raises:
            InvalidInputError: values that rise, or are no probabilities.

        Example:
            >>> Acceptance.of_survival((0.5, 0.25)).by_position
            (0.5, 0.5)
        """
        kept = _probabilities("survival", survival)
        if not kept:
            raise InvalidInputError("survival = (): must hold at least one drafted position")
        if any(later > earlier for earlier, later in pairwise(kept)):
            raise InvalidInputError(
                f"survival = {kept!r}: must not rise; a draft is kept only if those before it were"
            )
        before = (1.0, *kept[:-1])
        return cls(
            tuple(now / then if then else 0.0 for now, then in zip(kept, before, strict=True))
        )

    @classmethod
    def simulated(cls, accept_length: float, drafts: int) -> Self:
        """What engines simulate for benchmarks of a given mean: every step keeps as many whole
        drafts as the mean holds, and one more with the chance that is left.

        So bursts of two sizes alone, where a drafter that is right by chance has all of them.
        Source: golden acceptance lengths of SemiAnalysisAI/InferenceX (vLLM's and ATOM's synthetic
        acceptance of least variance, SGLang's ``match-expected``, TensorRT-LLM's forced number).

        Args:
            accept_length: mean tokens that a step emits, the target's own included [tokens].
            drafts: drafted tokens a step [tokens].

        Raises:
            OutOfRangeError: as for `of_accept_length`.

        Example:
            >>> [round(share, 2) for share in Acceptance.simulated(3.51, 5).distribution()]
            [0.0, 0.0, 0.49, 0.51, 0.0, 0.0]
        """
        drafts = _drafts(drafts)
        _check_length(accept_length, drafts)
        kept = accept_length - 1.0
        return cls(tuple(min(max(kept - place, 0.0), 1.0) for place in range(drafts)))

    @property
    def drafts(self) -> int:
        """Positions for which acceptance is known [tokens]."""
        return len(self.by_position)

    @property
    def survival(self) -> tuple[float, ...]:
        """Probability that each draft is kept: the product of acceptances up to it."""
        return tuple(float(value) for value in np.cumprod(self.by_position))

    def expected_emitted(self, drafts: int | None = None) -> float:
        """Mean tokens of a step that verifies the first ``drafts`` drafts (by default all): one
        and the sum of their survivals [tokens]."""
        return 1.0 + sum(self.survival[: self.verified(drafts)])

    def distribution(self, drafts: int | None = None) -> tuple[float, ...]:
        """Probability that a step emits 1, 2, ... 1 + ``drafts`` tokens."""
        kept = (1.0, *self.survival[: self.verified(drafts)], 0.0)
        return tuple(here - there for here, there in pairwise(kept))

    def bursts(self, drafts: int | None = None) -> Bursts:
        """What a reader of the stream sees of such steps."""
        return Bursts(self.distribution(drafts))

    def verified(self, drafts: int | None) -> int:
        """Drafts of a step that is asked for ``drafts`` of them, None for all [tokens].

        Raises:
            InvalidInputError: more than the positions whose acceptance is known.
        """
        if drafts is None:
            return self.drafts
        if type(drafts) is not int or not 0 <= drafts <= self.drafts:
            raise InvalidInputError(
                f"drafts = {drafts!r}: must be a whole number 0 ... {self.drafts}, the positions "
                "whose acceptance is known"
            )
        return drafts


@dataclass(frozen=True, slots=True)
class Bursts:
    """Tokens of a request arrive in bursts, one a step: the output rate is not the step rate.

    Args:
        distribution: probability that a step emits 1, 2, ... tokens.

    Example:
        >>> Acceptance.constant(0.5, 2).bursts().largest
        3
    """

    distribution: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean tokens of a burst [tokens]; times the step rate, this is the output rate."""
        return sum(size * share for size, share in enumerate(self.distribution, 1))

    @property
    def variance(self) -> float:
        """Variance of the tokens of a burst [tokens²]."""
        mean = self.mean
        return sum((size - mean) ** 2 * share for size, share in enumerate(self.distribution, 1))

    @property
    def largest(self) -> int:
        """Tokens of the largest burst that can happen [tokens]."""
        return max(size for size, share in enumerate(self.distribution, 1) if share > 0.0)

    @property
    def waiting_share(self) -> float:
        """Share of tokens that arrive a whole step after the one before: the first of each burst.
        All others arrive with it, at no interval."""
        return 1.0 / self.mean

    def mean_interval(self, step_s: float) -> float:
        """Mean time between tokens of one request [s], of steps of ``step_s`` [s]."""
        return step_s / self.mean


def drawn_emitted(
    requests: Sequence[Acceptance],
    drafts: Sequence[int],
    *,
    seed: int,
    draw: Literal["request", "step"] = "request",
) -> Floats:
    """Tokens that each request of one step emits, drawn from its own acceptance.

    Args:
        requests: acceptance of each request.
        drafts: drafts that each has verified [tokens].
        seed: of the generator; the same seed gives the same draws.
        draw: a chance of its own for each "request", or one for all of the "step", as some engines
            simulate acceptance: requests that are alike then go in lock-step and end together
            (kkHuang-amd/claude-skills dsv41/VLLM_COMPARE.md).

    Raises:
        InvalidInputError: lists of different length, more drafts than positions known, an unknown
            kind of draw, or a seed that is no whole number of at least 0.
    """
    if type(seed) is not int or seed < 0:
        raise InvalidInputError(f"seed = {seed!r:.120}: must be a whole number of at least 0")
    require_acceptances(requests)
    if not isinstance(drafts, Sized) or len(requests) != len(drafts):
        given = len(drafts) if isinstance(drafts, Sized) else repr(drafts)[:80]
        raise InvalidInputError(
            f"{len(requests)} requests and {given} numbers of drafts: give one for each"
        )
    if draw not in ("request", "step"):
        raise InvalidInputError(f"draw = {draw!r}: must be 'request' or 'step'")
    generator = np.random.default_rng(seed)
    emitted = np.ones(len(requests))
    drawn = generator.random()
    for place, (acceptance, asked) in enumerate(zip(requests, drafts, strict=True)):
        # One number decides how far: a draft is kept where it lies below the draft's survival. So
        # the same seed never emits fewer tokens with more drafts.
        verified = acceptance.verified(asked)
        emitted[place] += sum(drawn < kept for kept in acceptance.survival[:verified])
        if draw == "request":
            drawn = generator.random()
    return emitted


def require_acceptances(requests: Sequence[Acceptance]) -> None:
    """Refuse what is no list of `Acceptance`.

    Raises:
        InvalidInputError: with what it is.
    """
    listed = isinstance(requests, (list, tuple))
    if not listed or any(not isinstance(one, Acceptance) for one in requests):
        raise InvalidInputError(f"requests = {requests!r:.120}: must be a list of Acceptance")


def _drafts(value: int) -> int:
    if type(value) is not int or value < 1:
        raise InvalidInputError(f"drafts = {value!r}: must be a whole number >= 1")
    return value


def _check_length(accept_length: float, drafts: int) -> None:
    if isinstance(accept_length, bool) or not isinstance(accept_length, (int, float)):
        raise InvalidInputError(f"accept_length = {accept_length!r:.120}: must be a number")
    if not 1.0 <= accept_length <= 1.0 + drafts:
        raise OutOfRangeError(
            f"accept_length = {accept_length!r} tokens with {drafts} drafts: a step emits "
            f"between 1 and {1 + drafts}; give a length in that range, or more drafts"
        )


def _probabilities(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{name} = {values!r:.120}: must be a list of probabilities")
    return tuple(_probability(name, value) for value in values)


def _probability(name: str, value: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not isfinite(value) or not 0.0 <= value <= 1.0:
        raise InvalidInputError(f"{name} holds {value!r}: must be a probability, 0 ... 1")
    return float(value)
