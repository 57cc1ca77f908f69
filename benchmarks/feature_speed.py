"""Steps with the updates and mappings of V4.1 beside the same step without them."""

from __future__ import annotations

from functools import partial

from benchmarks.figures import Figure, best

MICROSECOND = 1e-6
ALLOWED = 2.0
"""A step with a feature may take so many times the step without."""


def feature_figures() -> list[Figure]:
    """A step of 64 decodes and one of 8,192 new tokens, by bound and operators.

    Ranks that hold other rows than each other are priced one by one, so that data and context
    parallelism have no target.
    """
    import aisim_v41 as aisim

    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
    plain, tp4 = aisim.policy("sglang"), aisim.Parallel(tp=4)
    exchange = {"expert_exchange": "all_to_all", "shared_expert": "replicated"}
    cases = (
        ("DSpark", tp4, aisim.policy("sglang", speculation="dspark"), True),
        ("Engram on the host", tp4, aisim.policy("sglang", engram_residency="host_shared"), True),
        ("expert groups", aisim.Parallel(tp=4, ep=4), plain, True),
        ("all-to-all", aisim.Parallel(tp=4, ep=4), aisim.policy("sglang", **exchange), True),
        ("4 data-parallel ranks", aisim.Parallel(dp=4, ep=4), plain, False),
        ("4 context-parallel ranks", aisim.Parallel(cp=4), plain, False),
    )
    steps = {
        "64 decodes": [aisim.Request(new_tokens=1, prefix_tokens=8192, kind="decode", count=64)],
        "8,192 new tokens": [aisim.Request(new_tokens=8192)],
    }
    figures: list[Figure] = []
    for method, label in (("sol", ""), ("op", ", OP")):
        without = aisim.compile(model, gpu, parallel=tp4, policy=plain, method=method)
        taken = {
            name: best(partial(without, requests), calls=100) / MICROSECOND
            for name, requests in steps.items()
        }
        figures += [
            Figure(f"step of {name}, plain{label}", microseconds, None, "us")
            for name, microseconds in taken.items()
        ]
        for feature, parallel, policy, limited in cases:
            step = aisim.compile(model, gpu, parallel=parallel, policy=policy, method=method)
            for name, requests in steps.items():
                seconds = best(partial(step, requests), calls=50)
                target = ALLOWED * taken[name] if limited else None
                figures.append(
                    Figure(f"step of {name}, {feature}{label}", seconds / MICROSECOND, target, "us")
                )
    return figures
