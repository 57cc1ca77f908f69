"""The check can fail: a changed model, a changed list, a formula that raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from aisim_v41.claims import Claim, Context, Verdict, load_claims, run_claims
from aisim_v41.claims import __main__ as program
from aisim_v41.claims.registry import all_formulas
from aisim_v41.claims.report import ClaimsReport
from aisim_v41.claims.run import recompute


def mismatches(report: ClaimsReport) -> dict[str, str]:
    return {row.claim.id: row.note for row in report.of(Verdict.MISMATCH)}


@pytest.fixture(scope="module")
def context() -> Context:
    return Context.packaged()


def fault(context: Context, claim: Claim, **changes: str) -> str:
    """What is wrong with a row after changes to it; empty if nothing is."""
    row = recompute(replace(claim, **changes), all_formulas()[claim.id], context)
    return row.note if row.verdict is Verdict.MISMATCH else ""


@pytest.mark.parametrize(
    ("field", "value", "caught"),
    [
        ("moe_intermediate_size", 2048, {"arch-21", "par-01", "inv-total-bytes", "mac-experts"}),
        ("num_experts_per_tok", 8, {"arch-20", "act-decode", "flop-raw-routed", "dwb-routed"}),
        ("sliding_window", 64, {"arch-18", "arch-26", "led-8192-replay", "kv-window-trained-40"}),
        ("index_topk", 1024, {"arch-12", "kv-read-main", "flop-raw-core"}),
        ("hc_mult", 2, {"arch-22", "kern-01", "kern-02", "kern-03", "flop-raw-mhc"}),
        ("engram_head_dim", 128, {"par-02", "eng-row-bytes", "mem-table-tp4", "eng-09"}),
        ("candidate_topk_blocks", 1024, {"arch-24", "arch-29", "kv-read-index-1m"}),
    ],
)  # fmt: skip
def test_a_changed_model_is_a_mismatch(
    config: dict[str, Any], field: str, value: int, caught: set[str]
) -> None:
    config["text_config"][field] = value
    report = run_claims(Context.of_config(config))
    assert not report.ok
    assert caught <= set(mismatches(report))


def test_a_model_without_a_part_is_a_mismatch_not_an_error(config: dict[str, Any]) -> None:
    del config["vision_config"], config["image_token_id"]
    found = mismatches(run_claims(Context.of_config(config)))
    assert "this model has no vision encoder" in found["vis-01"]
    assert found["inv-vision-bytes"].startswith("cannot be computed")
    assert "inv-total-bytes" in found


def test_a_changed_published_value_is_a_mismatch(
    context: Context, claims: Mapping[str, Claim]
) -> None:
    found = fault(context, claims["inv-total-bytes"], value="510286023001")
    assert found == "ours is 510,286,023,000, published 510286023001 (check: equal)"
    assert fault(context, claims["eng-02"], value="1;13", independent="")
    assert fault(context, claims["eng-02"], value="1", independent="")
    assert fault(context, claims["par-01"], value="553", independent="")
    assert not fault(context, claims["par-01"])


def test_a_changed_independent_value_is_a_mismatch(
    context: Context, claims: Mapping[str, Claim]
) -> None:
    found = fault(context, claims["par-03"], independent="15.81593416")
    assert "an arithmetic apart from this library gives 15.81593416" in found
    # also where the published figure itself does not reproduce
    assert fault(context, claims["kv-14"], independent="1631")
    assert fault(context, claims["stor-02"], independent="1829")


def test_a_figure_that_cannot_reproduce_but_does_is_a_mismatch(
    context: Context, claims: Mapping[str, Claim]
) -> None:
    assert "agrees with the published" in fault(context, claims["kv-14"], value="1630")
    found = fault(context, claims["par-01"], expected="not reproduced", reason="none")
    assert "agrees with the published" in found


def test_no_wrong_figure_passes_if_it_is_called_reproduced(
    context: Context, claims: Mapping[str, Claim]
) -> None:
    wrong = [c for c in claims.values() if c.expected == "not reproduced" and c.check]
    assert len(wrong) == 19
    for claim in wrong:
        assert not fault(context, claim)
        assert fault(context, claim, expected="reproduced"), claim.id


def test_every_reproduced_row_fails_on_a_value_that_is_off(
    context: Context, claims: Mapping[str, Claim]
) -> None:
    """Twice the published value (or 1 for 0) never passes: no check is so wide that all do."""
    for claim in claims.values():
        if claim.expected != "reproduced" or claim.check == "ours <= value":
            continue
        off = ";".join(str(Decimal(part) * 2 or 1) for part in claim.value.split(";"))
        assert fault(context, claim, value=off, independent=""), claim.id


def test_the_text_shows_a_mismatch_first(claims: Mapping[str, Claim]) -> None:
    changed = replace(claims["arch-01"], value="41", independent="")
    listed = [changed if c.id == "arch-01" else c for c in claims.values()]
    text = run_claims(claims=listed).to_text()
    assert "1 mismatch" in text.splitlines()[0]
    headings = [line for line in text.splitlines() if line[:1].isupper() and ": " in line]
    assert headings[0].startswith("MISMATCH (1)")
    assert "ours is 40, published 41" in text
    assert text.splitlines()[-1].startswith("FAILED")


def test_the_program_exits_with_one(
    claims: Mapping[str, Claim], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main() == 0
    listed = tuple(replace(c, value="41", independent="") if c.id == "arch-01" else c
                   for c in load_claims())  # fmt: skip
    monkeypatch.setattr("aisim_v41.claims.run.load_claims", lambda: listed)
    assert program.main() == 1
    assert "FAILED" in capsys.readouterr().out
