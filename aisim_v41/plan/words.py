"""A step and its setting in a few words, as captions and messages need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request

MOST_REQUESTS = 4
"""Groups of requests that a caption names one by one."""


def request_text(request: Request) -> str:
    """One group of requests in a few words.

    >>> request_text(Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=32))
    '32 decodes after 4,096 tokens'
    """
    name = {"prefill": "prefill", "decode": "decode", "verify": "verification"}[request.kind]
    many = f"{request.count:,} {name}s" if request.count != 1 else f"1 {name}"
    rows = "" if request.kind == "decode" else f" of {request.new_tokens:,} tokens"
    after = f" after {request.prefix_tokens:,}" if request.prefix_tokens else ""
    unit = " tokens" if after and not rows else ""
    return f"{many}{rows}{after}{unit}"


def requests_text(requests: Sequence[Request]) -> str:
    """The requests of a step."""
    shown = [request_text(request) for request in requests[:MOST_REQUESTS]]
    more = len(requests) - len(shown)
    return " + ".join([*shown, *([f"{more:,} more groups"] if more > 0 else [])])


def phase(requests: Iterable[Request]) -> str:
    """What a step does: "prefill", "decode" or "verify" alone, else "mixed"."""
    kinds = {request.kind for request in requests if request.count and request.new_tokens}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def setting_text(model: str, gpu: str, parallel: Parallel, policy: RuntimePolicy) -> str:
    """Model, GPUs, mapping and policy with what was changed in it."""
    mapping = ", ".join(f"{name} {ranks}" for name, ranks in parallel.named().items())
    gpus = f" on {parallel.gpus} × {gpu}" if gpu else ""
    changed = "; ".join(changed_lines(policy))
    revision = policy.revision + (f"; {changed}" if changed else "")
    return f"{model}{gpus} ({mapping}), policy {policy.name} ({revision})"


def plan_text(plan: Plan, gpu: str = "") -> str:
    """The setting of a plan, on a GPU of that name, and its step."""
    setting = setting_text(plan.model.name, gpu, plan.parallel, plan.policy)
    return f"{setting}; step: {requests_text(plan.requests)}"
