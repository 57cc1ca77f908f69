"""Time of an encode: bounds by hand, laws, evidence, what is sent, a first token behind it."""

from __future__ import annotations

import math
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.errors import (
    AisimError,
    InvalidInputError,
    MissingProfileError,
    UnsupportedPlanError,
)
from aisim_v41.estimators.encode_result import image_prompt, send_seconds
from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.vision import RANKS, encode
from aisim_v41.evidence.calibration import load_calibration
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.vision import image_grid
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request

_LOADED = load_model("deepseek-v4.1-flash")
assert isinstance(_LOADED, Model)
MODEL: Model = _LOADED
GB300, B200, H100 = (load_hardware(name) for name in ("gb300", "b200", "h100"))
LARGE, SMALL = (1302, 1302), (544, 544)
TP4 = Parallel(tp=4)
SIZES = st.lists(st.tuples(st.integers(30, 3000), st.integers(30, 3000)), min_size=1, max_size=4)


# --- bounds -----------------------------------------------------------------------------------


def test_the_bound_of_the_largest_image_is_its_published_work_at_peak() -> None:
    # 17.07 TFLOP at 2,500 TFLOP/s; weights of 971 MB at 8 TB/s are far below
    found = encode(MODEL, [LARGE], GB300, "sol")
    macs = 602_112 * 8649 + 32 * (12_845_056 * 8649 + 2048 * 8649**2) + 73_400_320 * 961
    assert found.flop == 2 * macs
    assert found.bounds.resource_s == pytest.approx(2 * macs / 2500e12, rel=1e-12)
    assert found.latency_s == found.bounds.graph_s
    assert found.bounds.graph_s == pytest.approx(found.bounds.resource_s, rel=0.01)
    assert found.band_s == (found.latency_s, math.inf)


def test_a_tiny_image_is_bound_by_its_weights() -> None:
    # 3 x 3 patches: matrices of 970.4 MB at 8 TB/s
    tiny = image_grid(MODEL, *SMALL)
    one = type(tiny)(
        width=42, height=42, patches_wide=3, patches_high=3, cells_wide=1, cells_high=1
    )
    found = encode(MODEL, [one], GB300, "sol")
    assert found.bounds.resource_s == pytest.approx(970_405_888 / 8e12, rel=1e-3)
    assert all(row.bound == "hbm" for row in found.rows)


def test_ranks_share_work_or_images() -> None:
    copies, cut, spread = (
        encode(MODEL, [LARGE] * 4, GB300, "sol", parallel=TP4, ranks=ranks) for ranks in RANKS
    )
    assert copies.latency_s == encode(MODEL, [LARGE] * 4, GB300, "sol").latency_s
    # All but the patch embedding (0.06 % of the work) is cut; sums cross the link.
    assert cut.bounds.resource_s == pytest.approx(copies.bounds.resource_s / 4, rel=0.01)
    assert cut.bounds.graph_s > cut.bounds.resource_s
    sums = [row for row in cut.rows if row.message_bytes]
    assert sum(row.message_bytes for row in sums) == 4 * 2 * (64 * 8649 * 1024 + 961 * 5120)
    # One image a rank, then a gather of 4 x 961 rows, of which a rank receives three quarters.
    one = encode(MODEL, [LARGE], GB300, "sol").latency_s
    gather = 3 * 961 * 5120 * 2 / 900e9
    assert spread.rank_images == (1, 1, 1, 1)
    assert spread.latency_s == pytest.approx(one + gather, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(SIZES, st.sampled_from(RANKS), st.sampled_from(["eager", "graph"]))
def test_op_lies_above_both_bounds_and_inside_its_band(
    sizes: list[tuple[int, int]], ranks: Any, execution: Any
) -> None:
    asked = {"parallel": TP4, "ranks": ranks, "execution": execution}
    floor = encode(MODEL, sizes, B200, "sol", **asked)
    found = encode(MODEL, sizes, B200, **asked)
    assert floor.bounds.resource_s <= floor.bounds.graph_s * (1 + 1e-9)
    assert found.bounds == floor.bounds
    assert floor.latency_s <= found.band_s[0] <= found.latency_s <= found.band_s[1] < math.inf
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.kernels_s, rel=1e-9)
    assert sum(found.source_share.values()) == pytest.approx(1.0)
    assert (found.host_s == 0) == (execution == "graph")


@settings(max_examples=25, deadline=None)
@given(SIZES, st.sampled_from(["one_by_one", "packed"]), st.sampled_from(["sol", "op"]))
def test_more_images_are_never_faster_and_order_is_nothing(
    sizes: list[tuple[int, int]], batching: Any, method: str
) -> None:
    whole = encode(MODEL, sizes, B200, method, batching=batching)
    part = encode(MODEL, sizes[1:], B200, method, batching=batching)
    turned = encode(MODEL, sizes[::-1], B200, method, batching=batching)
    assert part.latency_s <= whole.latency_s * (1 + 1e-9)
    assert turned.latency_s == pytest.approx(whole.latency_s, rel=1e-9)
    assert (turned.tokens, turned.flop) == (whole.tokens, whole.flop)


def test_packing_saves_launches_and_weights() -> None:
    eight = [SMALL] * 8
    alone, packed = (
        encode(MODEL, eight, B200, "op", batching=one) for one in ("one_by_one", "packed")
    )
    assert alone.host_s == pytest.approx(8 * packed.host_s)
    assert packed.kernels_s < alone.kernels_s
    assert alone.flop == packed.flop
    assert sum(r.bytes for r in alone.rows) > sum(r.bytes for r in packed.rows)


def test_a_small_image_waits_for_the_host() -> None:
    # 11 kernels in each of 32 blocks, 1 before and 6 behind, a call of 55 us each on Grace
    found = encode(MODEL, [SMALL], GB300)
    assert found.host_s == pytest.approx((1 + 11 * 32 + 6) * 55e-6)
    assert found.latency_s == found.host_s > found.kernels_s > found.bounds.graph_s
    assert found.source_share["host"] == pytest.approx(1 - found.kernels_s / found.host_s)
    graph = encode(MODEL, [SMALL], GB300, execution="graph", batching="one_by_one")
    assert graph.latency_s == graph.kernels_s < found.latency_s


def test_no_images_take_no_time() -> None:
    for method in ("sol", "op"):
        none = encode(MODEL, [], GB300, method)
        assert (none.latency_s, none.band_s, none.tokens, none.rows) == (0.0, (0.0, 0.0), 0, ())
        assert none.source_share == {}


# --- evidence ---------------------------------------------------------------------------------

PUBLISHED = {512: 333, 1024: 392, 2048: 460, 4096: 476, 8192: 496, 16384: 497}
"""TFLOP/s of FlashAttention-3 on an H100, 64-wide heads, no mask, 16,384 tokens in all, hidden
width 2,048 (arXiv 2407.08608, figure 5a)."""
OTHERS = {512: (282, 335), 8192: (322, 412), 16384: (324, 413)}
"""The same of FlashAttention-2 and cuDNN."""


def dense_attention_s(keys: int) -> float:
    law = load_calibration(H100).law("attention.dense")
    flop = 4 * 2048 * keys * 16_384
    features = {
        "compute_s": flop / 989.4e12, "memory_s": 4 * 2048 * 2 * 16_384 / 3.35e12,
        "rows": 16_384.0, "pairs": float(keys * 16_384),
    }  # fmt: skip
    return float(law.seconds(features))


def test_the_attention_law_is_the_published_kernel() -> None:
    error = load_calibration(H100).law("attention.dense").error_p90
    for keys, tflop_per_s in PUBLISHED.items():
        measured = 4 * 2048 * keys * 16_384 / (tflop_per_s * 1e12)
        assert dense_attention_s(keys) == pytest.approx(measured, rel=0.07)
        for other in OTHERS.get(keys, ()):
            measured = 4 * 2048 * keys * 16_384 / (other * 1e12)
            assert abs(dense_attention_s(keys) / measured - 1) < error


def test_every_packaged_gpu_answers_and_says_on_what() -> None:
    for name in ("gb300", "b200", "h200", "mi355x", "rtx_4090", "a100"):
        try:
            hardware = load_hardware(name)
        except MissingProfileError:
            continue
        found = encode(MODEL, [LARGE], hardware)
        (core,) = [row for row in found.rows if row.family == "attention"]
        assert core.source == "default"
        assert found.latency_s > found.bounds.graph_s


def test_a_gpu_without_a_law_of_attention_is_priced_at_peak(monkeypatch: Any) -> None:
    monkeypatch.setattr("aisim_v41.estimators.vision.ATTENTION_LAW", "attention.unheard_of")
    found = encode(MODEL, [LARGE], GB300, execution="graph")
    (core,) = [row for row in found.rows if row.family == "attention"]
    assert core.source == "theoretical"
    assert core.seconds == pytest.approx(core.flop / 2500e12, rel=1e-9)
    assert found.band_s[1] > 2 * found.latency_s


def test_vllm_cuts_the_encoder_and_others_copy_it() -> None:
    chosen = {
        name: encode(MODEL, [SMALL], B200, parallel=TP4, policy=policy(name)).ranks
        for name in ("vllm", "sglang", "atom", "paper")
    }
    assert chosen == {"vllm": "tensor", "sglang": "copies", "atom": "copies", "paper": "copies"}
    # 16 heads over 3 ranks: whole on each
    odd = encode(MODEL, [SMALL], B200, parallel=Parallel(tp=3), policy=policy("vllm"))
    assert odd.ranks == "copies"


# --- placement --------------------------------------------------------------------------------


def test_embeddings_over_each_way() -> None:
    found = encode(MODEL, [LARGE, SMALL], GB300, "sol")
    sent = (994 + 184) * 5120 * 2
    assert found.embedding_bytes == sent
    for way, rate in (("link", 900e9), ("network", 100e9), ("host", 225e9)):
        assert send_seconds(found, GB300, way) == pytest.approx(sent / rate)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="way = 'mail'"):
        send_seconds(found, GB300, "mail")  # type: ignore[arg-type]
    with pytest.raises(MissingProfileError, match="no figure for the network"):
        send_seconds(found, _without_network(GB300), "network")


def _without_network(hardware: Hardware) -> Hardware:
    from dataclasses import replace

    return replace(hardware, nic_bytes_per_s=None)


def test_a_first_token_behind_an_image() -> None:
    encoded = encode(MODEL, [LARGE], GB300)
    plan = Plan(MODEL, [Request(new_tokens=1200, image_tokens=994)], TP4, policy("sglang"))
    step = estimate(plan, GB300)
    here = image_prompt(encoded, [step])
    assert (here.encode_s, here.send_s) == (encoded.latency_s, 0.0)
    assert here.first_token_s == pytest.approx(encoded.latency_s + step.latency_s)
    apart = image_prompt(encoded, [step], way="network", receiver=B200)
    assert apart.send_s == max(
        send_seconds(encoded, hardware, "network") for hardware in (GB300, B200)
    )
    text = estimate(Plan(MODEL, [Request(new_tokens=1200)], TP4, policy("sglang")), GB300)
    with pytest.raises(InvalidInputError, match="hold 0 image tokens, 994 were encoded"):
        image_prompt(encoded, [text])


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error", "part"),
    [
        ({"method": "fpm"}, InvalidInputError, "no whole encodes were measured"),
        ({"method": "best"}, InvalidInputError, "auto, sol, op"),
        ({"ranks": "some"}, InvalidInputError, "copies, tensor, images"),
        ({"ranks": ""}, InvalidInputError, "ranks = ''"),
        ({"batching": 0}, InvalidInputError, "batching = 0"),
        ({"parallel": Parallel(pp=2)}, UnsupportedPlanError, "pipeline stages"),
        ({"batching": "padded"}, InvalidInputError, "one_by_one, packed"),
        ({"execution": "lazy"}, InvalidInputError, "eager, graph"),
        ({"ranks": "tensor", "parallel": Parallel(tp=3)}, UnsupportedPlanError, "over 3 ranks"),
        ({"ranks": "images", "parallel": Parallel(tp=128)}, UnsupportedPlanError, "128"),
        ({"execution": "graph", "policy": policy("sglang", chunk_tokens=512)},
         UnsupportedPlanError, "raise chunk_tokens"),
        ({"images": [(0, 5)]}, InvalidInputError, "image width = 0"),
        ({"images": [5]}, InvalidInputError, r"images\[0\] = 5"),
        ({"images": 5}, InvalidInputError, "images = 5: must be a list"),
        ({"parallel": 4}, InvalidInputError, "parallel = 4: must be a Parallel"),
        ({"policy": "vllm"}, InvalidInputError, "policy = 'vllm': must be a RuntimePolicy"),
        ({"images": ["1x1"]}, InvalidInputError, r"images\[0\]"),
        ({"images": [(1, 2, 3)]}, InvalidInputError, r"images\[0\]"),
    ],
)  # fmt: skip
def test_what_is_refused(asked: dict[str, Any], error: type[AisimError], part: str) -> None:
    asked = {"method": "op", "images": [LARGE], **asked}
    images, method = asked.pop("images"), asked.pop("method")
    with pytest.raises(error, match=part):
        encode(MODEL, images, GB300, method, **asked)


def test_a_model_without_vision() -> None:
    from dataclasses import replace

    with pytest.raises(UnsupportedPlanError):
        encode(load_model("deepseek-v4-flash"), [LARGE], GB300)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedPlanError, match="has no vision encoder"):
        encode(replace(MODEL, vision=None), [], GB300)


def test_frames_and_plain_data() -> None:
    found = encode(MODEL, [LARGE, SMALL], GB300)
    frame = found.to_frame()
    assert frame.time_ms.sum() == pytest.approx(1000 * found.kernels_s)
    assert frame.flop.sum() == found.flop
    data = found.to_dict()
    assert [image["tokens"] for image in data["images"]] == [994, 184]
    assert data["latency_ms"] == found.latency_ms
    assert encode(MODEL, [LARGE], GB300, "sol").to_dict()["band_ms"][1] is None


# --- any combination --------------------------------------------------------------------------

GPUS = ("gb300", "b200", "h200", "mi300x", "rtx_pro_6000", "rtx_4090", "gb10")
ENGINES = ("paper", "sglang", "vllm", "atom", "trtllm")


@pytest.mark.parametrize("seed", range(20))
def test_every_combination_answers_or_is_refused(seed: int) -> None:
    """A finite time above its bound, or UnsupportedPlanError."""
    random = Random(seed)
    answered = 0
    for _ in range(40):
        sizes = [
            (random.randint(1, 4000), random.randint(1, 4000)) for _ in range(random.randint(0, 5))
        ]
        asked: dict[str, Any] = {
            "method": random.choice(("sol", "op", "auto")),
            "parallel": Parallel(tp=random.choice((1, 2, 3, 4, 5, 7, 8, 16, 100))),
            "policy": policy(random.choice(ENGINES), chunk_tokens=random.choice((63, 512, 8192))),
            "ranks": random.choice((None, *RANKS)),
            "batching": random.choice((None, "one_by_one", "packed")),
            "execution": random.choice(("eager", "graph")),
        }
        try:
            found = encode(MODEL, sizes, load_hardware(random.choice(GPUS)), **asked)
        except UnsupportedPlanError:
            continue
        answered += 1
        assert math.isfinite(found.latency_s)
        assert found.latency_s >= found.bounds.graph_s >= 0
        assert (found.latency_s > 0) == bool(sizes)
        assert found.memory.activation_bytes >= 0
    assert answered > 15


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=3),
    st.tuples(st.integers(-3, 3), st.floats()), st.lists(st.integers(-1, 1), max_size=3),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(JUNK, max_size=3) | JUNK, JUNK, JUNK, JUNK)
def test_nonsense_is_a_typed_error(images: Any, ranks: Any, batching: Any, execution: Any) -> None:
    with suppress(AisimError):
        encode(MODEL, images, B200, "sol", ranks=ranks, batching=batching, execution=execution)
