"""Driving an engine: controlled batches, and what was executed of them.

A prefill's time is that until its one token arrives. A decode's is the time between tokens while
every stream of the batch runs: after the last has begun and before the first has ended. Times hold
the transport, so their timer is ``http``; events of the engine's scheduler are the better ones
(`collectors.fpm.events`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

from collectors.errors import InputError
from collectors.fpm.engine import CHUNK_FACTS, Engine, Stream
from collectors.fpm.points import DECODE, DECODE_STEPS, Point

OK, FAILED, UNKNOWN, SEVERAL = STATUSES = ("ok", "failed", "unknown_shape", "several_forwards")
"""``unknown_shape``: the engine does not tell what was cached; ``several_forwards``: the batch was
cut into chunks, whose times are not apart."""
EDGE_STEPS = 2
"""Steps after the last stream has begun, and before the first ends, that are left out."""


@dataclass(frozen=True)
class Sample:
    """One batch as it was executed.

    Attributes:
        status: one of `STATUSES`.
        requests: executed ones: new tokens, prefix tokens and kind of each.
        seconds: of one forward; 0 where it failed.
        steps: forwards behind the time.
        error: what went wrong, or why the shape is not known.
    """

    status: str
    requests: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    steps: int = 0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"status": self.status, "requests": list(self.requests), "seconds": self.seconds,
                "steps": self.steps, "error": self.error}  # fmt: skip


class Prompts:
    """Prompts of exact lengths out of one text; none begins like another.

    Args:
        tokens: of a real text.

    Raises:
        InputError: fewer than two tokens.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        if len(tokens) < _LEAST_TOKENS:
            raise InputError(f"a text of {len(tokens)} tokens: at least {_LEAST_TOKENS} are needed")
        self._tokens, self._next = list(tokens), 0

    def take(self, length: int) -> list[int]:
        """The next prompt; the text is read on, and from its start where it ends."""
        size = len(self._tokens)
        start = self._next
        self._next = (self._next + length + 1) % size
        return [self._tokens[(start + place) % size] for place in range(length)]


_LEAST_TOKENS = 64


def measure(engine: Engine, point: Point, prompts: Prompts, facts: dict[str, Any]) -> Sample:
    """Ask for a point once; every failure is a status."""
    if point.kind == DECODE:
        return _decode(engine, point, prompts)
    return _prefill(engine, point, prompts, facts)


def _prefill(engine: Engine, point: Point, prompts: Prompts, facts: dict[str, Any]) -> Sample:
    asked = []
    for _ in range(point.requests):
        past = prompts.take(point.prefix_tokens) if point.prefix_tokens else []
        if past:
            primed = engine.complete(past, 1)
            if primed.error:
                return Sample(FAILED, error=f"sending the prefix: {primed.error}")
        asked.append([*past, *prompts.take(point.new_tokens)])
    streams = _at_once(engine, asked, 1)
    broken = _broken(streams)
    if broken:
        return Sample(FAILED, error=broken)
    if any(stream.cached_tokens is None for stream in streams):
        return Sample(UNKNOWN, error="the engine does not report cached tokens: SGLang needs "
                      "--enable-cache-report, vLLM --enable-prompt-tokens-details")  # fmt: skip
    shapes = []
    for tokens, stream in zip(asked, streams):  # noqa: B905  (Python 3.10)
        total = len(tokens) if stream.prompt_tokens is None else stream.prompt_tokens
        cached = min(stream.cached_tokens or 0, total - 1)
        shapes.append({"new_tokens": total - cached, "prefix_tokens": cached, "kind": "prefill"})
    seconds = max(s.arrivals_s[0] for s in streams) - min(s.sent_s for s in streams)
    chunk = next((facts[name] for name in CHUNK_FACTS if isinstance(facts.get(name), int)), 0)
    computed = sum(shape["new_tokens"] for shape in shapes)
    if chunk > 0 and computed > chunk:
        return Sample(SEVERAL, tuple(shapes), seconds, 0,
                      f"{computed} tokens in chunks of {chunk}")  # fmt: skip
    if point.requests > 1:
        return Sample(SEVERAL, tuple(shapes), seconds, 0,
                      "whether requests ran in one forward is not told over HTTP")  # fmt: skip
    return Sample(OK, tuple(shapes), seconds, 1)


def _decode(engine: Engine, point: Point, prompts: Prompts) -> Sample:
    asked = [prompts.take(point.prefix_tokens) for _ in range(point.requests)]
    length = DECODE_STEPS + 2 * EDGE_STEPS + 4 * point.requests
    streams = _at_once(engine, asked, length)
    broken = _broken(streams)
    if broken:
        return Sample(FAILED, error=broken)
    for stream in streams:
        told = stream.completion_tokens
        if told is not None and told != len(stream.arrivals_s):
            return Sample(UNKNOWN, error=f"{told} tokens in {len(stream.arrivals_s)} pieces: more "
                          "than one a step, or pieces were joined")  # fmt: skip
    begin = max(stream.arrivals_s[0] for stream in streams)
    end = min(stream.arrivals_s[-1] for stream in streams)
    gaps: list[float] = []
    pasts: list[int] = []
    for tokens, stream in zip(asked, streams):  # noqa: B905
        inside = [place for place, at in enumerate(stream.arrivals_s) if begin <= at <= end]
        kept = inside[EDGE_STEPS : len(inside) - EDGE_STEPS]
        gaps += [stream.arrivals_s[place] - stream.arrivals_s[place - 1] for place in kept[1:]]
        if kept:
            pasts.append(len(tokens) + (kept[0] + kept[-1]) // 2)
    if len(pasts) < point.requests or not gaps:
        return Sample(UNKNOWN, error="the streams did not all run at once")
    shapes = tuple({"new_tokens": 1, "prefix_tokens": past, "kind": "decode"} for past in pasts)
    return Sample(OK, shapes, median(gaps), len(gaps) // point.requests)


def _at_once(engine: Engine, asked: Sequence[Sequence[int]], new_tokens: int) -> list[Stream]:
    with ThreadPoolExecutor(max_workers=len(asked)) as pool:
        return list(pool.map(lambda tokens: engine.complete(tokens, new_tokens), asked))


def _broken(streams: Sequence[Stream]) -> str:
    return next((stream.error for stream in streams if stream.error), "")
