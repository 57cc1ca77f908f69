"""Restore, replay or recompute; what tiers hold."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.caching.restore import (
    break_even_rate,
    break_even_tokens,
    frame_of,
    restore_or_recompute,
)
from aisim_v41.caching.state import TAIL, Domain
from aisim_v41.caching.tiers import (
    ENTRIES_LIVE_S,
    Tier,
    gpu_tier,
    kept,
    needed_bytes,
    report_tiers,
    row_of,
    to_frame,
)
from aisim_v41.caching.ways import Way, way_to

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")
TP4 = aisim.Parallel(tp=4)
PAPER = aisim.policy("paper")
DISK = way_to(GB300, "disk", bytes_per_s=7e9)


def asked(prefix: int, way: Way = DISK, policy=PAPER, new: int = 256, **changed):
    return restore_or_recompute(
        MODEL, GB300, prefix, new_tokens=new, way=way, policy=policy, parallel=TP4,
        **{"method": "sol", **changed},
    )  # fmt: skip


def test_the_three_choices_by_hand():
    """A prefix of 65,536: 890 B a token, and 2,727,936 B of window and rings, at 7 GB/s."""
    found = asked(65_536, layerwise=False)
    computed, restored, replayed = found.choices
    assert [c.how for c in found.choices] == ["recompute", "restore", "replay"]
    assert replayed.moved_bytes == 890 * 65_536
    assert restored.moved_bytes == 890 * 65_536 + 40 * 128 * 528 + 24_576
    assert replayed.transfer_s == pytest.approx(890 * 65_536 / 7e9, rel=1e-12)
    assert [c.adoption.rows for c in found.choices] == [65_792, 256, 384]
    step = aisim.compile(MODEL, GB300, parallel=TP4, policy=PAPER, method="sol")
    lost = aisim.Request(new_tokens=256, prefix_tokens=65_536, window="missing")
    assert replayed.compute_s == step([lost])
    assert replayed.total_s == pytest.approx(replayed.compute_s + replayed.transfer_s, rel=1e-12)
    chunks = aisim.chunked(65_792, chunk_tokens=PAPER.chunk_tokens)
    assert computed.total_s == pytest.approx(sum(step([c]) for c in chunks), rel=1e-12)
    assert (computed.moved_bytes, computed.exposed_s) == (0, 0)
    assert found.best.how == "restore"


def test_layer_by_layer_never_waits_longer():
    for way in (DISK, way_to(GB300, "host"), way_to(GB300, "network")):
        for prefix in (256, 8192, 131_072):
            at_once, apart = (asked(prefix, way, layerwise=value) for value in (False, True))
            for one, other in zip(at_once.choices, apart.choices, strict=True):
                assert other.compute_s == one.compute_s
                assert 0 <= other.exposed_s <= one.exposed_s * (1 + 1e-12)


def test_entries_of_layer_20_hide_behind_the_layers_before():
    """At C2C rate what is left is the way to layer 2, and windows and entries that are late."""
    found = asked(131_072, way_to(GB300, "host"), new=8192, layerwise=True)
    replayed = found.choice("replay")
    assert replayed.exposed_s < 0.2 * replayed.transfer_s


def test_faster_links_and_shorter_prefixes_pay_sooner():
    limits = [
        break_even_tokens(
            MODEL, GB300, "replay", new_tokens=256, way=Way(name="disk", bytes_per_s=rate),
            policy=PAPER.with_overrides(hit_page_tokens=256), parallel=TP4, method="sol",
        )
        for rate in (1e7, 1e9, 1e11)
    ]  # fmt: skip
    assert limits[0] is None  # 89 us a token, computed in 10
    assert limits[1] >= limits[2]
    assert limits[2] % 256 == 0


def test_the_break_even_is_where_it_says():
    policy = PAPER.with_overrides(hit_page_tokens=64)
    slow = Way(name="store", bytes_per_s=2e9, start_s=2e-3)
    ask = {"new_tokens": 256, "way": slow, "policy": policy, "parallel": TP4, "method": "sol"}
    limit = break_even_tokens(MODEL, GB300, "restore", **ask)
    at, before = (restore_or_recompute(MODEL, GB300, p, **ask) for p in (limit, limit - 64))
    assert at.choice("restore").total_s < at.choice("recompute").total_s
    fetched = before.choice("restore")
    assert fetched is None or fetched.total_s >= before.choice("recompute").total_s


@pytest.mark.parametrize("how", ["restore", "replay"])
@pytest.mark.parametrize("start", [0.0, 1e-3])
def test_the_slowest_way_that_pays(how: str, start: float):
    ask = {"new_tokens": 256, "policy": PAPER, "parallel": TP4, "method": "sol"}
    rate = break_even_rate(MODEL, GB300, 16_384, how, start_s=start, **ask)
    way = Way(name="slow", bytes_per_s=rate, start_s=start)
    found = restore_or_recompute(MODEL, GB300, 16_384, way=way, **ask)
    assert found.choice(how).total_s == pytest.approx(found.choice("recompute").total_s)
    # At once, a transfer hides behind nothing but what recomputing would have taken more.
    spare = found.choice("recompute").compute_s - found.choice(how).compute_s
    assert found.choice(how).transfer_s > spare
    assert break_even_rate(MODEL, GB300, 16_384, how, start_s=9.0, **ask) is None
    ring = {**ask, "policy": aisim.policy("vllm")}
    assert break_even_rate(MODEL, GB300, 100, how, **ring) is None


def test_engines_have_the_choices_that_they_have():
    ring = asked(8192, policy=aisim.policy("sglang", encoder_replay="folded"))
    assert [c.how for c in ring.choices] == ["recompute", "replay"]
    assert "restore: the stored window is not looked at" in ring.left_out[0]
    plain = asked(8192, policy=aisim.policy("sglang"))
    assert [c.how for c in plain.choices] == ["recompute", "restore"]
    assert "of no use" in plain.left_out[0]
    short = asked(128, policy=aisim.policy("vllm"))
    assert [c.how for c in short.choices] == ["recompute"]
    image = asked(8192, policy=aisim.policy("trtllm"))
    assert image.choice("restore").adoption.window == "snapshot"
    late = asked(8192, policy=aisim.policy("trtllm"), new=100)
    assert late.choice("restore") is None
    older = asked(8192, policy=aisim.policy("sglang", encoder_replay="separate"), method="op")
    folded = asked(8192, policy=aisim.policy("sglang", encoder_replay="folded"), method="op")
    assert older.choice("replay").total_s > 1.8 * folded.choice("replay").total_s


def test_reports():
    found = asked(8192)
    frame = frame_of([found, asked(16_384)])
    assert list(frame.how) == ["recompute", "restore", "replay"] * 2
    assert found.to_dict()["best"] == found.best.how
    assert found.to_dict()["choices"][0]["moved_bytes"] == 0


@pytest.mark.parametrize(
    ("prefix", "changed"),
    [(-1, {}), (1.0, {}), (True, {}), (8, {"new": 0}), (8, {"way": "host"}), (8, {"new": None})],
)
def test_questions_that_make_no_sense(prefix, changed):
    with pytest.raises(aisim.InvalidInputError):
        asked(prefix, **changed)


def test_a_prompt_beyond_the_context():
    with pytest.raises(aisim.OutOfRangeError):
        asked(1 << 20)
    with pytest.raises(aisim.InvalidInputError, match="'restore' or 'replay'"):
        break_even_tokens(MODEL, GB300, "recompute", new_tokens=1, way=DISK, policy=PAPER)
    with pytest.raises(aisim.InvalidInputError, match="'restore' or 'replay'"):
        break_even_rate(MODEL, GB300, 8, "fetch", new_tokens=1, policy=PAPER)


def test_what_the_tiers_of_the_report_hold():
    """A tenth of half a Grace's 480 GB keeps 24e9 / 2,727,960 tails, or 890 B a token for days."""
    pool, store = report_tiers(GB300, DISK)
    windows, entries = kept(
        MODEL, PAPER, (pool, store), prefix_tokens=65_536, turn_tokens=2000, turns_per_s=5.0
    )
    tail = 40 * 128 * 528 + 24
    assert windows.bytes_per_tail == tail  # an even end has no unfinished pair
    assert windows.tails == int(24e9 // tail)
    assert windows.lasts_s == pytest.approx(24e9 / (5 * tail))
    assert (windows.tokens, entries.tails, entries.lasts_s) == (None, None, None)
    assert entries.bytes_per_token == 890
    assert entries.read_s == pytest.approx(890 * 65_536 / 7e9)
    days = needed_bytes(entries, lives_s=ENTRIES_LIVE_S, turns_per_s=5.0)
    assert days == pytest.approx(72 * 3600 * 5 * 2000 * 890)
    assert list(to_frame((windows, entries)).tier) == ["host window pool", "store of entries"]
    assert row_of(entries)["keeps"] == "entries"


def test_entries_in_gpu_memory_are_what_capacity_leaves():
    policy = aisim.policy("vllm", engram_residency="host_sharded")
    tier = gpu_tier(MODEL, GB300, TP4, policy)
    found = aisim.capacity(MODEL, GB300, parallel=TP4, policy=policy)
    running = found.setting.rank_requests
    assert tier.bytes == found.kv_bytes - found.pool.bytes_for(0, running)
    assert gpu_tier(MODEL, aisim.load_hardware("h100"), aisim.Parallel(), policy) is None
    (one,) = kept(MODEL, policy, (tier,), prefix_tokens=8192, turn_tokens=1000, turns_per_s=1.0)
    assert one.bytes_per_token == 1490
    assert one.read_s == 0


def test_a_store_of_encoder_windows_alone_is_the_claim_of_the_report():
    """Two ends a turn cost twice as much."""
    pool = Tier(name="pool", domains=(Domain.WINDOW,), bytes=100e9)
    once, twice = (
        kept(
            MODEL, PAPER, (pool,), prefix_tokens=128, turn_tokens=0, turns_per_s=1.0,
            tails_per_turn=n,
        )[0]
        for n in (1, 2)
    )  # fmt: skip
    assert once.tails == int(100e9 // 2_703_360)
    assert once.lasts_s == 2 * twice.lasts_s


def test_tiers_that_nothing_is():
    with pytest.raises(aisim.InvalidInputError, match=r"Tier\.domains"):
        Tier(name="x", domains=())
    for bad in (0, -1, True, float("nan"), "1"):
        with pytest.raises(aisim.InvalidInputError, match=r"Tier\.bytes"):
            Tier(name="x", domains=TAIL, bytes=bad)
    pool = Tier(name="x", domains=TAIL)
    for changed in (
        {"turns_per_s": 0}, {"turns_per_s": True}, {"turn_tokens": -1}, {"tails_per_turn": 1.5},
        {"prefix_tokens": -1},
    ):  # fmt: skip
        with pytest.raises(aisim.InvalidInputError):
            kept(
                MODEL, PAPER, (pool,),
                **{"prefix_tokens": 8, "turn_tokens": 8, "turns_per_s": 1.0, **changed},
            )  # fmt: skip
    with pytest.raises(aisim.UnsupportedPlanError, match="memory_gb"):
        report_tiers(aisim.load_hardware("rtx_4090"), DISK)
