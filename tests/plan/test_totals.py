"""Totals over several requests: an interval or a refusal, never a guess."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

import aisim_v41 as aisim
from aisim_v41.plan.totals import Totals, token_layers

MODEL = aisim.load_model("deepseek-v4.1-flash")
REPLAY = aisim.policy("sglang", decoder_replay=True)


def of(lengths: tuple[int, ...], policy) -> int:
    plan = aisim.Plan(MODEL, [aisim.Request(new_tokens=n) for n in lengths], policy=policy)
    return aisim.ledger(plan).token_layers


def test_one_request_is_determined():
    assert Totals(requests=1, new_tokens=8192).determined() == aisim.Request(new_tokens=8192)
    assert token_layers(MODEL, REPLAY, Totals(requests=1, new_tokens=8192)) == (174_464, 174_464)


def test_without_replay_totals_suffice():
    interval = token_layers(MODEL, aisim.policy("sglang"), Totals(requests=7, new_tokens=1000))
    assert interval.exact
    assert interval.low == 40_000


def test_several_requests_are_refused():
    with pytest.raises(aisim.UnsupportedPlanError, match="65536 new tokens over 8 requests"):
        Totals(requests=8, new_tokens=65536).determined()


def test_the_interval_by_hand():
    # 8256 over two: evenly 21 x 8256 + 19 x 256 = 178,240; as 8255 + 1: 21 x 8256 + 19 x 129.
    interval = token_layers(MODEL, REPLAY, Totals(requests=2, new_tokens=8256))
    assert interval == (21 * 8256 + 19 * 129, 21 * 8256 + 19 * 256)
    assert not interval.exact


@pytest.mark.parametrize("total", [3, 10, 24, 40])
def test_every_split_lies_inside_and_the_ends_are_reached(total: int):
    policy = aisim.policy("sglang", decoder_replay=True, replay_tail_rows=8)
    splits = [s for s in combinations_with_replacement(range(1, total), 3) if sum(s) == total]
    values = {of(split, policy) for split in splits}
    interval = token_layers(MODEL, policy, Totals(requests=3, new_tokens=total))
    assert (min(values), max(values)) == interval


def test_the_context_limits_how_uneven():
    longest = MODEL.max_context
    full = token_layers(MODEL, REPLAY, Totals(requests=2, new_tokens=2 * longest))
    assert full.exact
    with pytest.raises(aisim.UnsupportedPlanError, match="do not fit 2 contexts"):
        token_layers(MODEL, REPLAY, Totals(requests=2, new_tokens=2 * longest + 1))


@pytest.mark.parametrize("arguments", [(0, 1), (2, 1), (-1, 5), (1, 2.5), (True, 3), (1, "9")])
def test_bad_totals(arguments):
    with pytest.raises(aisim.InvalidInputError, match="Totals"):
        Totals(requests=arguments[0], new_tokens=arguments[1])
