"""Records and estimates as Dynamo Forward Pass Metrics, for tools that read those.

What FPM has no field for is left out of a line (windows, prompts that go on, single samples) or
leaves out the record (draft rows, failures), which is then listed.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.io import forward_pass as fpm
from aisim_v41.io.fields import require_flag
from aisim_v41.io.imported import Skipped
from aisim_v41.plan.request import Request
from aisim_v41.units import MILLISECOND
from aisim_v41.writing import replace_file

MAX_LENGTHS = 1 << 14
"""Most requests of a step whose lengths are listed; of more only sums are written."""

_NO_PROMPT = "a decode that follows no prompt: readers of FPM refuse it"
_NOTHING_QUEUED = {
    fpm.PREFILLS: 0,
    fpm.PREFILL_TOKENS: 0,
    fpm.PROMPT_VARIANCE: 0.0,
    fpm.DECODES: 0,
    fpm.DECODE_KV: 0,
    fpm.DECODE_VARIANCE: 0.0,
}


class _Plan(Protocol):
    @property
    def requests(self) -> Sequence[Request]: ...


class Answer(Protocol):
    """What an estimate has: a plan and its time."""

    @property
    def plan(self) -> _Plan:
        """What was asked."""

    @property
    def latency_s(self) -> float:
        """The time [s]."""


def write_dynamo_fpm(
    steps: Iterable[StepRecord | Answer],
    path: str | os.PathLike[str],
    *,
    kv_includes_current: bool = False,
    worker: str = "aisim_v41",
) -> tuple[Skipped, ...]:
    """Write one message a step; what FPM cannot say is handed back with its reason.

    `read_dynamo_fpm` gives the same steps, times and runs again, and orders where they grow.

    Args:
        steps: Records, or estimates.
        path: The file; it is replaced as a whole.
        kv_includes_current: Whether contexts of decodes count the token being decoded.
        worker: ``worker_id`` of estimates; records have that of their run.

    Raises:
        InvalidInputError: something that is neither record nor estimate, an argument that has no
            such value, or a file that cannot be written; what was there is unchanged.
    """
    require_flag("kv_includes_current", kv_includes_current)
    left_out: list[Skipped] = []
    found: list[tuple[str, int | None, float, dict[str, Any]]] = []
    for place, step in enumerate(steps):
        run, order, latency_s, what = _read(step, place, worker)
        reason = _unsayable(step, what, latency_s)
        if reason:
            left_out.append(Skipped(f"step {place}", reason))
        else:
            found.append((run, order, latency_s, _scheduled(what, kv_includes_current)))
    counters = _counters([(run, order) for run, order, _, _ in found])
    lines = [
        json.dumps(_message(run, counter, seconds, scheduled), separators=(",", ":"))
        for counter, (run, _, seconds, scheduled) in zip(counters, found, strict=True)
    ]
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise InvalidInputError(f"{target}: cannot be written ({error})") from None
    return tuple(left_out)


def _read(
    step: Any, place: int, worker: str
) -> tuple[str, int | None, float, tuple[Request, ...] | StepTotals]:
    """Run, order, seconds and requests of a step; requests without a new token do nothing."""
    if isinstance(step, StepRecord):
        run, order, seconds = step.run, step.order, (step.latency_ms or 0.0) * MILLISECOND
        if isinstance(step.step, StepTotals):
            return run, order, seconds, step.step
        requests = step.step
    else:
        try:
            run, order, seconds = worker, place, float(step.latency_s)
            requests = tuple(step.plan.requests)
        except (AttributeError, TypeError, ValueError):
            raise InvalidInputError(
                f"steps[{place}] = {step!r:.60}: must be a StepRecord, or an estimate with plan "
                "and latency_s"
            ) from None
    return run, order, seconds, tuple(r for r in requests if r.count and r.new_tokens)


def _unsayable(step: Any, what: tuple[Request, ...] | StepTotals, latency_s: float) -> str:
    """Why a step cannot be a message; nothing where it can."""
    if isinstance(step, StepRecord) and step.latency_ms is None:
        return f"no time: {step.status}"
    if not 0 < latency_s < math.inf:
        return f"no time: {latency_s:g} s"
    if isinstance(what, StepTotals):
        empty = what.decode_kv_tokens < what.decode_requests
        return _NO_PROMPT if empty else ""
    if any(request.kind == "decode" and not request.prefix_tokens for request in what):
        return _NO_PROMPT
    if any(request.kind == "verify" for request in what):
        return "rows that verify drafts: FPM describes none"
    if any(request.image_tokens for request in what):
        return "rows of images: FPM describes none"
    if any(request.rank is not None for request in what):
        return "requests on ranks of their own: a message is that of one rank"
    return "" if what else "no request with new tokens"


def _scheduled(requests: tuple[Request, ...] | StepTotals, counted: bool) -> dict[str, Any]:
    """``scheduled_requests`` of a step."""
    if isinstance(requests, StepTotals):
        return _sums(
            (requests.prefill_requests, requests.prefill_tokens, requests.prefill_kv_tokens),
            requests.prefill_length_variance,
            (
                requests.decode_requests,
                requests.decode_kv_tokens + requests.decode_requests * counted,
            ),
            requests.decode_kv_variance,
        )
    prefills = [request for request in requests if request.kind == "prefill"]
    decodes = [request for request in requests if request.kind == "decode"]
    scheduled = _sums(
        (
            sum(r.count for r in prefills),
            sum(r.count * r.new_tokens for r in prefills),
            sum(r.count * r.prefix_tokens for r in prefills),
        ),
        fpm.population_variance((r.prompt_tokens or r.end, r.count) for r in prefills),
        (
            sum(r.count for r in decodes),
            sum(r.count * (r.prefix_tokens + counted) for r in decodes),
        ),
        fpm.population_variance((r.prefix_tokens, r.count) for r in decodes),
    )
    if sum(request.count for request in requests) <= MAX_LENGTHS:
        pairs = [
            (r.new_tokens, r.prefix_tokens + (counted and r.kind == "decode"))
            for r in requests
            for _ in range(r.count)
        ]
        scheduled[fpm.NEW_LENGTHS] = [new for new, _ in pairs]
        scheduled[fpm.PAST_LENGTHS] = [past for _, past in pairs]
    return scheduled


def _sums(
    prefill: tuple[int, int, int],
    prompt_variance: float | None,
    decode: tuple[int, int],
    decode_variance: float | None,
) -> dict[str, Any]:
    scheduled: dict[str, Any] = {
        fpm.PREFILLS: prefill[0],
        fpm.PREFILL_TOKENS: prefill[1],
        fpm.PROMPT_VARIANCE: prompt_variance,
        fpm.PREFILL_KV: prefill[2],
        fpm.DECODES: decode[0],
        fpm.DECODE_KV: decode[1],
        fpm.DECODE_VARIANCE: decode_variance,
    }
    return {name: value for name, value in scheduled.items() if value is not None}


def _message(run: str, counter: int, seconds: float, scheduled: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": fpm.VERSION,
        "worker_id": run,
        "dp_rank": 0,
        "counter_id": counter,
        "wall_time": seconds,
        fpm.SCHEDULED: scheduled,
        fpm.QUEUED: _NOTHING_QUEUED,
    }


def _counters(steps: list[tuple[str, int | None]]) -> list[int]:
    """A counter that grows within each run: its orders where they do, else places."""
    orders: defaultdict[str, list[int | None]] = defaultdict(list)
    for run, order in steps:
        orders[run].append(order)
    growing = {
        run: all(a is not None and b is not None and a < b for a, b in pairwise(found))
        for run, found in orders.items()
    }
    position: defaultdict[str, int] = defaultdict(int)
    counters = []
    for run, order in steps:
        counters.append(order if growing[run] and order is not None else position[run])
        position[run] += 1
    return counters
