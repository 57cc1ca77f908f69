"""Raw FLOP of one decoded token, family by family (report Fig. 2; model-facts §6), to the digit."""

from __future__ import annotations

import pytest

from aisim_v41.plan.policy import policy
from ops.graphs import ELEMENTARY, built, counts, decode, flop

FAMILIES = {
    "attention projections": (("q_down", "q_up", "kv_down", "o_down", "o_up"), 10_129_244_160),
    "routed experts": (("routed_experts",), 16_986_931_200),
    "shared experts": (("shared_expert",), 2_831_155_200),
    "head": (("output_head",), 1_323_827_200),
    "Engram projections": (("engram_project",), 629_145_600),
    "router": (("router_gate",), 157_286_400),
    "hyper-connections": (("mhc_statistics", "mhc_collapse", "mhc_expand"), 98_304_000),
    "index queries": (("index_query",), 83_886_080),
    "compressors": (("compress_project",), 36_700_160),
}
"""Families whose work does not depend on the context."""

NOT_IN_THE_TABLE = {"engram_gate": 2 * 2 * 61_440, "head_collapse": 2 * 20_480}
"""Gates of two Engram modules and the collapse before the head: below a thousandth of a percent."""


@pytest.mark.parametrize("tokens", [4096, 1 << 20])
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, tokens: int):
    names, expected = FAMILIES[family]
    assert flop(built(ELEMENTARY).tasks, counts(ELEMENTARY, decode(tokens)), *names) == expected


@pytest.mark.parametrize("tokens", [1024, 4096, 1 << 20])
def test_attention_core(tokens: int):
    """128 window rows in 40 layers and 512 selected rows in 38: 24,576 pairs of 131,072 FLOP."""
    found = counts(ELEMENTARY, decode(tokens))
    core = flop(built(ELEMENTARY).tasks, found, "sparse_attention")
    assert core == (40 * 128 + 38 * 512) * 131_072 == 3_221_225_472


def test_small_products_of_the_indexer():
    """Head weights every token, 8 x 163,840; an index key every entry, 65,536: at ratio 2 every
    second token. On average over two tokens 2,949,120 FLOP."""
    tasks = built(ELEMENTARY).tasks
    odd, even = (
        flop(tasks, counts(ELEMENTARY, decode(n)), "index_weights", "index_key")
        for n in (4095, 4096)
    )
    assert odd == 2 * (8 * 163_840 + 65_536)
    assert even == 2 * (8 * 163_840 + 4 * 65_536)
    assert (odd + even) / 2 == 2_949_120


SCORING = {
    4096: 218_103_808,
    32_768: 1_207_959_552,
    131_072: 3_221_225_472,
    1 << 20: 22_011_707_392,
}
"""8192 x (2.5 N + 4 min(N, 16384)): three scans of N/2, one of N, four of the candidate pool."""


@pytest.mark.parametrize("tokens", SCORING)
def test_index_scoring(tokens: int):
    found = counts(ELEMENTARY, decode(tokens))
    scored = flop(built(ELEMENTARY).tasks, found, "index_score")
    assert scored == 8192 * (5 * tokens // 2 + 4 * min(tokens, 16_384)) == SCORING[tokens]


def test_dense_scoring_scans_all_keys_in_the_reindex_layers_too():
    dense = policy("paper", fusion="elementary", reindex_scoring="dense")
    scored = flop(built(dense).tasks, counts(dense, decode(1 << 20)), "index_score")
    assert scored == 8192 * (5 * (1 << 20) // 2 + 4 * (1 << 20))


@pytest.mark.parametrize(("tokens", "rounded"), [(4096, 35.72e9), (1 << 20, 57.51e9)])
def test_the_sum(tokens: int, rounded: float):
    """The published table, plus the two terms that it leaves out, is everything."""
    found = counts(ELEMENTARY, decode(tokens))
    table = sum(expected for _, expected in FAMILIES.values())
    # An even context: all four owners make an index key.
    table += 3_221_225_472 + SCORING[tokens] + 2 * (8 * 163_840 + 4 * 65_536)
    assert table == pytest.approx(rounded, abs=0.5e7)
    assert flop(built(ELEMENTARY).tasks, found) == table + sum(NOT_IN_THE_TABLE.values())


def test_a_short_context_attends_to_what_there_is():
    """Context 5: 5 window rows in 40 layers, 2 entries in 18 layers of ratio 2, 5 in 20."""
    found = counts(ELEMENTARY, decode(5))
    core = flop(built(ELEMENTARY).tasks, found, "sparse_attention")
    assert core == (40 * 5 + 18 * 2 + 20 * 5) * 131_072
