"""SOL is a floor: the check itself, and that it can fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.units import MILLISECOND
from aisim_v41.validation import __main__ as shell
from aisim_v41.validation.bound import Evaluator
from aisim_v41.validation.cases import Case
from aisim_v41.validation.conversion import Conversion, Reason
from aisim_v41.validation.convert import convert
from aisim_v41.validation.floor import (
    CORRELATED,
    ROWS_OF_ONE_PROMPT,
    FloorReport,
    Result,
    Verdict,
    run_floor_check,
)

CONVERTED = {
    "ttft": 97, "prefill": 95, "tpot": 68, "throughput": 60, "step": 73, "kernel_group": 49,
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> aisim.Model:
    loaded = aisim.load_model("deepseek-v4.1-flash")
    assert isinstance(loaded, aisim.Model)
    return loaded


def test_no_case_is_faster_than_its_bounds(report: FloorReport) -> None:
    assert report.violations == ()
    assert report.ok


def test_every_case_is_accounted_for_once(report: FloorReport, cases: dict[str, Case]) -> None:
    names = [r.case.name for r in report.results] + [s.case.name for s in report.skipped]
    assert sorted(names) == sorted(cases)
    assert sum(report.reasons.values()) + len(report.results) == 569


def test_how_many_cases_are_checked(report: FloorReport) -> None:
    assert Counter(result.case.kind for result in report.results) == CONVERTED
    assert report.reasons[Reason.NOT_A_TIME] == 50
    assert report.reasons[Reason.RATIO] == 8


def test_bounds_are_nested(report: FloorReport) -> None:
    """Floor, graph bound, independent routing: each holds more work than the last."""
    for result in report.results:
        b = result.bounds
        order = (b.floor_s, b.graph_s, b.independent_s)
        assert all(a <= c * (1 + 1e-12) for a, c in pairwise(order)), result
        assert b.floor_s <= b.taken_s
        assert b.graph_s > 0


def test_only_known_cases_touch_fewer_experts_than_independent_rows(report: FloorReport) -> None:
    """More would mean that a bound counts something twice: these are explained, others are not."""
    assert {result.case.name for result in report.correlated} == set(CORRELATED)
    below = {r.case.name for r in report.results if not r.holds_independent}
    assert below == set(CORRELATED)


def test_the_answer_of_estimate_is_below_every_measured_step(report: FloorReport) -> None:
    above = {r.case.name for r in report.results if not r.holds_preset}
    assert above == ROWS_OF_ONE_PROMPT
    assert all(
        r.case.quantity.startswith("kernel_ms:moe") for r in report.results if r.case.name in above
    )


def test_measured_moe_lies_between_fewest_and_independent(report: FloorReport) -> None:
    moe = [r for r in report.results if r.case.quantity == "kernel_ms:moe"]
    assert len(moe) == 3
    for result in moe:
        assert result.bounds.graph_s < result.measured_s < result.bounds.independent_s


# --- hand-worked floors ---------------------------------------------------------------------------


def floor_ms(name: str, report: FloorReport) -> float:
    (result,) = [r for r in report.results if r.case.name == name]
    return result.bounds.floor_s / MILLISECOND


def test_moe_layer_of_one_row(report: FloorReport) -> None:
    # MI355X, TP4: six experts of 3 x 5120 x 576 values at 4 bits and a scale byte per 32, and the
    # shared one at 8 bits with a scale byte per 32 x 32; 8 TB/s.
    values = 3 * 5120 * 576
    moved = 6 * values * 4.25 / 8 + values * (1 + 1 / 1024)
    assert floor_ms("mi355-moe-layer-rows1", report) == pytest.approx(moved / 8e12 * 1e3)


def test_collectives_of_an_extend(report: FloorReport) -> None:
    # B200, TP4, replay on: 512 + 128 rows in layers 0-19, 128 in layers 20-39; two sums a layer of
    # 5120 BF16 values; 3/4 of it over 900 GB/s, as switches add.
    rows = 20 * 640 + 20 * 128
    assert floor_ms("b200-prof-ekern-p64k-comm", report) == pytest.approx(
        rows * 2 * 5120 * 2 * 3 / 4 / 900e9 * 1e3
    )


def test_index_scores_of_the_ratio_2_owners(report: FloorReport) -> None:
    # MI355X: 16384 rows from 114616; each sees (p + 1) // 2 entries of 4096 MACs; FP4, 10.066 PF/s.
    scored = sum((p + 1) // 2 for p in range(114616, 131000))
    assert floor_ms("mi355-idx-split-indexer_score-l2_8_14_each", report) == pytest.approx(
        scored * 4096 * 2 / 10.066e15 * 1e3
    )


# --- the library's own bounds ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "gb300-39674-pr-step-c1",
        "gb300-eager-on-prefill-b1-n384-p1536",
        "mi355-idx-forward-n16k-ctx131k",
        "gb10-rhys-tp8-ttft-46810",
    ],
)
def test_floor_and_graph_bound_are_those_of_estimate(
    cases: dict[str, Case], report: FloorReport, model: aisim.Model, name: str
) -> None:
    conversion = convert(cases[name])
    assert isinstance(conversion, Conversion)
    system = conversion.machine
    way = min(conversion.claims[0].ways, key=lambda way: len(way.parts))
    fewest = replace(way, policy=way.policy.with_overrides(expert_routing="fewest"))
    floor = graph = 0.0
    for plan in fewest.plans(model, system):
        bounds = aisim.estimate(plan, system.hardware).bounds
        floor, graph = floor + bounds.resource_s, graph + bounds.graph_s
    (result,) = [r for r in report.results if r.case.name == name]
    assert result.bounds.graph_s == pytest.approx(graph)
    if system.link_share == 1.0:
        assert result.bounds.floor_s == pytest.approx(floor)
    else:
        assert result.bounds.floor_s <= floor


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("gpu", ["gb300", "gb10"])
def test_steps_grow_less_than_their_requests(model: aisim.Model, gpu: str, rows: int) -> None:
    """What throughput bounds rest on: requests a second only rise with the batch."""
    step = aisim.compile(model, aisim.load_hardware(gpu), parallel=aisim.Parallel(tp=4))
    rates = []
    for count in range(1, 130):
        request = aisim.Request(
            new_tokens=rows, prefix_tokens=4096, kind="verify", count=count
        )  # fmt: skip
        rates.append(count / step([request]))
    assert rates == sorted(rates)


# --- it can fail ----------------------------------------------------------------------------------


def faster(result: Result, seconds: float) -> Case:
    """The case as if it had been measured in so many seconds."""
    factor = seconds / result.measured_s
    case = result.case
    assert case.measured is not None
    rate = case.quantity.startswith("tok_per_s")
    changed = case.measured / factor if rate else case.measured * factor
    return replace(case, measured=changed, bounds=None)


def tightest(report: FloorReport, kind: str) -> Result:
    found = [r for r in report.results if r.case.kind == kind and r.bounds.floor_s > 0]
    return min(found, key=lambda r: r.measured_s / r.bounds.floor_s)


@pytest.mark.parametrize("kind", sorted(CONVERTED))
def test_half_a_floor_is_reported(report: FloorReport, cases: dict[str, Case], kind: str) -> None:
    result = tightest(report, kind)
    # Steps of an interval were compared by its lower end.
    case = replace(result.case, bounds=None)
    (alone,) = run_floor_check([case]).results
    mutated = run_floor_check([faster(alone, alone.bounds.floor_s / 2)])
    assert not mutated.ok
    assert mutated.results[0].verdict is Verdict.VIOLATED
    assert "VIOLATIONS" in mutated.to_text()
    assert case.name in mutated.to_text()
    assert run_floor_check([faster(alone, alone.bounds.graph_s * 1.001)]).ok


def test_between_floor_and_graph_bound_is_reported(report: FloorReport) -> None:
    result = tightest(report, "prefill")
    between = (result.bounds.floor_s + result.bounds.graph_s) / 2
    mutated = run_floor_check([faster(result, between)])
    assert mutated.results[0].verdict is Verdict.BELOW_GRAPH
    assert not mutated.ok


def test_a_bound_that_counts_too_much_is_reported(report: FloorReport, model: aisim.Model) -> None:
    """Memory and links at a tenth of their rate: as if every byte were counted ten times."""
    conversion = tightest(report, "prefill").conversion
    hardware = conversion.machine.hardware
    assert hardware.nic_bytes_per_s is not None
    slow = replace(
        hardware,
        hbm_bandwidth_bytes_per_s=hardware.hbm_bandwidth_bytes_per_s / 10,
        nic_bytes_per_s=hardware.nic_bytes_per_s / 10,
    )
    overcounted = replace(conversion, machine=replace(conversion.machine, hardware=slow))
    result = Result(overcounted, Evaluator(model).bounds(overcounted))
    assert result.verdict is not Verdict.HELD


# --- what people see ------------------------------------------------------------------------------


def test_frame(report: FloorReport) -> None:
    frame = report.to_frame()
    assert len(frame) == 569
    assert frame["case"].is_unique
    assert frame["floor_ms"].notna().sum() == len(report.results)
    assert frame["reason"].notna().sum() == len(report.skipped)
    checked = frame[frame["floor_ms"] > 0]
    assert (checked["ratio"] > 1).all()
    assert (frame["verdict"].dropna() == "held").all()


@pytest.mark.parametrize("by", ["class", "source", "gpu"])
def test_summaries_count_every_case(report: FloorReport, by: str) -> None:
    summary = report.summary(by)
    assert summary["cases"].sum() == 569
    assert summary["checked"].sum() == summary["held"].sum() == len(report.results)


def test_text(report: FloorReport) -> None:
    text = report.to_text()
    assert "violations: none" in text
    assert "unexplained" not in text
    for reason in report.reasons:
        assert str(reason) in text
    for name in CORRELATED:
        assert name in text


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 1)])
def test_shell_exit_status(
    report: FloorReport,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ok: bool,
    status: int,
) -> None:
    result = tightest(report, "step")
    case = faster(result, result.measured_s if ok else result.bounds.floor_s / 2)
    monkeypatch.setattr(shell, "run_floor_check", lambda: run_floor_check([case]))
    assert shell.main() == status
    assert case.name in capsys.readouterr().out or ok


def test_a_model_without_steps_is_refused() -> None:
    with pytest.raises(UnsupportedPlanError):
        run_floor_check([], model=aisim.load_model("deepseek-v3.2"))  # type: ignore[arg-type]
