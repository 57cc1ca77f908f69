"""One message of Dynamo's Forward Pass Metrics (FPM), version 1 or its older form.

    {"version": 1, "worker_id": "...", "dp_rank": 0, "counter_id": 7, "wall_time": 0.0123,
     "scheduled_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": 512, ...},
     "queued_requests": {...}}

Times are seconds. Absent counts are 0, as in the schema; an absent variance is not known. Two
lists, one entry a request, may say what sums cannot: ``extend_lengths`` and ``past_kv_lengths``.
The older form has neither ``version`` nor ``counter_id`` (ai-dynamo/dynamo,
`common/forward_pass_metrics.py`; lists: ai-dynamo/aisimulate pull request 280).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aisim_v41.errors import SchemaError
from aisim_v41.forwards.records import StepTotals
from aisim_v41.io.fields import entries, mapping, number, text, whole
from aisim_v41.plan.request import Request

VERSION = 1
SCHEDULED, QUEUED = "scheduled_requests", "queued_requests"
PREFILLS, PREFILL_TOKENS = "num_prefill_requests", "sum_prefill_tokens"
PREFILL_KV, PROMPT_VARIANCE = "sum_prefill_kv_tokens", "var_prefill_length"
DECODES, DECODE_KV = "num_decode_requests", "sum_decode_kv_tokens"
DECODE_VARIANCE = "var_decode_kv_tokens"
NEW_LENGTHS, PAST_LENGTHS = "extend_lengths", "past_kv_lengths"
_VARIANCE_ERROR = 1e-6
"""Relative error of a variance that an emitter sums up as it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one scheduler ran in one iteration, as it says.

    Attributes:
        prefills, prefill_tokens, prefill_kv: requests, new tokens, tokens before them.
        prompt_variance: population variance of whole prompts [tokens²]; None: not known.
        decodes, decode_kv: requests and their contexts, as the emitter counts those.
        decode_variance: population variance of the contexts [tokens²]; None: not known.
        lengths: (new, past) of every request, or None.
    """

    prefills: int = 0
    prefill_tokens: int = 0
    prefill_kv: int = 0
    prompt_variance: float | None = None
    decodes: int = 0
    decode_kv: int = 0
    decode_variance: float | None = None
    lengths: tuple[tuple[int, int], ...] | None = None

    @property
    def requests(self) -> int:
        """Requests of both kinds."""
        return self.prefills + self.decodes

    @property
    def size(self) -> tuple[int, int]:
        """Rows computed and tokens before them: which of several loads is the fullest."""
        return self.prefill_tokens + self.decodes, self.prefill_kv + self.decode_kv

    @property
    def has_variance(self) -> bool:
        """Whether a variance other than 0 is reported."""
        return bool(self.prompt_variance or self.decode_variance)

    @property
    def contradicts_variance(self) -> bool:
        """Whether contexts are reported as equal that cannot be: so nothing was computed."""
        return (
            self.decodes > 1 and self.decode_variance == 0 and bool(self.decode_kv % self.decodes)
        )

    def without_variances(self) -> Load:
        """The same, variances not known."""
        return replace(self, prompt_variance=None, decode_variance=None)

    def text(self) -> str:
        """For messages: both kinds and their tokens."""
        parts = []
        if self.prefills:
            parts.append(
                f"{self.prefills} prefills of {self.prefill_tokens} tokens after {self.prefill_kv}"
            )
        if self.decodes:
            parts.append(f"{self.decodes} decodes over {self.decode_kv}")
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True, slots=True)
class Message:
    """One message: who, which iteration, how long [s], and the load."""

    worker: str
    rank: int
    counter: int | None
    seconds: float
    load: Load

    @property
    def heartbeat(self) -> bool:
        """An idle scheduler saying that it lives: no time and no requests."""
        return self.seconds == 0 and not self.load.requests


def parse_message(row: Mapping[str, Any]) -> Message:
    """A message out of a parsed line.

    Raises:
        SchemaError: not FPM, of another version, or a field of a wrong type.
    """
    if SCHEDULED not in row:
        raise SchemaError(f"no {SCHEDULED}: not a forward pass message")
    version = row.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise SchemaError(f"version = {version!r:.20}: only version {VERSION} is known")
    counter = row.get("counter_id")
    worker = row.get("worker_id")
    return Message(
        worker=str(worker) if type(worker) is int else text(row, "worker_id", default=""),
        rank=whole(row, "dp_rank", default=0),
        counter=None if counter is None else whole(row, "counter_id"),
        seconds=number(row, "wall_time"),
        load=parse_load(mapping(row, SCHEDULED)),
    )


def parse_load(scheduled: Mapping[str, Any]) -> Load:
    """The load out of ``scheduled_requests``.

    Raises:
        SchemaError: a field of a wrong type.
    """
    new, past = entries(scheduled, NEW_LENGTHS), entries(scheduled, PAST_LENGTHS)
    if len(new) != len(past):
        raise SchemaError(
            f"{NEW_LENGTHS} has {len(new)} entries and {PAST_LENGTHS} has {len(past)}: one each a "
            "request"
        )
    for name, values, least in ((NEW_LENGTHS, new, 1), (PAST_LENGTHS, past, 0)):
        for value in values:
            whole({name: value}, name, least=least)
    return Load(
        prefills=whole(scheduled, PREFILLS, default=0),
        prefill_tokens=whole(scheduled, PREFILL_TOKENS, default=0),
        prefill_kv=whole(scheduled, PREFILL_KV, default=0),
        prompt_variance=_variance(scheduled, PROMPT_VARIANCE),
        decodes=whole(scheduled, DECODES, default=0),
        decode_kv=whole(scheduled, DECODE_KV, default=0),
        decode_variance=_variance(scheduled, DECODE_VARIANCE),
        lengths=tuple(zip(new, past, strict=True)) if new else None,
    )


def step_of(
    load: Load, *, kv_includes_current: bool
) -> tuple[tuple[Request, ...] | StepTotals, str]:
    """The step that a load stands for, as far as it is determined, and a note.

    Args:
        load: As the emitter counts.
        kv_includes_current: Whether contexts of decodes count the token being decoded.

    Raises:
        SchemaError: a load that no requests can have.
        InvalidInputError: sums or variances that no requests can have.
    """
    if not load.requests:
        raise SchemaError("a time without requests")
    counted = 1 if kv_includes_current else 0
    least = load.decodes * (1 + counted)
    if load.decode_kv < least:
        raise SchemaError(
            f"{DECODE_KV} = {load.decode_kv}: below {least}, as each of {load.decodes} decodes "
            "follows a prompt" + (" and counts the current token" if counted else "")
        )
    totals = StepTotals(
        prefill_requests=load.prefills,
        prefill_tokens=load.prefill_tokens,
        prefill_kv_tokens=load.prefill_kv,
        prefill_length_variance=load.prompt_variance if load.prefills else None,
        decode_requests=load.decodes,
        decode_kv_tokens=load.decode_kv - load.decodes * counted,
        decode_kv_variance=load.decode_variance if load.decodes else None,
    )
    if load.lengths is None:
        return totals.determined() or totals, ""
    prefill, decode = _split(load, load.lengths)
    if prefill is None or decode is None:
        known = totals.determined()
        return known or totals, "" if known else (
            "lengths do not say which requests decode: read as sums"
        )
    return grouped(
        [Request(new_tokens=new, prefix_tokens=past) for new, past in prefill]
        + [Request(new_tokens=1, prefix_tokens=past - counted, kind="decode") for past in decode]
    ), ""


def _split(
    load: Load, lengths: tuple[tuple[int, int], ...]
) -> tuple[list[tuple[int, int]] | None, list[int] | None]:
    """(new, past) of prefills and past of decodes; None where lengths fit in several ways.

    Raises:
        SchemaError: the lengths are not those of the sums.
    """
    if len(lengths) != load.requests:
        raise SchemaError(f"{len(lengths)} lengths of {load.requests} requests")
    single = [pair for pair in lengths if pair[0] == 1]
    if len(single) < load.decodes:
        raise SchemaError(
            f"{load.decodes} decodes, but only {len(single)} requests with one new token: steps "
            "that verify drafts are not described by FPM"
        )
    if not load.prefills:
        prefill, decode = [], [past for _, past in lengths]
    elif not load.decodes:
        prefill, decode = list(lengths), []
    elif len(single) == load.decodes:
        prefill = [pair for pair in lengths if pair[0] > 1]
        decode = [past for _, past in single]
    else:
        return None, None
    _same(PREFILL_TOKENS, load.prefill_tokens, sum(new for new, _ in prefill))
    _same(PREFILL_KV, load.prefill_kv, sum(past for _, past in prefill))
    _same(DECODE_KV, load.decode_kv, sum(decode))
    if decode and load.decode_variance is not None:
        found = population_variance((past, 1) for past in decode)
        if not same_variance(load.decode_variance, found):
            raise SchemaError(
                f"{DECODE_VARIANCE} = {load.decode_variance:g}, but the lengths have {found:g}"
            )
    return prefill, decode


def population_variance(groups: Iterable[tuple[int, int]]) -> float:
    """Population variance of whole numbers, as (number, how often), exact until the division."""
    groups = list(groups)
    count = sum(times for _, times in groups)
    total = sum(number * times for number, times in groups)
    squares = sum(number**2 * times for number, times in groups)
    return (count * squares - total**2) / count**2 if count else 0.0


def same_variance(said: float, found: float) -> bool:
    """Whether a variance that an emitter summed up as it went is this one."""
    return math.isclose(said, found, rel_tol=_VARIANCE_ERROR, abs_tol=_VARIANCE_ERROR)


def grouped(requests: list[Request]) -> tuple[Request, ...]:
    """Equal requests as one with their number, in the order of their first."""
    return tuple(
        replace(request, count=times, packed=b"") for request, times in Counter(requests).items()
    )


def _same(name: str, said: int, found: int) -> None:
    if said != found:
        raise SchemaError(f"{name} = {said}, but the lengths sum to {found}")


def _variance(scheduled: Mapping[str, Any], name: str) -> float | None:
    return None if scheduled.get(name) is None else number(scheduled, name)
