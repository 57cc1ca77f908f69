"""Whole forwards where little can be said: separate replays, rows that disagree, no steps."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.fpm.estimator import Fpm
from aisim_v41.estimators.fpm.tables import load_fpm
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable
from aisim_v41.plan.request import Request

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")
TP4 = aisim.Parallel(tp=4)
GRAPHS = aisim.policy("sglang")
EAGER = aisim.policy("sglang", decode_execution="eager")
BUILD = Build(
    checkpoint="made up", engine="sglang", engine_build="made up", image="none",
    topology="one node, 4 x GB300", modality="text", timer="gpu_events", settings={},
)  # fmt: skip


def decode(context: int, count: int = 1) -> list[Request]:
    return [Request(new_tokens=1, prefix_tokens=context, kind="decode", count=count)]


def prefill(new: int, prefix: int = 0) -> list[Request]:
    return [Request(new_tokens=new, prefix_tokens=prefix)]


def table(records: list[StepRecord], policy: aisim.RuntimePolicy = GRAPHS) -> StepTable:
    identity = Identity.of(MODEL, GB300, TP4, policy, BUILD)
    return StepTable(identity=identity, records=tuple(records))


def measured() -> list[StepRecord]:
    """An engine that takes a quarter longer than OP says."""
    op = aisim.compile(MODEL, GB300, parallel=TP4, policy=GRAPHS, method="op")
    steps = [decode(p, n) for n, p in product((1, 8, 64), (100, 1000, 10_000, 60_000))]
    steps += [prefill(n, p) for n, p in product((1024, 8192), (0, 8192))]
    return [StepRecord(step=tuple(step), latency_ms=1250.0 * op(step)) for step in steps]


def test_rows_that_all_disagree_are_all_believed():
    """Where every row is unlike the others there are no others."""
    steps = [prefill(10 * 2**n, 100 * n) if n % 2 else decode(100 * n, 2**n) for n in range(8)]
    records = [
        StepRecord(step=tuple(step), latency_ms=1e-300, run=f"r{n % 2}", order=n)
        for n, step in enumerate(steps)
    ]
    fpm = Fpm(table(records), MODEL, GB300)
    assert fpm.flagged == frozenset()
    assert fpm.predict(steps[1]).source == "measured"


def test_a_separate_replay_is_forwards_in_turn():
    separate = GRAPHS.with_overrides(
        encoder_replay="separate", prefill_execution="eager", engine_rules="warned"
    )
    hit = Request(new_tokens=500, prefix_tokens=8192, window="missing")
    records = measured()
    fpm = Fpm(table(records, separate), MODEL, GB300, extrapolate=True)
    step = [hit, *decode(700, 3)]
    answer = fpm.predict(step)
    plan = aisim.Plan(MODEL, step, TP4, separate)
    assert answer.latency_s == pytest.approx(fpm(step), rel=1e-12)
    whole = aisim.estimate(plan, GB300, method=fpm, extrapolate=True)
    assert answer.latency_s == pytest.approx(whole.latency_s, rel=1e-12)
    assert answer.band_s == pytest.approx(whole.band_s, rel=1e-12)
    assert answer.physical_s * answer.local == pytest.approx(answer.latency_s, rel=0.02)
    two = StepRecord(step=tuple(step), latency_ms=7e4)
    again = Fpm(table([*records, two], separate), MODEL, GB300, extrapolate=True)
    assert again.predict(step) == answer


def test_what_is_no_argument_is_refused():
    fpm = Fpm(table(measured()), MODEL, GB300)
    for wrong in (None, 5):
        with pytest.raises(InvalidInputError, match="requests = "):
            fpm.predict(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="observations = "):
            fpm.update(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="must name a file"):
            fpm.save(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="must name a file"):
        fpm.restore("")


def test_a_setting_that_names_a_policy_field_is_asked_for():
    """The packaged campaign says page_tokens = 256; pages of another size were not measured."""
    pages = EAGER.with_overrides(page_tokens=128)
    with pytest.raises(UnsupportedPlanError, match=r"page_tokens +128 \| 256"):
        load_fpm("gb300", policy=pages)
    stated = replace(BUILD, settings={"page_tokens": 128})
    identity = Identity.of(MODEL, GB300, TP4, GRAPHS, stated)
    record = StepRecord(step=tuple(decode(100)), latency_ms=6.0)
    own = Fpm(StepTable(identity=identity, records=(record,)), MODEL, GB300)
    assert own.policy.page_tokens == 128


def test_outside_the_physical_part_answers_alone():
    fpm = Fpm(table(measured()), MODEL, GB300, extrapolate=True)
    fpm.update([StepRecord(step=tuple(decode(700, 8)), latency_ms=9.0)] * 20)
    far = decode(1000, 4096)
    found = fpm.predict(far)
    assert found.domain.verdict == "outside"
    assert (found.local, found.online) == (1.0, 1.0)
    assert found.latency_s == found.physical_s == fpm(far)
    frame = pd.DataFrame({"new_tokens": [1, 1], "prefix_tokens": [1000, 1000], "kind": "decode",
                          "count": [4096, 8]})  # fmt: skip
    assert fpm.sweep(frame)["latency_ms"][0] == pytest.approx(found.latency_ms, rel=1e-12)


def test_how_far_outside_is_that_of_the_farthest_axis():
    """A little more tokens than measured, at a hundredth of the context."""
    steps = [prefill(n, p) for n, p in product((2000, 4000), (50_000, 60_000))]
    records = [StepRecord(step=tuple(s), latency_ms=300.0 + s[0].new_tokens / 40) for s in steps]
    fpm = Fpm(table(records), MODEL, GB300, extrapolate=True)
    found = fpm.predict(prefill(4400, 500)).domain
    assert (found.verdict, found.axis) == ("outside", "new tokens")
    assert found.beyond == pytest.approx(math.log(50_000 / 500))


def test_what_agrees_with_the_answer_teaches_nothing():
    """A measured step answers with its own time, which the smooth fit need not have."""
    for fpm, step in (
        (load_fpm("gb300", policy=EAGER), prefill(48)),
        (load_fpm("gb200", regime="historical_2026_09_10"), prefill(2, 512)),
    ):
        before = fpm.predict(step)
        assert before.source == "measured"
        same = StepRecord(step=tuple(step), latency_ms=before.latency_ms, run="live")
        fpm.update([same] * 60)
        assert fpm.predict(step).latency_s == pytest.approx(before.latency_s, rel=1e-12)


def test_a_replay_of_its_own_lies_with_prefills_of_its_rows():
    separate = GRAPHS.with_overrides(
        encoder_replay="separate", prefill_execution="eager", engine_rules="warned"
    )
    steps = [prefill(n, p) for n, p in product((128, 1024), (0, 4096, 16_384))]
    records = [StepRecord(step=tuple(step), latency_ms=200.0) for step in steps]
    hit = Request(new_tokens=500, prefix_tokens=8192, window="missing")
    assert Fpm(table(records, separate), MODEL, GB300).predict([hit]).domain.verdict == "inside"


@pytest.mark.parametrize("replay", [False, True])
def test_one_run_tells_the_other_as_well_as_they_agree(replay: bool):
    """GB300: each run predicted from a table of the other, the bad sample of 380 ms aside."""
    whole = load_fpm("gb300", policy=EAGER.with_overrides(decoder_replay=replay)).table
    runs = {record.run for record in whole.records}
    times = {(r.run, r.point): r.latency_ms for r in whole.records if r.latency_ms < 300}
    told, apart = [], []
    for run in runs:
        others = tuple(record for record in whole.records if record.run != run)
        fpm = Fpm(replace(whole, records=others), MODEL, GB300)
        (other,) = runs - {run}
        for record in whole.records:
            if {(run, record.point), (other, record.point)} <= times.keys() and record.run == run:
                told.append(abs(fpm.predict(record.requests).latency_ms / record.latency_ms - 1))
                apart.append(abs(times[other, record.point] / record.latency_ms - 1))
    assert len(told) == (74 if replay else 76)
    assert sum(told) <= sum(apart) * (1 + 1e-9)


def test_a_table_of_text_says_nothing_of_images():
    fpm = Fpm(table(measured()), MODEL, GB300)
    picture = Request(new_tokens=1024, image_tokens=994)
    for ask in (fpm.predict, fpm):
        with pytest.raises(UnsupportedPlanError, match="was measured with text"):
            ask([picture])
