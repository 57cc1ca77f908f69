"""One weight count in the program: the operators read what the inventory holds, nothing else."""

from __future__ import annotations

import pytest

from aisim_v41.model.inventory import inventory
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import weights_per_rank
from aisim_v41.model.tensor import BACKBONE_GROUPS, TensorGroup
from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.policy import RuntimePolicy, policy
from ops.graphs import ELEMENTARY, built, counts, decode, everything_once, model, moved

IMAGE_BIAS = 40 * 384 * 4
"""``bias_vl``: the router's bias for image rows, which no text row reads."""
READ = (BACKBONE_GROUPS | {TensorGroup.ENGRAM_PROJECTION}) - {TensorGroup.EMBEDDING}
"""Groups that a step with every expert reads whole; of embedding and tables it reads rows."""

POLICIES = {
    "paper": policy("paper"),
    "paper, elementary": ELEMENTARY,
    "sglang": policy("sglang"),
    "sglang, replay": policy("sglang", decoder_replay=True),
    "vllm, boundary writes KV alone": policy("vllm", decoder_replay=True, boundary_layer="kv_only"),
    "trtllm": policy("trtllm", decoder_replay=True),
}


def read_once(runtime: RuntimePolicy, tp: int):
    graph = built(runtime, tp)
    return moved(graph.tasks, everything_once(graph.program, 384), Traffic.WEIGHTS)


def test_all_weights_of_the_checkpoint_that_text_runs():
    """Backbone 298,309,535,168 - embedding 1,323,827,200 - image bias 61,440 + Engram projections
    and gates 315,043,840 (model-facts §2)."""
    expected = 298_309_535_168 - 1_323_827_200 - 61_440 + 315_043_840
    assert read_once(ELEMENTARY, 1) == expected
    held = {group: total.bytes for group, total in inventory(model()).by_group.items()}
    assert expected == sum(held[group] for group in READ) - IMAGE_BIAS


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("runtime", POLICIES.values(), ids=POLICIES)
def test_all_weights_of_a_rank(runtime: RuntimePolicy, tp: int):
    """What a step with every expert reads is what a rank holds of those groups: slices, padding,
    copies and a widened ``wo_a`` included, whatever is fused or cut."""
    held = weights_per_rank(model(), Parallel(tp=tp), runtime.sharding)
    assert read_once(runtime, tp) == sum(held[group] for group in READ) - IMAGE_BIAS


def test_weights_of_one_decoded_token():
    """model-facts §2, "touched per decode token": 13,035,097,920 B with every bias, one embedding
    row of 10,240 B and 12,672 B of Engram rows."""
    graph, found = built(ELEMENTARY), counts(ELEMENTARY, decode(4096))
    weights = moved(graph.tasks, found, Traffic.WEIGHTS)
    # One row touches 384 (1 - 378/384) = 6 experts; the closed form rounds in the last bit.
    assert round(weights) == 13_035_097_920 - IMAGE_BIAS - 10_240 - 12_672
    assert float(weights) == pytest.approx(round(weights), rel=1e-14)
    assert moved(graph.tasks, found, Traffic.TABLE_READ) == 12_672
    (embedding,) = (task for task in graph.tasks if task.name == "embedding")
    assert moved([embedding], found, Traffic.ACTIVATION_READ) == 10_240


def test_a_widened_output_projection():
    """BF16 ``wo_a`` adds 40 x (67,108,864 - 33,587,200) B (model-facts §2)."""
    widened = policy("paper", wo_a="bf16")
    assert read_once(widened, 1) - read_once(policy("paper"), 1) == 1_340_866_560


def test_expert_slices_padded_for_the_kernel():
    """TP 4: 2304 / 4 = 576 values a slice, 640 in SGLang's kernel; FLOP and bytes both grow."""
    exact, padded = (policy("sglang", expert_slice_multiple=n) for n in (1, 128))
    name = "routed_experts"
    for tp, share in ((1, (2304, 2304)), (4, (576, 640)), (8, (288, 384))):
        for runtime, width in zip((exact, padded), share, strict=True):
            (task, *_) = (t for t in built(runtime, tp).by_layer[21] if t.name == name)
            ((work,),) = (form.values() for form in task.flops.values())
            assert work == 2 * 6 * 3 * 5120 * width
            # w1, w3: width rows of 2560 + 160 B; w2: 5120 rows of width / 2 + a scale per 32.
            (held,) = task.traffic[Traffic.WEIGHTS].values()
            assert held == 2 * width * 2720 + 5120 * (width // 2 + width // 32)


def test_weights_never_depend_on_rows_but_for_the_experts_touched():
    few, many = (counts(ELEMENTARY, decode(4096, count=n)) for n in (1, 500))
    for task in built(ELEMENTARY).tasks:
        if task.name != "routed_experts":
            assert moved([task], few, Traffic.WEIGHTS) == moved([task], many, Traffic.WEIGHTS)
