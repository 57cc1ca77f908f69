"""Which positions a step computes, and what each may see: the engines' rules, spelled out.

Sources: runtime-semantics §1 (decoder replay), §2 (encoder replay), §3 (page rounding), and the
docstrings of `Request` and `RuntimePolicy`. Nothing here is a closed form: rows are lists of
positions, and a row is kept or not by a test on its position.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """One computed row: its position, and the oldest position whose window KV it may read."""

    position: int
    floor: int


@dataclass(frozen=True)
class Sequence:
    """What one request computes in one forward (of ``count`` identical ones)."""

    kind: str
    count: int
    before: int
    """Positions computed before the step: the part of the prefix that is used."""
    end: int
    queries: tuple[Query, ...]
    """All rows, replayed ones included, with the window floor of layers before the cut."""
    late_queries: tuple[Query, ...]
    """Rows kept after the last KV owner, with the floor they have there."""
    late_floor: int
    """The floor of the last kept row, also where no row is kept."""
    prompt_end: int
    logprobs: bool
    images: frozenset[int]
    """Positions of image rows."""
    is_replay: bool
    """A forward that only rebuilds window KV (separate encoder replay)."""


@dataclass(frozen=True)
class Forward:
    """One forward of the engine, run ``times`` times."""

    sequences: tuple[Sequence, ...]
    times: int


@dataclass(frozen=True)
class _Extend:
    """A request after its hit was cut and its replay was decided; the tail comes next."""

    kind: str
    count: int
    before: int
    end: int
    start: int
    """First computed position: ``before``, or earlier by the replayed rows."""
    floor: int
    prompt_end: int
    logprobs: bool = False
    is_replay: bool = False
    images: frozenset[int] = frozenset()


def forwards(model, policy, requests) -> list[Forward]:
    """The forwards of a step. Only separate encoder replay takes more than one (§2.1)."""
    replays, main = [], []
    for request in requests:
        used = _used_prefix(request, policy)
        start, floor = used, request.window_start
        if used and _window_must_be_rebuilt(request, policy, used):
            floor = max(0, used - policy.encoder_replay_rows)
            if policy.encoder_replay != "separate":
                start = floor
            elif request.count:
                alone = _Extend("prefill", 1, used, used, floor, floor, used, is_replay=True)
                replays.append((alone, request.count))
        main.append(
            _Extend(
                kind=request.kind,
                count=request.count,
                before=used,
                end=request.prefix_tokens + request.new_tokens,
                start=start,
                floor=floor,
                prompt_end=_prompt_end(request),
                logprobs=request.prompt_logprobs,
                images=frozenset(range(used, used + request.image_tokens)),
            )
        )
    passes = [Forward(_sequences(model, policy, [alone]), times) for alone, times in replays]
    return [*passes, Forward(_sequences(model, policy, main), 1)]


def _used_prefix(request, policy) -> int:
    """The prefix after page rounding (§2.5) and after short hits were dropped (§2.2)."""
    if request.window == "running":
        return request.prefix_tokens
    used = 0
    while used + policy.hit_page_tokens <= request.prefix_tokens:
        used += policy.hit_page_tokens
    if _window_must_be_rebuilt(request, policy, used) and used <= policy.hit_min_tokens:
        return 0
    return used


def _window_must_be_rebuilt(request, policy, used: int) -> bool:
    """A hit without window KV, or with a snapshot that lies too near the prompt's end (§2.3)."""
    if request.window == "snapshot":
        return used > _prompt_end(request) - policy.encoder_replay_rows
    return request.window == "missing"


def _prompt_end(request) -> int:
    end = request.prefix_tokens + request.new_tokens
    return end if request.prompt_tokens is None else request.prompt_tokens


def _sequences(model, policy, extends: list[_Extend]) -> tuple[Sequence, ...]:
    replay = _step_replays(model, policy, [e for e in extends if e.count and e.end > e.start])
    return tuple(_sequence(model, policy, extend, replay) for extend in extends)


def _step_replays(model, policy, running: list[_Extend]) -> bool:
    """What is decided for the whole step: whether any request can be cut in it."""
    if not policy.decoder_replay or model.boundary is None:
        return False
    if all(extend.kind != "prefill" for extend in running):
        return False
    if policy.decode_rows == "no_replay" and any(e.kind != "prefill" for e in running):
        return False
    if policy.replay_images == "no_replay" and any(e.images for e in running):
        return False
    new_tokens = sum(extend.count * (extend.end - extend.before) for extend in running)
    if policy.replay_exact and new_tokens < policy.replay_exact_min_tokens:
        return False
    return new_tokens >= policy.replay_min_tokens


def _sequence(model, policy, extend: _Extend, replay: bool) -> Sequence:
    plain = tuple(Query(p, extend.floor) for p in range(extend.start, extend.end))
    late, late_floor = plain, extend.floor
    if extend.kind != "prefill" and policy.decode_rows != "as_extend":
        replay = False
    if extend.logprobs and policy.prompt_logprobs == "all_rows":
        replay = False  # such a request runs every row as if there were no replay (§1.5)
    if extend.images and policy.replay_images == "all_rows":
        replay = False  # likewise (§1.5)
    if replay:
        late, late_floor = _late(model, policy, extend)
    return Sequence(
        kind=extend.kind,
        count=extend.count,
        before=extend.before,
        end=extend.end,
        queries=plain,
        late_queries=late,
        late_floor=late_floor,
        prompt_end=extend.prompt_end,
        logprobs=extend.logprobs,
        images=extend.images,
        is_replay=extend.is_replay,
    )


def tail_rows(model, policy) -> int:
    """Rows that the tail holds: the budget, or the halo that makes the last row exact (§1.5)."""
    if not policy.replay_exact:
        return policy.replay_tail_rows
    rows = 1
    for layer in model.layers:
        if layer.index > model.boundary:
            rows += model.attention.window - 1
    while rows % policy.replay_exact_multiple:
        rows += 1
    return rows


def _late(model, policy, extend: _Extend) -> tuple[tuple[Query, ...], int]:
    """Rows kept after the last KV owner and their floors (§1.1, §1.3, §1.5)."""
    anchor = extend.end if policy.replay_anchor == "step_end" else extend.prompt_end
    tail_start = max(extend.start, anchor - tail_rows(model, policy))
    rows = range(extend.start, extend.end)
    tail = {p for p in rows if p >= tail_start}
    was_cut = len(tail) < len(rows)

    if was_cut or policy.replay_floor == "tail_start":
        floor = tail_start
    elif policy.replay_floor == "window_start":
        floor = extend.floor
    else:
        floor = max(extend.floor, extend.prompt_end - tail_rows(model, policy))

    if extend.logprobs:  # "two_floors": earlier rows see the extend, the tail sees itself
        return tuple(Query(p, floor if p in tail else extend.start) for p in rows), floor
    return tuple(Query(p, floor) for p in rows if p in tail), floor
