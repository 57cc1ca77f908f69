"""The list as data: strict columns, known words, and nothing without a formula or a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from aisim_v41.claims import Claim
from aisim_v41.claims.registry import all_formulas, check_accounted
from aisim_v41.claims.table import COLUMNS, MAX_FILE_BYTES, load_claims, read_claims
from aisim_v41.claims.verdict import Check, exact, parse_value, show
from aisim_v41.errors import AisimError, MissingProfileError, SchemaError

GOOD = {
    "id": "a-1", "topic": "t", "statement": "s", "quantity": "q", "value": "1", "unit": "B",
    "conditions": "", "how": "h", "check": "equal", "expected": "reproduced", "reason": "",
    "independent": "", "independent_check": "", "source": "x", "confidence": "A",
}  # fmt: skip


def written(folder: Path, *rows: dict[str, str], header: str = ",".join(COLUMNS)) -> Path:
    path = folder / "claims.csv"
    lines = [header, *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_id_has_a_formula_or_says_why_not(claims: Mapping[str, Claim]) -> None:
    formulas = all_formulas()
    check_accounted(claims.values(), formulas)
    without = {name for name in claims if name not in formulas}
    assert all(claims[name].reason and not claims[name].check for name in without)
    assert not formulas.keys() - claims.keys()


def test_ids_that_do_not_match_are_named(claims: Mapping[str, Claim]) -> None:
    formulas = all_formulas()
    rest = [c for c in claims.values() if c.id != "par-01"]
    with pytest.raises(SchemaError, match="formulas without a row: par-01"):
        check_accounted(rest, formulas)
    extra = replace(claims["par-01"], id="par-99")
    with pytest.raises(SchemaError, match="rows with a check but no formula: par-99"):
        check_accounted([*claims.values(), extra], formulas)
    early = [
        replace(c, expected="not yet", reason="later", check="") if c.id == "par-01" else c
        for c in claims.values()
    ]
    with pytest.raises(SchemaError, match="not yet that have a formula: par-01"):
        check_accounted(early, formulas)


def test_the_file_that_is_shipped_reads() -> None:
    assert len(load_claims()) > 400


def test_a_good_file_reads(tmp_path: Path) -> None:
    (claim,) = read_claims(written(tmp_path, GOOD))
    assert claim.published == (Fraction(1),)
    assert claim.guard is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected": "maybe"}, "expected = 'maybe'"),
        ({"expected": "mismatch"}, "expected = 'mismatch'"),
        ({"check": "about"}, "check = 'about'"),
        ({"check": "rel <= -1"}, "check"),
        ({"check": "rel <= nan"}, "check"),
        ({"check": "abs <= 1e99999999"}, "check"),
        ({"check": ""}, "has no check"),
        ({"value": ""}, "no published value"),
        ({"confidence": "D"}, "confidence = 'D'"),
        ({"source": ""}, "source is empty"),
        ({"id": ""}, "id is empty"),
        ({"expected": "not yet"}, "needs a reason"),
        ({"independent_check": "near"}, "independent_check = 'near'"),
        ({"confidence": "A,more"}, "fields"),
    ],
)
def test_bad_rows_are_refused_by_name(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read_claims(written(tmp_path, {**GOOD, **change}))


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="occurs twice"):
        read_claims(written(tmp_path, GOOD, GOOD))
    with pytest.raises(SchemaError, match="columns are"):
        read_claims(written(tmp_path, GOOD, header="id,topic"))
    with pytest.raises(SchemaError, match="columns are"):
        read_claims(written(tmp_path, header=""))
    short = {k: v for k, v in GOOD.items() if k != "confidence"}
    with pytest.raises(SchemaError, match="fields"):
        read_claims(written(tmp_path, short))
    path = tmp_path / "claims.csv"
    path.write_bytes(b"\xff\xfe\x00" * 10)
    with pytest.raises(SchemaError, match="UTF-8"):
        read_claims(path)
    path.write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    with pytest.raises(SchemaError, match="larger than"):
        read_claims(path)
    path.write_text('id,"topic')
    with pytest.raises(AisimError):
        read_claims(path)
    with pytest.raises(MissingProfileError, match="cannot be read"):
        read_claims(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("check", "ours", "published", "agrees"),
    [
        ("equal", 3, "3", True),
        ("equal", 3.0, "3", True),
        ("equal", 0.5078125, "0.5078125", True),
        ("equal", 3.0000000001, "3", False),
        ("equal", (1, 14), "1;14", True),
        ("equal", (14, 1), "1;14", False),
        ("equal", (1,), "1;14", False),
        ("equal", "deepseek_v41", "deepseek_v41", True),
        ("equal", "deepseek_v41", "deepseek_v4.1", False),
        ("equal", 1, "one", False),
        ("rel <= 0.01", 101, "100", True),
        ("rel <= 0.01", 101.01, "100", False),
        ("rel <= 0.01", 99, "100", True),
        ("rel <= 0.01", -101, "-100", True),
        ("rel <= 0.01", 0.001, "0", False),
        ("abs <= 0.5", 100.5, "100", True),
        ("abs <= 0.5", 100.6, "100", False),
        ("ours <= value", 0.93, "1", True),
        ("ours <= value", 1.01, "1", False),
    ],
)
def test_checks(check: str, ours: float, published: str, agrees: bool) -> None:
    assert Check.parse(check, where="here").holds(ours, parse_value(published)) is agrees


def test_values_are_shown_as_a_person_reads_them() -> None:
    assert show(763_205_315_794) == "763,205,315,794"
    assert show(Fraction(7028, 2)) == "3,514"
    assert show(3514.25) == "3514.25"
    assert show((1, 0.5)) == "1; 0.5"
    assert show("deepseek_v41") == "deepseek_v41"
    assert show(None) == "-"


def test_only_short_numbers_are_numbers() -> None:
    assert parse_value("1;0.5;-2e3") == (Fraction(1), Fraction(1, 2), Fraction(-2000))
    for word in ("1e999999999", "9" * 1000, "1/3", "nan", "inf", "1;", "", " 1", "1_000", "\u0663"):
        assert parse_value(word) == word


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_not_numbers(bad: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        exact(bad)
