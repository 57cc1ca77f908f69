"""Counts of the draft pass: against the oracle, by hand, and as laws."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.draft import count_drafts, draft_experts
from oracle.draw import REAL, any_policy, any_requests, shrunken_model
from oracle.rows import forwards

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.load import load_model
from aisim_v41.plan.columns import DISTINCT_EXPERTS
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import LedgerProgram
from aisim_v41.plan.counts import Count
from aisim_v41.plan.draft import ADDITIVE, BLOCK, CHAIN, CONTEXT, DERIVED
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request

PLANS = 100
BATCHES = 12
NAMES = {
    "rows": (Count.QUERY_ROWS, BLOCK),
    "context": (Count.KV_ROWS, CONTEXT),
    "requests": (Count.QUERY_ROWS, CHAIN),
    "pairs": (Count.WINDOW_PAIRS, BLOCK),
    "ring": (Count.WINDOW_ROWS, BLOCK),
    "ring_cached": (Count.WINDOW_ROWS_CACHED, BLOCK),
}
"""Counts of the oracle, and where the ledger has them."""


def random_plan(seed: int) -> Plan:
    random = Random(seed)
    model = shrunken_model(random, drafter=True)
    chosen = any_policy(random, small=True).with_overrides(
        speculation="dspark", draft_tokens=random.randint(1, 7)
    )
    return Plan(model, any_requests(random, chosen, small=True), policy=chosen)


def without(plan: Plan) -> Plan:
    """The same without speculation."""
    chosen = plan.policy.with_overrides(speculation="off")
    return Plan(plan.model, plan.requests, policy=chosen)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_draft_count_against_the_oracle(batch: int):
    for seed in range(batch * PLANS, (batch + 1) * PLANS):
        plan = random_plan(seed)
        found = ledger(plan)
        expected = forwards(plan.model, plan.policy, plan.requests)
        for (_, counts), forward in zip(found.passes, expected, strict=True):
            of_requests = count_drafts(plan.model, plan.policy, forward)
            for name, (count, where) in NAMES.items():
                place = found.program.position(count, where)
                copies = [sequence.count for sequence in forward.sequences]
                oracle = [one[name] * n for one, n in zip(of_requests, copies, strict=True)]
                counted = [v * n for v, n in zip(counts.per_request[place], copies, strict=True)]
                assert counted == oracle, (seed, name)
                total = sum(oracle)
                assert counts.totals[place] == total, (seed, name)
                if count in (Count.QUERY_ROWS, Count.KV_ROWS):
                    active = found.program.position(Count.ACTIVE, where)
                    assert counts.totals[active] == float(total > 0), (seed, name)
            experts = [
                counts.totals[found.program.position(count, BLOCK)] for count in DISTINCT_EXPERTS
            ]
            oracle = draft_experts(plan.model, plan.policy, forward)
            assert experts == pytest.approx(list(oracle), rel=1e-9, abs=1e-9), seed


def test_the_oracle_and_the_names_cover_every_column():
    program = ledger(random_plan(1)).program
    named = {program.columns[program.position(count, where)] for count, where in NAMES.values()}
    assert named == set(ADDITIVE)
    assert {column.quantity for column in DERIVED} == {Count.ACTIVE, *DISTINCT_EXPERTS}


@pytest.mark.parametrize("seed", range(2000, 2100))
def test_the_backbone_counts_the_same_with_and_without(seed: int):
    plan = random_plan(seed)
    on, off = ledger(plan), ledger(without(plan))
    assert off.program.draft is None
    assert set(on.program.columns) - set(off.program.columns) == {*ADDITIVE, *DERIVED}
    for (_, one), (_, other) in zip(on.passes, off.passes, strict=True):
        places = [on.program.columns.index(column) for column in off.program.columns]
        assert one.totals[places].tolist() == other.totals.tolist()
    assert on.token_layers == off.token_layers


def step(*requests: Request, **changed) -> Ledger:
    chosen = policy("sglang", speculation="dspark", **changed)
    return ledger(Plan(load_model(REAL), requests, policy=chosen))


def test_a_verify_step_by_hand():
    """8 requests of 6 rows at 4,608: 5 drafted rows each, which see 128 + 5."""
    found = step(Request(new_tokens=6, prefix_tokens=4608, kind="verify", count=8))
    assert found.draft_total(Count.QUERY_ROWS) == 8 * 5
    assert found.draft_total(Count.QUERY_ROWS, CHAIN) == 8
    assert found.draft_total(Count.KV_ROWS, CONTEXT) == 8 * 6
    assert found.draft_total(Count.WINDOW_PAIRS) == 8 * 5 * (128 + 5)
    assert found.draft_total(Count.WINDOW_ROWS) == 8 * 128
    assert found.draft_total(Count.WINDOW_ROWS_CACHED) == 8 * (128 - 6)
    totals = found.passes[0][1].totals
    touched = totals[found.program.position(Count.EXPERTS_TOUCHED, BLOCK)]
    # Popularity 1: E n / (n + E/k - 1), 8 draws of a bound and 8 x (1 + 4 x 0.6) expected.
    assert touched == pytest.approx(128 * 8 / (8 + 128 / 3 - 1))
    expected = totals[found.program.position(Count.EXPERTS_EXPECTED, BLOCK)]
    assert expected == pytest.approx(128 * 27.2 / (27.2 + 128 / 3 - 1))


@pytest.mark.parametrize(
    ("request_", "changed", "context"),
    [
        (Request(new_tokens=8192), {}, 128),
        (Request(new_tokens=100), {}, 100),
        (Request(new_tokens=8192), {"decoder_replay": True}, 128),
        (Request(new_tokens=8192), {"decoder_replay": True, "replay_tail_rows": 64}, 64),
        (
            Request(new_tokens=4096, prompt_tokens=8192),
            {"decoder_replay": True, "replay_anchor": "prompt_end"},
            0,
        ),
    ],
)
def test_a_prompt_fills_the_rings_and_drafts_nothing(request_: Request, changed, context: int):
    found = step(request_, **changed)
    assert found.draft_total(Count.KV_ROWS, CONTEXT) == context
    assert found.draft_total(Count.QUERY_ROWS) == found.draft_total(Count.WINDOW_PAIRS) == 0


def test_a_short_context_is_seen_whole():
    found = step(Request(new_tokens=1, prefix_tokens=9, kind="decode"), draft_tokens=3)
    assert found.draft_total(Count.WINDOW_ROWS) == 10
    assert found.draft_total(Count.WINDOW_ROWS_CACHED) == 9
    assert found.draft_total(Count.WINDOW_PAIRS) == 3 * (10 + 3)


def test_a_frame_and_the_text_show_the_draft_blocks():
    found = step(Request(new_tokens=6, prefix_tokens=4608, kind="verify", count=2))
    frame = found.to_frame()
    drafted = frame[frame.kind == "draft"]
    assert drafted.layer.tolist() == [41, 42, 43]
    assert drafted.query_rows.tolist() == [10] * 3
    assert drafted.kv_rows.tolist() == [12] * 3
    assert (drafted.first_row.iloc[0], drafted.end_row.iloc[0]) == (4614, 4619)
    assert frame[frame.kind != "draft"].query_rows.sum() == found.token_layers
    assert "layers 41-43 (draft)" in found.to_text()
    assert "drafts 5 rows, fills 6 rows" in found.to_text()


def test_without_speculation_there_is_nothing_to_count():
    plan = Plan(load_model(REAL), [Request(new_tokens=6, kind="verify")], policy=policy("sglang"))
    found = ledger(plan)
    assert found.draft_total(Count.QUERY_ROWS) == 0
    assert "draft" not in found.to_text()
    assert set(found.to_frame().layer) == set(range(40))


def test_what_belongs_to_a_step_has_no_draft_total():
    found = step(Request(new_tokens=6, kind="verify"))
    with pytest.raises(InvalidInputError, match="whole step"):
        found.draft_total(Count.EXPERTS_TOUCHED)


# --- laws ---------------------------------------------------------------------------------------


def sums(found: Ledger) -> list[int]:
    return [found.draft_total(count, where) for count, where in NAMES.values()]


any_seed = st.integers(0, 1 << 30)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seed=any_seed, order=st.randoms(use_true_random=False))
def test_order_and_grouping_change_nothing(seed: int, order):
    plan = random_plan(seed)
    copies = [
        replace(r, count=1, packed=b"") for r in plan.requests for _ in range(min(r.count, 4))
    ]
    if any(r.count > 4 for r in plan.requests):
        return
    order.shuffle(copies)
    other = ledger(Plan(plan.model, copies, policy=plan.policy))
    assert sums(ledger(plan)) == sums(other)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(one=any_seed, other=any_seed)
def test_additive_over_requests(one: int, other: int):
    base = random_plan(one)
    chosen = base.policy.with_overrides(
        decode_rows="own_window",
        replay_exact=False,
        replay_min_tokens=0,
        replay_images="as_text",
    )
    more = any_requests(Random(other), chosen, small=True)

    def counted(requests) -> list[int]:
        return sums(ledger(Plan(base.model, requests, policy=chosen)))

    both = counted([*base.requests, *more])
    parts = (counted(base.requests), counted(more))
    assert both == [a + b for a, b in zip(*parts, strict=True)]


def test_a_sweep_counts_as_steps_do():
    chosen = policy("sglang", speculation="dspark")
    program = LedgerProgram(load_model(REAL), chosen)
    requests = [
        Request(new_tokens=6, prefix_tokens=p, kind="verify", count=c)
        for p, c in ((0, 1), (100, 8), (9000, 64))
    ]
    requests.append(Request(new_tokens=300))
    together = program.count(pack(requests), one_step=False).totals
    alone = [program.count(pack([request]), one_step=True).totals for request in requests]
    assert np.array_equal(together, np.stack(alone, axis=1))


# --- refusals -----------------------------------------------------------------------------------


def test_a_model_without_draft_blocks_cannot_draft():
    small = shrunken_model(Random(1))
    with pytest.raises(UnsupportedPlanError, match=r"has no draft blocks.*speculation='off'"):
        Plan(small, [], policy=policy("paper", speculation="dspark"))


def test_more_positions_than_a_block_holds_are_refused():
    with pytest.raises(UnsupportedPlanError, match=r"draft_tokens = 257.*at most 256"):
        Plan(load_model(REAL), [], policy=policy("paper", speculation="dspark", draft_tokens=257))
