"""The candidate pool: its operator by hand, and both executions of a reindex layer, one by one."""

from __future__ import annotations

import pytest
from oracle.draw import REAL

from aisim_v41.model.load import load_model
from aisim_v41.ops.operator import Traffic
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from ops.graphs import added, built

MODEL = load_model(REAL)
SOURCE, REINDEX = 20, (24, 28, 32, 36)


def named(profile: str, layer: int, name: str):
    return [t for t in built(policy("paper", fusion=profile)).by_layer[layer] if name in t.replaces]


def test_it_is_built_at_its_source_alone():
    graph = built(policy("paper", fusion="elementary"))
    found = [n for n, tasks in graph.by_layer.items() for t in tasks if t.name == "candidate_pool"]
    assert found == [SOURCE]


def test_bytes_by_hand():
    """Two bytes a score are read; 2,048 block numbers of four bytes are written a query."""
    ((task,), (selection,)) = (
        named("elementary", SOURCE, name) for name in ("candidate_pool", "index_select")
    )
    assert list(task.traffic[Traffic.ACTIVATION_READ].values()) == [2]
    assert list(task.traffic[Traffic.ACTIVATION_WRITE].values()) == [8192]
    assert list(selection.traffic[Traffic.ACTIVATION_WRITE].values()) == [2048]
    assert task.flops == {}


@pytest.mark.parametrize("profile", ["sglang_decode", "vllm_mega_mhc"])
def test_kernels_that_select_read_the_scores_once(profile: str):
    (task,) = named(profile, SOURCE, "candidate_pool")
    assert task.replaces == ("index_select", "candidate_pool")
    assert list(task.traffic[Traffic.ACTIVATION_READ].values()) == [2]
    assert sum(added([task.traffic[Traffic.ACTIVATION_WRITE]]).values()) == 2048 + 8192


def test_a_single_pass_keeps_the_scores_on_chip():
    (task,) = named("single_pass", SOURCE, "candidate_pool")
    assert task.replaces == ("index_score", "index_select", "candidate_pool")
    assert sum(added([task.traffic[Traffic.ACTIVATION_WRITE]]).values()) == 2048 + 8192


# --- both executions, one query after another -----------------------------------------------------


def pool_of(visible: int) -> int:
    """Candidates of a query that sees so many keys: its newest block and the best of the others,
    2,048 blocks of eight; any others serve, since all but the newest are whole."""
    blocks = [range(first, min(first + 8, visible)) for first in range(0, visible, 8)]
    kept = blocks if len(blocks) <= 2048 else [*blocks[:2047], blocks[-1]]
    return sum(len(block) for block in kept)


def scored(runtime, *requests: Request) -> list[int]:
    counted = ledger(Plan(MODEL, requests, policy=runtime)).to_frame().groupby("layer")
    positions = counted["scored_positions"].sum()
    return [int(positions[layer]) for layer in (2, SOURCE, *REINDEX)]


@pytest.mark.parametrize("end", [1, 512, 513, 1025, 1026, 16_376, 16_384, 16_385, 16_393, 131_072])
def test_a_decode_at_every_knee(end: int):
    request = Request(new_tokens=1, prefix_tokens=end - 1, kind="decode")
    pool = pool_of(end)
    assert scored(policy("paper"), request) == [end // 2, end, *[pool] * 4]
    dense = policy("paper", reindex_scoring="dense")
    assert scored(dense, request) == [end // 2, end, *[end] * 4]


@pytest.mark.parametrize(
    ("end", "skips_pairs", "skips_tokens"),
    [(512, True, True), (513, True, False), (1025, True, False), (1026, False, False)],
)
def test_short_contexts_are_not_scored_where_an_engine_says_so(
    end: int, skips_pairs: bool, skips_tokens: bool
):
    """Switch points: 513 at ratio 1, 1,026 at ratio 2 (runtime-semantics §7)."""
    decode = Request(new_tokens=1, prefix_tokens=end - 1, kind="decode")
    expected = [0 if skips_pairs else end // 2, *[0 if skips_tokens else end] * 5]
    for shortcut in ("decode", "always"):
        assert scored(policy("paper", index_shortcut=shortcut), decode) == expected
    prefill = Request(new_tokens=end)
    assert scored(policy("paper", index_shortcut="decode"), prefill)[1] == end * (end + 1) // 2
    whole = scored(policy("paper", index_shortcut="always"), prefill)
    assert [count == 0 for count in whole] == [skips_pairs, *[skips_tokens] * 5]


@pytest.mark.parametrize("replay", [False, True])
def test_a_prefill_query_by_query(replay: bool):
    prefix, new = 16_300, 200
    runtime = policy("sglang", decoder_replay=replay)
    request = Request(new_tokens=new, prefix_tokens=prefix)
    ends = range(prefix + 1, prefix + new + 1)
    tail = list(ends)[-128:] if replay else list(ends)
    expected = [
        sum(end // 2 for end in ends), sum(ends), *[sum(pool_of(end) for end in tail)] * 4
    ]  # fmt: skip
    assert scored(runtime, request) == expected


def test_a_captured_prefill_scores_a_static_width():
    """Every query up to the end of the step: 200 x 1,200 keys instead of a triangle."""
    request = Request(new_tokens=200, prefix_tokens=1_000)
    found = scored(policy("paper", score_shape="rectangle"), request)
    assert found[:2] == [200 * 600, 200 * 1_200]
