"""Whole forwards where little can be said: separate replays, rows that disagree, no steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.fpm import Fpm
from aisim_v41.estimators.fpm_tables import load_fpm
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable
from aisim_v41.plan.request import Request

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")
TP4 = aisim.Parallel(tp=4)
GRAPHS = aisim.policy("sglang")
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
    separate = GRAPHS.with_overrides(encoder_replay="separate", prefill_execution="eager")
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
    eager = aisim.policy("sglang", decode_execution="eager", page_tokens=128)
    with pytest.raises(UnsupportedPlanError, match=r"page_tokens +128 \| 256"):
        load_fpm("gb300", policy=eager)
    stated = replace(BUILD, settings={"page_tokens": 128})
    identity = Identity.of(MODEL, GB300, TP4, GRAPHS, stated)
    record = StepRecord(step=tuple(decode(100)), latency_ms=6.0)
    own = Fpm(StepTable(identity=identity, records=(record,)), MODEL, GB300)
    assert own.policy.page_tokens == 128
