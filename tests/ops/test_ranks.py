"""What a rank computes, and in which precision."""

from __future__ import annotations

import pytest

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.hardware import load_hardware
from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from ops.graphs import ELEMENTARY, amount, built, counts, decode, flop

STEP = (Request(new_tokens=300, prefix_tokens=9000), decode(40_000, count=5))
ENGINE = policy("sglang", fusion="elementary", expert_slice_multiple=1)
PADDED = policy("sglang", fusion="elementary", attention_head_multiple=64)

SPLIT = {"q_up", "o_down", "o_up", "routed_experts", "shared_expert", "sparse_attention"}
"""Work that tensor parallelism divides in the engines, besides the head."""


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("runtime", [ELEMENTARY, ENGINE, PADDED], ids=["paper", "sglang", "padded"])
def test_ranks_together_never_do_less_than_one_alone(runtime, tp: int):
    found = counts(runtime, *STEP)
    alone, one = built(runtime, 1).tasks, built(runtime, tp).tasks
    for name in {task.name for task in alone}:
        assert tp * flop(one, found, name) >= flop(alone, found, name), name
    assert tp * flop(one, found) > flop(alone, found)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_split_work_is_divided_exactly_and_the_rest_is_repeated(tp: int):
    found = counts(ENGINE, *STEP)
    alone, one = built(ENGINE, 1).tasks, built(ENGINE, tp).tasks
    for name in {task.name for task in alone if task.flops}:
        divided = name in SPLIT | {"output_head"}
        assert flop(one, found, name) * (tp if divided else 1) == flop(alone, found, name), name


def test_the_reference_splits_index_heads_and_repeats_the_shared_expert():
    found = counts(ELEMENTARY, *STEP)
    alone, one = (built(ELEMENTARY, tp).tasks for tp in (1, 4))
    for name in ("index_query", "index_score", "index_weights"):
        assert 4 * flop(one, found, name) == flop(alone, found, name), name
    assert flop(one, found, "shared_expert") == flop(alone, found, "shared_expert")


def precision(runtime, name: str, *, has_fp4: bool = True) -> set[Arithmetic]:
    tasks = [task for task in built(runtime, has_fp4=has_fp4).tasks if task.name == name]
    return {arithmetic for task in tasks for arithmetic in task.flops}


def test_output_projection_in_the_precision_of_its_stored_form():
    widened = policy("paper", fusion="elementary", wo_a="bf16")
    assert precision(ELEMENTARY, "o_down") == {Arithmetic.FP8}
    assert precision(widened, "o_down") == {Arithmetic.BF16}
    (stored, *_), (wide, *_) = (
        [t for t in built(p).tasks if t.name == "o_down"] for p in (ELEMENTARY, widened)
    )
    # 64 heads of 512: a byte and a scale per 32 values, or two bytes.
    assert sum(stored.inputs["heads_rotated"].values()) == 32_768 * (1 + 1 / 32)
    assert sum(wide.inputs["heads_rotated"].values()) == 32_768 * 2
    # The next product is FP8 in both.
    assert sum(wide.outputs["o_latent"].values()) == 8192 * (1 + 1 / 32)


@pytest.mark.parametrize(
    ("gpu", "expected"), [("h200", Arithmetic.BF16), ("gb300", Arithmetic.FP4)]
)
def test_index_scores_in_bf16_where_there_are_no_4_bit_units(gpu: str, expected: Arithmetic):
    has_fp4 = Arithmetic.FP4 in load_hardware(gpu).peak_flop_per_s
    assert precision(policy("sglang"), "index_score", has_fp4=has_fp4) == {expected}


def test_a_stated_index_precision_holds_on_every_gpu():
    for chosen in ("fp4", "fp8", "bf16"):
        fixed = policy("paper", fusion="elementary", index_arithmetic=chosen)
        for has_fp4 in (True, False):
            assert precision(fixed, "index_score", has_fp4=has_fp4) == {Arithmetic(chosen)}


@pytest.mark.parametrize("chosen", ["mxfp4_mxfp8", "bf16"])
def test_routed_experts_in_the_chosen_precision(chosen: str):
    runtime = policy("paper", fusion="elementary", expert_arithmetic=chosen)
    assert precision(runtime, "routed_experts") == {Arithmetic(chosen)}
    assert precision(runtime, "shared_expert") == {Arithmetic.FP8}


@pytest.mark.parametrize(
    ("multiple", "tp", "run"), [(1, 4, 16), (64, 4, 64), (64, 1, 64), (24, 4, 24)]
)
def test_heads_padded_for_the_attention_kernel(multiple: int, tp: int, run: int):
    """FlashMLA runs 64 heads for the 16 of a rank at TP 4 (runtime-semantics §4.1)."""
    runtime = policy("sglang", fusion="elementary", attention_head_multiple=multiple)
    tasks = {task.name: task for task in built(runtime, tp).by_layer[22]}
    attention = tasks["sparse_attention"]
    assert set(attention.flops[Arithmetic.BF16].values()) == {2 * 2 * run * 512}
    own = 64 // tp
    for name, tensor, heads in (
        ("q_rope", "q_flat", own),
        ("sparse_attention", "q", run),
        ("inverse_rope", "heads_out", own),
    ):
        assert sum(tasks[name].inputs[tensor].values()) == heads * 512 * 2, name
    assert sum(tasks["q_rope"].outputs["q"].values()) == run * 512 * 2
    assert sum(tasks["o_down"].flops[Arithmetic.BF16].values()) == 2 * own * 512 * 1024


def test_table_rows_by_residency():
    """24 rows of 264 B a token and module, a share on each rank; elsewhere not from HBM."""
    found = counts(ELEMENTARY, Request(new_tokens=10))
    for tp in (1, 2, 4):
        tasks = [t for t in built(ELEMENTARY, tp).tasks if t.name == "engram_lookup"]
        read = [amount(task.traffic[Traffic.TABLE_READ], found) for task in tasks]
        assert read == [10 * 24 * 264 / tp] * 2
    for place in ("host_sharded", "host_shared", "disk"):
        elsewhere = built(policy("paper", fusion="elementary", engram_residency=place))
        assert all(not task.traffic[Traffic.TABLE_READ] for task in elsewhere.tasks)


def test_repeated_rows_of_a_text_are_read_once():
    half = policy("paper", fusion="elementary", engram_distinct_share=0.5)
    found = counts(half, Request(new_tokens=10))
    tasks = [t for t in built(half).tasks if t.name == "engram_lookup"]
    assert sum(amount(t.traffic[Traffic.TABLE_READ], found) for t in tasks) == 10 * 24 * 264
