"""What engines make of a cache hit: the published table, each engine's rule, every length tried."""

from __future__ import annotations

from random import Random

import pytest
from oracle.hits import RINGS, used_prefix
from oracle.rows import forwards

import aisim_v41 as aisim
from aisim_v41.caching.adoption import adopt
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.plan.counts import Count

MODEL = aisim.load_model("deepseek-v4.1-flash")
SGLANG = aisim.policy("sglang", encoder_replay="folded")
VLLM = aisim.policy("vllm")
PAPER = aisim.policy("paper")
TRTLLM = aisim.policy("trtllm")


def hit(policy, cached: int, new: int = 64, **found):
    return adopt(
        MODEL, CacheLookup(prompt_tokens=cached + new, global_tokens=cached, **found), policy
    )


# runtime-semantics §2.5: cached tokens -> tokens used, replayed rows, window floor.
TABLE = [
    (SGLANG, 100, 0, 0, 0),
    (SGLANG, 128, 0, 0, 0),
    (SGLANG, 8192, 8192, 128, 8064),
    (SGLANG, 8193, 8192, 128, 8064),
    (VLLM, 100, 0, 0, 0),
    (VLLM, 128, 0, 0, 0),
    (VLLM, 8192, 8192, 128, 8064),
    (VLLM, 8193, 8192, 128, 8064),
    (PAPER, 100, 100, 100, 0),
    (PAPER, 128, 128, 128, 0),
    (PAPER, 8192, 8192, 128, 8064),
    (PAPER, 8193, 8193, 128, 8065),
]


@pytest.mark.parametrize(("policy", "cached", "used", "replayed", "floor"), TABLE)
def test_page_size_against_hit_length(policy, cached, used, replayed, floor):
    found = hit(policy, cached)
    assert (found.hit_tokens, found.replayed_rows, found.replay_start) == (used, replayed, floor)
    assert found.new_tokens == cached + 64 - used  # 8193 under SGLang: one more new row
    assert found.window == ("replayed" if used else "none")


def test_sglang_of_the_older_form_refuses_half_a_pair():
    older = aisim.policy("sglang", encoder_replay="separate", hit_page_tokens=1)
    with pytest.raises(aisim.UnsupportedPlanError, match=r"separate.*8193 tokens.*37ae292e"):
        hit(older, 8193)
    assert hit(older, 8192).replayed_rows == 128
    paged = aisim.policy("sglang", encoder_replay="separate")
    assert hit(paged, 8193).hit_tokens == 8192
    folded = aisim.policy("sglang", encoder_replay="folded", hit_page_tokens=1)
    assert "group at 8,193" in hit(folded, 8193).reasons[-1]


def test_the_rows_of_a_hit_as_vllm_schedules_them():
    """vLLM pull request 56227: 65,536 of 66,048 found schedule 640; 100 of 612 schedule 612."""
    assert hit(VLLM, 65_536, 512).rows == 640
    assert hit(VLLM, 100, 512).rows == 612


@pytest.mark.parametrize("cached", [255, 383, 511])
def test_tensorrt_llm_takes_hits_of_any_length(cached):
    """§2.3: its tests use 255, 383 and 511 on blocks of 128 and 256 tokens."""
    found = hit(TRTLLM, cached, 128, window_tokens=cached, snapshot=True)
    assert (found.hit_tokens, found.window, found.replayed_rows) == (cached, "snapshot", 0)
    late = hit(TRTLLM, cached, 127, window_tokens=cached, snapshot=True)
    assert (late.window, late.replayed_rows) == ("replayed", 128)
    assert "within 128 tokens" in late.reasons[0]
    without = hit(TRTLLM, cached, 128, window_tokens=cached)
    assert (without.window, without.replay_start) == ("replayed", cached - 128)


def test_tensorrt_llm_without_encoder_replay_leaves_the_late_layers_their_window():
    """§1.5: the hit is shortened to N - 128, so that the private window can be built."""
    policy = aisim.policy("trtllm", encoder_replay="off", decoder_replay=True)
    found = hit(policy, 8192, 64, window_tokens=8192, window_rows=512)
    assert found.hit_tokens == 8256 - 128
    assert found.window == "cached"
    both = aisim.policy("trtllm", decoder_replay=True)
    assert hit(both, 8192, 64).hit_tokens == 8192


def test_without_replay_the_hit_is_the_smaller_of_both_domains():
    """Deployment question 39: 67K prompt, entries of 90 %, one tail earlier."""
    plain = aisim.policy("sglang")
    lookup = CacheLookup(prompt_tokens=67_000, global_tokens=60_300, window_tokens=32_768)
    found = adopt(MODEL, lookup, plain)
    assert (found.hit_tokens, found.window, found.replayed_rows) == (32_768, "cached", 0)
    lost = CacheLookup(prompt_tokens=67_000, global_tokens=60_300)
    assert adopt(MODEL, lost, plain).hit_tokens == 0
    assert adopt(MODEL, lost, SGLANG).hit_tokens == 60_160  # 235 pages of 256


def test_a_tail_too_short_for_its_page_is_no_window():
    """vLLM keeps one tail of 160 tokens; a repeated prompt asks for one row less than it."""
    plain = aisim.policy("vllm", encoder_replay="off")
    same = CacheLookup(prompt_tokens=8192, global_tokens=8192, window_tokens=8192, window_rows=160)
    found = adopt(MODEL, same, plain)  # 8,191 -> 8,064, whose window begins at 7,936 < 8,032
    assert (found.hit_tokens, found.window) == (0, "none")
    kept = CacheLookup(prompt_tokens=8192, global_tokens=8192, window_tokens=8192)
    assert adopt(MODEL, kept, plain).hit_tokens == 8064


def test_a_full_hit_leaves_a_row():
    found = adopt(MODEL, CacheLookup(prompt_tokens=8192, global_tokens=8192), PAPER)
    assert (found.hit_tokens, found.new_tokens) == (8191, 1)
    paged = adopt(MODEL, CacheLookup(prompt_tokens=8192, global_tokens=8192), SGLANG)
    assert (paged.hit_tokens, paged.new_tokens) == (7936, 256)


def test_rings_are_not_looked_at_but_a_pool_is():
    stored = {"window_tokens": 8192}
    assert hit(SGLANG, 8192, **stored).window == "replayed"
    assert hit(VLLM, 8192, **stored).window == "replayed"
    assert hit(PAPER, 8192, **stored).window == "cached"


def test_what_replayed_rows_leave_alone():
    """128 rows end 64 pairs of three owners and 128 entries of layer 20; three ids before them."""
    found = hit(SGLANG, 8192)
    assert found.skipped_entries == {2: 64, 8: 64, 14: 64, 20: 128}
    assert found.history_ids == 3
    odd = hit(PAPER, 8193)  # [8065, 8193): pairs end at 8065, 8067, ..., 8191
    assert odd.skipped_entries == {2: 64, 8: 64, 14: 64, 20: 128}
    assert hit(PAPER, 129).history_ids == 1
    assert hit(PAPER, 100).history_ids == 0


def test_chunks_after_a_hit():
    """vLLM counts replayed rows as scheduled ones; a separate forward has its own step."""
    lookup = CacheLookup(prompt_tokens=40_000, global_tokens=16_384)
    first, *later = adopt(MODEL, lookup, VLLM).requests
    assert (first.new_tokens, first.window) == (8192 - 128, "missing")
    assert [r.new_tokens for r in later] == [8192, 7360]
    assert {r.window_start for r in later} == {16_256}
    apart = aisim.policy("sglang", encoder_replay="separate")
    found = adopt(MODEL, lookup, apart)
    assert [r.new_tokens for r in found.requests] == [16_384, 7232]
    assert found.forwards == 3


def test_no_room_for_a_new_row():
    small = aisim.policy("vllm", chunk_tokens=128)
    with pytest.raises(aisim.UnsupportedPlanError, match="leave no room"):
        hit(small, 8192)
    assert hit(aisim.policy("vllm", chunk_tokens=129), 8192, 3).requests[0].new_tokens == 1


@pytest.mark.parametrize("policy", [SGLANG, VLLM, PAPER, TRTLLM], ids=lambda p: p.name)
def test_the_ledger_agrees(policy):
    found = hit(policy, 8192, 300)
    (request,) = found.requests
    counted = aisim.ledger(aisim.Plan(MODEL, [request], policy=policy))
    assert counted.total(Count.QUERY_ROWS, 0) == found.rows
    for layer, ratio in ((2, 2), (20, 1)):
        assert counted.total(Count.ENTRIES_WRITTEN, layer) == 300 // ratio
        compressed = found.rows if policy.replayed_rows_compress else 300
        assert counted.total(Count.COMPRESSED_ROWS, layer) == compressed
    # Rows of both Engram modules ask the table too, in front of the cut.
    assert counted.total(Count.QUERY_ROWS, 1) == counted.total(Count.QUERY_ROWS, 14) == found.rows


def any_lookup(random: Random) -> CacheLookup:
    knees = [1, 2, 99, 100, 127, 128, 129, 255, 256, 257, 383, 400, 511, 600]
    prompt = random.choice(knees)
    entries = random.choice([0, prompt, random.randint(0, prompt)])
    window = random.choice([0, entries, random.randint(0, entries)])
    return CacheLookup(
        prompt_tokens=prompt,
        global_tokens=entries,
        window_tokens=window,
        window_rows=random.choice([None, 128, 129, 160, 400]) if window else None,
        snapshot=window > 0 and random.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(400))
def test_every_length_tried(seed: int):
    random = Random(seed)
    engine = random.choice(("paper", "sglang", "vllm", "atom", "trtllm"))
    policy = aisim.policy(
        engine,
        encoder_replay=random.choice(("off", "separate", "folded", "snapshot")),
        decoder_replay=random.random() < 0.5,
        hit_page_tokens=random.choice((1, 2, 64, 128, 256)),
        hit_min_tokens=random.choice((0, 128)) if engine in RINGS else 0,
        chunk_tokens=random.choice((130, 200, 8192)),
        prefill_execution="eager",
    )
    lookup = any_lookup(random)
    wanted, source = used_prefix(lookup, policy, MODEL.attention.window)
    odd = policy.name == "sglang" and policy.encoder_replay == "separate" and wanted % 2
    if odd and source == "replayed" and not policy.replayed_rows_compress:
        with pytest.raises(aisim.UnsupportedPlanError):
            adopt(MODEL, lookup, policy)
        return
    found = adopt(MODEL, lookup, policy)
    assert (found.hit_tokens, found.window) == (wanted, source)
    # What the steps compute, position by position: new ones once, replayed ones before them.
    computed = [
        query.position
        for request in found.requests
        for forward in forwards(MODEL, policy, [request])
        for sequence in forward.sequences
        for query in sequence.queries
    ]
    assert sorted(computed) == list(range(found.replay_start, lookup.prompt_tokens))
    assert found.rows == len(computed)
    assert found.to_dict()["rows"] == found.rows
    assert f"computes {found.rows:,} rows" in found.text()


WRONG = [
    {"prompt_tokens": 0},
    {"prompt_tokens": -1},
    {"prompt_tokens": 1.5},
    {"prompt_tokens": True},
    {"prompt_tokens": 8, "global_tokens": 9},
    {"prompt_tokens": 8, "global_tokens": 4, "window_tokens": 5},
    {"prompt_tokens": 8, "global_tokens": 4, "snapshot": True},
    {"prompt_tokens": 8, "global_tokens": 4, "window_rows": 128},
    {"prompt_tokens": 8, "global_tokens": 4, "window_tokens": 4, "window_rows": 0},
    {"prompt_tokens": 8, "global_tokens": 4, "window_tokens": 4, "snapshot": 1},
    {"prompt_tokens": 1 << 41},
    {"prompt_tokens": "8"},
]


@pytest.mark.parametrize("fields", WRONG)
def test_lookups_that_no_prompt_has(fields):
    with pytest.raises(aisim.InvalidInputError, match=r"CacheLookup\."):
        CacheLookup(**fields)


def test_arguments_of_the_wrong_kind():
    with pytest.raises(aisim.InvalidInputError, match="lookup"):
        adopt(MODEL, 8192, PAPER)
    with pytest.raises(aisim.InvalidInputError, match="policy"):
        adopt(MODEL, CacheLookup(prompt_tokens=8), "paper")
    with pytest.raises(aisim.OutOfRangeError, match="context of 1048576"):
        adopt(MODEL, CacheLookup(prompt_tokens=1 << 21), PAPER)
