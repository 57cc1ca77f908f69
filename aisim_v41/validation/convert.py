"""From a measured case to steps that must have run inside it.

What bounds what:

- a step is at least the bound of its requests; a step whose batch is not certain (prompts of other
  requests stall it, live batch not stated) at least that of one request;
- a prompt needs its chunks one after the other, so a time to first token is at least their sum,
  with any queue;
- a token of a request needs a step that holds this request's rows, which yields at most the stated
  accept length (or draft + 1 tokens where it is not stated);
- a system that yields R tokens a second in steps of at most c requests has a step of c requests at
  least every c x accept / R seconds, because the time of a step grows less than in proportion to
  its requests; its prompts must fit too.
"""

from __future__ import annotations

from collections.abc import Iterator

from aisim_v41.plan.request import Kind, Request, Window
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.cases import Case, StepRequest
from aisim_v41.validation.conversion import Conversion, Part, Reason, Unconvertible
from aisim_v41.validation.groups import SHARED_FUSED, UNNAMED, WITHOUT_WORK, group_of
from aisim_v41.validation.readings import (
    conversion,
    is_rate,
    need,
    rows_per_step,
    tokens_per_step,
    without_lengths,
)
from aisim_v41.validation.setting import ENGINES, has_hardware, machine

MEAN_LENGTHS = ("lengths are means", "mean context of the trace", "medians of an agentic trace")
TOTAL_TOKENS = ("total = input + output tokens", "total tokens a second")
SHARED_EXPERT_FUSED = "shared one fused in"
ONE_RANK = "one rank's EP4 share"
_KERNELS = "kernel_ms:"


def convert(case: Case, *, certain: bool = True) -> Conversion | Reason:
    """A case as bounds, or the reason why it has none.

    Args:
        case: the case.
        certain: refuse groups of kernels of which nothing is certain: they have no bound, but
            a time that can be predicted.
    """
    try:
        return _convert(case, certain)
    except Unconvertible as answer:
        return answer.reason


def _convert(case: Case, certain: bool) -> Conversion:
    kind, quantity = case.workload.kind, case.quantity
    if kind in ("memory", "capacity"):
        raise Unconvertible(Reason.NOT_A_TIME)
    if kind == "ratio":
        raise Unconvertible(Reason.RATIO)
    if case.measured is None:
        raise Unconvertible(Reason.NOT_MEASURED)
    if case.engine not in ENGINES:
        raise Unconvertible(Reason.UNKNOWN_ENGINE)
    if not has_hardware(case.gpu):
        raise Unconvertible(Reason.NO_HARDWARE_FILE)
    measured = _fastest_reading(case, case.measured)
    if kind == "step":
        return _step(case, measured, certain)
    if kind == "chunks":
        return _rate_of_prompts(case, measured) if is_rate(quantity) else _prompt(case, measured)
    if quantity == "ttft_ms":
        return _prompt(case, measured)
    if quantity == "tpot_ms":
        return _token(case, measured)
    return _throughput(case, measured)


def _fastest_reading(case: Case, measured: float) -> float:
    """The value, or the end of its interval that a floor finds harder to stay below."""
    values: tuple[float, ...] = (measured,) if case.bounds is None else (measured, *case.bounds)
    return max(values) if is_rate(case.quantity) else min(values)


# --- steps ------------------------------------------------------------------------------------


def _step(case: Case, measured: float, certain: bool) -> Conversion:
    group = case.quantity.removeprefix(_KERNELS) if case.quantity.startswith(_KERNELS) else ""
    for names, reason in (
        (UNNAMED, Reason.KERNELS_NOT_NAMED),
        (WITHOUT_WORK, Reason.NOTHING_CERTAIN),
    ):
        if group in names and (certain or names is not WITHOUT_WORK):
            raise Unconvertible(reason)
    try:
        kernels = group_of(case.source, group) if group else None
    except KeyError:
        raise Unconvertible(Reason.KERNELS_NOT_NAMED) from None
    assumptions = []
    whole = tuple(_step_request(case, request) for request in case.workload.step)
    readings = {"as stated": whole}
    if any(request.prefix_tokens is None for request in case.workload.step):
        readings["empty context"] = tuple(
            _step_request(case, request, prefix=0) for request in case.workload.step
        )
        assumptions.append("context not stated: the floor has none")
    if any(request.count is None for request in case.workload.step) or _batch_is_open(case):
        readings["one request"] = tuple(
            _step_request(case, request, count=1) for request in case.workload.step
        )
        assumptions.append("live batch not certain: the floor is a step of one request")
    meaning = f"one step, {group} kernels" if group else "one step"
    if is_rate(case.quantity):
        tokens = sum(request.count for request in whole) * tokens_per_step(case)
        measured = tokens / measured / MILLISECOND
        meaning = f"a step that yields at most {tokens:g} tokens"
    if case.says(ONE_RANK) or (group and (case.parallel.ep or 1) > 1):
        assumptions.append("the rank that was timed has at least the mean share of the experts")
    fused = group == "moe_layer" and case.says(SHARED_EXPERT_FUSED)
    return conversion(
        case, measured, meaning, {name: (Part(requests),) for name, requests in readings.items()},
        group=SHARED_FUSED if fused else kernels,
        assumptions=assumptions,
    )  # fmt: skip


def _batch_is_open(case: Case) -> bool:
    """Whether prompts of other requests share the time, so that fewer may decode at once."""
    return bool({"prefill_stall", "queue"} & set(case.includes))


def _step_request(
    case: Case, request: StepRequest, *, prefix: int | None = None, count: int | None = None
) -> Request:
    stated = request.prefix_tokens
    if stated is None:
        stated = int(case.take.get("prefix_tokens", 0))
    window: Window = "running"
    if request.kind == "prefill" and stated and case.policy.encoder_replay:
        window = "missing"
    return Request(
        new_tokens=request.new_tokens,
        prefix_tokens=stated if prefix is None else prefix,
        kind=request.kind,
        count=(request.count or 1) if count is None else count,
        window=window,
    )


# --- prompts ----------------------------------------------------------------------------------


def _prompt(case: Case, measured: float) -> Conversion:
    """Time to first token: the request's own chunks."""
    return conversion(
        case, measured, "the chunks of one prompt", _chunkings(case, prompts=1),
        assumptions=_chunk_note(case),
    )  # fmt: skip


def _rate_of_prompts(case: Case, measured: float) -> Conversion:
    """Prompt tokens a second over all requests, as the time of one prompt."""
    new, prompts = need(case, case.workload.new_tokens), case.workload.requests or 1
    meaning = f"one of {prompts} prompts" if prompts > 1 else "the chunks of one prompt"
    return conversion(
        case, new / measured / MILLISECOND, meaning, _chunkings(case, prompts=prompts),
        assumptions=_chunk_note(case),
    )  # fmt: skip


def _chunk_note(case: Case) -> list[str]:
    if _stated_chunk(case) is None:
        return ["chunk size not stated: the floor runs what is in flight in one step"]
    return []


def _stated_chunk(case: Case) -> int | None:
    return case.workload.chunk_tokens or case.policy.chunk_tokens


def _chunkings(case: Case, *, prompts: int) -> dict[str, tuple[Part, ...]]:
    """Readings of how one of ``prompts`` prompts is cut: name -> its steps, or shares of them.

    Several prompts may share steps, each of at most a chunk. Fewest weights are read, fewest
    cached rows are read again and fewest tails are kept when chunks are full and hold one prompt
    each; a last chunk that is not full may be shared, so it is left out where there are others.
    """
    stated = _stated_chunk(case)
    if stated is not None:
        return {"as stated": _prompt_parts(case, stated, prompts)}
    in_one = {"one step": _prompt_parts(case, None, prompts)}
    taken = case.take.get("chunk_tokens")
    if taken is None:
        return in_one
    return {f"chunk {taken}": _prompt_parts(case, int(taken), prompts)} | in_one


def _prompt_parts(case: Case, chunk: int | None, prompts: int) -> tuple[Part, ...]:
    new, prefix = need(case, case.workload.new_tokens), need(case, case.workload.prefix_tokens)
    window: Window = "missing" if case.policy.encoder_replay else "cached"
    if prefix == 0:
        window = "running"
    if chunk is None or (prompts > 1 and new <= chunk):
        together = prompts if chunk is None else min(prompts, chunk // new)
        shared = Request(new_tokens=new, prefix_tokens=prefix, window=window, count=together)
        return (Part((shared,), 1 / together),)
    counted = new if prompts == 1 else new // chunk * chunk
    return tuple(
        Part((request,)) for request in _chunks(counted, prefix, new + prefix, chunk, window)
    )


def _chunks(new: int, prefix: int, prompt: int, chunk: int, window: Window) -> Iterator[Request]:
    for done in range(0, new, chunk):
        yield Request(
            new_tokens=min(chunk, new - done),
            prefix_tokens=prefix + done,
            prompt_tokens=prompt,
            window=window if done == 0 else "running",
        )


# --- tokens -----------------------------------------------------------------------------------


def _token(case: Case, measured: float) -> Conversion:
    """Time per output token: steps that hold at least this request's rows."""
    tokens = tokens_per_step(case)
    meaning = f"a step that yields {tokens:g} tokens of one request"
    return conversion(
        case, measured * tokens, meaning, {"as stated": (_decode(case, 1),)},
        assumptions=_context_note(case),
    )  # fmt: skip


def _throughput(case: Case, measured: float) -> Conversion:
    """Tokens a second of a closed loop, as the system's time per finished request."""
    load, system = case.workload, machine(case)
    output, callers = load.output_tokens, load.concurrency or 1
    if output is None or (load.prompt_tokens is None and _counts_input(case)):
        raise without_lengths(case)
    per_second = measured * (case.gpus or 1 if case.quantity.endswith("_per_gpu") else 1)
    tokens = output + (need(case, load.prompt_tokens) if _counts_input(case) else 0)
    steps = (output - 1) / tokens_per_step(case)
    assumptions = _context_note(case)
    knows_prompt = load.new_tokens is not None and not _lengths_are_means(case)
    claims: list[dict[str, tuple[Part, ...]]] = []
    if callers == 1 and knows_prompt:
        decode = _times(_decode(case, 1), steps)
        cut = _chunkings(case, prompts=1)
        claims.append({name: (*parts, decode) for name, parts in cut.items()})
    else:
        batch = max(1, callers // system.streams)
        share = steps / (system.replicas * callers)
        claims.append({"as stated": (_times(_decode(case, batch), share),)})
        if knows_prompt:
            share = 1 / (system.replicas * system.streams)
            cut = _chunkings(case, prompts=callers)
            claims.append(
                {name: tuple(_times(p, share) for p in parts) for name, parts in cut.items()}
            )
    if knows_prompt:
        assumptions += _chunk_note(case)
    return conversion(
        case, tokens / per_second / MILLISECOND, "one finished request's share of the system",
        *claims, assumptions=assumptions,
    )  # fmt: skip


def _times(part: Part, factor: float) -> Part:
    return Part(part.requests, part.times * factor)


def _counts_input(case: Case) -> bool:
    return any(case.says(words) for words in TOTAL_TOKENS) or case.says("input with cached")


def _lengths_are_means(case: Case) -> bool:
    return any(case.says(words) for words in MEAN_LENGTHS)


def _decode(case: Case, count: int) -> Part:
    """A step of ``count`` requests at the start of their output."""
    context = case.workload.prompt_tokens
    if context is None or _lengths_are_means(case):
        context = 0
    rows = rows_per_step(case)
    kind: Kind = "decode" if rows == 1 else "verify"
    return Part((Request(new_tokens=rows, prefix_tokens=context, kind=kind, count=count),))


def _context_note(case: Case) -> list[str]:
    if case.workload.prompt_tokens is None:
        return ["context not stated: the floor has none"]
    if _lengths_are_means(case):
        return ["lengths are means of a trace: the floor has no context"]
    return []
