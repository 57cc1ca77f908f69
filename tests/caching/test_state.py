"""Bytes that a sequence leaves behind: by hand, and token by token."""

from __future__ import annotations

from random import Random

import pytest
from oracle.state import aligned_pages, entries_of, open_rows, pages_of, window_of

import aisim_v41 as aisim
from aisim_v41.caching.state import (
    TAIL,
    Domain,
    sequence_state,
    snapshot_state,
    state_bytes,
)
from aisim_v41.memory.pool import kv_pool
from aisim_v41.model.cache_rows import global_kv_bytes, window_bytes

MODEL = aisim.load_model("deepseek-v4.1-flash")
PAPER = aisim.policy("paper")


def test_the_trained_form_by_hand():
    """890 B a token; 40 x 128 x 528 B of windows; three rings of two rows; three ids."""
    state = sequence_state(MODEL, PAPER, 8192)
    assert state_bytes(state, Domain.ENTRIES) == 890 * 8192 == 7_290_880
    assert state_bytes(state, Domain.WINDOW) == 2_703_360
    assert state_bytes(state, Domain.GROUPS) == 24_576
    assert state_bytes(state, Domain.HISTORY) == 24
    assert state_bytes(state) == 7_290_880 + 2_703_360 + 24_576 + 24
    assert [part.layer for part in state if part.domain is Domain.ENTRIES] == [2, 8, 14, 20]
    assert state_bytes(snapshot_state(MODEL, PAPER, 8192)) == 2_703_360 + 24_576 + 24


def test_half_a_pair_is_payload():
    """Value and score of 512 in FP32 for each of three owners."""
    groups = [p for p in sequence_state(MODEL, PAPER, 8193) if p.domain is Domain.GROUPS]
    assert [(p.layer, p.rows, p.payload_bytes) for p in groups] == [
        (2, 1, 4096), (8, 1, 4096), (14, 1, 4096),
    ]  # fmt: skip
    even = [p for p in sequence_state(MODEL, PAPER, 8192) if p.domain is Domain.GROUPS]
    assert {p.payload_bytes for p in even} == {0}


def test_a_snapshot_of_tensorrt_llm_keeps_129_rows():
    rows = {p.rows for p in snapshot_state(MODEL, aisim.policy("trtllm"), 8192) if p.layer == 30}
    assert rows == {129}


def test_draft_blocks_keep_windows_of_their_own():
    drafting = aisim.policy("sglang", speculation="dspark")
    layers = [p.layer for p in sequence_state(MODEL, drafting, 500) if p.domain is Domain.WINDOW]
    assert layers == [*range(40), 41, 42, 43]  # 40 is the head, as in the ledger


def test_a_receiver_that_has_a_prefix_gets_the_rest():
    policy = aisim.policy("sglang")
    state = sequence_state(MODEL, policy, 8256, held_tokens=8192)
    entries = [p for p in state if p.domain is Domain.ENTRIES]
    assert [p.rows for p in entries] == [32, 32, 32, 64]
    # One page of 256 tokens each: 128 and 256 entries of 288 + 68 B.
    assert [p.bytes for p in entries] == [128 * 356] * 3 + [256 * 356]
    whole = sequence_state(MODEL, policy, 8192, held_tokens=8192)
    assert state_bytes(whole, Domain.ENTRIES) == 0


def test_nothing_leaves_nothing():
    assert state_bytes(sequence_state(MODEL, PAPER, 0)) == 0


@pytest.mark.parametrize("seed", range(60))
def test_token_by_token(seed: int):
    random = Random(seed)
    policy = aisim.policy(
        random.choice(("paper", "sglang", "vllm", "atom", "trtllm")),
        speculation=random.choice(("off", "dspark")),
    )
    if policy.kv_blocks == "own":
        policy = policy.with_overrides(
            page_tokens=random.choice((1, 2, 64, 256)),
            page_counts=random.choice(("tokens", "entries")),
            window_page_rows=random.choice((1, 32, 128)),
            window_pool=random.choice(("per_request", "request_cap")),
        )
    tokens = random.choice((0, 1, 2, 127, 128, 129, 130, 255, 256, 257, 700))
    held = random.randint(0, tokens)
    pool = kv_pool(MODEL, policy)
    window = 128 + (policy.encoder_replay == "snapshot")
    live = window_of(window, tokens)
    pages = -(-len(live) // policy.window_page_rows)
    if policy.window_pool == "request_cap" or policy.kv_blocks == "shared":
        pages = aligned_pages(live, policy.window_page_rows)
    owners = {owner.layer: owner for owner in pool.owners}
    ratios = {layer.index: layer.ratio for layer in MODEL.kv_owners}
    for part in sequence_state(MODEL, policy, tokens, held_tokens=held):
        if part.domain is Domain.ENTRIES:
            owner = owners[part.layer]
            assert part.rows == entries_of(owner.ratio, tokens, held)
            assert part.bytes == pages_of(owner.span_tokens, tokens, held) * owner.page_bytes
        elif part.domain is Domain.WINDOW:
            assert part.rows == len(live)
            assert part.bytes == pages * pool.window_page_bytes
        elif part.domain is Domain.GROUPS:
            assert part.rows == open_rows(ratios[part.layer], tokens)
        assert 0 <= part.payload_bytes <= part.bytes


@pytest.mark.parametrize("tokens", [1, 2, 127, 128, 129, 8191, 8192, 1 << 20])
def test_payload_is_that_of_the_cache_rows(tokens: int):
    """Two sums of the same rows, written apart."""
    from aisim_v41.model.cache_rows import cache_rows

    for name in ("paper", "sglang", "vllm", "atom"):
        policy = aisim.policy(name)
        rows = cache_rows(MODEL, policy.kv_layout)
        payload = dict.fromkeys(Domain, 0)
        for part in sequence_state(MODEL, policy, tokens):
            payload[part.domain] += part.payload_bytes
        assert payload[Domain.ENTRIES] == global_kv_bytes(MODEL, rows, tokens)
        assert payload[Domain.WINDOW] == window_bytes(MODEL, rows, tokens)
        assert payload[Domain.HISTORY] == 8 * min(tokens, 3)


@pytest.mark.parametrize("bad", [-1, 1.0, True, "8", None, 1 << 41])
def test_lengths_that_no_sequence_has(bad):
    with pytest.raises(aisim.InvalidInputError, match="tokens"):
        sequence_state(MODEL, PAPER, bad)
    with pytest.raises(aisim.InvalidInputError, match="held_tokens"):
        sequence_state(MODEL, PAPER, 100, held_tokens=bad)


def test_tails_and_entries_are_all_there_is():
    assert {*TAIL, Domain.ENTRIES} == set(Domain)
