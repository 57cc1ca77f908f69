"""Every operator of one layer, worked by hand: multiply-accumulates and weight bytes.

Shapes are those of the published config: hidden 5120, 64 heads of 512, query latent 1280, 8 output
groups of 1024, 384 experts of 2304 (6 chosen, 1 shared), 4 streams, 32 index heads of 128.
FP8 has a scale byte per 32 x 32 block, MXFP4 a scale byte per 32 values of a row.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.ops.operator import Task, Traffic
from aisim_v41.plan.columns import column_of
from aisim_v41.plan.counts import Count
from aisim_v41.plan.request import Request
from ops.graphs import ELEMENTARY, built, counts, flop

WINDOW_ONLY, ENGRAM, FULL_2, REUSE_2, FULL_1, REUSE_1, REINDEX = 0, 1, 2, 3, 20, 21, 24
"""One layer of each kind; layer 1 is window-only with an Engram module."""
AFTER = 40

FP8, BF16, FP4 = Arithmetic.FP8, Arithmetic.BF16, Arithmetic.FP4
MIXED, TF32, FP32 = Arithmetic.MXFP4_MXFP8, Arithmetic.TF32, Arithmetic.FP32
ROWS = Count.QUERY_ROWS

MACS = {
    # attention (model-facts §4.2)
    "q_down": (REUSE_1, FP8, ROWS, 5120 * 1280),  # 6,553,600
    "q_up": (REUSE_1, FP8, ROWS, 1280 * 64 * 512),  # 41,943,040
    "kv_down": (REUSE_1, FP8, Count.KV_ROWS, 5120 * 512),  # 2,621,440
    "o_down": (REUSE_1, FP8, ROWS, 8 * 4096 * 1024),  # 33,554,432
    "o_up": (REUSE_1, FP8, ROWS, 8192 * 5120),  # 41,943,040
    # experts (§4.5): 6 x (w1 + w2 + w3), and one shared
    "router_gate": (REUSE_1, BF16, ROWS, 5120 * 384),  # 1,966,080
    "routed_experts": (REUSE_1, MIXED, ROWS, 6 * 3 * 5120 * 2304),  # 6 x 35,389,440
    "shared_expert": (REUSE_1, FP8, ROWS, 3 * 5120 * 2304),  # 35,389,440
    # hyper-connections (§4.1): 24 coefficients of 4 x 5120; 4 streams in; 4 out of 1 + 4 x 4
    "mhc_statistics": (REUSE_1, TF32, ROWS, 4 * 5120 * 24),  # 491,520
    "mhc_collapse": (REUSE_1, FP32, ROWS, 4 * 5120),  # 20,480
    "mhc_expand": (REUSE_1, FP32, ROWS, 20_480 + 81_920),
    # compressor and index keys (§4.2): two products at ratio 2, one at ratio 1; wk per entry
    "compress_project": (FULL_2, BF16, Count.COMPRESSED_ROWS, 2 * 5120 * 512),  # 2 x 2,621,440
    "index_key": (FULL_2, BF16, Count.ENTRIES_WRITTEN, 512 * 128),  # 65,536
    # indexer (§4.2): 32 heads of 128
    "index_query": (REINDEX, FP8, Count.INDEX_ROWS, 1280 * 32 * 128),  # 5,242,880
    "index_weights": (REINDEX, BF16, Count.INDEX_ROWS, 5120 * 32),  # 163,840
    "index_score": (REINDEX, FP4, Count.SCORED_POSITIONS, 32 * 128),  # 4,096
    # Engram (§4.6): 24 rows of 256 to 4 keys and a value; gate 4 x 3 x 5120
    "engram_project": (ENGRAM, FP8, Count.KV_ROWS, 24 * 256 * 5 * 5120),  # 157,286,400
    "engram_gate": (ENGRAM, FP32, Count.KV_ROWS, 4 * 3 * 5120),  # 61,440
    # head (§4.7)
    "head_collapse": (AFTER, FP32, Count.LOGIT_ROWS, 4 * 5120),  # 20,480
    "output_head": (AFTER, BF16, Count.LOGIT_ROWS, 5120 * 129_280),  # 661,913,600
}
"""Layer, arithmetic, what it is counted by, multiply-accumulates of one."""


def named(name: str, layer: int, tp: int = 1) -> list[Task]:
    tasks = [task for task in built(ELEMENTARY, tp).by_layer[layer] if task.name == name]
    assert tasks, f"no {name} in layer {layer}"
    return tasks


def columns(layer: int, count: Count):
    program = built(ELEMENTARY).program
    return column_of(count, None if layer == AFTER else program.classes[layer])


@pytest.mark.parametrize("name", MACS)
def test_work(name: str):
    layer, arithmetic, count, macs = MACS[name]
    for task in named(name, layer):
        assert task.flops == {arithmetic: {columns(layer, count): 2 * macs}}


def test_every_operator_that_multiplies_is_worked_above():
    multiplying = {task.name for task in built(ELEMENTARY).tasks if task.flops}
    assert multiplying == {*MACS, "sparse_attention"}


def test_a_layer_of_ratio_1_has_no_pooling_gate():
    (task,) = named("compress_project", FULL_1)
    assert task.flops == {BF16: {columns(FULL_1, Count.COMPRESSED_ROWS): 2 * 5120 * 512}}


@pytest.mark.parametrize("layer", [WINDOW_ONLY, ENGRAM, FULL_2, REUSE_2, FULL_1, REUSE_1, REINDEX])
def test_attention_is_65536_a_pair(layer: int):
    """QKᵀ and PV of 64 heads of 512: 2 x 64 x 512 = 65,536 multiply-accumulates a row read."""
    (task,) = named("sparse_attention", layer)
    pairs = {columns(layer, Count.WINDOW_PAIRS): 2 * 65_536}
    if layer not in (WINDOW_ONLY, ENGRAM):
        pairs[columns(layer, Count.SELECTED_ENTRIES)] = 2 * 65_536
    assert task.flops == {BF16: pairs}


ACTIVE, KV_ACTIVE = Count.ACTIVE, Count.KV_ACTIVE
WEIGHTS = {
    "q_down": (REUSE_1, ACTIVE, 1280 * 5120 + 40 * 160),  # 6,560,000
    "q_norm": (REUSE_1, ACTIVE, 1280 * 2),
    "q_up": (REUSE_1, ACTIVE, 32_768 * 1280 + 1024 * 40),  # 41,984,000
    "kv_down": (REUSE_1, KV_ACTIVE, 512 * 5120 + 16 * 160),  # 2,624,000
    "kv_store": (REUSE_1, KV_ACTIVE, 512 * 2),
    "sparse_attention": (REUSE_1, ACTIVE, 64 * 4),  # one FP32 sink a head
    "o_down": (REUSE_1, ACTIVE, 8192 * 4096 + 256 * 128),  # 33,587,200
    "o_up": (REUSE_1, ACTIVE, 5120 * 8192 + 160 * 256),  # 41,984,000
    "site_norm": (REUSE_1, ACTIVE, 5120 * 2),
    "mhc_statistics": (REUSE_1, ACTIVE, 4 * (24 * 20_480 + 24 + 3)),  # FP32: 1,966,188
    "router_gate": (REUSE_1, ACTIVE, 384 * 5120 * 2),  # 3,932,160
    "router_select": (REUSE_1, ACTIVE, 384 * 4),  # the text bias alone
    # w1 and w3 2304 x 5120 with 160 scales a row, w2 5120 x 2304 with 72: 18,800,640 an expert
    "routed_experts": (
        REUSE_1,
        Count.EXPERTS_TOUCHED,
        2 * (2304 * 2560 + 2304 * 160) + 5120 * 1152 + 5120 * 72,
    ),
    "shared_expert": (REUSE_1, ACTIVE, 3 * (5120 * 2304 + 160 * 72)),  # 35,424,000
    "compress_project": (FULL_2, Count.COMPRESS_ACTIVE, 2 * 512 * 5120 * 2),  # 10,485,760
    "compress_pool": (FULL_2, Count.COMPRESS_ACTIVE, 512 * 2),
    "index_key": (FULL_2, Count.COMPRESS_ACTIVE, 128 * 512 * 2),  # 131,072
    "index_key_store": (FULL_2, Count.COMPRESS_ACTIVE, 128 * 2),
    "index_query": (REINDEX, Count.INDEX_ACTIVE, 4096 * 1280 + 128 * 40),  # 5,248,000
    "index_weights": (REINDEX, Count.INDEX_ACTIVE, 32 * 5120 * 2),  # 327,680
    "engram_project": (ENGRAM, KV_ACTIVE, 25_600 * 6144 + 800 * 192),  # 157,440,000
    "engram_gate": (ENGRAM, KV_ACTIVE, 2 * 4 * 5120 * 2),
    "final_norm": (AFTER, Count.HEAD_ACTIVE, 5120 * 2),
    "output_head": (AFTER, Count.HEAD_ACTIVE, 129_280 * 5120 * 2),  # 1,323,827,200
}
"""Layer, what the bytes are read once for, weight bytes."""


@pytest.mark.parametrize("name", WEIGHTS)
def test_weight_bytes(name: str):
    layer, count, expected = WEIGHTS[name]
    for task in named(name, layer):
        assert task.traffic[Traffic.WEIGHTS] == {columns(layer, count): expected}


def test_every_operator_with_weights_is_worked_above():
    holding = {task.name for task in built(ELEMENTARY).tasks if task.traffic[Traffic.WEIGHTS]}
    assert holding == set(WEIGHTS)


# Linear work of a token by layer kind (model-facts §4.8): projections 126,615,552, experts
# 247,726,080, router 1,966,080, two sites of 491,520 and 122,880 (collapse and expansion).
PLAIN = 126_615_552 + 247_726_080 + 1_966_080 + 2 * (491_520 + 122_880)
BY_KIND = {
    WINDOW_ONLY: PLAIN,
    ENGRAM: PLAIN + 157_286_400,
    14: PLAIN + 10_682_368 + 157_286_400,  # Full at ratio 2, and the other Engram module
    FULL_2: PLAIN + 10_682_368,  # 2 x 2,621,440 + 5,242,880 + 163,840 + half of 65,536
    REUSE_2: PLAIN,
    FULL_1: PLAIN + 8_093_696,  # 2,621,440 + 65,536 + 5,242,880 + 163,840
    REUSE_1: PLAIN,
    REINDEX: PLAIN + 5_406_720,  # 5,242,880 + 163,840
    39: PLAIN,
}


def test_plain_layer_sum():
    assert PLAIN == 377_536_512


@pytest.mark.parametrize("layer", BY_KIND)
def test_linear_work_of_a_token_by_layer_kind(layer: int):
    """Two tokens, so that ratio 2 finishes one entry, a half of it for each."""
    found = counts(ELEMENTARY, Request(new_tokens=2))
    apart = ("sparse_attention", "index_score", "engram_gate")
    linear = [task for task in built(ELEMENTARY).by_layer[layer] if task.name not in apart]
    assert flop(linear, found) / 2 / 2 == BY_KIND[layer]


def test_linear_work_of_the_whole_model():
    """Kinds 2 / 3 + 1 / 4 / 30 (model-facts §3): the sum of all 40 layers."""
    found = counts(ELEMENTARY, Request(new_tokens=2))
    layers = built(ELEMENTARY).by_layer
    apart = ("sparse_attention", "index_score", "engram_gate")
    linear = [task for layer in range(40) for task in layers[layer] if task.name not in apart]
    extras = 3 * 10_682_368 + 8_093_696 + 4 * 5_406_720 + 2 * 157_286_400
    assert flop(linear, found) / 4 == 40 * PLAIN + extras


def test_every_token_adds_the_same_work_to_every_linear_operator():
    """Doubling the rows of a step doubles its products, entry by entry."""
    apart = {"sparse_attention", "index_score", "head_collapse", "output_head"}
    tasks = [task for task in built(ELEMENTARY).tasks if task.name not in apart]
    small, large = (counts(ELEMENTARY, Request(new_tokens=n)) for n in (64, 128))
    for task in tasks:
        assert flop([task], large) == 2 * flop([task], small), task.name
    assert flop(tasks, small) == Fraction(64 * 2) * (
        40 * PLAIN + 3 * 10_682_368 + 8_093_696 + 4 * 5_406_720 + 2 * (157_286_400 + 61_440)
    )
