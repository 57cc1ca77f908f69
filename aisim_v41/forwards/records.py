"""One measured forward: what ran, how it ended, what it took (docs/forwards.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.readings import (
    decode_lengths_determined,
    decode_readings,
    prefill_readings,
    require_fit,
    require_variance,
)
from aisim_v41.plan.request import MAX_TOKENS, Request

Status = Literal[
    "ok",
    "unsupported",
    "init_failed",
    "out_of_memory",
    "execution_failed",
    "invalid_output",
    "missing",
]
STATUSES: Final[tuple[str, ...]] = (
    "ok",
    "unsupported",
    "init_failed",
    "out_of_memory",
    "execution_failed",
    "invalid_output",
    "missing",
)
"""How a measurement ended. Only "ok" has a time; the others say what was asked and not had: the
engine refuses it, did not start, ran out of memory, failed in the step, gave a wrong answer, or
nothing is known."""

MAX_REQUESTS: Final = 1 << 20
"""Most requests of one step."""
MAX_LATENCY_MS: Final = 1e9
"""Longest time that is taken for one [ms]: eleven days."""
MAX_SAMPLES: Final = 1 << 30
MAX_TEXT: Final = 4096
"""Longest text of a record [characters]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """A step of which only sums are known, as a scheduler reports them.

    Args:
        prefill_requests: Requests that prefill.
        prefill_tokens: Tokens that they compute in this step [tokens].
        prefill_kv_tokens: Positions of theirs computed before it: hits and earlier chunks [tokens].
        prefill_length_variance: Population variance of the lengths of their *whole prompts*, which
            may reach beyond this step [tokens²]; None: not known. It bounds nothing that is
            computed here, and is kept as it was reported.
        decode_requests: Requests that decode one token.
        decode_kv_tokens: Positions of theirs computed before the step, the decoded token not
            counted [tokens].
        decode_kv_variance: Population variance of those positions [tokens²]; None: not known.

    Raises:
        InvalidInputError: sums that no requests can have.
    """

    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_kv_tokens: int = 0
    prefill_length_variance: float | None = None
    decode_requests: int = 0
    decode_kv_tokens: int = 0
    decode_kv_variance: float | None = None

    def __post_init__(self) -> None:
        for name, most in (
            ("prefill_requests", MAX_REQUESTS),
            ("prefill_tokens", MAX_TOKENS),
            ("prefill_kv_tokens", MAX_TOKENS),
            ("decode_requests", MAX_REQUESTS),
            ("decode_kv_tokens", MAX_TOKENS),
        ):
            _require_whole(f"StepTotals.{name}", getattr(self, name), 0, most)
        prefills, decodes = self.prefill_requests, self.decode_requests
        if not prefills + decodes:
            raise InvalidInputError("StepTotals: a step has at least one request")
        if self.prefill_tokens < prefills or (self.prefill_tokens and not prefills):
            raise InvalidInputError(
                f"StepTotals.prefill_tokens = {self.prefill_tokens} of {prefills} requests: each "
                "computes at least one token"
            )
        if self.prefill_kv_tokens and not prefills:
            raise InvalidInputError(
                f"StepTotals.prefill_kv_tokens = {self.prefill_kv_tokens} without a prefill"
            )
        if self.decode_kv_tokens and not decodes:
            raise InvalidInputError(
                f"StepTotals.decode_kv_tokens = {self.decode_kv_tokens} without a decode"
            )
        require_variance(
            "StepTotals.prefill_length_variance", self.prefill_length_variance, prefills, None
        )
        require_variance(
            "StepTotals.decode_kv_variance", self.decode_kv_variance, decodes, self.decode_kv_tokens
        )

    def determined(self) -> tuple[Request, ...] | None:
        """The step, where the sums leave only one; None otherwise.

        They do for one prefill, for prefills of one token without a past, and for decodes that
        are one, that have no past, whose variance is the smallest of their sum (as even as whole
        numbers can be), or that are two of known variance. Each prompt is taken to end with the
        step; whether it goes on is not in the sums.
        """
        prefills, tokens, past = self.prefill_requests, self.prefill_tokens, self.prefill_kv_tokens
        if prefills > 1 and (tokens > prefills or past):
            return None
        lengths = decode_lengths_determined(
            self.decode_requests, self.decode_kv_tokens, self.decode_kv_variance
        )
        if lengths is None:
            return None
        prefill = [Request(new_tokens=1, count=prefills)] if prefills > 1 else []
        if prefills == 1:
            prefill = [Request(new_tokens=tokens, prefix_tokens=past)]
        return (*prefill, *_decodes(lengths))

    def require_fit(self, max_context: int) -> None:
        """Refuse sums that no requests of a model can have.

        Args:
            max_context: Longest context of the model [tokens].

        Raises:
            InvalidInputError: the sums do not fit that many contexts.
        """
        computed, past = self.prefill_tokens, self.prefill_kv_tokens
        require_fit(
            "prefill_tokens + prefill_kv_tokens", computed + past, self.prefill_requests,
            max_context,
        )  # fmt: skip
        require_fit(
            "decode_kv_tokens", self.decode_kv_tokens, self.decode_requests, max_context - 1
        )

    def extremes(self, max_context: int) -> tuple[tuple[Request, ...], ...]:
        """Readings of the sums between which a count lies; what for is in docs/forwards.md.

        Args:
            max_context: Longest context of the model [tokens].

        Raises:
            InvalidInputError: the sums do not fit that many contexts.
        """
        prefill = prefill_readings(
            self.prefill_requests, self.prefill_tokens, self.prefill_kv_tokens, max_context
        )
        decode = decode_readings(
            self.decode_requests, self.decode_kv_tokens, self.decode_kv_variance, max_context
        )
        known = self.determined()
        if known is not None:
            return (known,)
        steps = (
            (
                *(Request(new_tokens=n, prefix_tokens=p, count=c) for n, p, c in prompts),
                *_decodes(lengths),
            )
            for prompts in prefill
            for lengths in decode
        )
        return tuple(dict.fromkeys(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One measured forward, or one that was asked for and not had.

    Args:
        step: Its requests; or sums, where no more is known.
        status: One of `STATUSES`.
        latency_ms: Statistic of the measurements, the median where they are known [ms]; None
            unless ``status`` is "ok".
        samples_ms: Single measurements where they are known, in order [ms].
        samples: Measurements behind ``latency_ms``; as many as ``samples_ms``, where those are
            known, and 0 where the status is not "ok".
        run: Process that measured: the independent unit. Repeats inside one are correlated.
        order: Position in that run, where it is known.
        regime: Label that the source gives to the conditions, such as a date.
        point: Name in the source.
        source: File and place.
        note: Anything else.

    Raises:
        InvalidInputError: names the field, its value, and what would be right.
    """

    step: tuple[Request, ...] | StepTotals
    status: Status = "ok"
    latency_ms: float | None = None
    samples_ms: tuple[float, ...] = ()
    samples: int = 1
    run: str = "run"
    order: int | None = None
    regime: str = ""
    point: str = ""
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.step, StepTotals):
            self._check_step()
        for name in ("run", "regime", "point", "source", "note"):
            _require_text(f"StepRecord.{name}", getattr(self, name), empty=name != "run")
        if self.order is not None:
            _require_whole("StepRecord.order", self.order, 0, MAX_SAMPLES)
        if not isinstance(self.status, str) or self.status not in STATUSES:
            raise InvalidInputError(
                f"StepRecord.status = {self.status!r}: must be one of {', '.join(STATUSES)}"
            )
        _require_whole("StepRecord.samples", self.samples, 0, MAX_SAMPLES)
        if self.status == "ok":
            self._check_times()
        elif self.latency_ms is not None or self.samples_ms:
            raise InvalidInputError(
                f"StepRecord.latency_ms = {self.latency_ms!r}, samples_ms = {self.samples_ms!r} "
                f"with status {self.status!r}: only 'ok' has a time; leave both out"
            )
        else:
            object.__setattr__(self, "samples", 0)

    def _check_step(self) -> None:
        step = _sequence(self.step)
        if not step or any(type(request) is not Request for request in step):
            raise InvalidInputError(
                f"StepRecord.step = {self.step!r:.120}: must be one Request or more, or StepTotals"
            )
        object.__setattr__(self, "step", step)

    def _check_times(self) -> None:
        latency = _milliseconds("StepRecord.latency_ms", self.latency_ms)
        times = _sequence(self.samples_ms)
        if times is None:
            raise InvalidInputError(
                f"StepRecord.samples_ms = {self.samples_ms!r:.80}: must be a tuple of numbers"
            )
        samples = tuple(
            _milliseconds(f"StepRecord.samples_ms[{place}]", value)
            for place, value in enumerate(times)
        )
        if samples and not min(samples) <= latency <= max(samples):
            raise InvalidInputError(
                f"StepRecord.latency_ms = {latency}: outside its samples, which are from "
                f"{min(samples)} to {max(samples)} ms"
            )
        if samples and self.samples not in (1, len(samples)):
            raise InvalidInputError(
                f"StepRecord.samples = {self.samples}, but samples_ms has {len(samples)}"
            )
        if not self.samples:
            raise InvalidInputError("StepRecord.samples = 0 with status 'ok': at least one")
        object.__setattr__(self, "latency_ms", latency)
        object.__setattr__(self, "samples_ms", samples)
        object.__setattr__(self, "samples", len(samples) or self.samples)

    @property
    def requests(self) -> tuple[Request, ...] | None:
        """The requests; None where only sums are known that several steps have."""
        return self.step.determined() if isinstance(self.step, StepTotals) else self.step


def _decodes(lengths: Iterable[tuple[int, int]]) -> list[Request]:
    return [
        Request(new_tokens=1, prefix_tokens=length, kind="decode", count=count)
        for length, count in lengths
    ]


def _require_whole(name: str, value: object, lowest: int, highest: int) -> None:
    if type(value) is not int or not lowest <= value <= highest:
        raise InvalidInputError(
            f"{name} = {value!r:.80}: must be a whole number from {lowest} to {highest}"
        )


def _require_text(name: str, value: object, *, empty: bool) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not (value or empty):
        least = 0 if empty else 1
        raise InvalidInputError(
            f"{name} = {value!r:.80}: must be text of {least} to {MAX_TEXT} characters"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"{name} = {value!r:.80}: not valid Unicode") from None


def _sequence(values: object) -> tuple[Any, ...] | None:
    return tuple(values) if isinstance(values, (tuple, list)) else None


def _milliseconds(name: str, value: object) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and 0 < value <= MAX_LATENCY_MS:  # type: ignore[operator]  # NaN fails it
        return float(value)  # type: ignore[arg-type]
    raise InvalidInputError(
        f"{name} = {value!r:.80}: must be a finite number of milliseconds above 0 and at most "
        f"{MAX_LATENCY_MS:g}"
    )
