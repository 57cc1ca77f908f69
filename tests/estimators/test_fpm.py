"""Whole forwards: the packaged campaigns, and tables that are made up."""

from __future__ import annotations

import pickle
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.errors import (
    InvalidInputError,
    MissingProfileError,
    OutOfRangeError,
    SchemaError,
    UnsupportedPlanError,
)
from aisim_v41.estimators.fpm.estimator import Fpm
from aisim_v41.estimators.fpm.tables import load_fpm
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.forwards.store import find_tables, publish_table
from aisim_v41.forwards.table import StepTable
from aisim_v41.model.load import load_model
from aisim_v41.plan.request import Request

MODEL = load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")
TP4 = aisim.Parallel(tp=4)
EAGER = aisim.policy("sglang", decode_execution="eager")
EAGER_REPLAY = EAGER.with_overrides(decoder_replay=True)
GRAPHS = aisim.policy("sglang")
SLOW, FAST = "historical_2026_09_10", "dl_diagnostic"
BUILD = Build(
    checkpoint="made up", engine="sglang", engine_build="made up", image="none",
    topology="one node, 4 x GB300", modality="text", timer="gpu_events", settings={},
)  # fmt: skip
FLOOR_MS, FACTOR = 0.3, 1.25


def decode(context: int, count: int = 1) -> list[Request]:
    return [Request(new_tokens=1, prefix_tokens=context, kind="decode", count=count)]


def prefill(new: int, prefix: int = 0, count: int = 1) -> list[Request]:
    return [Request(new_tokens=new, prefix_tokens=prefix, count=count)]


def plan_of(requests: list[Request], policy: aisim.RuntimePolicy) -> aisim.Plan:
    return aisim.Plan(MODEL, requests, TP4, policy)


@cache
def packaged(replay: bool) -> Fpm:
    return load_fpm("gb300", parallel=TP4, policy=EAGER_REPLAY if replay else EAGER)


def truth_ms(requests: list[Request]) -> float:
    """An engine a quarter slower than OP, with 0.3 ms beside."""
    op = aisim.compile(MODEL, GB300, parallel=TP4, policy=GRAPHS, method="op")
    return FACTOR * op(requests) * 1e3 + FLOOR_MS


def grid() -> list[list[Request]]:
    decodes = [decode(p, n) for n, p in product((1, 8, 64), (100, 1000, 10_000, 60_000))]
    return [*decodes, *(prefill(n, p) for n, p in product((1024, 8192), (0, 8192)))]


def table(records: list[StepRecord], policy: aisim.RuntimePolicy = GRAPHS) -> StepTable:
    identity = Identity.of(MODEL, GB300, TP4, policy, BUILD)
    return StepTable(identity=identity, records=tuple(records))


@cache
def made_up() -> Fpm:
    records = [
        StepRecord(step=tuple(step), latency_ms=truth_ms(step), order=n)
        for n, step in enumerate(grid())
    ]
    return Fpm(table(records), MODEL, GB300)


# --- the packaged campaigns -----------------------------------------------------------------------


@pytest.mark.parametrize("replay", [False, True])
def test_a_run_that_was_left_out_is_predicted_as_well_as_runs_agree(replay: bool):
    """Two runs of these 38 steps differ by 5.3 % (replay off) and 3.1 % in the middle."""
    fit = packaged(replay).fit
    assert fit.runs_left_out is not None
    seen = fit.weights > 0
    miss = np.abs(fit.runs_left_out.predicted_s / fit.samples.seconds - 1)[seen]
    assert miss.mean() < (0.035 if replay else 0.061)
    half = fit.half_width(fit.runs_left_out.spread)
    inside = np.abs(np.log(fit.runs_left_out.predicted_s / fit.samples.seconds)) <= half
    assert inside[seen].mean() >= 0.85


def test_the_one_bad_sample_is_flagged_and_kept():
    """379.9 ms between neighbours of 181 ms (study38_run1, two requests of 96 tokens)."""
    fpm = packaged(True)
    (flagged,) = fpm.flagged
    record = fpm.table.records[flagged]
    assert record.latency_ms == pytest.approx(379.867, abs=1e-3)
    (flag,) = fpm.fit.flags
    assert flag.ratio == pytest.approx(2.07, abs=0.05)
    assert "2.0" in flag.reason
    assert fpm.predict(prefill(96, count=2)).latency_ms == pytest.approx(187.9, abs=0.2)


def test_replay_on_and_off_are_two_tables():
    on, off = packaged(True), packaged(False)
    assert on.table.identity != off.table.identity
    with pytest.raises(UnsupportedPlanError, match=r"decoder_replay +on|decoder_replay"):
        on.estimate(plan_of(decode(500), EAGER), GB300)


def test_an_estimate_names_its_evidence():
    plan = plan_of(decode(700), EAGER)
    found = aisim.estimate(plan, GB300, "fpm")
    assert found.method == "fpm"
    assert dict(found.source_share) == {"interpolated": 1.0}
    assert found.beyond == ()
    assert 150 < found.latency_ms < 170
    high = found.band_ms[1]
    assert 0.03 < high / found.latency_ms - 1 < 0.15
    assert any("sync_wall" in warning for warning in found.warnings)
    assert sum(found.path.values()) == pytest.approx(found.latency_s)
    assert "host" in found.path
    measured = aisim.estimate(plan_of(decode(768), EAGER), GB300, "fpm")
    assert dict(measured.source_share) == {"measured": 1.0}


def test_a_measured_step_comes_back_as_the_median_of_its_runs():
    found = packaged(False).predict(decode(768))
    assert found.source == "measured"
    assert {record.run for record in found.measured} == {"study38_run1", "study38_run2"}
    assert found.latency_ms == pytest.approx((162.474483 + 155.412078) / 2, abs=1e-5)


def test_two_regimes_are_refused_until_one_is_chosen():
    with pytest.raises(UnsupportedPlanError) as refused:
        load_fpm("gb200")
    assert SLOW in str(refused.value)
    assert FAST in str(refused.value)
    slow, fast = load_fpm("gb200", regime=SLOW), load_fpm("gb200", regime=FAST)
    step = prefill(128)
    assert slow.predict(step).latency_ms > 5 * fast.predict(step, extrapolate=True).latency_ms
    with pytest.raises(UnsupportedPlanError, match="no regime 'medium'"):
        load_fpm("gb200", regime="medium")


def test_a_prefill_of_one_token_is_a_prefill():
    fpm = packaged(False)
    assert fpm.predict(prefill(1)).latency_s > 1.1 * fpm.predict(decode(96)).latency_s


# --- where an answer lies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "verdict", "axis"),
    [
        (prefill(64, 700), "inside", ""),
        (decode(300, 2), "inside", ""),
        (prefill(512, 1800), "edge", "new tokens"),
        (decode(2048), "edge", "context of a request"),
        (decode(300, 3), "edge", "new tokens"),
        (decode(300, 9), "outside", "new tokens"),
        (prefill(8192), "outside", "new tokens"),
        (prefill(64, 100) + decode(300), "edge", "mixture"),
    ],
    ids=str,
)
def test_verdicts(step: list[Request], verdict: str, axis: str):
    found = packaged(False).predict(step, extrapolate=True)
    assert (found.domain.verdict, found.domain.axis) == (verdict, axis)
    assert (found.source == "extrapolated") == (verdict != "inside")
    assert bool(found.domain.text) == (verdict != "inside")


def test_outside_is_answered_on_request_alone():
    fpm = packaged(False)
    for ask in (fpm, fpm.predict):
        with pytest.raises(OutOfRangeError, match=r"new tokens = 8,192, measured 48 to 384"):
            ask(prefill(8192))
    plan = plan_of(prefill(8192), EAGER)
    with pytest.raises(OutOfRangeError, match="extrapolate=True"):
        aisim.estimate(plan, GB300, "fpm")
    found = aisim.estimate(plan, GB300, "fpm", extrapolate=True)
    assert dict(found.source_share) == {"extrapolated": 1.0}
    assert any("8,192" in text for text in found.beyond)
    with pytest.raises(OutOfRangeError):
        aisim.estimate(plan_of(decode(2048), EAGER), GB300, "fpm", extrapolate=False)


def test_bands_widen_away_from_the_measurements():
    fpm = made_up()
    near, far = fpm.predict(decode(1000, 20)), fpm.predict(decode(1000, 4096), extrapolate=True)

    def width(found: object) -> float:
        return found.band_s[1] / found.latency_s  # type: ignore[attr-defined]

    assert width(far) > width(near)


# --- a truth that is known ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        decode(3000, 16), decode(500) + decode(50_000), prefill(4096), prefill(2000, 4000),
        prefill(3000) + decode(2000, 10), [*decode(90), *decode(9000, 3), *prefill(1500, 600)],
    ],
    ids=str,
)  # fmt: skip
def test_sixteen_measurements_find_a_known_engine(step: list[Request]):
    assert made_up().predict(step).latency_ms == pytest.approx(truth_ms(step), rel=0.03)


@given(
    contexts=st.lists(st.integers(100, 60_000), min_size=1, max_size=6),
    count=st.integers(1, 8),
    chunk=st.integers(0, 4000),
)
def test_order_and_grouping_change_nothing(contexts: list[int], count: int, chunk: int):
    step = [request for c in contexts for request in decode(c, count)]
    step += prefill(chunk, 8) if chunk else []
    apart = [one for request in step for one in [_single(request)] * request.count]
    fpm = made_up()
    first = fpm.predict(step, extrapolate=True).latency_s
    assert fpm.predict(apart[::-1], extrapolate=True).latency_s == pytest.approx(first, rel=1e-12)


def _single(request: Request) -> Request:
    return Request(
        new_tokens=request.new_tokens, prefix_tokens=request.prefix_tokens, kind=request.kind
    )


def test_compiled_steps_and_sweeps_are_the_predictions():
    fpm = made_up()
    frame = pd.DataFrame(
        {"new_tokens": [1, 1, 1], "prefix_tokens": [100, 555, 9999], "count": [1, 8, 33],
         "kind": "decode"}
    )  # fmt: skip
    swept = fpm.sweep(frame)["latency_ms"].tolist()
    for row, milliseconds in zip(frame.itertuples(), swept, strict=True):
        step = decode(row.prefix_tokens, row.count)
        assert fpm(step) * 1e3 == pytest.approx(milliseconds, rel=1e-9)
        assert fpm.predict(step).latency_ms == pytest.approx(milliseconds, rel=1e-9)
    with pytest.raises(OutOfRangeError, match="row 1"):
        fpm.sweep(frame.assign(count=[1, 100_000, 1]))


def test_nothing_takes_no_time():
    fpm = made_up()
    assert fpm([Request(new_tokens=0)]) == fpm.predict([]).latency_s == 0.0


def test_never_below_the_speed_of_light():
    records = [StepRecord(step=tuple(step), latency_ms=0.01) for step in grid()]
    fpm = Fpm(table(records), MODEL, GB300)
    sol = aisim.compile(MODEL, GB300, parallel=TP4, policy=GRAPHS, method="sol")
    for step in (decode(3000, 16), prefill(8192)):
        assert fpm(step) == fpm.predict(step).latency_s == pytest.approx(sol(step), rel=1e-12)


def test_one_measurement_is_enough_for_an_answer():
    one = Fpm(table([StepRecord(step=tuple(decode(1000)), latency_ms=6.0)]), MODEL, GB300)
    assert one.predict(decode(1000)).latency_ms == 6.0
    assert one.predict(decode(1100), extrapolate=True).latency_ms == pytest.approx(6.0, rel=0.05)


def test_sums_are_answered_with_the_interval_of_their_readings():
    fpm = made_up()
    sums = StepTotals(decode_requests=8, decode_kv_tokens=80_000)
    found = fpm.predict(sums, extrapolate=True)
    assert len(found.readings) >= 2
    even = fpm.predict(decode(10_000, 8)).latency_s
    assert found.band_s[0] < min(r.latency_s for r in found.readings) <= even
    assert "sums leave the step open" in found.domain.text
    wide = fpm.predict(StepTotals(decode_requests=8, decode_kv_tokens=400_000))
    assert {one.domain.verdict for one in wide.readings} == {"inside", "outside"}
    with pytest.raises(OutOfRangeError, match="sums leave the step open"):
        fpm.predict(StepTotals(decode_requests=4000, decode_kv_tokens=4_000_000))
    alone = StepTotals(decode_requests=1, decode_kv_tokens=700)
    assert fpm.predict(alone).latency_s == fpm.predict(decode(700)).latency_s


# --- identities -----------------------------------------------------------------------------------


def test_another_identity_is_refused_by_its_fields():
    for change, field in (
        ({"decode_execution": "full_graph"}, "decode_execution"),
        ({"engram_residency": "host_shared"}, "engram_residency"),
        ({"kv_layout": "trained"}, "kv_layout"),
    ):
        plan = plan_of(decode(500), EAGER.with_overrides(**change))
        with pytest.raises(UnsupportedPlanError, match=field):
            aisim.estimate(plan, GB300, "fpm")
    tp2 = aisim.Plan(MODEL, decode(500), aisim.Parallel(tp=2), EAGER)
    with pytest.raises(UnsupportedPlanError, match=r"tp +2 \| 4"):
        aisim.estimate(tp2, GB300, "fpm")


def test_a_gpu_without_tables_is_named():
    with pytest.raises(MissingProfileError, match="h200"):
        load_fpm("h200")
    with pytest.raises(MissingProfileError, match="nonsense"):
        load_fpm("gb300", identity="nonsense")
    with pytest.raises(UnsupportedPlanError, match="2 tables of gb300 fit"):
        load_fpm("gb300")


def test_a_user_s_table_is_found_and_a_newer_one_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))
    plan = plan_of(decode(1000), GRAPHS)
    with pytest.raises(UnsupportedPlanError):
        aisim.estimate(plan, GB300, "fpm")
    for milliseconds in (6.0, 7.0):
        record = StepRecord(step=tuple(decode(1000)), latency_ms=milliseconds)
        publish_table(table([record]), tmp_path)
        assert aisim.estimate(plan, GB300, "fpm").latency_ms == milliseconds
    assert len(find_tables("gb300")) == 3


def test_a_table_without_times_is_refused():
    failed = StepRecord(step=tuple(decode(10)), status="out_of_memory")
    with pytest.raises(OutOfRangeError, match="no record says a step and its time"):
        Fpm(table([failed]), MODEL, GB300)


def test_a_loaded_table_is_an_estimator_of_its_own():
    plan = plan_of(decode(3000, 16), GRAPHS)
    found = aisim.estimate(plan, GB300, made_up())
    assert found.latency_s == made_up()(list(plan.requests))


def test_it_can_be_sent_to_another_process():
    again = pickle.loads(pickle.dumps(made_up()))
    assert again(decode(3000, 16)) == made_up()(decode(3000, 16))


# --- learning -------------------------------------------------------------------------------------


def fresh() -> Fpm:
    return Fpm(made_up().table, MODEL, GB300)


def observed(factor: float, count: int = 40) -> list[StepRecord]:
    steps = [decode(1000 + 10 * n, 8) for n in range(count)]
    return [StepRecord(step=tuple(s), latency_ms=factor * truth_ms(s), run="live") for s in steps]


def test_live_steps_move_predictions_and_can_be_taken_back(tmp_path: Path):
    fpm = fresh()
    step = decode(1234, 8)
    before = fpm.predict(step).latency_s
    fpm.update(observed(1.05))
    moved = fpm.predict(step)
    assert moved.latency_s / before == pytest.approx(1.05, abs=0.012)
    assert moved.online == pytest.approx(moved.latency_s / before)
    assert fpm.predict(prefill(8192)).online == 1.0
    fpm.save(tmp_path / "learnt.json")
    fpm.undo()
    assert fpm.predict(step).latency_s == before
    with pytest.raises(InvalidInputError, match="nothing was learnt"):
        fpm.undo()
    other = fresh()
    other.restore(tmp_path / "learnt.json")
    assert other.predict(step).latency_s == moved.latency_s


def test_ten_samples_of_twenty_times_the_truth_change_nothing():
    fpm = fresh()
    step = decode(1234, 8)
    before = fpm.predict(step).latency_s
    learnt = fpm.update(observed(20.0, count=10))
    assert fpm.predict(step).latency_s == pytest.approx(before, rel=0.05)
    assert len(learnt.wild) == 10


def test_what_was_learnt_elsewhere_is_refused(tmp_path: Path):
    path = tmp_path / "learnt.json"
    packaged(False).save(path)
    with pytest.raises(UnsupportedPlanError, match="was learnt from identity"):
        fresh().restore(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(SchemaError, match=r"not what Fpm\.save wrote"):
        fresh().restore(path)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        fresh().save(tmp_path / "nowhere" / "learnt.json")
    with pytest.raises(InvalidInputError, match="must be a StepRecord"):
        fresh().update(["fast"])  # type: ignore[list-item]


def test_a_prefill_is_near_prefills_alone():
    """A short prefill resembles a decode in size; its time is that of prefills."""
    for new in (1, 2, 8):
        found = packaged(False).predict(prefill(new, 512))
        assert found.domain.verdict == "edge"
