"""Choices that exclude each other: each refusal names both sides, and the revision that refuses.

Source: runtime-semantics §1.3-§1.5, §2.1-§2.3 and the deployment questions, sections C and E.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from aisim_v41.errors import (
    AisimError,
    InvalidInputError,
    OutOfRangeError,
    UnsupportedPlanError,
)
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import KIND_FIELD, LONGEST_FIELD, PACKED_FIELDS, SPECIAL_FIELDS, Request
from aisim_v41.plan.spans import MISSING, SNAPSHOT, VERIFY, RequestColumns

MAX_PRODUCT = 1 << 62
"""Counts grow with the square of a context; beyond this they would not fit 64 bits."""
MAX_DRAFT_TOKENS = 256
"""The largest ``dspark_block_size`` that a config may name."""


def pack(requests: Sequence[Request]) -> RequestColumns:
    """Requests as columns [requests], read from their packed form at once."""
    packed = np.frombuffer(b"".join([request.packed for request in requests]))
    rows = packed.reshape(-1, len(PACKED_FIELDS))
    highest = np.maximum.reduce(rows, axis=0, initial=0.0).tolist()
    new, prefix, prompt, count, kind, window, window_start, logprobs = rows.T
    return RequestColumns(
        new, prefix, prompt, count, kind, window, window_start, logprobs,
        longest=highest[LONGEST_FIELD],
        verifies=highest[KIND_FIELD] == VERIFY, special=any(highest[SPECIAL_FIELDS]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two choices that do not go together."""

    engines: tuple[str, ...]
    """Presets that refuse it; empty: refused whatever the engine."""
    first: str
    second: str
    reason: str
    applies: Callable[[RuntimePolicy, Parallel], bool]


CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        ("sglang",), "decoder replay", "a prefill graph",
        "the late layers change their row count; use prefill_execution='eager'",
        lambda p, m: p.decoder_replay and p.prefill_execution != "eager",
    ),
    Conflict(
        ("vllm",), "decoder replay", "a full prefill graph",
        "FULL graphs never trim; use prefill_execution='eager' or turn replay off",
        lambda p, m: p.decoder_replay and p.prefill_execution == "full_graph",
    ),
    Conflict(
        ("sglang",), "decoder replay", "attention data parallelism",
        "row counts differ by rank; use dp=1",
        lambda p, m: p.decoder_replay and m.dp > 1,
    ),
    Conflict(
        (), "pipeline parallelism", "this model",
        "later stages need the input ids (Engram) and the shared KV of earlier ones; use pp=1",
        lambda p, m: m.pp > 1,
    ),
    Conflict(
        ("sglang",), "encoder replay", "attention data parallelism",
        "window rings are per request and rank; use dp=1",
        lambda p, m: p.encoder_replay != "off" and m.dp > 1,
    ),
    Conflict(
        ("sglang",), "encoder replay", "context parallelism", "use cp=1",
        lambda p, m: p.encoder_replay != "off" and m.cp > 1,
    ),
    Conflict(
        ("vllm",), "encoder replay", "prefill context parallelism", "use cp=1",
        lambda p, m: p.encoder_replay != "off" and m.cp > 1,
    ),
    Conflict(
        ("sglang",), "encoder replay", "chunks below 128 tokens",
        "a replayed window must fit one chunk; raise chunk_tokens",
        lambda p, m: p.encoder_replay != "off" and p.chunk_tokens < p.encoder_replay_rows,
    ),
    Conflict(
        ("sglang",), "encoder replay", "full prefill graphs", "use prefill_execution='eager'",
        lambda p, m: p.encoder_replay != "off" and p.prefill_execution != "eager",
    ),
    Conflict(
        (), "replay_anchor 'prompt_end'", "replay_exact",
        "an exact halo is anchored at the step's end in every engine that has one",
        lambda p, m: p.decoder_replay and p.replay_exact and p.replay_anchor == "prompt_end",
    ),
    Conflict(
        (), "replay_floor 'prompt_window'", "replay_anchor 'step_end'",
        "a floor at the prompt's end needs a tail at the prompt's end",
        lambda p, m: p.decoder_replay
        and p.replay_floor == "prompt_window"
        and p.replay_anchor == "step_end",
    ),
)  # fmt: skip


def check_policy(policy: RuntimePolicy, parallel: Parallel) -> None:
    """Refuse a policy and mapping that no request could use.

    Raises:
        UnsupportedPlanError: naming both choices and the engine revision.
    """
    for conflict in CONFLICTS:
        concerned = not conflict.engines or policy.name in conflict.engines
        if concerned and conflict.applies(policy, parallel):
            raise UnsupportedPlanError(
                f"{conflict.first} and {conflict.second} exclude each other "
                f"({policy.revision}): {conflict.reason}."
            )


def check_speculation(model: Model, policy: RuntimePolicy) -> None:
    """Refuse drafting that the model cannot do.

    Raises:
        UnsupportedPlanError: no drafter, or more drafted tokens than a block can hold.
    """
    if policy.speculation == "off":
        return
    if model.draft is None:
        raise UnsupportedPlanError(
            f"speculation={policy.speculation!r}: {model.name} has no draft blocks "
            "(num_nextn_predict_layers); use speculation='off'"
        )
    if policy.draft_tokens > MAX_DRAFT_TOKENS:
        raise UnsupportedPlanError(
            f"draft_tokens = {policy.draft_tokens}: a draft pass holds at most "
            f"{MAX_DRAFT_TOKENS} positions; {model.name} drafts {model.draft.positions}"
        )


def check_mapping_is_modelled(parallel: Parallel) -> None:
    """Refuse mappings whose step is not modelled.

    Raises:
        UnsupportedPlanError: a dimension other than tp is above 1.
    """
    for name in ("ep", "dp", "cp", "pp"):
        size = getattr(parallel, name)
        if size > 1:
            raise UnsupportedPlanError(
                f"Parallel.{name} = {size}: the time of a step is modelled for tensor parallelism "
                f"alone (tp = {parallel.tp}); memory and capacity accept ep. Use {name}=1."
            )


def check_columns(model: Model, policy: RuntimePolicy, columns: RequestColumns) -> int | None:
    """Position of the first request that the model or policy refuses, None if there is none.

    The conditions of `check_requests`, over all requests at once.
    """
    if columns.longest <= model.max_context and not columns.special:
        return None
    refused = columns.prompt > model.max_context
    if columns.special:
        if policy.encoder_replay == "off":
            refused |= columns.window == MISSING
        if policy.encoder_replay != "snapshot":
            refused |= columns.window == SNAPSHOT
        if policy.decoder_replay and policy.prompt_logprobs == "refuse":
            refused |= columns.prompt_logprobs != 0
    return int(np.argmax(refused)) if refused.any() else None


def check_magnitude(model: Model, columns: RequestColumns) -> None:
    """Refuse one step whose counts would not fit 64 bits.

    Raises:
        OutOfRangeError: with the sum that is too large.
    """
    if float(columns.count.sum()) * model.max_context**2 < MAX_PRODUCT:
        return
    longest = np.maximum(columns.prompt, model.attention.window)
    magnitude = float(columns.count @ (longest * longest))
    if magnitude >= MAX_PRODUCT:
        raise OutOfRangeError(
            f"the step has too many request-positions to count exactly in 64 bits "
            f"(sum of count x end^2 = {magnitude:.3g}, limit {MAX_PRODUCT:.3g}); split it"
        )


def check_requests(
    model: Model, policy: RuntimePolicy, requests: Sequence[Request]
) -> RequestColumns:
    """The requests of one step as columns, refused where they cannot run.

    Raises:
        InvalidInputError: something in the list is not a `Request`.
        OutOfRangeError: a context beyond the model's limit, or counts beyond 64 bits.
        UnsupportedPlanError: the policy refuses what a request asks for.
    """
    try:
        columns = pack(requests)
    except (AttributeError, TypeError):
        raise _not_a_request(requests) from None
    place = check_columns(model, policy, columns)
    if place is not None:
        raise refusal(model, policy, f"requests[{place}] ({requests[place]!r})", requests[place])
    check_magnitude(model, columns)
    return columns


def _not_a_request(requests: Sequence[Request]) -> InvalidInputError:
    for place, request in enumerate(requests):
        if type(request) is not Request:
            return InvalidInputError(
                f"requests[{place}] = {request!r}: must be a Request, not {type(request).__name__}"
            )
    return InvalidInputError("requests: must be a list of Request")


def refusal(model: Model, policy: RuntimePolicy, where: str, request: Request) -> AisimError:
    """Why `check_columns` refuses a request, as the error to raise."""
    length = max(request.end, request.prompt_tokens or 0)
    if length > model.max_context:
        return OutOfRangeError(
            f"{where}: {length} tokens, but {model.name} has a context of {model.max_context}"
        )
    if request.window == "missing" and policy.encoder_replay == "off":
        return UnsupportedPlanError(
            f"{where}: window='missing' and encoder_replay='off' exclude each other "
            f"({policy.revision}): without window KV the hit cannot be used. Set encoder_replay, "
            "or prefix_tokens=0 to recompute the prefix."
        )
    if request.window == "snapshot":
        return UnsupportedPlanError(
            f"{where}: window='snapshot' and encoder_replay={policy.encoder_replay!r} exclude each "
            f"other ({policy.revision}): only encoder_replay='snapshot' restores one."
        )
    return UnsupportedPlanError(
        f"{where}: prompt log-probabilities and decoder replay exclude each other "
        f"({policy.revision}): the late layers do not compute those rows. Turn one off, or set "
        "policy field prompt_logprobs."
    )


def warnings_for(policy: RuntimePolicy, requests: Iterable[Request]) -> tuple[str, ...]:
    """What a reader may misread in a valid plan."""
    kinds = {request.kind for request in requests if request.count and request.new_tokens}
    mixed = "prefill" in kinds and len(kinds) > 1
    found = []
    if mixed and policy.name == "sglang" and policy.decode_rows == "own_window":
        found.append(
            f"{policy.revision} runs prefill and decode in separate steps by default; this prices "
            "them in one step in which decode rows keep their window. With mixed chunks and "
            "decoder replay that engine may cut them (decode_rows='as_extend')."
        )
    if mixed and policy.decoder_replay and policy.decode_rows == "as_extend":
        found.append(
            "decode_rows='as_extend' models a hazard derived from code and confirmed by no engine "
            "test: decode rows lose their late window."
        )
    if policy.expert_routing != "fewest":
        whose = (
            "row" if policy.expert_routing == "independent" else "prompt row and decoding request"
        )
        found.append(
            f"the bound counts the experts expected if every {whose} drew its own; "
            "expert_routing='fewest' holds whatever is routed"
        )
    return tuple(found)
