"""KV of tokens, requests and sessions: hand-worked figures, then the laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import changes  # tests/model

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.memory.pages import ring_bytes
from aisim_v41.memory.pool import MOST, KvPool, kv_pool
from aisim_v41.memory.terms import total
from aisim_v41.model.cache_rows import CACHE_LAYOUTS
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model, model_from_config
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names
from aisim_v41.units import MIB

MILLION = 1 << 20


def pool(model: Model, name: str = "paper", **overrides: Any) -> KvPool:
    return kv_pool(model, policy(name, **overrides))


# --- figures ----------------------------------------------------------------------------------


def test_slope_of_the_trained_rows_and_of_sglang(model: Model) -> None:
    # 2.5 entries a token (model-facts §5): 2.5 x (288 + 68) and 2.5 x (584 + 68)
    assert pool(model).bytes_per_token == 890
    assert pool(model, kv_layout="sglang_v4").payload_bytes_per_token == 1630


def test_pages_of_sglang_are_rounded_to_576_bytes(model: Model) -> None:
    # 256 tokens: 149,504 B of entries for ratio 1 and 3 x 74,752 B for ratio 2, each rounded up
    # to a multiple of 576; index keys (4 x 17,408 / ...) are not rounded: 1632.5 instead of 1630.
    rounded = pool(model, "sglang", kv_layout="sglang_v4")
    assert 149_760 + 3 * 74_880 + 256 * 68 + 3 * 128 * 68 == 417_920
    assert rounded.bytes_per_token == Fraction(417_920, 256)
    assert rounded.payload_bytes_per_token == 1630


def test_coefficient_of_sglang_with_a_window_ratio(model: Model) -> None:
    # ratio 0.1 x 40 layers x row + owners' slope (runtime-semantics §6.3)
    for layout, coefficient in (("sglang_v4", 3966), ("sglang_v41", 3002)):
        sized = pool(model, "sglang", kv_layout=layout, window_pool="ratio", window_ratio=0.1)
        assert sized.payload_bytes_per_token == coefficient
        assert 1 <= float(sized.bytes_per_token) / coefficient < 1.003


def test_speculation_enlarges_the_pool_of_sglang_by_one_layer(model: Model) -> None:
    # SGLang on SM121 prints 1670.75 B a token: 1630 x 41 / 40 (public-measurements §5)
    sized = pool(model, "sglang", kv_layout="sglang_v4", speculation="dspark")
    assert sized.payload_bytes_per_token == Fraction("1670.75")


def test_a_sequence_of_131072_tokens_in_sglang_rows(model: Model) -> None:
    """Windows 40 x 128 x 584, state 24,576, entries and keys 213,647,360; rows without pages."""
    sized = pool(model, kv_layout="sglang_v4")
    parts = {part.name: part.bytes for part in sized.parts(131_072, 1)}
    assert parts["window KV"] == 2_990_080
    assert parts["state of unfinished groups"] == 24_576
    assert sized.session_bytes(131_072) == 216_662_016


def test_a_million_tokens(model: Model) -> None:
    """2,621,440 entries; "892.50 MiB" is 890 MiB of them and 2.5 MiB of windows without scales.

    (Deployment question 1; the window is 40 layers x 128 rows x 512 B, as the seed counts it. With
    its scales, 528 B a row, the sum is 892.58 MiB.)
    """
    sized = pool(model)
    entries = sum(MILLION // owner.ratio for owner in model.kv_owners)
    assert entries == 2_621_440
    parts = {part.name: part.bytes for part in sized.parts(MILLION, 1)}
    in_global = sum(size for name, size in parts.items() if "layer" in name)
    assert in_global == 890 * MIB == 933_232_640
    assert in_global + 40 * 128 * 512 == 892.5 * MIB
    assert parts["window KV"] == 2_703_360


def test_entries_of_one_owner_only_are_counted_once(model: Model) -> None:
    # not 38 or 40 copies: four owners (deployment question 1)
    assert [owner.layer for owner in pool(model).owners] == [2, 8, 14, 20]


def test_index_keys_in_fp8_take_132_bytes(model: Model) -> None:
    # deployment question 7; padding of pages is the third knob
    fp4, fp8 = pool(model, kv_layout="vllm_fp8"), pool(model, kv_layout="vllm_fp8_index_fp8")
    assert fp8.payload_bytes_per_token - fp4.payload_bytes_per_token == Fraction(5, 2) * 64
    # 64 keys: 4352 -> 4608 and 8448 -> 8704, both 256 B of padding
    for layout, padded in (("vllm_fp8", 4608), ("vllm_fp8_index_fp8", 8704)):
        entries = pool(
            model, "vllm", kv_layout=layout, page_tokens=64, page_counts="entries"
        ).owners
        assert [owner.index_bytes for owner in entries] == [padded] * 4
        assert [owner.main_bytes for owner in entries] == [64 * 528] * 4
        assert [owner.span_tokens for owner in entries] == [128, 128, 128, 64]


def test_fixed_and_growing_parts_are_apart(model: Model) -> None:
    """Deployment question 4: pool bytes over tokens is not a rate, it moves with the length."""
    for name in ("vllm", "atom"):
        sized = pool(model, name)
        kv_bytes = 100 << 30
        quotients = [
            kv_bytes / float(sized.concurrency(kv_bytes, length) * length)
            for length in (1024, 33_792, MILLION)
        ]
        assert quotients == sorted(quotients, reverse=True)
        assert quotients[0] > 2 * quotients[-1] > 2 * float(sized.bytes_per_token)
        assert sized.fixed_bytes_per_request > 1000 * sized.bytes_per_token


def test_ring_of_pairs(model: Model) -> None:
    assert ring_bytes(model, policy("paper")) == (8192,) * 3  # 24,576 B
    assert ring_bytes(model, policy("vllm")) == (32_768,) * 3  # model-facts §4.4
    assert ring_bytes(model, policy("atom")) == (7 * 4096,) * 3


def test_rings_of_a_verify_step(model: Model) -> None:
    # 128 + 5 drafts, rounded up to the window page: 256 rows in SGLang's ring, 133 in ATOM's
    ring = pool(model, "sglang", window_pool="per_request", speculation="dspark")
    assert ring.window.ring_rows == 256
    assert pool(model, "atom", speculation="dspark").window.ring_rows == 133
    assert pool(model, "sglang", window_pool="per_request").window.ring_rows == 128


def test_draft_blocks_keep_windows_of_their_own(model: Model) -> None:
    assert pool(model, "vllm").window_layers == 40
    assert pool(model, "vllm", speculation="dspark").window_layers == 43


def test_the_larger_request_cap_of_sglang(model: Model) -> None:
    """A log names it: "DSV4 SWA pool cap (598272 tokens, ...)" at the defaults and chunk 4096.

    256 requests x (128 + 128 + 256 + 256) + 2 x 4096 + 256, and 1024 tails x (128 + 256).
    """
    rule = pool(model, "sglang", chunk_tokens=4096).window
    assert 256 * 768 + 2 * 4096 + 256 + 1024 * 384 == 598_272
    assert rule.rows(0, 256) == rule.rows(10**9, 256) == 598_272


# --- laws -------------------------------------------------------------------------------------

OWN = {"kv_blocks": "own"}
POLICIES = tuple(
    policy(name, **overrides)
    for name in preset_names()
    for overrides in (
        {},
        {"speculation": "dspark", "window_pool": "ratio", **OWN},
        {"window_pool": "request_cap", "kv_layout": "sglang_v4", **OWN},
        {"page_counts": "entries", "page_tokens": 64, "draft_pool": "pool_share", **OWN},
        {"kv_blocks": "shared", "window_pool": "per_request", "draft_pool": "layers"},
    )
)
TOKENS = st.integers(min_value=0, max_value=1 << 36)
COUNTS = st.integers(min_value=0, max_value=1 << 20)


def official() -> Model:
    loaded = load_model("deepseek-v4.1-flash")
    assert isinstance(loaded, Model)
    return loaded


@settings(max_examples=300, deadline=None)
@given(runtime=st.sampled_from(POLICIES), tokens=TOKENS, requests=COUNTS)
def test_tokens_come_back_exactly(runtime: RuntimePolicy, tokens: int, requests: int) -> None:
    sized = kv_pool(official(), runtime)
    whole = tokens // sized.page_tokens * sized.page_tokens
    assert sized.tokens_for(sized.bytes_for(whole, requests), requests) == whole
    up = -(-tokens // sized.page_tokens) * sized.page_tokens
    assert sized.tokens_for(sized.bytes_for(tokens, requests), requests) == up


@settings(max_examples=300, deadline=None)
@given(
    runtime=st.sampled_from(POLICIES),
    kv_bytes=st.integers(min_value=-(1 << 40), max_value=1 << 50),
    requests=COUNTS,
)
def test_bytes_hold_what_is_said_and_no_page_more(
    runtime: RuntimePolicy, kv_bytes: int, requests: int
) -> None:
    sized = kv_pool(official(), runtime)
    tokens = sized.tokens_for(kv_bytes, requests)
    assert tokens % sized.page_tokens == 0
    if tokens:
        assert sized.bytes_for(tokens, requests) <= kv_bytes
    if tokens + sized.page_tokens <= MOST:
        assert sized.bytes_for(tokens + sized.page_tokens, requests) > kv_bytes


@settings(max_examples=200, deadline=None)
@given(
    runtime=st.sampled_from(POLICIES),
    sessions=COUNTS,
    length=st.integers(min_value=1, max_value=MILLION),
)
def test_sessions_come_back_exactly(runtime: RuntimePolicy, sessions: int, length: int) -> None:
    sized = kv_pool(official(), runtime)
    need = sized.bytes_for_sessions(sessions, length)
    assert sized.sessions_for(need, length) == sessions
    if sessions:
        assert sized.sessions_for(need - 1, length) == sessions - 1


@settings(max_examples=200, deadline=None)
@given(
    runtime=st.sampled_from(POLICIES), tokens=TOKENS, more=TOKENS, requests=COUNTS, others=COUNTS
)
def test_more_never_takes_less(
    runtime: RuntimePolicy, tokens: int, more: int, requests: int, others: int
) -> None:
    sized = kv_pool(official(), runtime)
    base = sized.bytes_for(tokens, requests)
    assert sized.bytes_for(tokens + more, requests) >= base
    assert sized.bytes_for(tokens, requests + others) >= base


@settings(max_examples=200, deadline=None)
@given(runtime=st.sampled_from(POLICIES), tokens=TOKENS, requests=COUNTS)
def test_parts_add_up(runtime: RuntimePolicy, tokens: int, requests: int) -> None:
    sized = kv_pool(official(), runtime)
    assert total(sized.parts(tokens, requests)) == sized.bytes_for(tokens, requests)


@settings(deadline=None)
@given(
    layout=st.sampled_from(CACHE_LAYOUTS),
    first=st.integers(min_value=0, max_value=1 << 20),
    second=st.integers(min_value=0, max_value=1 << 20),
    requests=st.integers(min_value=0, max_value=1000),
)
def test_whole_pages_and_rings_are_additive(
    layout: str, first: int, second: int, requests: int
) -> None:
    sized = kv_pool(official(), policy("paper", kv_layout=layout, page_tokens=64))
    a, b = first * 64, second * 64
    together = sized.bytes_for(a + b, 2 * requests)
    assert together == sized.bytes_for(a, requests) + sized.bytes_for(b, requests)


# --- other models, bad input ------------------------------------------------------------------


def test_a_model_without_global_kv_never_runs_out_of_tokens(config: dict[str, Any]) -> None:
    sized = kv_pool(model_from_config(changes.window_only(config), name="w"), policy("paper"))
    assert sized.bytes_per_token == 0
    assert sized.tokens_for(sized.bytes_for(0, 3), 3) == MOST
    assert sized.sessions_for(10 * sized.session_bytes(4096), 4096) == 10


@pytest.mark.parametrize("change", sorted(changes.ALL))
@pytest.mark.parametrize("name", preset_names())
def test_changed_models_have_pools_that_invert(
    config: dict[str, Any], change: str, name: str
) -> None:
    sized = kv_pool(model_from_config(changes.ALL[change](config), name="c"), policy(name))
    for tokens in (0, 1, 63, 64, 1000, MILLION):
        need = sized.bytes_for(tokens, 7)
        fit = sized.tokens_for(need, 7)
        assert fit >= tokens
        assert sized.bytes_for(fit, 7) == need
        assert total(sized.parts(tokens, 7)) == need
    assert sized.sessions_for(sized.bytes_for_sessions(5, 1000), 1000) == 5


@pytest.mark.parametrize("value", [1.0, "8", None, True, 2.5])
def test_counts_are_whole_numbers(model: Model, value: Any) -> None:
    for call in (
        lambda: pool(model).bytes_for(value, 1),
        lambda: pool(model).bytes_for(1, value),
        lambda: pool(model).tokens_for(value, 1),
        lambda: pool(model).session_bytes(value),
        lambda: pool(model).sessions_for(1, value),
    ):
        with pytest.raises(InvalidInputError, match=r"must be a whole number"):
            call()


@pytest.mark.parametrize("value", [-1, MOST + 1])
def test_counts_are_bounded(model: Model, value: int) -> None:
    with pytest.raises(OutOfRangeError, match="tokens"):
        pool(model).bytes_for(value, 1)
    with pytest.raises(OutOfRangeError, match="requests"):
        pool(model).bytes_for(1, value)
