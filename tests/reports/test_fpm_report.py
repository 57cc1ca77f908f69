"""From a fitted table to its report: every record is told once, and errors are those of the fit."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import aisim_v41 as aisim
from aisim_v41.estimators.fpm.estimator import Fpm
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.forwards.table import StepTable
from aisim_v41.pictures.fpm_report import figure
from aisim_v41.reports.fpm.build import report_of
from aisim_v41.validation.forwards import RIVALS

MODEL = aisim.load_model("deepseek-v4.1-flash")
GPU = aisim.load_hardware("h200")
PARALLEL, POLICY = aisim.Parallel(tp=8), aisim.policy("vllm")
BUILD = Build(
    checkpoint="published", engine="vllm", engine_build="1", image="none", topology="8 x H200",
    modality="text", timer="gpu_events", settings={},
)  # fmt: skip
MIXED = (
    aisim.Request(new_tokens=256, prefix_tokens=512),
    aisim.Request(new_tokens=1, prefix_tokens=2048, kind="decode", count=3),
)


@cache
def kernels():
    return aisim.compile(MODEL, GPU, parallel=PARALLEL, policy=POLICY)


def record(step, *, factor=1.0, run="one", order=None, **fields) -> StepRecord:
    latency = 1000 * factor * kernels()(step)
    return StepRecord(step=tuple(step), latency_ms=latency, run=run, order=order, **fields)


def decodes(count: int, context: int) -> list[aisim.Request]:
    return [aisim.Request(new_tokens=1, prefix_tokens=context, kind="decode", count=count)]


def grid(run: str, factor: float) -> list[StepRecord]:
    steps = [decodes(count, context) for count in (1, 4, 16) for context in (256, 1024, 4096)]
    steps += [[aisim.Request(new_tokens=new)] for new in (64, 256, 1024)]
    return [
        record(step, factor=factor, run=run, order=n, point=f"p{n}")
        for n, step in enumerate([*steps, MIXED])
    ]


def report(records, **fields):
    table = StepTable(
        identity=Identity.of(MODEL, GPU, PARALLEL, POLICY, BUILD),
        records=tuple(records),
        **fields,
    )
    fpm = Fpm(table, MODEL, GPU)
    return fpm, report_of(fpm)


@pytest.fixture(scope="module")
def whole():
    """Two runs 4 % apart, one wild sample, one repeated step, one failure, one open sum."""
    records = [*grid("one", 1.0), *grid("two", 1.04)]
    records[4] = record(decodes(4, 1024), factor=5.0, run="one", order=4, point="p4")
    records.append(record(decodes(1, 256), factor=1.02, run="one", order=20, samples=3))
    records.append(StepRecord(step=tuple(decodes(64, 9000)), status="out_of_memory"))
    records.append(
        StepRecord(step=StepTotals(decode_requests=3, decode_kv_tokens=999), latency_ms=20.0)
    )
    return report(records, sources=({"file": "a.csv"},), licence="Apache-2.0")


def test_every_record_is_counted(whole):
    _, told = whole
    assert told.statuses == {"ok": 28, "out_of_memory": 1}
    assert told.aggregates == 1
    assert told.runs == {"one": 14, "two": 13}
    # The repeated step is one point of its run.
    assert len(told.points) == told.thinned == 26
    assert {point.phase for point in told.points} == {"prefill", "decode", "mixed"}


def test_a_step_repeated_in_a_run_is_one_point(whole):
    _, told = whole
    one = next(p for p in told.points if (p.run, p.point) == ("one", "p0"))
    assert one.samples == 1 + 3
    assert one.measured_ms == pytest.approx(1000 * 1.02**0.5 * kernels()(decodes(1, 256)))
    assert one.order == 0


def test_a_point_says_where_it_lies(whole):
    _, told = whole
    mixed = next(point for point in told.points if point.phase == "mixed")
    assert (mixed.requests, mixed.new_tokens) == (4, 256 + 3)
    assert mixed.prefix_tokens == pytest.approx((512 + 3 * 2048) / 4)


def test_the_wild_sample_is_flagged_and_kept(whole):
    fpm, told = whole
    (flagged,) = told.flagged
    assert (flagged.run, flagged.point) == ("one", "p4")
    assert flagged.flag
    assert fpm.table.records[4].latency_ms == flagged.measured_ms
    assert "one, p4" in told.to_text()


def test_left_out_points_are_those_of_the_fit(whole):
    fpm, told = whole
    for by, rows in (("site", fpm.fit.sites_left_out), ("run", fpm.fit.runs_left_out)):
        found = [one for one in told.left_out if one.by == by]
        assert [one.predicted_ms for one in found] == pytest.approx(rows.predicted_s * 1000)
        measured = [told.points[one.point].measured_ms for one in found]
        assert measured == pytest.approx(fpm.fit.samples.seconds * 1000)
        assert all(one.low_ms < one.predicted_ms < one.high_ms for one in found)
        wide = [np.log(one.high_ms / one.low_ms) / 2 for one in found]
        assert wide == pytest.approx(fpm.fit.band.width * rows.spread)


def test_errors_are_told_for_every_phase_and_predictor(whole):
    _, told = whole
    for rows in told.errors.values():
        assert {row.method for row in rows} == {"fpm", *RIVALS}
        cases = {row.phase: row.cases for row in rows if row.method == "fpm"}
        assert cases == {"prefill": 6, "decode": 18, "mixed": 2, "all": 26}
    own, *_ = (r for r in told.errors["run"] if (r.method, r.phase) == ("fpm", "all"))
    # Runs are 4 % apart, and one of 26 points is wild.
    assert own.median == pytest.approx(0.04, abs=0.01)
    inside = [
        one.low_ms <= told.points[one.point].measured_ms <= one.high_ms
        for one in told.left_out
        if one.by == "run"
    ]
    assert told.band.held["run"] == pytest.approx(np.mean(inside)) == own.inside


def test_terms_add_up_to_the_time():
    """Of steps that are one graph, for which no host counts."""
    _, told = report([one for one in grid("one", 1.2) if one.requests[0].kind == "decode"])
    shares = {term.name: term.share for term in told.terms}
    assert shares.pop("host, decode") == 0
    assert sum(shares.values()) == pytest.approx(1)
    assert all(term.prior == 1.0 for term in told.terms if term.name in ("host", "experts"))


def test_a_report_is_json_and_can_be_drawn(whole):
    _, told = whole
    data = json.loads(json.dumps(told.to_dict(), allow_nan=False))
    assert len(data["points"]) == 26
    assert data["licence"] == "Apache-2.0"
    assert len(figure(told).get_axes()) == 6


def test_one_run_leaves_sites_out_only():
    _, told = report(grid("one", 1.0))
    assert set(told.errors) == set(told.band.held) == {"site"}
    assert any("assumed" in cause for cause in told.noise)


def test_one_record_leaves_nothing_out():
    _, told = report([record(decodes(1, 256))])
    assert told.errors == {}
    assert told.left_out == ()
    assert "nothing can be left out" in told.to_text()
    assert len(figure(told).get_axes()) == 6


def test_unlike_requests_of_one_sum_are_two_sites():
    """Contexts of 1,000 and 3,000 are no step of twice 2,000, though both have the same mean."""
    even, uneven = decodes(2, 2000), [*decodes(1, 1000), *decodes(1, 3000)]
    records = [*grid("one", 1.0), record(even, run="one"), record(uneven, run="one")]
    found = {(one.phase, one.requests): one for one in report(records)[1].coverage}
    assert (found["decode", 2].points, found["decode", 2].sites) == (2, 2)
