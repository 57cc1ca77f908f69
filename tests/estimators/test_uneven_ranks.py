"""Tensor-parallel ranks that do not divide heads and experts: refused, or padded on request."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.sharding import ShardingRules, local, padded
from aisim_v41.model.tensors import layer_tensors

STEPS = {
    "prefill": [aisim.Request(new_tokens=4096)],
    "decode": [aisim.Request(new_tokens=1, prefix_tokens=8192, kind="decode", count=32)],
}
PAD = ShardingRules(uneven_ranks="pad")


def model() -> aisim.Model:
    return aisim.load_model("deepseek-v4.1-flash")


def seconds(tp: int, step: str, method: str = "sol", **changes: object) -> float:
    compiled = aisim.compile(
        model(),
        aisim.load_hardware("gb300"),
        parallel=aisim.Parallel(tp=tp),
        policy=aisim.policy("custom", **changes),
        method=method,
    )
    return compiled(STEPS[step])


@pytest.mark.parametrize("tp", [3, 5, 6, 7])
def test_engines_refuse_them(tp: int):
    with pytest.raises(UnsupportedPlanError, match=rf"tp = {tp} does not divide 8 o_groups.*'pad'"):
        seconds(tp, "decode")


def test_three_ranks_by_hand():
    """9 groups of 8 heads: 24 heads, 3 groups and 768 of 2,304 values of an expert on a rank."""
    parallel = aisim.Parallel(tp=3)
    held = padded(model(), parallel, PAD)
    tensors = layer_tensors(held, held.layers[7])
    shapes = {
        role: (own.rows, own.columns)
        for role, own in ((r, local(t, parallel, PAD)) for r, t in tensors.items())
    }
    assert shapes["attn.wq_b"] == (24 * 512, 1280)
    assert shapes["attn.wo_a"] == (3 * 1024, 4096)
    assert shapes["attn.wo_b"] == (5120, 3 * 1024)
    assert shapes["attn.attn_sink"] == (24, 1)
    assert shapes["ffn.experts.w1"] == (768, 5120)
    assert shapes["ffn.experts.w2"] == (5120, 768)


def test_seven_ranks_hold_two_groups_and_a_rounded_slice():
    parallel = aisim.Parallel(tp=7)
    held = padded(model(), parallel, PAD)
    assert (held.attention.o_groups, held.attention.heads) == (14, 112)
    expert = layer_tensors(held, held.layers[7])["ffn.experts.w1"]
    assert local(expert, parallel, PAD).rows == 330  # 2,304 / 7 = 329.1
    wide = ShardingRules(uneven_ranks="pad", expert_slice_multiple=128)
    assert local(expert, parallel, wide).rows == 384


@pytest.mark.parametrize("method", ["sol", "op"])
@pytest.mark.parametrize("step", STEPS)
def test_even_ranks_are_not_padded(step: str, method: str):
    even, asked = (seconds(4, step, method, uneven_ranks=rule) for rule in ("refuse", "pad"))
    assert even == asked


@pytest.mark.parametrize("step", STEPS)
def test_padding_gains_nothing_over_ranks_that_divide(step: str):
    """5, 6 and 7 ranks hold two groups of heads each, as 4 do; 3 hold three, between 2 and 4."""
    of = {tp: seconds(tp, step, uneven_ranks="pad") for tp in range(1, 9)}
    assert of[2] > of[3] > of[4]
    assert of[4] > of[7] > of[8]
    likely = {tp: seconds(tp, step, "op", uneven_ranks="pad") for tp in (3, 7)}
    assert all(likely[tp] >= of[tp] for tp in likely)


def test_memory_of_padded_ranks():
    """Weights of three ranks: between those of two and four, the padding included."""
    gpu, free = aisim.load_hardware("gb300"), aisim.policy("custom", uneven_ranks="pad")
    weights = {
        tp: sum(
            term.bytes
            for term in aisim.capacity(
                model(), gpu, parallel=aisim.Parallel(tp=tp), policy=free
            ).terms
            if term.kind == "weights"
        )
        for tp in (2, 3, 4)
    }
    assert weights[2] > weights[3] > weights[4] > 0


def test_ranks_of_nothing_but_padding():
    with pytest.raises(UnsupportedPlanError, match=r"nothing but padding; use tp <= 8"):
        seconds(9, "decode", uneven_ranks="pad")
    with pytest.raises(InvalidInputError, match=r"uneven_ranks = 'cut': must be one"):
        aisim.policy("custom", uneven_ranks="cut")
