"""Each rule of a check, found and not found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.case import Case
from collectors.errors import InputError
from collectors.journal import Journal
from collectors.op.check import RULES, checked, read_run
from collectors.op.results import Result
from tests.collectors.fakes import MACHINE, plan_of, timing

NORM = "site_norm dtype=bf16 inputs=5120"


def ok(text: str, us: float, **changed: Any) -> Result:
    return Result(Case.from_text(text), "ok", engine="sglang", kernel_source="fake",
                  engine_version="1", timing=timing(us, **changed))  # fmt: skip


def put(path: Path, *results: Result, **machine: Any) -> Path:
    header = {"kind": "op", "machine": {**MACHINE, **machine}, "timing": {}, "plan": {}}
    with Journal.resume(path, header) as journal:
        for result in results:
            journal.append(result.to_dict())
    return path


def found(*paths: Path, plan=None) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in checked(paths, plan)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


def test_sound_results_have_no_findings(path: Path):
    assert found(put(path, ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=64", 6.0))) == []


def test_a_wide_spread_is_noted(path: Path):
    assert found(put(path, ok(f"{NORM} rows=1", 5.0, spread=0.11))) == [("note", "spread")]


def test_faster_than_the_peaks_is_an_error(path: Path):
    """65,536 rows of 5,120 values in and out are 1.34 GB: 280 us at 4.8 TB/s."""
    assert found(put(path, ok(f"{NORM} rows=65536", 279.0))) == [("error", "bound")]


def test_just_above_the_peaks_is_not(path: Path):
    assert found(put(path, ok(f"{NORM} rows=65536", 281.0))) == []


def test_a_warm_cache_may_be_faster(path: Path):
    assert found(put(path, ok(f"{NORM} rows=65536", 100.0, cache_state="warm"))) == []


def test_a_gpu_without_peaks_has_no_bound(path: Path):
    assert found(put(path, ok(f"{NORM} rows=65536", 1.0), gpu="abacus")) == []


def test_duplicates_agree_or_contradict(path: Path, tmp_path: Path):
    alike = put(path, ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=1", 5.4))
    assert found(alike) == [("note", "duplicates")]
    apart = put(tmp_path / "s.jsonl", ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=1", 5.6))
    assert found(apart) == [("error", "duplicates")]
    both = (
        put(tmp_path / "a.jsonl", ok(f"{NORM} rows=1", 5.0)),
        put(tmp_path / "b.jsonl", ok(f"{NORM} rows=1", 9.0)),
    )
    assert found(*both) == [("error", "duplicates")]


def test_other_identities_are_no_duplicates(path: Path, tmp_path: Path):
    first = put(path, ok(f"{NORM} rows=1", 5.0))
    second = put(tmp_path / "s.jsonl", ok(f"{NORM} rows=1", 9.0), driver="2")
    assert found(first, second) == [("note", "identity")]
    warm = put(tmp_path / "w.jsonl", ok(f"{NORM} rows=1", 9.0, cache_state="warm"))
    assert found(first, warm) == []


def test_more_work_that_is_faster_is_noted(path: Path):
    falling = put(path, ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=8", 4.8))
    assert found(falling) == [("note", "monotone")]


def test_noise_is_not(path: Path):
    assert found(put(path, ok(f"{NORM} rows=1", 5.0), ok(f"{NORM} rows=8", 4.9))) == []


@pytest.mark.parametrize("field", ["gpu", "device", "driver", "cuda", "packages"])
def test_an_identity_that_is_not_complete_is_an_error(path: Path, field: str):
    assert ("error", "identity") in found(put(path, ok(f"{NORM} rows=1", 5.0), **{field: None}))


def test_an_image_that_is_not_stated_is_noted(path: Path):
    assert found(put(path, ok(f"{NORM} rows=1", 5.0), image="not stated")) == [("note", "identity")]


def test_a_kernel_without_a_name_is_an_error(path: Path):
    nameless = Result(Case.from_text(f"{NORM} rows=1"), "ok", timing=timing(5.0))
    assert found(put(path, nameless)) == [("error", "identity")]


@pytest.mark.parametrize(
    "device",
    [
        {"before": {"throttle": ["idle"]}, "after": {"throttle": ["software_power_cap"]}},
        {"before": {"sm_mhz": 1980}, "after": {"sm_mhz": 1800}},
    ],
)
def test_a_gpu_that_slowed_down_is_noted(path: Path, device: dict[str, Any]):
    assert found(put(path, ok(f"{NORM} rows=1", 5.0, device=device))) == [("note", "throttled")]


def test_an_idle_gpu_is_not(path: Path):
    device = {"before": {"throttle": ["idle"], "sm_mhz": 1980}, "after": {"sm_mhz": 1950}}
    assert found(put(path, ok(f"{NORM} rows=1", 5.0, device=device))) == []


def test_failures_are_told_and_wrong_answers_are_errors(path: Path):
    case = Case.from_text(f"{NORM} rows=1")
    wrong = Case.from_text(f"{NORM} rows=2")
    told = put(path, Result(case, "oom", error="no memory"), Result(wrong, "invalid", error="0.3"))
    assert found(told) == [("error", "invalid"), ("note", "oom")]


def test_a_later_success_replaces_a_failure(path: Path):
    case = Case.from_text(f"{NORM} rows=1")
    assert found(put(path, Result(case, "oom"), ok(case.text, 5.0))) == []


def test_what_a_plan_misses_is_told(path: Path):
    plan = plan_of(f"{NORM} rows=1", f"{NORM} rows=2")
    assert found(put(path, ok(f"{NORM} rows=1", 5.0)), plan=plan) == [("note", "unfinished")]


def test_errors_come_first_and_every_rule_has_a_name(path: Path):
    mixed = put(path, ok(f"{NORM} rows=1", 5.0, spread=0.5), ok(f"{NORM} rows=65536", 1.0))
    assert checked([mixed])[0].severity == "error"
    assert set(RULES) == {"spread", "bound", "duplicates", "monotone", "identity", "throttled",
                          "failed"}  # fmt: skip
    assert all(rule.__doc__ for rule in RULES.values())


@pytest.mark.parametrize(
    "broken", [{"kind": "fpm"}, {"kind": "op", "machine": None}, {"kind": "op", "machine": {}}]
)
def test_other_files_are_refused(path: Path, broken: dict[str, Any]):
    with Journal.resume(path, broken) as journal:
        journal.append({"case": "site_norm rows=1", "status": "odd"})
    with pytest.raises(InputError, match=r"results|line 2"):
        read_run(path)


def test_a_time_that_is_no_number_is_refused(path: Path):
    broken = put(path, ok(f"{NORM} rows=1", 5.0, median_us="fast"))
    with pytest.raises(InputError, match="median_us is 'fast'"):
        checked([broken])
