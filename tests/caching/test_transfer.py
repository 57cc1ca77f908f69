"""Prefill to decode and encoder to prefill: bytes by hand, overlap, refusals."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.caching.state import Domain, state_bytes
from aisim_v41.caching.transfer import Role, transfer, transfer_images
from aisim_v41.caching.ways import Way, way_to

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")
NIC = way_to(GB300, "network")
PAPER = aisim.policy("paper")


def role(policy="paper", *, tp: int = 4, cp: int = 1, **changed) -> Role:
    return Role(policy=aisim.policy(policy, **changed), parallel=aisim.Parallel(tp=tp, cp=cp))


def moved(tokens: int = 8192, *, sender=None, receiver=None, way: Way = NIC, **changed):
    sender = role() if sender is None else sender
    lookup = CacheLookup(prompt_tokens=tokens, global_tokens=changed.pop("hit", 0))
    return transfer(
        MODEL, GB300, lookup, sender=sender, receiver=sender if receiver is None else receiver,
        way=way, method="sol", **changed,
    )  # fmt: skip


def test_a_prompt_of_8192_by_hand():
    """Entries 7,290,880, windows 2,703,360, rings 24,576 and three ids; a copy a rank."""
    found = moved()
    assert found.copy_bytes == 7_290_880 + 2_703_360 + 24_576 + 24
    assert (found.copies, found.copies_a_link) == (4, 1)
    assert found.wire_bytes == 4 * found.copy_bytes
    assert found.transfer_s == pytest.approx(found.copy_bytes / 100e9)
    assert found.to_frame().bytes.sum() == found.copy_bytes
    shown = found.to_dict()
    assert shown["bytes_by_domain"]["entries"] == 7_290_880
    assert shown["exposed_ms"] >= 0


@pytest.mark.parametrize(
    ("sends", "receives", "carried"), [(4, 4, 1), (4, 8, 2), (2, 8, 4), (8, 2, 1), (1, 4, 4)]
)
def test_every_decode_rank_needs_a_copy(sends: int, receives: int, carried: int):
    found = moved(sender=role(tp=sends), receiver=role(tp=receives))
    assert (found.copies, found.copies_a_link) == (receives, carried)
    assert found.transfer_s == pytest.approx(carried * found.copy_bytes / 100e9)


def test_layer_by_layer_leaves_only_the_last_ones():
    """Nothing is sent before it is computed, and the link is never faster than it is."""
    for rate in (1e8, 1e9, 1e10, 1e12):
        found = moved(way=Way(name="n", bytes_per_s=rate))
        assert found.compute_s <= found.total_s <= found.compute_s + found.transfer_s * (1 + 1e-9)
        assert found.total_s >= found.transfer_s
    fast = moved(way=Way(name="n", bytes_per_s=1e12))
    assert fast.exposed_s < 0.2 * fast.transfer_s


def test_chunks_send_while_the_next_is_computed():
    way = Way(name="n", bytes_per_s=2e8)  # 0.3 s for 58 MB
    one, many = (moved(65_536, way=way, sender=role(chunk_tokens=c)) for c in (65_536, 8192))
    assert many.copy_bytes == one.copy_bytes
    assert 0 < many.exposed_s < one.exposed_s


def test_what_the_receiver_has_stays_away():
    held = moved(held_tokens=8000)
    assert state_bytes(held.parts, Domain.ENTRIES) == 890 * 192
    assert held.total_s <= moved().total_s


def test_a_cached_prefix_leaves_at_once():
    cold, warm = moved(8256), moved(8256, hit=8192)
    assert warm.copy_bytes == cold.copy_bytes
    assert warm.compute_s < cold.compute_s
    assert warm.total_s < cold.total_s


def test_every_piece_is_sent_once():
    from aisim_v41.caching.overlap import layer_times
    from aisim_v41.caching.transfer import _ready
    from aisim_v41.memory.pool import kv_pool

    for name in ("paper", "sglang", "vllm", "trtllm"):
        for tokens, hit, held in ((1, 0, 0), (300, 0, 0), (40_000, 0, 3000), (40_000, 16_384, 100)):
            policy = aisim.policy(name, encoder_replay="off", hit_page_tokens=1)
            lookup = CacheLookup(prompt_tokens=tokens, global_tokens=hit, window_tokens=hit)
            found = transfer(
                MODEL, GB300, lookup, sender=Role(policy=policy), receiver=Role(policy=policy),
                way=NIC, method="sol", held_tokens=held,
            )  # fmt: skip
            steps = [
                layer_times(aisim.estimate(aisim.Plan(MODEL, [r], policy=policy), GB300, "sol"))
                for r in found.adoption.requests
            ]
            pool = kv_pool(MODEL, policy)
            ready = _ready(pool, found.adoption, found.parts, steps, held)
            assert sum(amount for _, amount in ready) == found.copy_bytes
            assert max(when for when, _ in ready) <= found.compute_s * (1 + 1e-9)


LAYOUTS = [
    ("kv_layout", {"kv_layout": "sglang_v4"}),
    ("pages", {"page_tokens": 64}),
    ("window pages", {"window_page_rows": 64}),
    ("rings", {"pair_ring_rows": 9}),
]


@pytest.mark.parametrize(("what", "changed"), LAYOUTS)
def test_unlike_rows_or_pages_are_refused(what: str, changed: dict):
    plain = role("sglang")
    with pytest.raises(
        aisim.UnsupportedPlanError, match=r"no engine converts|as they lie in the cache"
    ):
        moved(sender=plain, receiver=role("sglang", **changed))
    with pytest.raises(aisim.UnsupportedPlanError, match="kv_layout='vllm_fp8'"):
        moved(sender=role("vllm"), receiver=plain)


def test_sglang_hands_over_no_drafts_and_no_rings():
    """Deployment question 54; runtime-semantics §2.1. Custom rules name what a later text allows
    (§9: uniform lengths, decode CP 1)."""
    with pytest.raises(aisim.UnsupportedPlanError, match=r"DSpark.*37ae292e"):
        moved(sender=role("sglang", speculation="dspark"))
    with pytest.raises(aisim.UnsupportedPlanError, match=r"encoder replay.*37ae292e"):
        moved(sender=role("sglang", encoder_replay="folded"))
    free = {"policy": "custom", "base": "sglang", "speculation": "dspark"}
    found = moved(sender=role(**free))
    assert {p.layer for p in found.parts if p.domain is Domain.WINDOW} == {*range(40), 41, 42, 43}
    assert len(found.warnings) == 1
    assert "guide refuses them" in found.warnings[0]
    ragged = moved(sender=role(**free), receiver=role(**free, verify_lengths="ragged", cp=2, tp=1))
    assert [w.partition(":")[0] for w in ragged.warnings[1:]] == [
        "verify_lengths='ragged'", "a decode side of cp=2",
    ]  # fmt: skip
    assert ragged.to_dict()["warnings"] == list(ragged.warnings)
    assert moved().warnings == ()


def test_both_roles_draft_or_none():
    """Deployment question 54: vLLM where both match; nobody fills a drafter's empty windows."""
    plain, drafting = role("vllm"), role("vllm", speculation="dspark")
    assert moved(sender=drafting).copy_bytes > moved(sender=plain).copy_bytes
    for sender, receiver in ((plain, drafting), (drafting, plain)):
        with pytest.raises(aisim.UnsupportedPlanError, match="prefill"):
            moved(sender=sender, receiver=receiver)
    with pytest.raises(aisim.UnsupportedPlanError, match="same speculation"):
        moved(sender=role("atom"), receiver=role("atom", speculation="dspark"))


def test_images_go_to_every_rank():
    """31 x 31 cells of 5,120 BF16 values."""
    found = transfer_images(MODEL, [(1302, 1302)] * 3, receiver=role(tp=8), way=NIC)
    assert found.cells == 3 * 961
    assert found.copy_bytes == 3 * 961 * 5120 * 2
    assert found.wire_bytes == 8 * found.copy_bytes
    assert found.seconds == pytest.approx(found.copy_bytes / 100e9)
    assert transfer_images(MODEL, [], receiver=role(), way=NIC).seconds == 0
    with pytest.raises(aisim.InvalidInputError, match="pixels"):
        transfer_images(MODEL, [(0, 9)], receiver=role(), way=NIC)


@pytest.mark.parametrize("wrong", [{"policy": "paper"}, {"parallel": 4}], ids=str)
def test_roles_of_the_wrong_kind(wrong):
    with pytest.raises(aisim.InvalidInputError, match=r"Role\."):
        Role(**{"policy": PAPER, **wrong})


def test_arguments_of_the_wrong_kind():
    lookup = CacheLookup(prompt_tokens=8)
    good = {"sender": role(), "receiver": role(), "way": NIC}
    for name in good:
        with pytest.raises(aisim.InvalidInputError, match=name):
            transfer(MODEL, GB300, lookup, **{**good, name: None})
    with pytest.raises(aisim.InvalidInputError, match="hardware"):
        transfer(MODEL, "gb300", lookup, **good)
    with pytest.raises(aisim.InvalidInputError, match="held_tokens"):
        transfer(MODEL, GB300, lookup, held_tokens=9, **good)
