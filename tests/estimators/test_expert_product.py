"""Every combination of expert groups, exchange, copies and load answers, or is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from math import isfinite
from random import Random

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.request import Request

MODEL = aisim.load_model("deepseek-v4.1-flash")
RACK = aisim.load_hardware("gb300")
NODES = replace(aisim.load_hardware("b200"), name="b200 in pairs", link_domain_gpus=2)
ALONE = aisim.load_hardware("gb10")
STEPS = (
    [Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=8)],
    [Request(new_tokens=6, prefix_tokens=4096, kind="verify", count=3)],
    [Request(new_tokens=700), Request(new_tokens=1, prefix_tokens=99, kind="decode")],
    [Request(new_tokens=0, prefix_tokens=5)],
)
CHOICES = {
    "expert_exchange": ("gather", "all_to_all"),
    "shared_expert": ("split", "replicated"),
    "expert_routing": ("per_request", "independent", "fewest"),
    "expert_popularity": (0.0, 1.0, 4.0),
    "expert_imbalance": (None, 1.0, 3.0),
    "redundant_experts": (0, 8, 16),
    "expert_arithmetic": ("mxfp4_mxfp8", "bf16"),
    "speculation": ("off", "dspark"),
}


RANKS = (
    (1, 1, 1), (2, 1, 1), (4, 1, 1), (4, 1, 1), (8, 1, 1),
    (1, 2, 1), (2, 2, 1), (1, 16, 1), (1, 12, 1), (1, 64, 1), (1, 1, 4), (1, 1, 2),
)  # fmt: skip
"""Tensor-parallel, attention-data-parallel and context-parallel ranks."""


def drawn(random: Random) -> tuple[object, Parallel, aisim.RuntimePolicy, list[Request]]:
    tp, dp, cp = random.choice(RANKS)
    ep = random.choice((tp * dp * cp, tp * dp * cp, 1, 2, 3))
    fields = {name: random.choice(values) for name, values in CHOICES.items()}
    runtime = aisim.policy(random.choice(("sglang", "vllm", "atom", "trtllm")), **fields)
    gpu = random.choice((RACK, NODES, ALONE))
    return gpu, Parallel(tp=tp, ep=ep, dp=dp, cp=cp), runtime, random.choice(STEPS)


@pytest.mark.parametrize(("method", "combinations"), [("sol", 150), ("op", 25)])
def test_two_outcomes(method: str, combinations: int):
    random, found = Random(11), Counter[str]()
    for _ in range(combinations):
        gpu, parallel, runtime, requests = drawn(random)
        try:
            answer = aisim.estimate(
                aisim.Plan(MODEL, requests, parallel, runtime), gpu, method=method
            )
        except UnsupportedPlanError:
            found["refused"] += 1
            continue
        low, high = answer.band_s
        assert 0 <= low <= answer.latency_s <= high
        assert isfinite(answer.latency_s)
        assert answer.bounds.resource_s <= answer.bounds.graph_s * (1 + 1e-12)
        assert answer.bounds.graph_s <= answer.latency_s * (1 + 1e-12)
        found["answered"] += 1
    assert found["answered"] > combinations // 4
    assert found["refused"] > combinations // 8


@pytest.mark.parametrize(("tp", "ep"), list(product((1, 2, 4, 8), (1, 2, 4, 8))))
def test_an_exchange_runs_exactly_where_every_rank_holds_whole_experts(tp: int, ep: int):
    runtime = aisim.policy("vllm", expert_exchange="all_to_all", shared_expert="replicated")
    plan = aisim.Plan, (MODEL, STEPS[0], Parallel(tp=tp, ep=ep), runtime)
    if ep == tp:
        assert aisim.estimate(plan[0](*plan[1]), RACK, method="sol").latency_s > 0
        return
    with pytest.raises(UnsupportedPlanError):
        aisim.estimate(plan[0](*plan[1]), RACK, method="sol")
