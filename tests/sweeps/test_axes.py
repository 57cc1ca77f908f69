"""Values of a field, and conditions, by hand and against Python's own meaning."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import AisimError, InvalidInputError
from aisim_v41.sweeps.axes import values_of
from aisim_v41.sweeps.conditions import Condition


@pytest.mark.parametrize(
    ("given_", "values"),
    [
        (7, (7,)),
        ("decode", ("decode",)),
        (None, (None,)),
        ([4, 8], (4, 8)),
        ([True, False], (True, False)),
        (np.arange(3), (0, 1, 2)),
        ({"range": [0, 10], "step": 5}, (0, 5, 10)),
        ({"range": [0, 11], "step": 5}, (0, 5, 10)),
        ({"range": [3, 3], "step": 1}, (3,)),
        ({"range": [0, 1], "step": 0.25}, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ({"range": [0, 0.3], "step": 0.1}, (0.0, 0.1, 0.2, pytest.approx(0.3))),
        ({"range": [0, 10], "points": 3}, (0, 5, 10)),
        ({"range": [0, 1], "points": 3, "as": "real"}, (0.0, 0.5, 1.0)),
        ({"log": [1, 1000], "points": 4}, (1, 10, 100, 1000)),
        ({"log": [1, 4], "points": 9}, (1, 2, 3, 4)),
        ({"log": [0.1, 10.0], "points": 3}, (0.1, pytest.approx(1.0), 10.0)),
    ],
)
def test_values_by_hand(given_: Any, values: tuple[Any, ...]):
    found = values_of("field", given_)
    assert found == values
    assert [type(one) for one in found] == [
        type(one) if isinstance(one, (int, float, str, bool, type(None))) else float
        for one in values
    ]


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ([], "empty list"),
        ([4, 4], "4 occurs twice"),
        ({}, "must be a value, a list"),
        ({"range": [0, 10]}, "step or points"),
        ({"range": [0, 10], "step": 1, "points": 2}, "step or points"),
        ({"range": [10, 0], "step": 1}, "must not be above"),
        ({"range": [0, 10], "step": 0}, "greater than 0"),
        ({"range": [0, 1e12], "step": 1}, "larger step"),
        ({"range": [0, float("nan")], "step": 1}, "must not be above"),
        ({"range": [0], "step": 1}, "range"),
        ({"log": [0, 10], "points": 3}, "0 < first"),
        ({"log": [1, 10]}, "points"),
        ({"log": [1, 10], "points": 3, "base": 2}, "base"),
        ({"log": [1, 10], "points": True}, "points"),
    ],
)
def test_bad_values_are_named(given_: Any, words: str):
    with pytest.raises(InvalidInputError, match="field") as error:
        values_of("field", given_)
    assert words in str(error.value)


def test_long_lists_are_read_and_checked_too():
    assert len(values_of("field", list(range(500_000)))) == 500_000
    with pytest.raises(InvalidInputError, match="7 occurs twice"):
        values_of("field", [*range(2000), 7])
    with pytest.raises(InvalidInputError, match="occurs twice"):
        values_of("field", [[0.5, 0.5], [0.5, 0.5]])


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(2, 300))
def test_a_log_range_rises_between_its_ends(first: int, more: int, points: int):
    values = values_of("field", {"log": [first, first + more], "points": points})
    assert values[0] == first
    assert values[-1] == first + more
    assert list(values) == sorted(set(values))
    assert len(values) <= points


# --- conditions -----------------------------------------------------------------------------------

ROWS = [{"a": a, "b": b, "kind": kind} for a in (0, 1, 5) for b in (-2, 3) for kind in ("x", "y")]
COLUMNS = {
    "a": np.array([row["a"] for row in ROWS]),
    "b": np.array([row["b"] for row in ROWS]),
    "kind": np.array([row["kind"] for row in ROWS], object),
}


@pytest.mark.parametrize(
    "text",
    [
        "a < 3", "a <= b", "a == 5 or b == 3", "a > 0 and not b > 0", "0 <= a < 5", "-b == 2",
        "a + b * 2 >= 4", "a // 2 == 2", "a % 2 == 1", "(a - b) != 2", "kind == 'x'",
        "kind != 'x' and a in (1, 5)", "kind in ['y', 'z']", "kind not in ('x',)", "a * 1.5 > 1",
        "b / 2 < 0", "True == (a > 1)",
    ],
)  # fmt: skip
def test_a_condition_means_what_python_means(text: str):
    condition = Condition(text)
    expected = [bool(eval(text, {}, row)) for row in ROWS]  # the oracle
    assert np.broadcast_to(condition(COLUMNS), len(ROWS)).tolist() == expected
    assert [bool(condition(row)) for row in ROWS] == expected
    assert set(condition.columns) <= {"a", "b", "kind"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a text"),
        ("a <", "no expression"),
        ("a; b", "no expression"),
        ("3 < 4", "names no column"),
        ("__import__('os').system('true')", "Call is not allowed"),
        ("a.real > 1", "Attribute is not allowed"),
        ("a[0] > 1", "Subscript is not allowed"),
        ("a ** 9 > 1", "BinOp is not allowed"),
        ("(lambda: a)() > 1", "Call is not allowed"),
        ("[x for x in a]", "ListComp is not allowed"),
        ("a if b else 1", "IfExp is not allowed"),
        ("a is None", "Is is not allowed"),
        ("a in b", "list of values"),
        ("a in (b, 1)", "list of values"),
        ("f'{a}' == 'x'", "JoinedStr is not allowed"),
        ("a == b'x'", "Constant is not allowed"),
        ("not " * 400 + "a", "condition"),
        ("(" * 300 + "a" + ")" * 300, "condition"),
        ("a > 1 " + " " * 3000 + "and b > 1", "must be a text"),
    ],
)
def test_anything_else_is_refused(text: str, words: str):
    if words == "condition":  # deep, and allowed or refused, but never more than that
        with suppress(InvalidInputError):
            Condition(text)
        return
    with pytest.raises(InvalidInputError) as error:
        Condition(text)
    assert words in str(error.value)


def test_values_that_cannot_be_compared_are_said():
    with pytest.raises(InvalidInputError, match="'kind < 3'"):
        Condition("kind < 3")(COLUMNS)
    for text in ("kind + 'x' == 'xx'", "'a' * 99999999999 == kind", "-kind == 3", "a + 1e3 * kind"):
        with pytest.raises(InvalidInputError, match="no number"):
            Condition(text)(COLUMNS)
    with pytest.raises(InvalidInputError, match="too large"):
        Condition(f"a + {10**30} > 1")(COLUMNS)
    assert not np.any(Condition("a / 0 > 1 and a == 0")({"a": np.array([0.0])}))


def test_products_of_large_numbers_do_not_wrap():
    large = np.array([1 << 40, 3])
    assert Condition("a * a > 5")({"a": large}).tolist() == [True, True]
    assert Condition("a * a * a < 0")({"a": -large}).tolist() == [True, True]
    assert Condition("a * a == 9")({"a": np.array([3, -3, 4])}).tolist() == [True, True, False]


@given(st.text(alphabet="ab01 ()+-*/<>=.'[],andornti", max_size=40))
def test_any_text_is_a_condition_or_a_typed_error(text: str):
    with suppress(AisimError):
        condition = Condition(text)
        columns = dict.fromkeys(condition.columns, 1.0)
        assert np.ndim(condition(columns)) == 0
