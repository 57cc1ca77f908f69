"""The draft pass, worked by hand: multiply-accumulates, weights, messages, fusion.

Shapes beside those of `test_hand_worked`: 3 blocks of 128 experts (3 chosen, 1 shared), 5
positions, 3 taps, Markov rank 256. Every figure named here is one of model-facts §8.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import draft_tensors
from aisim_v41.ops.fusion import PROFILES
from aisim_v41.ops.graph import tasks_of
from aisim_v41.ops.operator import Collective, Task, Traffic
from aisim_v41.plan.counts import Count
from aisim_v41.plan.draft import BLOCK, CHAIN, CONTEXT
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request
from ops.graphs import added, amount, built, counts, flop, model, moved

DRAFTING = policy(
    "paper", fusion="elementary", speculation="dspark", expert_routing="fewest",
)  # fmt: skip
ONE = Request(new_tokens=6, prefix_tokens=4608, kind="verify")
BLOCKS, POSITIONS, CONTEXT_ROWS = 3, 5, 6


def drafted(runtime: RuntimePolicy = DRAFTING, tp: int = 1) -> list[Task]:
    """Tasks of the draft pass, as often as they occur."""
    steps = built(runtime, tp).backbone.draft
    return [task for step in steps for task in tasks_of(step.node)]


def macs(name: str) -> Fraction:
    """Multiply-accumulates of all calls of an operator in one request's step."""
    return flop(drafted(), counts(DRAFTING, ONE), f"draft_{name}") / 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("main_proj", CONTEXT_ROWS * 78_643_200),
        ("tap", CONTEXT_ROWS * 3 * 4 * 5120),
        ("context_kv_down", CONTEXT_ROWS * BLOCKS * 2_621_440),
        ("kv_down", POSITIONS * BLOCKS * 2_621_440),
        ("q_down", POSITIONS * BLOCKS * 5120 * 1280),
        ("q_up", POSITIONS * BLOCKS * 1280 * 64 * 512),
        ("o_down", POSITIONS * BLOCKS * 8 * 4096 * 1024),
        ("o_up", POSITIONS * BLOCKS * 8192 * 5120),
        # each row sees the last 128 positions and all 5 drafted rows
        ("sparse_attention", POSITIONS * BLOCKS * (128 + 5) * 2 * 64 * 512),
        ("router_gate", POSITIONS * BLOCKS * 5120 * 128),
        ("routed_experts", POSITIONS * BLOCKS * 3 * 3 * 5120 * 2304),
        ("shared_expert", POSITIONS * BLOCKS * 3 * 5120 * 2304),
        ("mhc_statistics", POSITIONS * BLOCKS * 2 * 4 * 5120 * 24),
        ("head_collapse", POSITIONS * 4 * 5120),
        ("output_head", POSITIONS * 661_913_600),
        ("markov_head", POSITIONS * 33_095_680),
        ("sample_draft", POSITIONS * 129_280),
        ("confidence", POSITIONS * 5376),
    ],
)
def test_work(name: str, expected: int):
    assert macs(name) == expected


def test_active_parameters_of_a_row():
    """809,472,354: everything of three blocks but the experts that were not chosen."""
    chosen = model().draft.experts.top_k
    active = sum(
        replace(tensor, copies=chosen).parameters
        if tensor.group is TensorGroup.DRAFT_EXPERTS
        else tensor.parameters
        for block in draft_tensors(model())
        for tensor in block.values()
        if tensor.group is not TensorGroup.DRAFT_HEADS
    )
    assert active == 809_472_354


def test_weights_of_a_pass_with_nine_experts():
    """882,634,632 B stored, of which a pass looks only rows up in the Markov embedding, and text
    reads no router bias for images."""
    found = counts(DRAFTING, ONE)
    read = moved(drafted(), found, Traffic.WEIGHTS)
    table, image_biases = 129_280 * 256 * 2, 3 * 128 * 4
    assert read + table + image_biases == 882_634_632


def test_weights_that_a_cache_may_still_hold():
    """The target's head, the Markov head at all positions but the first, and ``wkv`` with its norm
    on drafted rows after context rows."""
    again = moved(drafted(), counts(DRAFTING, ONE), Traffic.WEIGHTS_REREAD)
    latent = 512 * 5120 + 16 * 160 + 512 * 2
    assert again == 129_280 * 5120 * 2 + 4 * 129_280 * 256 * 2 + BLOCKS * latent
    target = [task for step in built(DRAFTING).backbone.chain for task in tasks_of(step.node)]
    assert moved(target, counts(DRAFTING, ONE), Traffic.WEIGHTS_REREAD) == 0


def test_cache_traffic():
    """Rings of 528 B rows: 122 older rows read by each block, the 6 of the step again, 6 written;
    drafted rows are kept nowhere."""
    found = counts(DRAFTING, ONE)
    assert moved(drafted(), found, Traffic.KV_READ) == BLOCKS * 122 * 528
    assert moved(drafted(), found, Traffic.KV_REREAD) == BLOCKS * 6 * 528
    assert moved(drafted(), found, Traffic.KV_WRITE) == BLOCKS * 6 * 528


def test_a_verify_cycle_has_43_attention_calls():
    """860 in 20 cycles of a GB300 trace: 40 of the target and 3 of the drafter (Q0054)."""
    calls = Counter(task.name for task in built(DRAFTING).tasks)
    assert calls["sparse_attention"] + calls["draft_sparse_attention"] == 43


def test_messages_of_one_rank_of_four():
    found = counts(policy("vllm", speculation="dspark"), ONE)
    sent = [task for task in drafted(policy("vllm", speculation="dspark"), 4) if task.payload]
    payloads = [(task.collective, task.name, int(amount(task.payload, found))) for task in sent]
    rows = POSITIONS * 5120 * 2
    assert payloads[0] == (Collective.ALL_REDUCE, "draft_all_reduce_embedding", rows)
    sums = [name for kind, name, size in payloads if size == rows and kind == "all_reduce"]
    assert len(sums) == 1 + 2 * BLOCKS
    position = [
        (Collective.ALL_REDUCE, "draft_all_reduce_markov", 256 * 2),
        (Collective.ALL_GATHER, "draft_gather_winners", 4 * 8),
    ]
    assert payloads[-2 * POSITIONS :] == position * POSITIONS
    assert all(task.group == 4 for task in sent)


def test_one_rank_sends_nothing():
    assert not any(task.payload for task in drafted())


def test_ranks_share_the_work():
    """Products that are split do a quarter on one of four; replicated ones do all."""
    found = counts(DRAFTING, ONE)
    for name, share in (
        ("q_up", 4), ("o_up", 4), ("routed_experts", 4), ("markov_head", 4),
        ("output_head", 4), ("sample_draft", 4), ("main_proj", 1), ("shared_expert", 1),
        ("q_down", 1), ("kv_down", 1),
    ):  # fmt: skip
        alone, split = (flop(drafted(DRAFTING, tp), found, f"draft_{name}") for tp in (1, 4))
        assert alone == share * split, name


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("tp", [1, 4])
def test_fusing_does_the_same_work(profile: str, tp: int):
    elementary = drafted(DRAFTING, tp)
    fused = drafted(DRAFTING.with_overrides(fusion=profile), tp)
    done = Counter(name for task in fused for name in task.replaces)
    assert done == Counter(name for task in elementary for name in task.replaces)
    for kind in (Traffic.WEIGHTS, Traffic.WEIGHTS_REREAD, Traffic.KV_READ, Traffic.KV_WRITE):
        before, after = (added(t.traffic[kind] for t in tasks) for tasks in (elementary, fused))
        assert before == after, kind


def test_every_task_is_named_as_one_of_the_draft_pass():
    for profile in PROFILES:
        tasks = drafted(DRAFTING.with_overrides(fusion=profile), 4)
        assert all(task.name.startswith("draft_") for task in tasks)
        regions = {BLOCK.region, CONTEXT.region, CHAIN.region}
        assert {task.rows.region for task in tasks} == regions
        columns = {c for task in tasks for form in task.traffic.values() for c in form}
        assert {column.region for column in columns} == regions


def test_what_is_read_has_been_written():
    """Every tensor of the pass comes from it, the target or a table, at enough bytes a row."""
    written: dict[str, float] = {"tokens": 0}
    for profile in PROFILES:
        for task in drafted(DRAFTING.with_overrides(fusion=profile), 4):
            for tensor in task.inputs:
                if tensor not in ("embedding_rows", "markov_table", "streams", "streams_before"):
                    assert tensor in written, f"{task.name} reads {tensor}"
            written |= {name: sum(form.values()) for name, form in task.outputs.items()}


def test_a_prompt_runs_the_context_alone():
    found = counts(DRAFTING, Request(new_tokens=8192))
    working = {t.name for t in drafted() if any(amount(f, found) for f in t.traffic.values())}
    assert working == {
        "draft_tap", "draft_main_proj", "draft_main_norm", "draft_context_kv_down",
        "draft_context_kv_store",
    }  # fmt: skip
    assert flop(drafted(), found, "draft_main_proj") == 2 * 128 * 78_643_200


def test_the_target_is_that_of_a_step_without_speculation_and_samples():
    off = [t.name for t in built(DRAFTING.with_overrides(speculation="off"), 4).tasks]
    graph = built(DRAFTING, 4).backbone
    on = [task.name for task in tasks_of(graph.target)]
    assert Counter(on) - Counter(off) == Counter(["sample_target"])
    assert not Counter(off) - Counter(on)
    assert Count.LOGIT_ROWS in {column.quantity for column in graph.chain[-1].node.axes}
