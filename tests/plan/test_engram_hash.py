"""Which table rows token ids ask for: the published constants, and plain Python beside NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import engram as oracle
from oracle.engram_texts import CLASSES, MODEL, SMALL, texts

from aisim_v41.errors import InvalidInputError
from aisim_v41.plan.engram_hash import engram_hash
from aisim_v41.plan.engram_text import RequestText, chunks


def test_published_constants():
    """Primes add up to the rows of the config; multipliers as public ports of the code print."""
    hashing = engram_hash(MODEL)
    assert hashing.primes[0][:3] == (16_000_057, 16_000_079, 16_000_081)
    assert hashing.primes[1][-1] == 16_000_889
    assert [sum(p) for p in hashing.primes] == [384_006_168, 384_016_682]
    assert [list(p) for p in hashing.primes] == [
        oracle.primes_from(16_000_000, 48)[:24],
        oracle.primes_from(16_000_000, 48)[24:],
    ]
    assert hashing.multipliers == (
        (76632096046245, 4839876093313, 35959672319349, 73987337458391),
        (67716810739261, 51510806800915, 30921347202721, 82619226485591),
    )
    assert hashing.pad == 2


def test_one_position_by_hand():
    """The first token has pads behind it: 2-gram (5, 2), head 0 of layer 1."""
    rows = engram_hash(MODEL).rows(RequestText(token_ids=[5]))
    assert rows.shape == (1, 2, 24)
    two = (5 * 76632096046245) ^ (2 * 4839876093313)
    assert rows[0, 0, 0] == two % 16_000_057
    assert rows[0, 0, 1] == 16_000_057 + two % 16_000_079
    three = two ^ (2 * 35959672319349)
    eighth = sum(oracle.primes_from(16_000_000, 8))
    assert rows[0, 0, 8] == eighth + three % 16_000_189


@given(texts(), st.booleans())
@settings(max_examples=300)
def test_rows_are_those_of_plain_python(text, mapped):
    classes = CLASSES if mapped else list(range(30))
    hashing = engram_hash(SMALL, classes=CLASSES if mapped else None)
    expected = [
        oracle.rows_of_position(
            text.ids.tolist(),
            position,
            images=text.images,
            classes=classes,
            pad=classes[2],
            primes=hashing.primes,
            multipliers=hashing.multipliers,
            heads=2,
        )
        for position in range(text.start, text.stop)
        if not any(first <= position < end for first, end in text.images)
    ]
    assert hashing.rows(text).tolist() == expected


@given(texts(), st.integers(1, 15))
def test_chunks_ask_for_the_rows_of_the_whole(text, chunk_tokens):
    """History crosses the borders of chunks."""
    hashing = engram_hash(SMALL)
    parts = [hashing.rows(part) for (part,) in chunks([text], chunk_tokens)]
    whole = hashing.rows(text)
    assert np.array_equal(np.concatenate([whole[:0], *parts]), whole)


def test_an_image_hides_what_is_older():
    hashing = engram_hash(MODEL)
    with_image = RequestText(token_ids=[9, 8, 0, 7, 6], images=((2, 3),), start=3)
    fresh = RequestText(token_ids=[7, 6])
    assert np.array_equal(hashing.rows(with_image), hashing.rows(fresh))
    assert hashing.rows(replace(with_image, start=2, stop=3)).shape == (0, 2, 24)


def test_rows_lie_in_the_table_of_their_head():
    hashing = engram_hash(MODEL)
    rows = hashing.rows(RequestText(token_ids=np.arange(2000) * 61 % MODEL.vocab))
    for module, primes in enumerate(hashing.primes):
        starts = np.cumsum([0, *primes])
        assert (rows[:, module] >= starts[:-1]).all()
        assert (rows[:, module] < starts[1:]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": [0] * 5}, "one a token id"),
        ({"classes": [20] * 30}, "the config has 20 classes"),
        ({"classes": [0.5] * 30}, "whole numbers"),
        ({"primes": [[1] * 6]}, "2 modules of 6"),
        ({"primes": [[5] * 6] * 2}, "add up to 30 rows"),
        ({"multipliers": [[1] * 4] * 3}, "2 modules of 4"),
        ({"multipliers": [[2] * 4] * 2}, "must be odd"),
        ({"multipliers": [[(1 << 62) + 1] * 4] * 2}, "below 2\\^64"),
    ],
)
def test_constants_that_do_not_fit_are_refused(change, message):
    with pytest.raises(InvalidInputError, match=message):
        engram_hash(SMALL, **change)


def test_what_the_config_does_not_say_must_be_given():
    silent = replace(SMALL, engram=replace(SMALL.engram, primes_from=None, pad_token=None))
    primes = engram_hash(SMALL).primes
    with pytest.raises(InvalidInputError, match="engram_vocab_size"):
        engram_hash(silent, pad=2)
    with pytest.raises(InvalidInputError, match="engram_pad_token_id"):
        engram_hash(silent, primes=primes)
    assert engram_hash(silent, primes=primes, pad=2).primes == primes
    with pytest.raises(InvalidInputError, match="no Engram modules"):
        engram_hash(replace(MODEL, engram=None))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token_ids": ["a"]}, "whole numbers"),
        ({"token_ids": [-1]}, "whole numbers from 0"),
        ({"token_ids": [1.5]}, "whole numbers"),
        ({"token_ids": [[1]]}, "shape"),
        ({"token_ids": [1, 2], "start": 3}, "positions 3 to 2 of 2"),
        ({"token_ids": [1, 2], "images": ((1, 3),)}, "no span"),
    ],
)
def test_texts_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        RequestText(**arguments)


def test_ids_outside_the_vocabulary_are_named():
    with pytest.raises(InvalidInputError, match="token id 129280 at position 1"):
        engram_hash(MODEL).rows(RequestText(token_ids=[1, 129_280]))
    with pytest.raises(InvalidInputError, match="chunk_tokens = 0"):
        chunks([], 0)


def test_the_config_says_where_primes_start_and_what_pads():
    assert (MODEL.engram.primes_from, MODEL.engram.pad_token) == (16_000_000, 2)
