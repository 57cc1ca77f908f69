"""Image rows of a step: which layers run them, which experts they add, what they do not look up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.engram import engram
from aisim_v41.estimators.entry import compile, estimate
from aisim_v41.hardware import load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counts import Count
from aisim_v41.plan.expert_load import ExpertLoad
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan, forward_passes
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

_LOADED = load_model("deepseek-v4.1-flash")
assert isinstance(_LOADED, Model)
MODEL: Model = _LOADED
B200 = load_hardware("b200")
TP4 = Parallel(tp=4)
REPLAY = policy("sglang", decoder_replay=True)


def counted(runtime: RuntimePolicy, *requests: Request) -> Ledger:
    return ledger(Plan(MODEL, requests, policy=runtime))


def image_rows(runtime: RuntimePolicy, *requests: Request) -> list[int]:
    """Of layers 0, 20 and 39."""
    found = counted(runtime, *requests)
    return [found.total(Count.IMAGE_ROWS, layer) for layer in (0, 20, 39)]


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "text", "by_layer"),
    [
        # An image of 994 tokens, then text: the tail of 128 rows begins behind the image ...
        (REPLAY, 200, [994, 994, 0]),
        (REPLAY, 128, [994, 994, 0]),
        # ... or inside it, 28 rows before its end.
        (REPLAY, 100, [994, 994, 28]),
        (REPLAY, 0, [994, 994, 128]),
        # Layer 20 writes KV of every row also where it queries with the tail.
        (REPLAY.with_overrides(boundary_layer="kv_only"), 100, [994, 994, 28]),
        (REPLAY.with_overrides(decoder_replay=False), 100, [994, 994, 994]),
        # Every row of a request with images (runtime-semantics 1.5).
        (policy("trtllm", decoder_replay=True), 100, [994, 994, 994]),
        (REPLAY.with_overrides(replay_images="no_replay"), 100, [994, 994, 994]),
    ],
)
def test_an_image_comes_first(runtime: RuntimePolicy, text: int, by_layer: list[int]) -> None:
    request = Request(new_tokens=994 + text, image_tokens=994)
    assert image_rows(runtime, request) == by_layer
    assert image_rows(runtime, replace(request, count=3, packed=b"")) == [3 * n for n in by_layer]


def test_a_text_request_beside_an_image() -> None:
    picture, text = Request(new_tokens=500, image_tokens=400), Request(new_tokens=500)
    rows = {
        images: counted(
            REPLAY.with_overrides(replay_images=images), picture, text
        ).total(Count.QUERY_ROWS, 39)
        for images in ("as_text", "all_rows", "no_replay")
    }  # fmt: skip
    assert rows == {"as_text": 256, "all_rows": 628, "no_replay": 1000}


def test_a_second_chunk_and_a_folded_replay() -> None:
    later = Request(new_tokens=600, prefix_tokens=8192, image_tokens=496)
    assert image_rows(policy("sglang"), later) == [496] * 3
    folded = policy("sglang", encoder_replay="folded", hit_page_tokens=1)
    missed = replace(later, window="missing", packed=b"")
    found = counted(folded, missed)
    assert found.total(Count.QUERY_ROWS, 0) == 728
    assert found.total(Count.IMAGE_ROWS, 0) == 496
    apart = forward_passes([missed], folded.with_overrides(encoder_replay="separate"))
    assert apart[-1].requests[0].image_tokens == 496


# --- experts ----------------------------------------------------------------------------------


def touched(*requests: Request, **fields: object) -> tuple[float, float]:
    """Experts of layer 0, of a bound and expected."""
    found = counted(policy("sglang", **fields), *requests)
    ((_, counts),) = found.passes
    where = found.program.classes[0]
    bound, expected = (
        float(counts.totals[found.program.position(count, where)])
        for count in (Count.EXPERTS_TOUCHED, Count.EXPERTS_EXPECTED)
    )
    return bound, expected


def test_a_second_population() -> None:
    # v = 1: 64 rows touch 384 x 64 / 127 experts; of those that text misses, images miss as many
    alone = 384 * 64 / 127
    both = Request(new_tokens=128, image_tokens=64)
    assert touched(both) == pytest.approx([2 * alone - alone**2 / 384] * 2, rel=1e-12)
    assert touched(Request(new_tokens=64, image_tokens=64)) == pytest.approx([alone] * 2)
    # alike experts: it makes no difference whose bias chooses
    assert touched(both, expert_popularity=0.0) == pytest.approx(
        touched(Request(new_tokens=128), expert_popularity=0.0), rel=1e-12
    )
    assert touched(both, expert_routing="fewest")[0] == 6


def test_image_rows_beside_verify_rows() -> None:
    # 6 verify rows are 1 draw of a bound and 1 + 5 x 0.6 = 4 expected ones
    verify = Request(new_tokens=6, prefix_tokens=512, kind="verify")
    bound, expected = touched(verify, Request(new_tokens=10, image_tokens=10))
    images = 384 * 10 / 73
    one, four = 6.0, 384 * 4 / 67
    assert bound == pytest.approx(one + images - one * images / 384, rel=1e-12)
    assert expected == pytest.approx(four + images - four * images / 384, rel=1e-12)


@given(st.floats(0, 30), st.floats(0, 1e5), st.floats(0, 1e5))
def test_two_sets_touch_more_than_one_and_less_than_both(v: float, n: float, m: float) -> None:
    load = ExpertLoad(384, 6, v)
    one, other = load.touched(np.array([n, m]))
    both = float(load.together(one, other))
    assert max(one, other) * (1 - 1e-12) <= both <= min(one + other, 384) * (1 + 1e-12)


# --- Engram -----------------------------------------------------------------------------------


def test_image_rows_look_nothing_up() -> None:
    # 8,192 rows, of them 994 of an image: 7,198 x 24 rows x 264 B, a quarter of them on each rank
    def tables(images: int) -> float:
        request = Request(new_tokens=8192, image_tokens=images)
        answer = estimate(
            Plan(MODEL, [request], parallel=TP4, policy=policy("sglang")), B200, "sol"
        )
        rows = [row for row in answer.rows if row.operator == "engram_lookup"]
        return sum(row.bytes_by_kind.get("table_read", 0.0) for row in rows)

    assert tables(0) == pytest.approx(2 * 8192 * 24 * 264 / 4, rel=1e-12)
    assert tables(994) == pytest.approx(2 * 7198 * 24 * 264 / 4, rel=1e-12)
    assert tables(8192) == pytest.approx(0.0, abs=1e-6)


def test_the_transfer_from_a_host_leaves_image_rows_out() -> None:
    request = Request(new_tokens=1000, image_tokens=994)
    runtime = policy("sglang", engram_residency="host_shared")
    report = engram(Plan(MODEL, [request], parallel=TP4, policy=runtime), B200)
    assert [module.tokens for module in report.modules] == [6, 6]
    assert report.link_bytes == pytest.approx(2 * 6 * 24 * 264)


# --- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sol", "op"])
def test_one_step_a_sweep_and_an_estimate_agree(method: str) -> None:
    step = compile(MODEL, B200, parallel=TP4, policy=REPLAY, method=method)
    frame = pd.DataFrame({"new_tokens": [600, 600, 600], "image_tokens": [0, 496, 600]})
    swept = step.sweep(frame).latency_ms.tolist()
    for images, latency_ms in zip(frame.image_tokens.tolist(), swept, strict=True):
        request = Request(new_tokens=600, image_tokens=images)
        assert 1000 * step([request]) == pytest.approx(latency_ms, rel=1e-12)
        answer = estimate(Plan(MODEL, [request], parallel=TP4, policy=REPLAY), B200, method)
        assert answer.latency_ms == pytest.approx(latency_ms, rel=1e-12)


def test_text_steps_are_what_they_were() -> None:
    """A column of zeros changes nothing, to the last bit."""
    step = compile(MODEL, B200, parallel=TP4, policy=REPLAY, method="op")
    frame = pd.DataFrame({"new_tokens": [1, 64, 8192]})
    zeros = frame.assign(image_tokens=0)
    assert step.sweep(frame).latency_ms.tolist() == step.sweep(zeros).latency_ms.tolist()


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"new_tokens": 10, "image_tokens": 11},
        {"new_tokens": 1, "kind": "decode", "image_tokens": 1},
        {"new_tokens": 6, "kind": "verify", "image_tokens": 1},
        {"new_tokens": 6, "image_tokens": -1},
        {"new_tokens": 6, "image_tokens": 1.0},
        {"new_tokens": 6, "image_tokens": True},
    ],
    ids=repr,
)
def test_no_request_has_such_images(fields: dict) -> None:
    with pytest.raises(InvalidInputError, match="image"):
        Request(**fields)
    step = compile(MODEL, B200, policy=policy("sglang"), method="sol")
    if type(fields["image_tokens"]) is int:
        with pytest.raises(InvalidInputError, match="image"):
            step.sweep(pd.DataFrame({name: [value] for name, value in fields.items()}))


@pytest.mark.parametrize(
    ("runtime", "request_", "part"),
    [
        (policy("paper"), {"prefix_tokens": 1}, "first chunk"),
        (policy("trtllm", decoder_replay=True), {"prefix_tokens": 256, "window": "cached"},
         "reuses nothing"),
    ],
)  # fmt: skip
def test_what_an_engine_refuses(runtime: RuntimePolicy, request_: dict, part: str) -> None:
    request = Request(new_tokens=10, image_tokens=5, **request_)
    with pytest.raises(UnsupportedPlanError, match=part):
        Plan(MODEL, [request], policy=runtime)
    Plan(MODEL, [replace(request, image_tokens=0, packed=b"")], policy=runtime)


def test_a_model_without_vision() -> None:
    blind = replace(MODEL, vision=None)
    with pytest.raises(UnsupportedPlanError, match="has no vision encoder"):
        Plan(blind, [Request(new_tokens=10, image_tokens=5)])


def test_what_a_reader_may_miss() -> None:
    later = Request(new_tokens=10, prefix_tokens=5, image_tokens=5)
    warned = Plan(MODEL, [later], policy=policy("custom")).warnings
    assert any("encoding their images is not part of a step" in text for text in warned)
    assert any("images lie in the first chunk" in text for text in warned)
    text = Plan(MODEL, [replace(later, image_tokens=0, packed=b"")], policy=policy("custom"))
    assert not any("image" in warning for warning in text.warnings)


def test_columns_know_whether_there_are_images() -> None:
    assert pack([Request(new_tokens=5), Request(new_tokens=5, image_tokens=1)]).pictured
    assert not pack([Request(new_tokens=5, prefix_tokens=9, window="cached")]).pictured
