"""Memory of one step: KV of its requests beside the weights."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.memory import StepMemory, demand
from aisim_v41.memory.demand import kv_terms
from aisim_v41.memory.pool import kv_pool
from aisim_v41.memory.terms import total
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request


def step(
    model: Model, hardware: Hardware, requests: list[Request], name: str = "sglang",
    tp: int = 4, **overrides: Any,
) -> StepMemory:  # fmt: skip
    return demand(Plan(model, requests, Parallel(tp=tp), policy(name, **overrides)), hardware)


def test_a_sequence_by_hand(model: Model, gb300: Hardware) -> None:
    """131,072 tokens in SGLang's rows without pages: 216,662,016 B (model-facts §5)."""
    found = step(
        model, gb300, [Request(new_tokens=8192, prefix_tokens=131_072 - 8192)], "paper",
        kv_layout="sglang_v4",
    )  # fmt: skip
    assert found.kv_bytes == 216_662_016
    by_name = {t.name: t.bytes for t in found.terms}
    assert by_name["entries of layer 20"] == 131_072 * 584
    assert by_name["index keys of layer 2"] == 65_536 * 68
    assert by_name["window KV"] == 2_990_080
    assert found.fits
    assert found.bytes == total(found.terms)


def test_short_sequences_fill_part_of_their_window(model: Model, gb300: Hardware) -> None:
    found = step(model, gb300, [Request(new_tokens=5)], "paper", window_page_rows=1)
    by_name = {t.name: t.bytes for t in found.terms}
    assert by_name["window KV"] == 5 * 40 * 528


def test_whole_pages_are_charged(model: Model, gb300: Hardware) -> None:
    one, page, more = (
        step(model, gb300, [Request(new_tokens=n)], kv_layout="sglang_v4").kv_bytes
        for n in (1, 256, 257)
    )
    assert one == page
    assert more - page == 417_920  # a page of 256 tokens, see test_pool
    entries = {t.name: t.bytes for t in step(model, gb300, [Request(new_tokens=1)]).terms}
    assert entries["entries of layer 20"] == 256 * 288


def test_a_step_that_does_not_fit(model: Model) -> None:
    h100 = load_hardware("h100")
    many = [Request(new_tokens=1, prefix_tokens=1_000_000, kind="decode", count=64)]
    found = step(model, h100, many, "vllm", tp=8, engram_residency="host_sharded")
    assert not found.fits
    assert found.short_bytes == found.kv_bytes - found.kv_available_bytes > 0
    assert "does not fit" in found.explain()
    few = [Request(new_tokens=1, prefix_tokens=8192, kind="decode")]
    fits = step(model, h100, few, "vllm", tp=8, engram_residency="host_sharded")
    assert fits.fits
    assert fits.short_bytes == 0
    assert "the step fits" in fits.explain()


def test_buffers_are_those_of_the_step(model: Model, gb300: Hardware) -> None:
    """A step of one short decode needs no room for chunks of a million tokens."""
    decode = step(model, gb300, [Request(new_tokens=1, prefix_tokens=100, kind="decode")], "vllm")
    prefill = step(model, gb300, [Request(new_tokens=8192, prefix_tokens=500_000)], "vllm")
    assert decode.kv_available_bytes > prefill.kv_available_bytes
    scores = {t.name: t.bytes for t in prefill.terms}["index scores"]
    assert scores == 8192 * 508_192 * 2


def test_verify_steps_hold_the_rows_of_their_drafts(model: Model, gb300: Hardware) -> None:
    request = Request(new_tokens=6, prefix_tokens=8192, kind="verify", count=32)
    own = {"kv_blocks": "own"}
    plain = step(model, gb300, [request], "vllm", **own)
    drafted = step(model, gb300, [request], "vllm", speculation="dspark", **own)
    windows = [{t.name: t.bytes for t in s.terms}["window KV"] for s in (plain, drafted)]
    assert windows == [32 * 128 // 32 * 40 * 16_896, 32 * 160 // 32 * 43 * 16_896]


def test_shared_blocks_are_whole(model: Model, gb300: Hardware) -> None:
    """One request of 200 tokens: 2 blocks of 128 tokens, 10 groups of 5 window blocks, 1 of state.

    (A window of 128 rows touches five pages of 32.)
    """
    found = step(model, gb300, [Request(new_tokens=200)], "vllm")
    assert found.kv_bytes == (2 + 10 * 5 + 1) * 191_488
    short = step(model, gb300, [Request(new_tokens=40)], "vllm")
    assert short.kv_bytes == (1 + 10 * 2 + 1) * 191_488


def test_nothing_asked_needs_no_kv(model: Model, gb300: Hardware) -> None:
    for requests in ([], [Request(new_tokens=0)], [Request(new_tokens=9, count=0)]):
        assert step(model, gb300, requests).kv_bytes == 0


REQUESTS = st.lists(
    st.builds(
        lambda new, prefix, count: Request(new_tokens=new, prefix_tokens=prefix, count=count),
        st.integers(min_value=0, max_value=70_000),
        st.integers(min_value=0, max_value=900_000),
        st.integers(min_value=0, max_value=1_000_000),
    ),
    max_size=6,
)


@given(first=REQUESTS, second=REQUESTS, name=st.sampled_from(["paper", "sglang", "vllm", "atom"]))
def test_kv_is_additive_and_free_of_order(
    first: list[Request], second: list[Request], name: str
) -> None:
    loaded = load_model("deepseek-v4.1-flash")
    assert isinstance(loaded, Model)
    pool = kv_pool(loaded, policy(name))

    def need(requests: list[Request]) -> int:
        return total(kv_terms(pool, requests))

    assert need(first + second) == need(first) + need(second) == need(second + first)
    split = [
        Request(new_tokens=r.new_tokens, prefix_tokens=r.prefix_tokens, count=part)
        for r in first
        for part in (r.count // 3, r.count - r.count // 3)
    ]
    assert need(split) == need(first)


@given(
    end=st.integers(min_value=1, max_value=1 << 20), more=st.integers(min_value=0, max_value=5000)
)
def test_a_session_is_what_the_pool_says(end: int, more: int) -> None:
    """One request of a plan and one session of a pool of rings are the same bytes."""
    loaded = load_model("deepseek-v4.1-flash")
    assert isinstance(loaded, Model)
    pool = kv_pool(loaded, policy("paper"))
    length = end + more
    mine = total(kv_terms(pool, [Request(new_tokens=1, prefix_tokens=length - 1)]))
    rows_missing = max(0, 128 - length)
    assert mine == pool.session_bytes(length) - rows_missing * 40 * 528
    assert mine >= total(kv_terms(pool, [Request(new_tokens=end)]))


def test_other_arguments_are_refused(model: Model, gb300: Hardware) -> None:
    with pytest.raises(InvalidInputError, match="must be a Plan"):
        demand([Request(new_tokens=1)], gb300)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="must be a Hardware"):
        demand(Plan(model, [Request(new_tokens=1)]), "gb300")  # type: ignore[arg-type]


def test_frame(model: Model, gb300: Hardware) -> None:
    found = step(model, gb300, [Request(new_tokens=8192)])
    frame = found.to_frame()
    assert frame["bytes"].sum() == found.bytes


def test_experts_see_the_rows_of_the_step(model: Model, gb300: Hardware) -> None:
    """A prompt on one of four ranks: no other brings rows; on all of them, each sees four."""

    def rows(requests: list[Request]) -> int:
        plan = Plan(model, requests, Parallel(dp=4), policy("paper"))
        terms = demand(plan, gb300).terms
        return next(term.bytes for term in terms if term.name == "rows of one layer")

    copies = 6 * (2 * 5120 + 3 * 2304 // 4)
    assert rows([Request(new_tokens=1000)]) == 2 * 1000 * (40_960 + copies)
    assert rows([Request(new_tokens=1000, count=4)]) == 2 * 1000 * (40_960 + 4 * copies)
