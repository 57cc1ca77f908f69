"""Written as Forward Pass Metrics and read again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.records import StepRecord, StepTotals
from aisim_v41.io import read_dynamo_fpm, write_dynamo_fpm
from aisim_v41.io.export import MAX_LENGTHS

MIXED = (
    Request(new_tokens=512, prefix_tokens=1024),
    Request(new_tokens=64),
    Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=8),
    Request(new_tokens=1, prefix_tokens=100, kind="decode"),
)
SUMS = StepTotals(
    prefill_requests=2, prefill_tokens=600, prefill_kv_tokens=128, prefill_length_variance=8.0,
    decode_requests=3, decode_kv_tokens=3000, decode_kv_variance=200.0,
)  # fmt: skip


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("counted", [False, True])
def test_steps_times_runs_and_orders_come_back(tmp_path: Path, counted: bool):
    records = [
        StepRecord(step=MIXED, latency_ms=12.5, run="a", order=3),
        StepRecord(step=SUMS, latency_ms=30.0, run="b", order=0),
        StepRecord(step=MIXED[:2], latency_ms=7.25, run="a", order=7),
    ]
    file = tmp_path / "out" / "fpm.jsonl"
    assert write_dynamo_fpm(records, file, kv_includes_current=counted) == ()
    back = read_dynamo_fpm(file, kv_includes_current=counted)
    assert back.skipped == ()
    assert [record.step for record in back.records] == [record.step for record in records]
    assert [(r.run, r.order) for r in back.records] == [("a", 3), ("b", 0), ("a", 7)]
    times = [record.latency_ms for record in back.records]
    assert times == pytest.approx([12.5, 30.0, 7.25], rel=1e-15)


def test_a_message_has_every_field_of_version_1(tmp_path: Path):
    write_dynamo_fpm([StepRecord(step=MIXED, latency_ms=12.5)], tmp_path / "f")
    [line] = lines(tmp_path / "f")
    assert line == {
        "version": 1, "worker_id": "run", "dp_rank": 0, "counter_id": 0, "wall_time": 0.0125,
        "scheduled_requests": {
            "num_prefill_requests": 2, "sum_prefill_tokens": 576,
            "var_prefill_length": ((1536 - 64) / 2) ** 2, "sum_prefill_kv_tokens": 1024,
            "num_decode_requests": 9, "sum_decode_kv_tokens": 8 * 4096 + 100,
            "var_decode_kv_tokens": pytest.approx(8 / 81 * (4096 - 100) ** 2),
            "extend_lengths": [512, 64, *[1] * 9],
            "past_kv_lengths": [1024, 0, *[4096] * 8, 100],
        },
        "queued_requests": {
            "num_prefill_requests": 0, "sum_prefill_tokens": 0, "var_prefill_length": 0.0,
            "num_decode_requests": 0, "sum_decode_kv_tokens": 0, "var_decode_kv_tokens": 0.0,
        },
    }  # fmt: skip


def test_lengths_of_very_many_requests_stay_sums(tmp_path: Path):
    step = (Request(new_tokens=1, prefix_tokens=64, kind="decode", count=MAX_LENGTHS + 1),)
    write_dynamo_fpm([StepRecord(step=step, latency_ms=1.0)], tmp_path / "f")
    assert "extend_lengths" not in lines(tmp_path / "f")[0]["scheduled_requests"]
    assert read_dynamo_fpm(tmp_path / "f").records[0].step == step


def test_a_prompt_that_goes_on_keeps_its_length_in_the_variance(tmp_path: Path):
    step = (Request(new_tokens=8, prompt_tokens=80), Request(new_tokens=8, prompt_tokens=100))
    write_dynamo_fpm([StepRecord(step=step, latency_ms=1.0)], tmp_path / "f")
    assert lines(tmp_path / "f")[0]["scheduled_requests"]["var_prefill_length"] == 100.0


def test_what_fpm_cannot_say_is_handed_back(tmp_path: Path):
    verify = (Request(new_tokens=4, prefix_tokens=64, kind="verify"),)
    left = write_dynamo_fpm(
        [
            StepRecord(step=MIXED, status="out_of_memory"),
            StepRecord(step=verify, latency_ms=1.0),
            StepRecord(step=(Request(new_tokens=0, prefix_tokens=4),), latency_ms=1.0),
            StepRecord(step=MIXED, latency_ms=1.0),
            StepRecord(step=(Request(new_tokens=8, image_tokens=4),), latency_ms=1.0),
        ],
        tmp_path / "f",
    )
    assert [(entry.place, entry.reason) for entry in left] == [
        ("step 0", "no time: out_of_memory"),
        ("step 1", "rows that verify drafts: FPM describes none"),
        ("step 2", "no request with new tokens"),
        ("step 4", "rows of images: FPM describes none"),
    ]
    assert len(lines(tmp_path / "f")) == 1


@dataclass
class Priced:
    """What an estimate has."""

    latency_s: float
    plan: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(requests=MIXED))


@pytest.mark.parametrize("latency_s", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_what_is_no_time_is_no_message(tmp_path: Path, latency_s: float):
    [entry] = write_dynamo_fpm([Priced(latency_s), Priced(0.5)], tmp_path / "f")
    assert (entry.place, entry.reason) == ("step 0", f"no time: {latency_s:g} s")
    assert [record.latency_ms for record in read_dynamo_fpm(tmp_path / "f").records] == [500.0]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    "step",
    [
        (Request(new_tokens=64), Request(new_tokens=1, kind="decode")),
        StepTotals(decode_requests=4, decode_kv_tokens=3),
    ],
)
def test_decodes_that_follow_no_prompt_are_handed_back(tmp_path: Path, step, counted: bool):
    records = [StepRecord(step=step, latency_ms=1.0), StepRecord(step=MIXED, latency_ms=2.0)]
    [entry] = write_dynamo_fpm(records, tmp_path / "f", kv_includes_current=counted)
    assert entry.reason.startswith("a decode that follows no prompt")
    back = read_dynamo_fpm(tmp_path / "f", kv_includes_current=counted)
    assert [record.latency_ms for record in back.records] == [2.0]
    assert back.skipped == ()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for target in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(InvalidInputError, match="cannot be written"):
            write_dynamo_fpm([StepRecord(step=MIXED, latency_ms=1.0)], target)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(InvalidInputError, match="kv_includes_current = 'no'"):
        write_dynamo_fpm([], tmp_path / "f", kv_includes_current="no")


def test_counters_grow_where_orders_do_not(tmp_path: Path):
    orders = [("a", 5), ("a", 5), ("b", None), ("b", 2), ("c", 1), ("c", 4)]
    records = [StepRecord(step=MIXED, latency_ms=1.0, run=r, order=n) for r, n in orders]
    write_dynamo_fpm(records, tmp_path / "f")
    assert [(m["worker_id"], m["counter_id"]) for m in lines(tmp_path / "f")] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 1), ("c", 4),
    ]  # fmt: skip


def test_estimates_are_written_too(tmp_path: Path):
    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
    plan = aisim.Plan(model, MIXED, parallel=aisim.Parallel(tp=4))
    estimate = aisim.estimate(plan, gpu, method="sol")
    assert write_dynamo_fpm([estimate, estimate], tmp_path / "f") == ()
    first, second = read_dynamo_fpm(tmp_path / "f").records
    assert first.step == second.step == MIXED
    assert first.latency_ms == pytest.approx(estimate.latency_ms, rel=1e-15)
    assert (second.run, second.order) == ("aisim_v41", 1)


def test_anything_else_is_refused(tmp_path: Path):
    for wrong in (7, None, MIXED):
        with pytest.raises(InvalidInputError, match=r"steps\[0\] = "):
            write_dynamo_fpm([wrong], tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_file_is_replaced_as_a_whole(tmp_path: Path):
    file = tmp_path / "f"
    for count in (3, 1):
        write_dynamo_fpm([StepRecord(step=MIXED, latency_ms=1.0)] * count, file)
        assert len(lines(file)) == count
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


prefills = st.builds(
    Request, new_tokens=st.integers(2, 5000), prefix_tokens=st.integers(0, 10**6),
    count=st.integers(1, 50),
)  # fmt: skip
decodes = st.builds(
    Request, new_tokens=st.just(1), prefix_tokens=st.integers(1, 10**6), kind=st.just("decode"),
    count=st.integers(1, 50),
)  # fmt: skip


def alike(step) -> tuple:
    """Requests whatever their grouping, prefills first."""
    counts: dict[tuple, int] = {}
    for r in step:
        key = (r.kind, r.new_tokens, r.prefix_tokens)
        counts[key] = counts.get(key, 0) + r.count
    return tuple(sorted(counts.items()))


@settings(max_examples=60)
@given(st.lists(st.lists(prefills | decodes, min_size=1, max_size=6), min_size=1, max_size=5),
       st.booleans())  # fmt: skip
def test_any_step_comes_back(tmp_path_factory, steps, counted: bool):
    file = tmp_path_factory.mktemp("fpm") / "f"
    records = [
        StepRecord(step=tuple(step), latency_ms=1.0 + place) for place, step in enumerate(steps)
    ]
    assert write_dynamo_fpm(records, file, kv_includes_current=counted) == ()
    back = read_dynamo_fpm(file, kv_includes_current=counted)
    assert back.skipped == ()
    assert [alike(r.step) for r in back.records] == [alike(r.step) for r in records]
