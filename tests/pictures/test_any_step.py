"""Any step of any engine, mapping and method adds up, and is drawn or refused in words."""

from __future__ import annotations

import contextlib
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot

import aisim_v41 as aisim
from aisim_v41 import pictures
from aisim_v41.reports.shares import shares

MODEL = aisim.load_model("deepseek-v4.1-flash")
GPUS = {name: aisim.load_hardware(name) for name in ("gb300", "h200")}
POLICIES = [
    ("paper", {}), ("sglang", {}), ("vllm", {"decoder_replay": True}), ("atom", {}),
    ("trtllm", {}), ("sglang", {"speculation": "dspark"}),
    ("vllm", {"engram_residency": "host_sharded"}), ("sglang", {"decode_execution": "eager"}),
]  # fmt: skip
MAPPINGS = [
    aisim.Parallel(), aisim.Parallel(tp=4), aisim.Parallel(tp=2, dp=2), aisim.Parallel(tp=2, cp=2),
]  # fmt: skip
REQUESTS = st.one_of(
    st.builds(aisim.Request, new_tokens=st.integers(0, 600), prefix_tokens=st.integers(0, 5000),
              count=st.integers(0, 3)),
    st.builds(aisim.Request, new_tokens=st.integers(100, 600), image_tokens=st.integers(0, 100)),
    st.builds(aisim.Request, new_tokens=st.just(1), prefix_tokens=st.integers(1, 9000),
              kind=st.just("decode"), count=st.integers(0, 600)),
)  # fmt: skip


@st.composite
def estimates(draw) -> aisim.Estimate | None:
    """A step that has a time; None where the engine refuses it."""
    name, fields = draw(st.sampled_from(POLICIES))
    requests = draw(st.lists(REQUESTS, min_size=1, max_size=3))
    gpu = GPUS[draw(st.sampled_from(list(GPUS)))]
    try:
        plan = aisim.Plan(
            MODEL, requests, draw(st.sampled_from(MAPPINGS)), aisim.policy(name, **fields)
        )
        return aisim.estimate(plan, gpu, draw(st.sampled_from(["sol", "op"])))
    except aisim.AisimError:
        return None


@settings(max_examples=40)
@given(estimates())
def test_every_step_adds_up(estimate):
    if estimate is None:
        return
    for by in ("family", "source"):
        whole = shares(estimate, by=by)["ms"].sum()
        assert whole == pytest.approx(estimate.latency_ms, rel=1e-9)


@settings(max_examples=10)
@given(estimates())
def test_every_step_is_drawn_or_refused(estimate):
    if estimate is None:
        return
    for draw in (
        pictures.breakdown,
        pictures.timeline,
        pictures.roofline,
        lambda one: pictures.token_map(one.plan),
    ):
        with contextlib.suppress(aisim.AisimError):
            assert draw(estimate).get_title("left")
    pyplot.close("all")


def test_measured_forwards_add_up_too(gb300):
    policy = aisim.policy("sglang", decode_execution="eager", decoder_replay=False)
    decode = aisim.Request(new_tokens=1, prefix_tokens=700, kind="decode", count=2)
    plan = aisim.Plan(MODEL, [decode], aisim.Parallel(tp=4), policy)
    answer = aisim.estimate(plan, gb300, "fpm")
    for by in ("family", "source"):
        assert shares(answer, by=by)["ms"].sum() == pytest.approx(answer.latency_ms)
    ax = pictures.methods(aisim.compare(plan, gb300), of="whole")
    assert {patch.get_gid() for patch in ax.patches} >= {"sol", "op", "fpm"}


def test_steps_without_time_are_refused(gb300):
    nothing = aisim.Plan(MODEL, [aisim.Request(new_tokens=5, count=0)], aisim.Parallel(tp=2, dp=2))
    answer = aisim.estimate(nothing, gb300)
    for draw in (pictures.breakdown, pictures.timeline, pictures.roofline):
        with pytest.raises(aisim.InvalidInputError, match="no"):
            draw(answer)
    with pytest.raises(aisim.InvalidInputError, match="runs no rows"):
        pictures.token_map(nothing)


@pytest.mark.parametrize("layers", [(20,), "20", (1, 2, 3), (20.0, 21), (True, 3), 5])
def test_layers_of_a_timeline_are_two_numbers(gb300, layers):
    decode = aisim.Request(new_tokens=1, prefix_tokens=700, kind="decode")
    answer = aisim.estimate(aisim.Plan(MODEL, [decode]), gb300, "sol")
    with pytest.raises(aisim.InvalidInputError, match="the first and the last"):
        pictures.timeline(answer, layers=layers)


CELLS = st.one_of(
    st.none(), st.integers(-5, 10**6), st.floats(), st.sampled_from(["a", "b"]), st.booleans()
)
COLUMNS = (
    "operator", "sol_ms", "op_ms", "fpm_ms", "change", "kind", "low", "high", "low_ms", "base_ms",
    "high_ms", "swing_ms", "note", "measured", "predicted", "latency_ms", "tokens_per_s_per_gpu",
    "count", "prefix_tokens", "fits", "unit", "standing",
)  # fmt: skip


@st.composite
def frames(draw) -> pd.DataFrame:
    rows = draw(st.integers(0, 4))
    return pd.DataFrame(
        {name: draw(st.lists(CELLS, min_size=rows, max_size=rows)) for name in COLUMNS}
    )


@settings(max_examples=40)
@given(frames(), st.sampled_from(["methods", "tornado", "pareto", "surface", "predictions"]))
def test_any_frame_is_drawn_or_refused(frame, name: str):
    with contextlib.suppress(aisim.AisimError):
        getattr(pictures, name)(frame)
    pyplot.close("all")


@pytest.mark.parametrize(
    "name",
    ["breakdown", "capacity_bars", "capacity_terms", "layer_map", "methods", "predictions",
     "roofline", "timeline", "token_map", "tornado"],
)  # fmt: skip
@pytest.mark.parametrize(
    "given_", [None, 5, float("nan"), "x", [], {}, [1], pd.DataFrame({"a": [1]})], ids=repr
)
def test_what_it_cannot_draw_is_a_typed_error(name: str, given_: Any):
    with pytest.raises(aisim.AisimError):
        getattr(pictures, name)(given_)
