"""Every combination of engine, replay, mapping, GPU and way answers, or is refused by name."""

from __future__ import annotations

import math
from random import Random

import pytest

import aisim_v41 as aisim
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.caching.restore import restore_or_recompute
from aisim_v41.caching.transfer import Role, transfer
from aisim_v41.caching.ways import WAYS, way_to

MODEL = aisim.load_model("deepseek-v4.1-flash")


def any_policy(random: Random):
    name = random.choice(("paper", "sglang", "vllm", "atom", "trtllm"))
    custom = {"name": "custom", "base": name} if random.random() < 0.3 else {"name": name}
    return aisim.policy(
        **custom,
        decoder_replay=random.random() < 0.5,
        encoder_replay=random.choice(("off", "separate", "folded", "snapshot")),
        speculation=random.choice(("off", "off", "dspark")),
        engram_residency=random.choice(("hbm", "hbm", "host_sharded", "host_shared")),
        prefill_execution=random.choice(("eager", "eager", "breakable_graph", "full_graph")),
        hit_page_tokens=random.choice((1, 64, 256)),
        chunk_tokens=random.choice((100, 512, 8192)),
        boundary_layer=random.choice(("full", "kv_only")),
    )


def any_mapping(random: Random):
    return aisim.Parallel(
        tp=random.choice((1, 2, 3, 4, 8)),
        dp=random.choice((1, 1, 1, 2)),
        cp=random.choice((1, 1, 1, 2)),
        pp=random.choice((1, 1, 1, 1, 1, 2)),
    )


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_or_a_refusal(seed: int):
    random = Random(seed)
    answered = 0
    for _ in range(25):
        policy, parallel = any_policy(random), any_mapping(random)
        gpu = aisim.load_hardware(random.choice(("gb300", "b200", "h200", "mi355x", "rtx_4090")))
        prefix = random.choice((0, 1, 100, 128, 129, 255, 1000, 4097))
        new = random.choice((1, 2, 127, 129, 700))
        try:
            rate = random.choice((None, 1e9, 1e11))
            way = way_to(gpu, random.choice(WAYS), bytes_per_s=rate)
            if random.random() < 0.5:
                report = restore_or_recompute(
                    MODEL, gpu, prefix, new_tokens=new, way=way, policy=policy, parallel=parallel,
                    method="sol", layerwise=random.random() < 0.7,
                )  # fmt: skip
                times = [
                    (c.compute_s, c.exposed_s, c.transfer_s, c.total_s) for c in report.choices
                ]
            else:
                other = any_policy(random) if random.random() < 0.3 else policy
                found = transfer(
                    MODEL, gpu, CacheLookup(prompt_tokens=prefix + new, global_tokens=prefix),
                    sender=Role(policy=policy, parallel=parallel),
                    receiver=Role(policy=other, parallel=parallel), way=way, method="sol",
                    held_tokens=random.randint(0, prefix),
                )  # fmt: skip
                times = [(found.compute_s, found.exposed_s, found.transfer_s, found.total_s)]
        except aisim.UnsupportedPlanError:
            continue
        answered += 1
        for compute, exposed, moved, total in times:
            assert all(math.isfinite(seconds) for seconds in (compute, exposed, moved, total))
            assert 0 < compute <= total
            assert -1e-12 <= exposed <= moved * (1 + 1e-9) + 1e-12
    assert answered >= 1
