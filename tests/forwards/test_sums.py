"""Sums over requests: where they leave one step, and what their readings enclose."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import Plan, Request, ledger, policy
from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.readings import even, uneven
from aisim_v41.forwards.records import StepTotals
from aisim_v41.model.description import Model
from aisim_v41.model.load import model_from_config
from aisim_v41.plan.columns import has_count
from aisim_v41.plan.counts import Count
from aisim_v41.plan.ledger import PER_REQUEST
from aisim_v41.plan.policy import RuntimePolicy
from tests.oracle.draw import published_config

ROWS = {
    Count.QUERY_ROWS, Count.KV_ROWS, Count.INDEX_ROWS, Count.COMPRESSED_ROWS, Count.TOKENS,
    Count.LOGIT_ROWS, Count.WINDOW_ROWS, Count.WINDOW_ROWS_CACHED,
}  # fmt: skip
"""Counts that every split keeps between the readings."""
CONTEXT = 40


@cache
def small() -> Model:
    """Window 4, top-k 3, a pool of 3 blocks of 2 entries: a dozen tokens reach every knee."""
    config = copy.deepcopy(published_config())
    del config["vision_config"]
    config["text_config"] |= {
        "num_hidden_layers": 8,
        "compress_ratios": [0, 2, 2, 2, 1, 1, 1, 1],
        "kv_source_layer_ids": [1, 4],
        "index_source_layer_ids": [1, 3, 4, 6],
        "index_topk": 3,
        "sliding_window": 4,
        "engram_layer_ids": [],
        "engram_num_embeddings": [],
        "num_nextn_predict_layers": 0,
        "dspark_target_layer_ids": [],
        "candidate_source_layer_id": 4,
        "candidate_topk_blocks": 3,
        "candidate_block_size": 2,
    }
    return model_from_config(config, name="small")


def replay(on: bool) -> RuntimePolicy:
    return policy("sglang", decoder_replay=on, replay_tail_rows=3, decode_execution="eager")


def counts(step: tuple[Request, ...], runtime: RuntimePolicy) -> dict[tuple[Count, int], int]:
    found = ledger(Plan(small(), step, policy=runtime))
    return {
        (count, layer): found.total(count, layer)
        for count in PER_REQUEST
        for layer, where in enumerate(found.program.classes)
        if has_count(count, where)
    }


def parts(total: int, count: int, low: int, high: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a total as so many numbers, in order."""
    if count == 1:
        if low <= total <= high:
            yield (total,)
        return
    for first in range(low, min(high, total) + 1):
        for rest in parts(total - first, count - 1, low, high):
            yield (first, *rest)


def decodes(pasts: tuple[int, ...]) -> tuple[Request, ...]:
    return tuple(Request(new_tokens=1, prefix_tokens=p, kind="decode") for p in pasts)


def decode_steps(count: int, total: int) -> set[tuple[int, ...]]:
    return {tuple(sorted(pasts)) for pasts in parts(total, count, 0, CONTEXT - 1)}


def prefill_steps(count: int, tokens: int, past: int) -> set[tuple[tuple[int, int], ...]]:
    return {
        tuple(sorted(zip(news, pasts, strict=True)))
        for news in parts(tokens, count, 1, CONTEXT)
        for pasts in parts(past, count, 0, CONTEXT - 1)
        if all(n + p <= CONTEXT for n, p in zip(news, pasts, strict=True))
    }


def prefills(prompts: tuple[tuple[int, int], ...]) -> tuple[Request, ...]:
    return tuple(Request(new_tokens=n, prefix_tokens=p) for n, p in prompts)


def missed(
    totals: StepTotals, steps: list[tuple[Request, ...]], runtime: RuntimePolicy
) -> dict[tuple[Count, int], int]:
    """How far any step lies outside the readings, by count and layer; those inside left out."""
    readings = [counts(step, runtime) for step in totals.extremes(CONTEXT)]
    low = {key: min(r[key] for r in readings) for key in readings[0]}
    high = {key: max(r[key] for r in readings) for key in readings[0]}
    worst: dict[tuple[Count, int], int] = {}
    for step in steps:
        for key, value in counts(step, runtime).items():
            out = max(low[key] - value, value - high[key])
            if out > 0:
                worst[key] = max(worst.get(key, 0), out)
    return worst


# --- what the readings enclose --------------------------------------------------------------------

DECODES = [(2, 1), (2, 9), (2, 30), (3, 4), (3, 13), (3, 20)]
PREFILLS = [(2, 2, 12), (2, 9, 0), (2, 12, 3), (2, 14, 9), (3, 8, 0), (3, 14, 0), (3, 8, 7),
            (3, 9, 5)]  # fmt: skip


@pytest.mark.parametrize(("count", "total"), DECODES)
@pytest.mark.parametrize("on", [False, True])
def test_decodes_lie_between_their_readings(count, total, on):
    totals = StepTotals(decode_requests=count, decode_kv_tokens=total)
    steps = [decodes(pasts) for pasts in decode_steps(count, total)]
    worst = missed(totals, steps, replay(on))
    assert {key[0] for key in worst} & (ROWS | {Count.WINDOW_PAIRS}) == set()
    # Entries of two tokens and blocks of two entries, partly filled.
    assert max(worst.values(), default=0) <= count


@pytest.mark.parametrize(("count", "tokens", "past"), PREFILLS)
@pytest.mark.parametrize("on", [False, True])
def test_prefills_lie_between_their_readings(count, tokens, past, on):
    totals = StepTotals(prefill_requests=count, prefill_tokens=tokens, prefill_kv_tokens=past)
    steps = [prefills(prompts) for prompts in prefill_steps(count, tokens, past)]
    worst = missed(totals, steps, replay(on))
    exact = ROWS if on else ROWS | {Count.WINDOW_PAIRS}
    assert {key[0] for key in worst} & exact == set()
    # The knees of top-k and pool are not at any reading.
    assert max(worst.values(), default=0) <= 2 * count


def test_mixed_steps_are_every_pair_of_readings():
    totals = StepTotals(prefill_requests=2, prefill_tokens=9, decode_requests=2, decode_kv_tokens=9)
    steps = [
        prefills(prompts) + decodes(pasts)
        for prompts in prefill_steps(2, 9, 0)
        for pasts in decode_steps(2, 9)
    ]
    worst = missed(totals, steps, replay(True))
    assert {key[0] for key in worst} & ROWS == set()


def test_a_count_that_the_readings_do_not_enclose():
    """Selections saturate between the readings: the page names this case."""
    totals = StepTotals(prefill_requests=3, prefill_tokens=8, prefill_kv_tokens=7)
    readings = [counts(step, replay(False)) for step in totals.extremes(CONTEXT)]
    key = (Count.SELECTED_ENTRIES, 1)
    others = [counts(prefills(p), replay(False))[key] for p in prefill_steps(3, 8, 7)]
    assert (max(r[key] for r in readings), max(others)) == (18, 20)


@given(st.integers(2, 4), st.integers(0, 2 * CONTEXT - 4), st.data())
def test_readings_have_the_sums(count, total, data):
    tokens = data.draw(st.integers(count, 2 * CONTEXT - total))
    totals = StepTotals(
        prefill_requests=count, prefill_tokens=tokens, prefill_kv_tokens=total,
        decode_requests=count, decode_kv_tokens=total,
    )  # fmt: skip
    for step in totals.extremes(CONTEXT):
        kinds = {kind: [r for r in step if r.kind == kind] for kind in ("prefill", "decode")}
        for found in kinds.values():
            assert sum(r.count for r in found) == count
            assert sum(r.prefix_tokens * r.count for r in found) == total
        assert sum(r.new_tokens * r.count for r in kinds["prefill"]) == tokens
        assert max(r.end for r in step) <= CONTEXT


def test_sums_that_do_not_fit():
    with pytest.raises(InvalidInputError, match="does not fit 2 contexts of 39 tokens"):
        StepTotals(decode_requests=2, decode_kv_tokens=79).extremes(CONTEXT)
    with pytest.raises(InvalidInputError, match=r"prefill_tokens \+ prefill_kv_tokens = 81"):
        StepTotals(prefill_requests=2, prefill_tokens=41, prefill_kv_tokens=40).extremes(CONTEXT)
    with pytest.raises(InvalidInputError, match="does not fit 1 contexts of 40 tokens"):
        StepTotals(prefill_requests=1, prefill_tokens=41).extremes(CONTEXT)


# --- variances ------------------------------------------------------------------------------------


def variance(values: tuple[int, ...]) -> Fraction:
    mean = Fraction(sum(values), len(values))
    return sum(((value - mean) ** 2 for value in values), Fraction(0)) / len(values)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("total", [0, 1, 7, 12, 13])
def test_decodes_that_are_determined(count, total):
    """Where an answer is given it is the only step; two decodes and even ones have one."""
    steps = decode_steps(count, total)
    for pasts in steps:
        spread = variance(pasts)
        alike = [other for other in steps if variance(other) == spread]
        found = StepTotals(
            decode_requests=count, decode_kv_tokens=total, decode_kv_variance=float(spread)
        ).determined()
        if found is not None:
            assert alike == [pasts]
            listed = [r.prefix_tokens for r in found for _ in range(r.count)]
            assert sorted(listed) == list(pasts)
        if count <= 2 or max(pasts) - min(pasts) <= 1:
            assert found is not None


@pytest.mark.parametrize(("count", "total"), [(3, 20), (4, 12)])
def test_a_variance_narrows_the_readings(count, total):
    free = StepTotals(decode_requests=count, decode_kv_tokens=total)
    key = (Count.WINDOW_ROWS, 0)
    runtime = replay(False)
    widest = [counts(step, runtime)[key] for step in free.extremes(CONTEXT)]
    narrowed = 0
    for spread in {variance(pasts) for pasts in decode_steps(count, total)}:
        steps = [decodes(p) for p in decode_steps(count, total) if variance(p) == spread]
        known = StepTotals(
            decode_requests=count, decode_kv_tokens=total, decode_kv_variance=float(spread)
        )
        worst = missed(known, steps, runtime)
        assert {name for name, _ in worst} & (ROWS | {Count.WINDOW_PAIRS}) == set()
        narrowed += min(counts(s, runtime)[key] for s in known.extremes(CONTEXT)) > min(widest)
    assert narrowed > 3


@given(st.lists(st.integers(0, 1 << 20), min_size=2, max_size=2))
def test_two_decodes_come_back_from_a_rounded_variance(pasts):
    spread = float(variance(tuple(pasts)))
    found = StepTotals(
        decode_requests=2, decode_kv_tokens=sum(pasts), decode_kv_variance=spread
    ).determined()
    assert found is not None
    assert sorted(r.prefix_tokens for r in found for _ in range(r.count)) == sorted(pasts)


# --- sums that no requests have -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sums", "message"),
    [
        ({}, "at least one request"),
        ({"prefill_requests": 2, "prefill_tokens": 1}, "each computes at least one token"),
        ({"decode_requests": 1, "prefill_tokens": 1}, "prefill_tokens = 1 of 0 requests"),
        ({"decode_requests": 1, "prefill_kv_tokens": 1}, "prefill_kv_tokens = 1 without a prefill"),
        ({"prefill_requests": 1, "prefill_tokens": 1, "decode_kv_tokens": 4}, "without a decode"),
        ({"decode_requests": -1}, "decode_requests = -1"),
        ({"decode_requests": 1.0}, "decode_requests = 1.0"),
        ({"decode_requests": True}, "decode_requests = True"),
        ({"decode_requests": 1, "decode_kv_tokens": 1 << 60}, "from 0 to"),
        ({"decode_requests": 2, "decode_kv_tokens": 4, "decode_kv_variance": -1.0}, "finite"),
        ({"decode_requests": 2, "decode_kv_variance": float("nan")}, "finite number"),
        ({"decode_requests": 2, "decode_kv_variance": "4"}, "finite number"),
        ({"decode_requests": 2, "decode_kv_tokens": 4, "decode_kv_variance": 5.0},
         "2 lengths of sum 4 have a variance from 0 to 4"),
        ({"decode_requests": 2, "decode_kv_tokens": 5, "decode_kv_variance": 0.0}, "from 0.25 to"),
        ({"decode_requests": 1, "decode_kv_tokens": 5, "decode_kv_variance": 1.0}, "from 0 to 0"),
        ({"prefill_requests": 1, "prefill_tokens": 1, "prefill_length_variance": 1.0}, "to 0"),
    ],
)  # fmt: skip
def test_sums_that_cannot_be(sums, message):
    with pytest.raises(InvalidInputError, match=message):
        StepTotals(**sums)


@pytest.mark.parametrize(
    ("sums", "step"),
    [
        ({"prefill_requests": 1, "prefill_tokens": 9, "prefill_kv_tokens": 4},
         (Request(new_tokens=9, prefix_tokens=4),)),
        ({"prefill_requests": 3, "prefill_tokens": 3}, (Request(new_tokens=1, count=3),)),
        ({"prefill_requests": 2, "prefill_tokens": 3}, None),
        ({"prefill_requests": 2, "prefill_tokens": 2, "prefill_kv_tokens": 1}, None),
        # Equal prompts of which a chunk budget may have cut one.
        ({"prefill_requests": 2, "prefill_tokens": 4, "prefill_length_variance": 0.0}, None),
        ({"decode_requests": 2, "decode_kv_tokens": 10}, None),
        ({"decode_requests": 4, "decode_kv_tokens": 40, "decode_kv_variance": 0.0},
         (Request(new_tokens=1, prefix_tokens=10, kind="decode", count=4),)),
        ({"prefill_requests": 1, "prefill_tokens": 9, "decode_requests": 2, "decode_kv_tokens": 10},
         None),
        ({"prefill_requests": 1, "prefill_tokens": 9, "decode_requests": 1, "decode_kv_tokens": 10},
         (Request(new_tokens=9), Request(new_tokens=1, prefix_tokens=10, kind="decode"))),
    ],
)  # fmt: skip
def test_what_is_determined(sums, step):
    totals = StepTotals(**sums)
    assert totals.determined() == step
    if step is not None:
        assert totals.extremes(100) == (step,)
    else:
        assert len(totals.extremes(100)) >= 2


def test_even_and_uneven_lengths():
    assert even(11, 4) == ((2, 1), (3, 3))
    assert uneven(11, 4, 1, 6) == ((6, 1), (3, 1), (1, 2))
    assert uneven(24, 4, 1, 6) == ((6, 4),)
    assert uneven(4, 4, 1, 1) == ((1, 4),)
    assert even(0, 0) == uneven(0, 0, 1, 9) == ()
