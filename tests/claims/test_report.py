"""The report: in order, complete, countable, readable, and quick."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping

import pytest

from aisim_v41.claims import Claim, ClaimsReport, Verdict, run_claims
from aisim_v41.claims.report import WIDTH

CARRIED = {
    "arch": 30, "par": 14, "kv": 14, "flop": 14, "kern": 8, "serv": 14, "spec": 11, "eng": 12,
    "vis": 7, "stor": 12, "train": 5, "price": 9,
}  # fmt: skip
"""Rows of the list that the project was given, by prefix of their id."""


def test_every_row_is_what_the_list_says(report: ClaimsReport) -> None:
    assert report.ok, [(row.claim.id, row.note) for row in report.of(Verdict.MISMATCH)]


def test_counts_by_verdict(report: ClaimsReport) -> None:
    assert report.counts == {
        Verdict.MISMATCH: 0,
        Verdict.NOT_REPRODUCED: 21,
        Verdict.MEASURED_ELSEWHERE: 11,
        Verdict.NOT_YET: 10,
        Verdict.NOT_COMPUTABLE: 20,
        Verdict.REPRODUCED: 405,
    }


GIVEN = {f"{p}-{n:02d}" for p, count in CARRIED.items() for n in range(1, count + 1)}


def test_the_given_list_is_carried_over_whole(claims: Mapping[str, Claim]) -> None:
    assert len(GIVEN) == 150
    assert set(claims) >= GIVEN


def test_verdicts_of_the_given_list(report: ClaimsReport) -> None:
    counts = Counter(row.verdict for row in report.rows if row.claim.id in GIVEN)
    assert counts == {
        Verdict.REPRODUCED: 98,
        Verdict.NOT_REPRODUCED: 17,
        Verdict.MEASURED_ELSEWHERE: 7,
        Verdict.NOT_YET: 9,
        Verdict.NOT_COMPUTABLE: 19,
    }


def test_what_does_not_reproduce_shows_both_values_and_a_reason(report: ClaimsReport) -> None:
    engines_differ = {"serv-10", "spec-10"}  # two publications; there is nothing to compute
    for row in report.of(Verdict.NOT_REPRODUCED):
        assert row.claim.value, row.claim.id
        assert row.claim.reason, row.claim.id
        assert (row.ours is None) == (row.claim.id in engines_differ), row.claim.id


def test_what_waits_names_what_it_waits_for(report: ClaimsReport) -> None:
    topics = {row.note.split(" (")[0] for row in report.of(Verdict.NOT_YET)}
    assert topics == {"prices", "serving"}


def test_every_reproduced_row_has_a_value_and_a_source(report: ClaimsReport) -> None:
    for row in report.of(Verdict.REPRODUCED):
        assert row.ours is not None
        assert row.claim.source
        assert row.claim.how, row.claim.id


def test_text_fits_a_terminal_and_says_what_matters(report: ClaimsReport) -> None:
    text = report.to_text()
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert text.splitlines()[0].startswith(f"{len(report.rows)} published figures: ")
    assert text.splitlines()[-1].startswith("ok")
    for row in report.rows:
        assert f"  {row.claim.id} " in text
    headings = [f"{v.upper()} ({len(report.of(v))}): " for v in Verdict if report.of(v)]
    order = [text.index(heading) for heading in headings]
    assert order == sorted(order)
    for sentence in ("source: Technical report arXiv 2609.19969 §4.2.1", "510,286,023,000"):
        assert sentence in text


def test_frame_and_plain_data_agree(report: ClaimsReport) -> None:
    frame = report.to_frame().set_index("id")
    assert len(frame) == len(report.rows)
    assert frame.loc["inv-total-bytes", "ours"] == 510_286_023_000
    assert frame.loc["inv-total-bytes", "published"] == 510_286_023_000
    assert frame.loc["eng-02", "ours"] == [1, 14]
    assert frame.loc["arch-30", "ours"] == "deepseek_v41"
    assert frame.loc["price-01", "ours"] is None
    assert set(frame["verdict"]) == {str(v) for v in Verdict if report.of(v)}
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["ok"] is True
    assert data["counts"]["mismatch"] == 0
    assert [row["id"] for row in data["claims"]] == [row.claim.id for row in report.rows]


def test_difference_is_relative(report: ClaimsReport) -> None:
    rows = {row.claim.id: row for row in report.rows}
    assert rows["kv-14"].difference == pytest.approx(1630 / 890 - 1)
    assert rows["inv-total-bytes"].difference == 0
    assert rows["eng-03"].difference is None  # published: none at all
    assert rows["arch-30"].difference is None


def test_a_second_run_is_the_same_and_quick(report: ClaimsReport) -> None:
    start = time.perf_counter()
    again = run_claims()
    assert time.perf_counter() - start < 3
    assert again.to_dict() == report.to_dict()


def test_the_module_prints_and_exits_with_zero(report: ClaimsReport) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aisim_v41.claims"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == report.to_text() + "\n"
    assert done.stderr == ""
