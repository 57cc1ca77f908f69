"""What a record of a measured forward may hold."""

from __future__ import annotations

import pytest

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.records import STATUSES, StepRecord, StepTotals

STEP = (Request(new_tokens=8),)


def test_a_record_and_its_defaults():
    record = StepRecord(step=STEP, latency_ms=2)
    assert record.latency_ms == 2.0
    assert type(record.latency_ms) is float
    assert (record.status, record.samples, record.samples_ms, record.run) == ("ok", 1, (), "run")
    assert record.requests == STEP


def test_samples_are_counted():
    record = StepRecord(step=STEP, latency_ms=2.0, samples_ms=(1.0, 2.0, 4.0))
    assert record.samples == 3
    assert StepRecord(step=STEP, latency_ms=2.0, samples=9).samples == 9


@pytest.mark.parametrize("status", STATUSES[1:])
def test_other_statuses_have_no_time(status):
    record = StepRecord(step=STEP, status=status)
    assert (record.latency_ms, record.samples) == (None, 0)
    for time in ({"latency_ms": 1.0}, {"samples_ms": (1.0,)}):
        with pytest.raises(InvalidInputError, match="only 'ok' has a time"):
            StepRecord(step=STEP, status=status, **time)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latency_ms": None}, "StepRecord.latency_ms = None"),
        ({"latency_ms": float("nan")}, "latency_ms = nan: must be a finite number"),
        ({"latency_ms": float("inf")}, "latency_ms = inf"),
        ({"latency_ms": -1.0}, "latency_ms = -1.0"),
        ({"latency_ms": 0}, "latency_ms = 0"),
        ({"latency_ms": 1e10}, "at most 1e\\+09"),
        ({"latency_ms": "1"}, "latency_ms = '1'"),
        ({"latency_ms": True}, "latency_ms = True"),
        ({"latency_ms": 10**400}, "latency_ms = 1000"),
        ({"samples_ms": (1.0, float("nan"))}, r"samples_ms\[1\] = nan"),
        ({"samples_ms": 1.0}, "must be a tuple of numbers"),
        ({"samples_ms": "11"}, "must be a tuple of numbers"),
        ({"samples_ms": (2.0, 3.0)}, "outside its samples, which are from 2.0 to 3.0 ms"),
        ({"samples_ms": (1.0, 1.0), "samples": 3}, "samples_ms has 2"),
        ({"samples": 0}, "at least one"),
        ({"samples": 1.0}, "StepRecord.samples = 1.0"),
        ({"status": "fine"}, "StepRecord.status = 'fine': must be one of ok, unsupported"),
        ({"status": None}, "StepRecord.status = None"),
        ({"status": ["ok"]}, "StepRecord.status"),
        ({"run": ""}, "StepRecord.run = '': must be text of 1 to 4096 characters"),
        ({"note": "x" * 4097}, "StepRecord.note"),
        ({"note": "\ud800"}, "not valid Unicode"),
        ({"point": 3}, "StepRecord.point = 3"),
        ({"order": -1}, "StepRecord.order = -1"),
        ({"order": True}, "StepRecord.order = True"),
        ({"order": 1 << 40}, "StepRecord.order"),
        ({"step": ()}, "must be one Request or more, or StepTotals"),
        ({"step": (1,)}, "must be one Request or more"),
        ({"step": "decode"}, "must be one Request or more"),
        ({"step": None}, "must be one Request or more"),
    ],
)
def test_records_that_cannot_be(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        StepRecord(**{"step": STEP, "latency_ms": 1.0, **changes})


def test_a_list_of_requests_is_a_step():
    assert StepRecord(step=list(STEP), latency_ms=1.0).step == STEP  # type: ignore[arg-type]


def test_sums_stand_for_a_step_where_they_determine_it():
    one = StepTotals(prefill_requests=1, prefill_tokens=9, prefill_kv_tokens=4)
    assert StepRecord(step=one, latency_ms=1.0).requests == (
        Request(new_tokens=9, prefix_tokens=4),
    )
    two = StepTotals(prefill_requests=2, prefill_tokens=9)
    assert StepRecord(step=two, latency_ms=1.0).requests is None
