"""Counts of distinct rows: hand-worked texts, laws, and a slow count beside the fast one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import engram as oracle
from oracle.engram_texts import CLASSES, MODEL, SMALL, texts

from aisim_v41.errors import InvalidInputError
from aisim_v41.plan.engram_hash import engram_hash
from aisim_v41.plan.engram_rows import cached_rows, count_rows
from aisim_v41.plan.engram_text import RequestText, chunks

HASHING = engram_hash(MODEL)
SHORT = engram_hash(SMALL)
steps_of_texts = st.lists(st.lists(texts(), max_size=3), max_size=4)


def slow_rows(hashing, text):
    return [
        oracle.rows_of_position(
            text.ids.tolist(),
            position,
            images=text.images,
            classes=range(30),
            pad=hashing.pad,
            primes=hashing.primes,
            multipliers=hashing.multipliers,
            heads=hashing.engram.heads,
        )
        for position in range(text.start, text.stop)
        if not any(first <= position < end for first, end in text.images)
    ]


@given(steps_of_texts)
@settings(max_examples=150)
def test_counts_are_those_of_sets(steps):
    counted = count_rows(SHORT, steps).modules
    seen = [set(), set()]
    for number, step in enumerate(steps):
        positions = [rows for text in step for rows in slow_rows(SHORT, text)]
        for module, layer in enumerate((1, 14)):
            rows = [row for position in positions for row in position[module]]
            found = counted[2 * number + module]
            assert (found.step, found.layer, found.tokens) == (number, layer, len(positions))
            assert (found.lookups, found.distinct) == (len(rows), len(set(rows)))
            assert found.new == len(set(rows) - seen[module])
            seen[module] |= set(rows)
            grams = {
                (length, oracle.ngram(text.ids, at, length, text.images, range(30), SHORT.pad))
                for text in step
                for at in range(text.start, text.stop)
                if not text.image_mask(0)[at]
                for length in (2, 3, 4)
            }
            assert found.ngrams == 2 * len(grams)
            assert found.collisions >= 0


@given(steps_of_texts, st.integers(0, 60))
@settings(max_examples=150)
def test_hits_are_those_of_a_list(steps, capacity):
    rows_of = [
        [
            SMALL.engram.rows[0] * module + row
            for text in step
            for position in slow_rows(SHORT, text)
            for module, rows in enumerate(position)
            for row in rows
        ]
        for step in steps
    ]
    found = cached_rows(SHORT, steps, capacity)
    assert (found.asked, found.hits) == oracle.least_recently_used(rows_of, capacity)


@given(steps_of_texts)
def test_more_cache_never_hits_less_and_all_of_it_misses_only_new_rows(steps):
    hits = [cached_rows(SHORT, steps, capacity).hits for capacity in (0, 5, 20, 10_000)]
    assert hits == sorted(hits)
    counted = count_rows(SHORT, steps)
    asked = sum(module.distinct for module in counted.modules)
    assert hits[0] == 0
    assert hits[-1] == asked - sum(module.new for module in counted.modules)


@given(steps_of_texts)
def test_classes_merge_ngrams_and_never_split_them(steps):
    apart = count_rows(SHORT, steps).modules
    merged = count_rows(engram_hash(SMALL, classes=CLASSES), steps).modules
    assert all(m.ngrams <= a.ngrams for m, a in zip(merged, apart, strict=True))


@given(st.lists(texts(), max_size=4), st.randoms())
def test_the_order_of_requests_does_not_matter(step, random):
    mixed = random.sample(step, len(step))
    assert count_rows(SHORT, [step]) == count_rows(SHORT, [mixed])


def test_one_token_repeated():
    """72 rows in a step from the start (2 + 3 + 4 n-grams of 8 heads), 24 in each later one."""
    counted = count_rows(HASHING, chunks([RequestText(token_ids=[7] * 192)], 64))
    assert [m.distinct for m in counted.modules] == [72, 72, 24, 24, 24, 24]
    assert [m.new for m in counted.modules] == [72, 72, 0, 0, 0, 0]
    assert counted.distinct_share == 240 / (6 * 64 * 24)


def test_a_period_of_tokens_has_as_many_ngrams():
    """Far from the start a text of period p has p n-grams of each order."""
    text = RequestText(token_ids=list(range(100, 150)) * 4, start=100)
    (first, second) = count_rows(HASHING, chunks([text], 1000)).modules
    assert (first.ngrams, first.distinct, second.distinct) == (50 * 24, 50 * 24, 50 * 24)
    assert first.distinct_share == 0.5


def test_repeated_text_asks_for_less_than_varied_text():
    ids = np.random.default_rng(1).integers(0, MODEL.vocab, 4096)
    varied = count_rows(HASHING, chunks([RequestText(token_ids=ids)], 1024))
    repeated = count_rows(HASHING, chunks([RequestText(token_ids=np.tile(ids[:256], 16))], 1024))
    assert varied.distinct_share > 0.99
    assert 0.25 <= repeated.distinct_share < 0.26
    assert repeated.new_share < 0.07


def test_collisions_of_random_ngrams_are_as_rare_as_a_birthday():
    """n n-grams in p rows share about n(n - 1) / 2p of them, over all columns."""
    ids = np.random.default_rng(2).integers(0, MODEL.vocab, 8192)
    for module in count_rows(HASHING, [[RequestText(token_ids=ids)]]).modules:
        expected = 24 * 8192 * 8191 / 2 / 16_000_257
        assert abs(module.collisions - expected) < 5 * expected**0.5


def test_requests_with_the_same_text_share_rows_within_a_step():
    text = RequestText(token_ids=list(range(500, 900)))
    one = count_rows(HASHING, [[text]])
    four = count_rows(HASHING, [[text] * 4])
    assert [m.distinct for m in four.modules] == [m.distinct for m in one.modules]
    assert four.distinct_share == one.distinct_share / 4


def test_nothing_looked_up():
    counted = count_rows(HASHING, [[]])
    assert [m.lookups for m in counted.modules] == [0, 0]
    assert (counted.distinct_share, counted.new_share) == (1.0, 1.0)
    assert cached_rows(HASHING, [], 10).hit_share == 0.0
    with pytest.raises(InvalidInputError, match="capacity = -1"):
        cached_rows(HASHING, [], -1)


def test_frame_and_plain_data_say_the_same():
    counted = count_rows(HASHING, chunks([RequestText(token_ids=[7] * 20)], 8))
    frame = counted.to_frame()
    assert frame.to_dict(orient="records") == counted.to_dict()["modules"]
    assert list(frame.step) == [0, 0, 1, 1, 2, 2]
    assert frame.lookups.sum() == counted.lookups
