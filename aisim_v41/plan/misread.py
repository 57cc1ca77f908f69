"""What a reader may misread in a valid plan, and what engines would refuse of it."""

from __future__ import annotations

from collections.abc import Sequence

from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import step_warnings
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.policy import policy as preset
from aisim_v41.plan.request import Request


def warnings_for(
    policy: RuntimePolicy, requests: Sequence[Request], model: Model, parallel: Parallel
) -> tuple[str, ...]:
    """What a reader may misread in a valid plan."""
    kinds = {request.kind for request in requests if request.count and request.new_tokens}
    mixed = "prefill" in kinds and len(kinds) > 1
    found = list(step_warnings(policy, requests, model, parallel))
    pictured = [request for request in requests if request.image_tokens and request.count]
    if pictured:
        found.append(
            "image rows: encoding their images is not part of a step; `aisim-v41 encode` has it"
        )
    if policy.engine_rules == "warned" and any(request.prefix_tokens for request in pictured):
        found.append(
            f"{preset('paper').revision} refuses this: images lie in the first chunk of a prompt"
        )
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
