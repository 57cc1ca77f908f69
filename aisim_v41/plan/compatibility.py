"""What a plan may not ask for: each refusal names both sides, and the revision that refuses.

`aisim_v41.plan.conflicts` lists the choices that exclude each other. With ``policy("custom")``
(``engine_rules="warned"``) those of an engine are warnings, and those of arithmetic stay errors.
Source: runtime-semantics §1.3-§1.5, §2.1-§2.3, §9 and the deployment questions, sections C and E.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import (
    AisimError,
    InvalidInputError,
    OutOfRangeError,
    UnsupportedPlanError,
)
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.reformatted import reformatted
from aisim_v41.plan.conflicts import CONFLICTS, Conflict
from aisim_v41.plan.dealing import check_ranks
from aisim_v41.plan.mappings import check_interleaved
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.policy import policy as preset
from aisim_v41.plan.request import KIND_FIELD, LONGEST_FIELD, PACKED_FIELDS, SPECIAL_FIELDS, Request
from aisim_v41.plan.spans import MISSING, PREFILL, RUNNING, SNAPSHOT, VERIFY, RequestColumns

MAX_PRODUCT = 1 << 62
"""Counts grow with the square of a context; beyond this they would not fit 64 bits."""
ONE_GPU = Parallel()
MAX_DRAFT_TOKENS = 256
"""The largest ``dspark_block_size`` that a config may name."""


def pack(requests: Sequence[Request]) -> RequestColumns:
    """Requests as columns [requests], read from their packed form at once."""
    packed = np.frombuffer(b"".join([request.packed for request in requests]))
    rows = packed.reshape(-1, len(PACKED_FIELDS))
    highest = np.maximum.reduce(rows, axis=0, initial=0.0).tolist()
    new, prefix, prompt, count, kind, window, window_start, logprobs, images, ranks = rows.T
    return RequestColumns(
        new, prefix, prompt, count, kind, window, window_start, logprobs, images, ranks,
        longest=highest[LONGEST_FIELD],
        verifies=highest[KIND_FIELD] == VERIFY, special=any(highest[SPECIAL_FIELDS]),
    )  # fmt: skip


def check_policy(
    policy: RuntimePolicy, parallel: Parallel, architecture: str | None = None
) -> None:
    """Refuse a policy and mapping that no request could use.

    Args:
        architecture: of the GPU; refusals that depend on it are left out where it is not known.

    Raises:
        UnsupportedPlanError: naming both choices and the engine revision.
    """
    for conflict in _conflicts(policy, parallel, architecture):
        whose = conflict.engines and policy.name in conflict.engines
        if not conflict.engines or (whose and policy.engine_rules == "enforced"):
            raise UnsupportedPlanError(
                f"{conflict.first} and {_other_side(conflict, architecture)} exclude each other "
                f"({policy.revision}): {conflict.reason}."
            )


def engine_warnings(
    policy: RuntimePolicy, parallel: Parallel, architecture: str | None = None
) -> tuple[str, ...]:
    """Which engines would refuse what ``engine_rules="warned"`` lets pass, and why."""
    if policy.engine_rules == "enforced":
        return ()
    return tuple(
        f"{preset(name).revision} refuses {conflict.first} with "
        f"{_other_side(conflict, architecture)}: {conflict.reason}"
        for conflict in _conflicts(policy, parallel, architecture)
        for name in conflict.engines
    )


def step_warnings(
    policy: RuntimePolicy,
    requests: Sequence[Request],
    model: Model,
    parallel: Parallel,
    architecture: str | None = None,
) -> tuple[str, ...]:
    """`engine_warnings`, and which engines would refuse the model or the requests of a step."""
    if policy.engine_rules == "enforced":
        return ()
    sglang = preset("sglang").revision
    refused = (
        *_sglang_model_refusals(model, policy),
        *_sglang_step_refusals(policy, pack(requests)),
    )
    reused = any(r.prompt_logprobs and r.window != "running" for r in requests)
    unread = f"{preset('trtllm').revision} reuses no hit where prompt log-probabilities are wanted"
    return (
        *engine_warnings(policy, parallel, architecture),
        *(f"{sglang} refuses this: {reason}" for reason in refused),
        *([unread] if reused and policy.decoder_replay else []),
    )


def _conflicts(
    policy: RuntimePolicy, parallel: Parallel, architecture: str | None
) -> Iterator[Conflict]:
    """Conflicts that policy and mapping run into, whoever refuses them."""
    for conflict in CONFLICTS:
        if conflict.where and (architecture is None or not conflict.gpus(architecture)):
            continue
        if conflict.applies(policy, parallel):
            yield conflict


def _other_side(conflict: Conflict, architecture: str | None) -> str:
    return f"{conflict.second} ({architecture})" if conflict.where else conflict.second


def stored_model(model: Model, policy: RuntimePolicy) -> Model:
    """The model with the policy's number formats, where kernels could multiply them.

    Raises:
        UnsupportedPlanError: operands of no common arithmetic, naming the field that widens them.
    """
    formats = policy.role_formats
    if formats.wo_a is not None and policy.sharding.wo_a == "bf16" and formats.wo_a.bits < 16:
        raise UnsupportedPlanError(
            f"formats wo_a={formats.wo_a} and wo_a='bf16' exclude each other: the engine widens it "
            "at load; use wo_a='checkpoint'"
        )
    narrowest = {"fp4": 4, "fp4_or_bf16": 4, "fp8": 8}.get(policy.index_arithmetic, 16)
    if formats.index_key is not None and formats.index_key.bits > narrowest:
        wider = "'fp8' or 'bf16'" if formats.index_key.bits == 8 else "'bf16'"
        raise UnsupportedPlanError(
            f"formats index_key={formats.index_key} and "
            f"index_arithmetic={policy.index_arithmetic!r} exclude each other: keys are wider than "
            f"the product; use index_arithmetic={wider}"
        )
    given = formats.expert_activations
    weights = (
        formats.expert_weights.bits
        if formats.expert_weights
        else model.formats.experts.element_bits
    )
    if given is not None and given.bits < weights and policy.expert_arithmetic != "bf16":
        raise UnsupportedPlanError(
            f"formats expert_activations={given} with expert weights of {weights} bits: no GPU "
            "multiplies inputs narrower than the weights; use expert_arithmetic='bf16' "
            "(dequantised), or wider activations"
        )
    return reformatted(model, formats)


def check_engine_model(model: Model, policy: RuntimePolicy) -> None:
    """Refuse a model that the policy's engine cannot run this way.

    Raises:
        UnsupportedPlanError: naming the layers and the engine revision.
    """
    if policy.name != "sglang" or policy.engine_rules != "enforced":
        return
    for reason in _sglang_model_refusals(model, policy):
        raise UnsupportedPlanError(f"{reason} ({policy.revision})")


def check_disaggregated(prefill: RuntimePolicy, decode: RuntimePolicy) -> None:
    """Refuse a prefill role and a decode role that cannot work as one deployment.

    Raises:
        UnsupportedPlanError: naming what the two roles have, and the engine revision.
    """
    if prefill.kv_layout != decode.kv_layout:
        raise UnsupportedPlanError(
            f"prefill with kv_layout={prefill.kv_layout!r} and decode with {decode.kv_layout!r}: "
            "rows are sent as they lie in the cache; use one layout"
        )
    for role in (prefill, decode):
        if role.engine_rules != "enforced":
            continue
        for fault in disaggregation_faults(role, prefill, decode):
            raise UnsupportedPlanError(f"{fault} ({role.revision})")


def disaggregation_faults(
    role: RuntimePolicy, prefill: RuntimePolicy, decode: RuntimePolicy
) -> Iterator[str]:
    """What the engine of one role refuses of a prefill and a decode role (deployment questions,
    54; runtime-semantics §2.1), whatever its ``engine_rules``."""
    if role.name == "sglang" and role.speculation != "off":
        yield (
            "DSpark and separate prefill and decode exclude each other: the engine's guide refuses "
            "them together; use speculation='off'"
        )
    if role.name == "sglang" and role.encoder_replay != "off":
        yield (
            "encoder replay and separate prefill and decode exclude each other; use "
            "encoder_replay='off'"
        )
    if role.name == "vllm" and prefill.speculation != decode.speculation:
        yield (
            f"prefill with speculation={prefill.speculation!r} and decode with "
            f"{decode.speculation!r}: both roles must draft, or neither"
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


def check_columns(model: Model, policy: RuntimePolicy, columns: RequestColumns) -> int | None:
    """Position of the first request that the model or policy refuses, None if there is none.

    The conditions of `check_requests`, over all requests at once.
    """
    ahead = fetches_ahead(model, policy)
    if columns.longest <= model.max_context and not columns.special and not ahead:
        return None
    refused = columns.prompt > model.max_context
    if ahead:
        refused |= columns.kind != PREFILL
    if columns.special:
        if policy.encoder_replay == "off":
            refused |= columns.window == MISSING
        if policy.encoder_replay != "snapshot":
            refused |= columns.window == SNAPSHOT
        if policy.decoder_replay and policy.prompt_logprobs == "refuse":
            refused |= columns.prompt_logprobs != 0
        if _hides_hits_of_logprobs(policy):
            refused |= (columns.prompt_logprobs != 0) & (columns.window != RUNNING)
        if columns.pictured:
            refused |= _refused_images(model, policy, columns)
    return int(np.argmax(refused)) if refused.any() else None


def _refused_images(
    model: Model, policy: RuntimePolicy, columns: RequestColumns
) -> npt.NDArray[np.bool_]:
    """Which requests have image rows that the model or policy refuses."""
    images = columns.image_tokens > 0
    if model.vision is None:
        return images
    refused = np.zeros_like(images)
    if _images_first(policy):
        refused |= images & (columns.prefix > 0)
    if _hides_hits(policy):
        refused |= images & (columns.window != RUNNING)
    return refused


def _images_first(policy: RuntimePolicy) -> bool:
    """Whether images must lie in the first chunk of a prompt: so in the reference (model-facts
    §7)."""
    return policy.name == "paper" and policy.engine_rules == "enforced"


def _hides_hits(policy: RuntimePolicy) -> bool:
    """Whether a request with images reuses nothing of the cache (runtime-semantics §1.5)."""
    return policy.decoder_replay and policy.replay_images == "all_rows"


def _hides_hits_of_logprobs(policy: RuntimePolicy) -> bool:
    """Whether a request that wants context logits reuses nothing: TensorRT-LLM's rule
    (runtime-semantics §1.5)."""
    return policy.decoder_replay and policy.name == "trtllm" and policy.engine_rules == "enforced"


def fetches_ahead(model: Model, policy: RuntimePolicy) -> bool:
    """Whether Engram rows come during the step before, which only prompts allow."""
    return (
        policy.engram_prefetch == "previous"
        and policy.engram_residency != "hbm"
        and model.engram is not None
    )


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
    model: Model, policy: RuntimePolicy, requests: Sequence[Request], parallel: Parallel = ONE_GPU
) -> RequestColumns:
    """The requests of one step as columns, refused where they cannot run.

    Args:
        model, policy, requests: of the step.
        parallel: the mapping that runs them.

    Raises:
        InvalidInputError: something in the list is not a `Request`, or is on a rank that there is
            not.
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
    check_ranks(columns, parallel.dp)
    if parallel.cp > 1:
        check_interleaved(columns)
    check_magnitude(model, columns)
    if policy.name == "sglang" and policy.engine_rules == "enforced":
        for reason in _sglang_step_refusals(policy, columns):
            raise UnsupportedPlanError(f"{reason} ({policy.revision})")
    return columns


def _sglang_model_refusals(model: Model, policy: RuntimePolicy) -> Iterator[str]:
    """Runtime-semantics §1.1: layers after the last owner have a ratio of 0 or 1."""
    if not policy.decoder_replay or not model.kv_owners:
        return
    last = model.kv_owners[-1].index
    pooled = [layer.index for layer in model.layers if layer.index > last and layer.ratio > 1]
    if pooled:
        yield (
            f"decoder replay and late layers that pool exclude each other: layers {pooled} have a "
            "ratio above 1; turn replay off"
        )


def _sglang_step_refusals(policy: RuntimePolicy, columns: RequestColumns) -> Iterator[str]:
    """Runtime-semantics §2.1: no mixed chunk with encoder replay; even hits in the older form."""
    if policy.encoder_replay == "off":
        return
    prefills = (columns.kind == PREFILL) & (columns.count > 0)
    if prefills.any() and ((columns.kind != PREFILL) & (columns.count > 0)).any():
        yield (
            "encoder replay and mixed chunks (prefill and decode in one step) exclude each other: "
            "run them as two steps, or use encoder_replay='off'"
        )
    if policy.encoder_replay == "separate" and columns.special:
        hit = columns.prefix // policy.hit_page_tokens * policy.hit_page_tokens
        odd = (columns.window == MISSING) & (hit % 2 == 1)
        if odd.any():
            yield (
                f"encoder_replay='separate' and a hit of {hit[np.argmax(odd)]:.0f} tokens exclude "
                "each other: half a pair cannot be rebuilt; use an even hit_page_tokens, or "
                "'folded'"
            )


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
    if request.kind != "prefill" and fetches_ahead(model, policy):
        return UnsupportedPlanError(
            f"{where}: engram_prefetch='previous' and a {request.kind} exclude each other: its "
            "token ids are made by the step before. Use engram_prefetch='step' or 'none'."
        )
    if request.window == "missing" and policy.encoder_replay == "off":
        return UnsupportedPlanError(
            f"{where}: window='missing' and encoder_replay='off' exclude each other "
            f"({policy.revision}): without window KV the hit cannot be used. Set encoder_replay, "
            "or prefix_tokens=0 to recompute the prefix."
        )
    if request.window == "snapshot" and policy.encoder_replay != "snapshot":
        return UnsupportedPlanError(
            f"{where}: window='snapshot' and encoder_replay={policy.encoder_replay!r} exclude each "
            f"other ({policy.revision}): only encoder_replay='snapshot' restores one."
        )
    if request.image_tokens and model.vision is None:
        return UnsupportedPlanError(
            f"{where}: {model.name} has no vision encoder; give a config with vision_config, or "
            "image_tokens=0"
        )
    if request.image_tokens and _images_first(policy) and request.prefix_tokens:
        return UnsupportedPlanError(
            f"{where}: image rows and an earlier chunk exclude each other ({policy.revision}): "
            "images lie in the first chunk of a prompt; use prefix_tokens=0 or another policy"
        )
    if request.image_tokens and _hides_hits(policy) and request.window != "running":
        return UnsupportedPlanError(
            f"{where}: image rows and window={request.window!r} exclude each other "
            f"({policy.revision}): with decoder replay a request with images reuses nothing; use "
            "prefix_tokens=0, or turn replay off"
        )
    if policy.prompt_logprobs != "refuse":
        return UnsupportedPlanError(
            f"{where}: prompt log-probabilities and window={request.window!r} exclude each other "
            f"({policy.revision}): with decoder replay such a request reuses nothing; use "
            "prefix_tokens=0, or turn replay off"
        )
    return UnsupportedPlanError(
        f"{where}: prompt log-probabilities and decoder replay exclude each other "
        f"({policy.revision}): the late layers do not compute those rows. Turn one off, or set "
        "policy field prompt_logprobs."
    )
