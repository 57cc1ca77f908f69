"""What a `Request` accepts and refuses, and what it says about it."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from aisim_v41.errors import AisimError, InvalidInputError
from aisim_v41.plan.request import (
    KINDS,
    MAX_TOKENS,
    PACKED,
    PACKED_FIELDS,
    WINDOWS,
    Request,
    chunked,
)

WHOLE = "must be a whole number from 0 to"


def refusal(**fields) -> str:
    with pytest.raises(InvalidInputError) as caught:
        Request(**fields)
    return str(caught.value)


NOT_WHOLE = (-1, MAX_TOKENS + 1, 1.0, 1.5, math.nan, math.inf, True, "1", None, [1], np.int64(1))


@pytest.mark.parametrize("name", ["new_tokens", "prefix_tokens", "count", "window_start"])
@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
def test_a_length_is_a_whole_number(name: str, value: object):
    message = refusal(**{"new_tokens": 1, name: value})
    assert f"Request.{name} = {value!r}" in message
    assert f"{WHOLE} {MAX_TOKENS}" in message


@pytest.mark.parametrize("value", [v for v in NOT_WHOLE if v is not None], ids=repr)
def test_a_prompt_length_is_a_whole_number(value: object):
    message = refusal(new_tokens=0, prompt_tokens=value)
    assert f"Request.prompt_tokens = {value!r}: {WHOLE}" in message


@pytest.mark.parametrize("value", [-1, 1.0, True, "1"], ids=repr)
def test_a_bad_length_is_named_before_it_is_used(value: object):
    """A prefix that is not a number must not fail in the sum with new_tokens."""
    assert "Request.prefix_tokens" in refusal(new_tokens=1, prefix_tokens=value)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"kind": "extend"}, ("Request.kind = 'extend'", *KINDS)),
        ({"kind": None}, ("Request.kind = None", *KINDS)),
        ({"kind": []}, ("Request.kind = []", *KINDS)),
        ({"window": "lost"}, ("Request.window = 'lost'", *WINDOWS)),
        ({"window": 3}, ("Request.window = 3", *WINDOWS)),
        ({"window": {}}, ("Request.window = {}", *WINDOWS)),
        ({"prompt_logprobs": 1}, ("Request.prompt_logprobs = 1", "True or False")),
        ({"prompt_logprobs": None}, ("Request.prompt_logprobs = None", "True or False")),
        ({"prompt_logprobs": np.True_}, ("Request.prompt_logprobs", "True or False")),
        ({"packed": b"x"}, ("Request.packed", "leave it out")),
        (
            {"new_tokens": 5, "prefix_tokens": 7, "prompt_tokens": 11},
            ("Request.prompt_tokens = 11", "prefix_tokens + new_tokens = 12"),
        ),
        (
            {"new_tokens": 2, "kind": "decode"},
            ("Request.new_tokens = 2", "kind 'decode'", "verify", "count"),
        ),
        (
            {"kind": "decode", "prefix_tokens": 9, "window": "cached"},
            ("Request.kind = 'decode'", "window = 'cached'", "belong to prefill"),
        ),
        (
            {"kind": "verify", "prefix_tokens": 9, "window": "missing"},
            ("Request.kind = 'verify'", "window = 'missing'"),
        ),
        (
            {"kind": "decode", "prefix_tokens": 9, "prompt_logprobs": True},
            ("Request.kind = 'decode'", "prompt_logprobs = True"),
        ),
        (
            {"prefix_tokens": 4, "window_start": 5},
            ("Request.window_start = 5", "prefix_tokens = 4"),
        ),
        ({"window": "cached"}, ("Request.window = 'cached'", "prefix_tokens = 0")),
        ({"window": "missing"}, ("Request.window = 'missing'", "prefix_tokens = 0")),
        (
            {"window": "snapshot", "prefix_tokens": 9, "window_start": 1},
            ("Request.window = 'snapshot'", "window_start = 1"),
        ),
    ],
    ids=repr,
)
def test_a_request_that_cannot_be(fields: dict, parts: tuple[str, ...]):
    message = refusal(**{"new_tokens": 1, **fields})
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"new_tokens": 0},
        {"new_tokens": 0, "prefix_tokens": 100, "window": "missing"},
        {"new_tokens": 0, "kind": "decode"},
        {"new_tokens": 6, "kind": "verify", "prefix_tokens": 10, "window_start": 10},
        {"new_tokens": MAX_TOKENS, "count": MAX_TOKENS},
        {"new_tokens": 3, "prompt_tokens": 3},
        {"new_tokens": 1, "kind": "decode", "prefix_tokens": 900, "prompt_tokens": 20},
    ],
    ids=repr,
)
def test_a_request_that_can_be(fields: dict):
    request = Request(**fields)
    assert request.end == fields["new_tokens"] + fields.get("prefix_tokens", 0)
    for name, value in fields.items():
        assert getattr(request, name) == value


def test_packed_holds_every_field_in_order():
    request = Request(
        new_tokens=5, prefix_tokens=9, count=3, prompt_tokens=20, window="missing",
        prompt_logprobs=True, image_tokens=2,
    )  # fmt: skip
    values = dict(zip(PACKED_FIELDS, PACKED.unpack(request.packed), strict=True))
    assert values == {
        "new_tokens": 5,
        "prefix_tokens": 9,
        "prompt_tokens": 20,
        "count": 3,
        "kind": KINDS.index("prefill"),
        "window": WINDOWS.index("missing"),
        "window_start": 0,
        "prompt_logprobs": 1,
        "image_tokens": 2,
        "rank": 0,
    }


def test_the_prompt_ends_with_the_step_unless_told_otherwise():
    fields = PACKED.unpack(Request(new_tokens=5, prefix_tokens=9).packed)
    assert fields[PACKED_FIELDS.index("prompt_tokens")] == 14


def test_requests_are_values():
    assert Request(new_tokens=1) == Request(new_tokens=1, count=1)
    assert len({Request(new_tokens=1), Request(new_tokens=1), Request(new_tokens=2)}) == 2
    with pytest.raises(AttributeError):
        Request(new_tokens=1).new_tokens = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Request(1)  # type: ignore[call-arg, misc]
    with pytest.raises(TypeError, match="tokens"):
        Request(tokens=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "request_",
    [
        Request(new_tokens=1),
        Request(new_tokens=64, prefix_tokens=8192, window="missing", count=7, prompt_tokens=9000),
        Request(new_tokens=6, prefix_tokens=9, kind="verify", window_start=2),
        Request(new_tokens=6, prompt_logprobs=True),
    ],
)
def test_a_request_prints_as_the_call_that_makes_it(request_: Request):
    assert eval(repr(request_), {"Request": Request}) == request_


# --- chunks -----------------------------------------------------------------------------------


def test_chunks_cover_the_prompt():
    parts = chunked(10, chunk_tokens=4, prefix_tokens=100, count=3)
    assert [(r.prefix_tokens, r.new_tokens) for r in parts] == [(100, 4), (104, 4), (108, 2)]
    assert {(r.prompt_tokens, r.count, r.kind, r.window) for r in parts} == {
        (110, 3, "prefill", "running")
    }
    assert chunked(0, chunk_tokens=4) == []
    assert chunked(4, chunk_tokens=4) == [Request(new_tokens=4, prompt_tokens=4)]


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "4", math.nan], ids=repr)
def test_a_chunk_is_at_least_a_token(value: object):
    with pytest.raises(InvalidInputError) as caught:
        chunked(10, chunk_tokens=value)  # type: ignore[arg-type]
    assert f"chunk_tokens = {value!r}" in str(caught.value)


@pytest.mark.parametrize("name", ["new_tokens", "prefix_tokens", "count"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "4", None], ids=repr)
def test_chunked_refuses_what_a_request_refuses(name: str, value: object):
    fields = {"new_tokens": 10, name: value}
    with pytest.raises(InvalidInputError, match=f"Request.{name}"):
        chunked(fields.pop("new_tokens"), chunk_tokens=4, **fields)


def test_a_prompt_has_at_most_a_million_chunks():
    with pytest.raises(InvalidInputError, match="more than a million steps"):
        chunked(1_000_001, chunk_tokens=1)


# --- anything at all --------------------------------------------------------------------------

ODD_VALUES = (
    0, 1, 2, 5, 127, 128, 8192, -1, -8192, 1 << 40, (1 << 40) + 1, 1 << 63, 1 << 200, True, False,
    None, 0.0, 1.0, -0.5, math.nan, math.inf, "", "1", "prefill", "decode", "verify", "running",
    "cached", "missing", "snapshot", "Decode", b"decode", (), [], {}, set(), object(), 1j,
    np.int64(3), np.float64(2.0), np.bool_(True), np.array([1, 2]), Ellipsis, int,
)  # fmt: skip


def made_or_refused(fields: dict) -> Request | AisimError:
    try:
        return Request(**fields)
    except AisimError as error:
        return error


@pytest.mark.parametrize("batch", range(10))
def test_any_arguments_make_a_request_or_a_typed_error(batch: int):
    random = Random(batch)
    names = ("new_tokens", "prefix_tokens", "kind", "count", "prompt_tokens", "window",
             "window_start", "prompt_logprobs")  # fmt: skip
    made = refused = 0
    for _ in range(200):
        fields = {"new_tokens": random.choice((0, 1, 5))}
        for name in random.sample(names, random.randint(1, 3)):
            fields[name] = random.choice(ODD_VALUES)
        request = made_or_refused(fields)
        if isinstance(request, AisimError):
            refused += 1
            assert "Request." in str(request)
            continue
        made += 1
        assert request.end == request.prefix_tokens + request.new_tokens
        assert len(request.packed) == PACKED.size
    assert made
    assert refused
