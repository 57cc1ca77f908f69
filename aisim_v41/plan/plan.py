"""A plan: what is asked of the model in one step, and how the engine would run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import (
    check_engine_model,
    check_policy,
    check_requests,
    check_speculation,
    stored_model,
)
from aisim_v41.plan.dealing import decode_mapping
from aisim_v41.plan.mappings import check_mapping_is_modelled, check_split
from aisim_v41.plan.misread import warnings_for
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: requests, mapping and runtime policy.

    Args:
        model: from `load_model`; kept with the formats that the policy gives it.
        requests: what each sequence does in this step.
        parallel: ranks per dimension.
        policy: from `policy`.

    Raises:
        InvalidInputError, OutOfRangeError, UnsupportedPlanError: see
            `aisim_v41.plan.compatibility`.
    """

    model: Model
    requests: Sequence[Request]
    parallel: Parallel = field(default_factory=Parallel)
    policy: RuntimePolicy = field(default_factory=lambda: policy("paper"))

    def __post_init__(self) -> None:
        require_step_model(self.model)
        for name, expected in (("parallel", Parallel), ("policy", RuntimePolicy)):
            value = getattr(self, name)
            if not isinstance(value, expected):
                raise InvalidInputError(f"Plan.{name} = {value!r}: must be a {expected.__name__}")
        try:
            if hasattr(self.requests, "encode") or hasattr(self.requests, "decode"):
                raise TypeError("text is not a list of requests")
            object.__setattr__(self, "requests", tuple(self.requests))
        except TypeError:
            raise InvalidInputError("Plan.requests: must be a list of Request") from None
        object.__setattr__(self, "model", stored_model(self.model, self.policy))
        check_policy(self.policy, self.parallel)
        check_mapping_is_modelled(self.parallel)
        check_split(self.policy, self.parallel)
        check_speculation(self.model, self.policy)
        check_engine_model(self.model, self.policy)
        check_requests(self.model, self.policy, self.requests, self.parallel)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader may misread."""
        return warnings_for(self.policy, self.requests, self.model, self.parallel)

    @property
    def running(self) -> Parallel:
        """The mapping that runs this step: without a prefill, context-parallel ranks divide heads
        (runtime-semantics §4.4)."""
        decodes = any(r.kind != "prefill" and r.count and r.new_tokens for r in self.requests)
        return decode_mapping(self.parallel) if decodes else self.parallel


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One forward of the engine, of one rank where ranks run different rows.

    Attributes:
        requests: what it runs.
        times: how often it runs.
        rank: whose forward it is; None: all ranks are alike.
        places: where each request stands among those of the step; in order, if not given.
    """

    requests: tuple[Request, ...]
    times: int = 1
    rank: int | None = None
    places: tuple[int, ...] | None = None


def forward_passes(requests: Sequence[Request], runtime: RuntimePolicy) -> tuple[ForwardPass, ...]:
    """The forwards that a step takes.

    One, except under ``encoder_replay="separate"``: then each hit without window KV is rebuilt by
    a forward of its own before the step (runtime-semantics §2.1, the older form).
    """
    if runtime.encoder_replay != "separate" or all(r.window != "missing" for r in requests):
        return (ForwardPass(tuple(requests)),)
    replays: list[ForwardPass] = []
    main: list[Request] = []
    for request in requests:
        if request.window != "missing":
            main.append(request)
            continue
        page = runtime.hit_page_tokens
        prefix = request.prefix_tokens // page * page
        prefix = 0 if prefix <= runtime.hit_min_tokens else prefix
        replayed = min(prefix, runtime.encoder_replay_rows)
        if prefix and request.count:
            alone = Request(new_tokens=0, prefix_tokens=prefix, window="missing")
            replays.append(ForwardPass((alone,), request.count))
        main.append(
            Request(
                new_tokens=request.end - prefix,
                prefix_tokens=prefix,
                prompt_tokens=request.prompt_tokens,
                count=request.count,
                window_start=prefix - replayed,
                prompt_logprobs=request.prompt_logprobs,
                image_tokens=request.image_tokens,
            )
        )
    return (*replays, ForwardPass(tuple(main)))
