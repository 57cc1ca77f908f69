"""Cases as text: one order, one key, and nothing that cannot be one."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.case import Case
from collectors.errors import CollectorError, InputError
from collectors.op.kinds.registry import KINDS, kind_of

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
WORDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.+-]{0,12}", fullmatch=True).filter(
    lambda word: word.lower() not in ("inf", "infinity", "nan")
)
SIZES = st.one_of(st.integers(0, 1 << 40), st.floats(0, 1e12))


@given(NAMES, st.dictionaries(NAMES, SIZES, max_size=5), st.dictionaries(NAMES, WORDS, max_size=5))
def test_text_and_case_are_one(operator: str, sizes, options):
    options = {name: word for name, word in options.items() if name not in sizes}
    case = Case(operator, sizes, options)
    again = Case.from_text(case.text)
    assert again == case
    assert again.key == case.key
    assert pickle.loads(pickle.dumps(case)) == case


def test_the_order_does_not_matter():
    one, other = "gemm rows=32 dtype=bf16 inputs=8", "gemm inputs=8 rows=32.0 dtype=bf16"
    assert Case.from_text(one).text == "gemm dtype=bf16 inputs=8 rows=32"
    assert Case.from_text(one).key == Case.from_text(other).key


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be a name"),
        ("Gemm rows=1", "cannot be a name"),
        ("gemm rows", "name=value"),
        ("gemm rows=1 rows=2", "once each"),
        ("gemm rows=-1", "0 or more"),
        ("gemm rows=nan", "0 or more"),
        ("gemm rows=inf", "0 or more"),
        ("gemm dtype=", "must be a word"),
        ("gemm dtype=a/b", "must be a word"),
        (None, "cannot be a name"),
    ],
)
def test_what_is_no_case_is_refused(text, said: str):
    with pytest.raises(InputError, match=said):
        Case.from_text(text)


@given(st.text(max_size=60))
def test_any_text_is_a_case_or_a_clear_error(text: str):
    try:
        case = Case.from_text(text)
        kind_of(case).complete(case)
    except CollectorError:
        return
    assert case.operator in KINDS


def test_defaults_are_filled_in_and_kept():
    case = kind_of(Case.from_text("gemm rows=1 outputs=64 inputs=64")).complete(
        Case.from_text("gemm rows=1 outputs=64 inputs=64")
    )
    assert case.text == ("gemm dtype=fp8_block32 operand=bf16 groups=1 inputs=64 outputs=64 rows=1")
    assert KINDS["gemm"].complete(case) == case


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gemm rows=1 outputs=64", "inputs is missing"),
        ("gemm rows=1 outputs=64 inputs=64 depth=3", "depth is not known"),
        ("gemm rows=1.5 outputs=64 inputs=64", "must be whole"),
        ("gemm rows=0 outputs=64 inputs=64", "rows must be 1 to"),
        ("gemm rows=1 outputs=64 inputs=64 dtype=int3", "dtype must be one of"),
        ("nothing rows=1", "no operator nothing"),
    ],
)
def test_cases_that_no_kind_has_are_refused(text: str, said: str):
    case = Case.from_text(text)
    with pytest.raises(InputError, match=said):
        kind_of(case).complete(case)
