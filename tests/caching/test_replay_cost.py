"""What a replay costs: forwards against folding, copies of rings, history of Engram."""

from __future__ import annotations

from random import Random

import pytest

import aisim_v41 as aisim
from aisim_v41.caching.adoption import adopt
from aisim_v41.caching.copies import ring_copies
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.plan.engram_hash import engram_hash
from aisim_v41.plan.engram_rows import count_rows
from aisim_v41.plan.engram_text import RequestText
from aisim_v41.validation.cases import load_cases

MODEL = aisim.load_model("deepseek-v4.1-flash")
B200 = aisim.load_hardware("b200")
FOLDED = aisim.policy("sglang", encoder_replay="folded")


def batch_s(replay: str) -> float:
    """A batch of eight hits of 7,936 tokens with 256 new ones on eight B200, without graphs [s]."""
    window = "cached" if replay == "off" else "missing"
    hits = aisim.Request(new_tokens=256, prefix_tokens=7936, window=window, count=8)
    policy = aisim.policy("sglang", encoder_replay=replay)
    plan = aisim.Plan(MODEL, [hits], parallel=aisim.Parallel(tp=8, ep=8), policy=policy)
    return aisim.estimate(plan, B200, "op").latency_s


def test_a_batch_of_eight_hits_takes_eight_forwards_more():
    """Public report: 273 ms became 1,550 ms; what each replay adds is a forward of its own."""
    measured = {case.name: case.measured for case in load_cases() if "enc-replay" in case.name}
    on, off = measured["b200-enc-replay-on"], measured["b200-enc-replay-off"]
    separate, plain, folded = (batch_s(replay) for replay in ("separate", "off", "folded"))
    step = aisim.compile(
        MODEL, B200, parallel=aisim.Parallel(tp=8, ep=8), method="op",
        policy=aisim.policy("sglang", encoder_replay="separate"),
    )  # fmt: skip
    alone = step([aisim.Request(new_tokens=0, prefix_tokens=7936, window="missing")])
    assert separate == pytest.approx(plain + 8 * alone, rel=0.01)
    # 160 ms each were measured; the host of a build of that month issues one in 104.
    assert 0.5 < alone * 1000 / ((on - off) / 8) < 1.5
    # Five times and more, both; at most nine, as many as there are forwards.
    assert 5 < on / off < separate / plain < 9
    # In one eager forward more rows cost the host nothing.
    assert folded == pytest.approx(plain, rel=0.01)


def test_copies_by_hand():
    """The first step replays into an empty ring; the second finds 128 rows, and both leave 128."""
    lookup = CacheLookup(prompt_tokens=30_000, global_tokens=8192)
    found = adopt(MODEL, lookup, FOLDED)
    assert len(found.requests) == 2
    assert (found.copies.to_workspace, found.copies.to_ring) == (128, 256)
    assert found.copies.bytes == 2 * 528 * 40 * (128 + 256)
    assert "128 into a workspace" in found.text()
    drafting = FOLDED.with_overrides(speculation="dspark")
    ring = adopt(MODEL, lookup, drafting).copies
    assert ring.to_ring == 512  # 128 + 5 rows, in whole pages of 128
    apart = aisim.policy("sglang", encoder_replay="separate")
    copied = adopt(MODEL, CacheLookup(prompt_tokens=8256, global_tokens=8192), apart).copies
    assert (copied.to_workspace, copied.to_ring) == (128, 256)


def test_engines_without_rings_copy_nothing():
    for policy in (aisim.policy("vllm"), aisim.policy("sglang"), aisim.policy("trtllm")):
        lookup = CacheLookup(prompt_tokens=8256, global_tokens=8192)
        assert adopt(MODEL, lookup, policy).copies.bytes == 0


def test_a_batch_of_decodes_copies_its_windows():
    """64 requests, 128 rows each way in 40 layers, read and written: 0.7 GB, 0.09 ms of 8 TB/s."""
    decodes = aisim.Request(new_tokens=1, prefix_tokens=900, kind="decode", count=64)
    found = ring_copies(MODEL, FOLDED, [decodes])
    assert (found.to_workspace, found.to_ring) == (64 * 128, 64 * 128)
    assert found.bytes == 64 * 256 * 528 * 2 * 40 == 692_060_160
    assert ring_copies(MODEL, aisim.policy("sglang"), [decodes]).bytes == 0
    idle = aisim.Request(new_tokens=0, prefix_tokens=900)
    assert ring_copies(MODEL, FOLDED, [idle]).bytes == 0


@pytest.mark.parametrize("seed", range(40))
def test_copies_position_by_position(seed: int):
    """A ring as a list of positions: what a step finds in it, and what it leaves."""
    random = Random(seed)
    policy = FOLDED.with_overrides(
        hit_page_tokens=2, chunk_tokens=random.choice((130, 300, 900)),
        window_page_rows=random.choice((1, 32, 128)), window_slots=random.choice((128, 133, 200)),
    )  # fmt: skip
    prompt = random.randint(1, 1500)
    lookup = CacheLookup(prompt_tokens=prompt, global_tokens=random.randint(0, prompt))
    found = adopt(MODEL, lookup, policy)
    rows = max(128, policy.window_slots)
    capacity = -(-rows // policy.window_page_rows) * policy.window_page_rows
    ring: list[int] = []
    into = back = 0
    for request in found.requests:
        first = found.replay_start if request.window == "missing" else request.prefix_tokens
        history = [position for position in ring if position >= first - 128]
        into += len(history)
        workspace = [*history, *range(first, request.end)]
        ring = workspace[-capacity:]
        back += len(ring)
    assert (found.copies.to_workspace, found.copies.to_ring) == (into, back)


def test_three_ids_before_the_replay_are_its_history():
    """Engram rows of [P - R, S) are those of the whole text with three ids more, and no others."""
    random = Random(5)
    ids = [random.randrange(129_280) for _ in range(700)]
    hit = CacheLookup(prompt_tokens=700, global_tokens=600)
    found = adopt(MODEL, hit, aisim.policy("paper"))
    start, kept = found.replay_start, found.history_ids
    assert (start, kept, found.rows) == (472, 3, 228)
    hashing = engram_hash(MODEL)

    def counted(text: RequestText):
        return count_rows(hashing, [[text]])

    whole = counted(RequestText(token_ids=ids, start=start))
    assert whole.lookups == found.rows * 2 * 24
    before = RequestText(token_ids=ids[:start])
    tail = RequestText(token_ids=ids[start - kept :], start=kept)
    # The tail asks for no rows that the whole text did not, if its history is right.
    both = count_rows(hashing, [[before], [RequestText(token_ids=ids, start=start)], [tail]])
    assert sum(module.new for module in both.modules if module.step == 2) == 0
    cut = RequestText(token_ids=ids[start - kept + 1 :], start=kept - 1)
    short = count_rows(hashing, [[before], [RequestText(token_ids=ids, start=start)], [cut]])
    new = [module.new for module in short.modules if module.step == 2]
    assert new == [8, 8]  # the first position's four-gram asks other rows, one a head
