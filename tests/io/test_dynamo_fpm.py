"""Forward Pass Metrics: iterations, ranks, conventions, and what is no step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.forwards.records import StepTotals
from aisim_v41.io import Imported, read_dynamo_fpm
from tests.io.files import json_lines, load, message

ONE_PREFILL = load(1, 512, 1024, 0, 0)


def decodes(count: int, prefix: int) -> tuple[Request, ...]:
    return (Request(new_tokens=1, prefix_tokens=prefix, kind="decode", count=count),)


@pytest.fixture
def read(tmp_path: Path):
    def made(*rows: Any, **options: Any) -> Imported:
        return read_dynamo_fpm(json_lines(tmp_path / "fpm.jsonl", rows), **options)

    return made


def reasons(imported: Imported) -> list[tuple[str, str]]:
    return [(entry.place, entry.reason) for entry in imported.skipped]


# --- one message ----------------------------------------------------------------------------------


def test_one_prefill_is_a_request_and_seconds_become_milliseconds_once(read):
    [record] = read(message(ONE_PREFILL, 0.0123)).records
    assert record.step == (Request(new_tokens=512, prefix_tokens=1024),)
    assert record.latency_ms == pytest.approx(12.3, rel=1e-15)
    assert (record.run, record.order, record.point, record.source) == ("w", 1, "1", "fpm.jsonl:1")
    assert (record.samples, record.status, record.note) == (1, "ok", "")


def test_sums_stay_sums_where_several_steps_have_them(read):
    prefills, mixed, uneven = read(
        message(load(2, 600, 0, 0, 0)),
        message(load(2, 600, 128, 3, 3000, prompts=8.0, contexts=200.0), counter_id=2),
        message(load(0, 0, 0, 3, 3000, contexts=200.0), counter_id=3),
    ).records
    assert prefills.step == StepTotals(
        prefill_requests=2, prefill_tokens=600, prefill_length_variance=0.0
    )
    assert mixed.step == StepTotals(
        prefill_requests=2, prefill_tokens=600, prefill_kv_tokens=128, prefill_length_variance=8.0,
        decode_requests=3, decode_kv_tokens=3000, decode_kv_variance=200.0,
    )  # fmt: skip
    assert uneven.step == StepTotals(
        decode_requests=3, decode_kv_tokens=3000, decode_kv_variance=200.0
    )
    assert {record.requests for record in (prefills, mixed, uneven)} == {None}


def test_a_mixed_step_of_one_prefill_and_even_decodes_is_known(read):
    [record] = read(message(load(1, 256, 0, 4, 4000))).records
    assert record.step == (Request(new_tokens=256), *decodes(4, 1000))


def test_the_older_form_has_neither_version_nor_counter(read):
    old = {"worker_id": "w", "dp_rank": 0, "wall_time": 0.02, "scheduled_requests": ONE_PREFILL}
    records = read(old, old).records
    assert [(r.order, r.latency_ms) for r in records] == [(0, 20.0), (1, 20.0)]


def test_absent_counts_are_none_and_absent_variances_unknown(read):
    prompt = {"num_prefill_requests": 1, "sum_prefill_tokens": 64}
    bare = {"num_decode_requests": 2, "sum_decode_kv_tokens": 300}
    prefill, record = read(message(prompt), message(bare, counter_id=2)).records
    assert prefill.step == (Request(new_tokens=64),)
    assert record.step == StepTotals(decode_requests=2, decode_kv_tokens=300)


def test_a_worker_may_be_a_number(read):
    [record] = read(message(ONE_PREFILL, worker_id=7587)).records
    assert record.run == "7587"


def test_the_timer_is_what_the_caller_says(read):
    assert read(message(ONE_PREFILL)).build_hints == {"timer": "scheduler_wall"}
    assert read(message(ONE_PREFILL), timer="gpu_events").build_hints == {"timer": "gpu_events"}
    with pytest.raises(InvalidInputError, match="timer = 'wall': must be one of gpu_events"):
        read(message(ONE_PREFILL), timer="wall")


# --- lengths --------------------------------------------------------------------------------------


def test_lengths_are_taken_and_alike_requests_grouped(read):
    scheduled = load(3, 192, 1024, 0, 0, extend_lengths=[64, 64, 64], past_kv_lengths=[0, 1024, 0])
    [record] = read(message(scheduled)).records
    assert record.step == (
        Request(new_tokens=64, count=2),
        Request(new_tokens=64, prefix_tokens=1024),
    )


def test_lengths_of_a_mixed_step(read):
    scheduled = load(1, 64, 10, 2, 1100, prompts=0.0, contexts=202500.0,
                     extend_lengths=[1, 64, 1], past_kv_lengths=[1000, 10, 100])  # fmt: skip
    [record] = read(message(scheduled)).records
    assert record.step == (
        Request(new_tokens=64, prefix_tokens=10),
        *decodes(1, 1000),
        *decodes(1, 100),
    )


def test_a_chunk_of_one_token_looks_like_a_decode_so_the_sums_are_kept(read):
    scheduled = load(1, 1, 10, 3, 1110, contexts=None,
                     extend_lengths=[1, 1, 1, 1], past_kv_lengths=[1000, 10, 100, 10])  # fmt: skip
    [record] = read(message(scheduled)).records
    assert record.step == StepTotals(
        prefill_requests=1, prefill_tokens=1, prefill_kv_tokens=10, prefill_length_variance=0.0,
        decode_requests=3, decode_kv_tokens=1110,
    )  # fmt: skip
    assert record.note == "lengths do not say which requests decode: read as sums"


@pytest.mark.parametrize(
    ("new", "past", "reason"),
    [
        ([64, 64], [0], "extend_lengths has 2 entries and past_kv_lengths has 1"),
        ([64], [0], "1 lengths of 2 requests"),
        ([64, 65], [0, 0], "sum_prefill_tokens = 128, but the lengths sum to 129"),
        ([64, 64], [0, 1], "sum_prefill_kv_tokens = 0, but the lengths sum to 1"),
        ([64, 0], [0, 0], "extend_lengths = 0: must be a whole number from 1"),
        ([64, 64.5], [0, 0], "extend_lengths = 64.5"),
        ([64, True], [0, 0], "extend_lengths = True"),
    ],
)
def test_lengths_that_contradict_their_sums_are_refused(read, new, past, reason):
    imported = read(
        message(load(2, 128, 0, 0, 0, extend_lengths=new, past_kv_lengths=past)),
        message(ONE_PREFILL, counter_id=2),
    )
    assert len(imported.records) == 1
    assert imported.skipped[0].reason.startswith(reason)


def test_lengths_that_contradict_their_variance_are_refused(read):
    scheduled = load(0, 0, 0, 2, 1100, contexts=0.0, extend_lengths=[1, 1],
                     past_kv_lengths=[1000, 100])  # fmt: skip
    good = message(load(0, 0, 0, 2, 1100, contexts=202500.0), counter_id=2)
    assert reasons(read(message(scheduled), good)) == [
        ("fpm.jsonl:1", "var_decode_kv_tokens = 0, but the lengths have 202500")
    ]


def test_draft_rows_are_not_described(read):
    scheduled = load(0, 0, 0, 2, 200, extend_lengths=[4, 4], past_kv_lengths=[100, 100])
    [(_, reason)] = reasons(read(message(scheduled)))
    assert "verify drafts" in reason


# --- what is no step ------------------------------------------------------------------------------


def test_heartbeats_are_dropped_and_counted(read):
    idle = message(load(0, 0, 0, 0, 0), 0.0)
    imported = read(idle, message(ONE_PREFILL, counter_id=2), idle)
    assert len(imported.records) == 1
    assert imported.reasons() == {"heartbeat of an idle scheduler": 2}
    assert [entry.place for entry in imported.skipped] == ["fpm.jsonl:1", "fpm.jsonl:3"]
    assert read(idle).records == ()


@pytest.mark.parametrize(
    ("scheduled", "seconds", "reason"),
    [
        (load(0, 0, 0, 0, 0), 0.01, "a time without requests"),
        (ONE_PREFILL, 0.0, "wall_time = 0 s with 1 prefills of 512 tokens after 1024"),
        (ONE_PREFILL, -1.0, "wall_time = -1 s with"),
        (ONE_PREFILL, "0.1", "wall_time = '0.1': must be a number"),
        (load(0, 512, 0, 1, 9), 0.01, "StepTotals.prefill_tokens = 512 of 0 requests"),
        (load(2, 1, 0, 0, 0), 0.01, "StepTotals.prefill_tokens = 1 of 2 requests"),
        (load(0, 0, 7, 1, 9), 0.01, "StepTotals.prefill_kv_tokens = 7 without a prefill"),
        (load(1, 8, 0, 0, 9), 0.01, "StepTotals.decode_kv_tokens = 9 without a decode"),
        (load(0, 0, 0, 3, 2), 0.01, "sum_decode_kv_tokens = 2: below 3"),
        (load(0, 0, 0, 1, 9, contexts=4.0), 0.01, "StepTotals.decode_kv_variance = 4.0: 1 lengths"),
        (load(0, 0, 0, 2, 9, contexts=1e9), 0.01, "StepTotals.decode_kv_variance = 1000000000.0"),
        (load(1, 8, 0, 0, 0, prompts=4.0), 0.01, "StepTotals.prefill_length_variance = 4.0"),
        (load(1, 8, 0, 0, 0, prompts=-1.0), 0.01, "StepTotals.prefill_length_variance = -1.0"),
        (load(1, -8, 0, 0, 0), 0.01, "sum_prefill_tokens = -8: must be a whole number from 0"),
        (load(1, 8.0, 0, 0, 0), 0.01, "sum_prefill_tokens = 8.0"),
        ([], 0.01, "scheduled_requests = []: must be a mapping"),
    ],
)
def test_what_no_requests_can_have_is_skipped_with_the_reason(read, scheduled, seconds, reason):
    imported = read(message(ONE_PREFILL), message(scheduled, seconds, counter_id=2))
    assert len(imported.records) == 1
    [(place, told)] = reasons(imported)
    assert place == "fpm.jsonl:2"
    assert told.startswith(reason)


def test_lines_that_are_no_messages_are_listed(read):
    imported = read(
        "not json", '{"a": 1}', '{"a": NaN}', '{"a": 1, "a": 2}', "[1]", "",
        message(ONE_PREFILL), message(ONE_PREFILL, version=2), '{"scheduled_requests": {',
    )  # fmt: skip
    assert len(imported.records) == 1
    told = dict(reasons(imported))
    assert list(told) == [f"fpm.jsonl:{line}" for line in (1, 2, 3, 4, 5, 8, 9)]
    assert told["fpm.jsonl:2"] == "no scheduled_requests: not a forward pass message"
    assert told["fpm.jsonl:3"] == "NaN is not a finite number"
    assert told["fpm.jsonl:4"] == "key 'a' occurs twice"
    assert told["fpm.jsonl:8"] == "version = 2: only version 1 is known"


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n1,2\n", '{"a": 1}\n', "\x00\x01"])
def test_a_file_without_messages_is_an_error_that_names_it(tmp_path: Path, content: str):
    file = tmp_path / "fpm.jsonl"
    file.write_text(content)
    with pytest.raises(SchemaError, match=r"fpm\.jsonl: no forward pass message in it; fpm"):
        read_dynamo_fpm(file)


def test_no_file(tmp_path: Path):
    with pytest.raises(MissingProfileError, match="no such file"):
        read_dynamo_fpm(tmp_path / "none")
    with pytest.raises(SchemaError, match="not a regular file"):
        read_dynamo_fpm(tmp_path)


# --- iterations and runs --------------------------------------------------------------------------


def test_ranks_with_one_load_are_one_record_with_the_slowest_time(read):
    imported = read(
        message(ONE_PREFILL, 0.010),
        message(ONE_PREFILL, 0.014, dp_rank=1),
        message(ONE_PREFILL, 0.009, counter_id=2),
        message(ONE_PREFILL, 0.008, counter_id=2, dp_rank=1),
    )
    assert [record.latency_ms for record in imported.records] == [14.0, 9.0]
    assert imported.records[0].note == "2 ranks with this load each"
    assert imported.build_hints["dp"] == 2


def test_uneven_ranks_are_skipped_or_the_fullest_is_kept(read):
    rows = (
        message(load(0, 0, 0, 2, 200), 0.010),
        message(load(0, 0, 0, 3, 300), 0.008, dp_rank=1),
        message(load(0, 0, 0, 2, 200), 0.011, counter_id=2),
    )
    imported = read(*rows)
    assert imported.records == ()
    assert reasons(imported) == [
        ("fpm.jsonl:1", "ranks ran different loads (rank 0: 2 decodes over 200; rank 1: 3 decodes "
         "over 300), which is no single step; uneven_ranks='fullest' keeps the fullest one's"),
        ("fpm.jsonl:3", "ranks ran different loads (rank 0: 2 decodes over 200; rank 1: nothing), "
         "which is no single step; uneven_ranks='fullest' keeps the fullest one's"),
    ]  # fmt: skip
    both, alone = read(*rows, uneven_ranks="fullest").records
    assert (both.step, both.latency_ms) == (decodes(3, 100), 10.0)
    assert "rank 0: 2 decodes over 200" in both.note
    assert (alone.step, alone.latency_ms) == (decodes(2, 100), 11.0)
    with pytest.raises(InvalidInputError, match="uneven_ranks = 'mean'"):
        read(*rows, uneven_ranks="mean")


def test_workers_are_runs_and_never_ranks_of_each_other(read):
    first, second = read(message(ONE_PREFILL), message(ONE_PREFILL, worker_id="v")).records
    assert (first.run, second.run) == ("w", "v")
    [named] = read(message(ONE_PREFILL), run="monday", regime="cold").records
    assert (named.run, named.regime) == ("monday", "cold")


@pytest.mark.parametrize(
    "rows",
    [
        [message(ONE_PREFILL, dp_rank=1)],
        [message(load(0, 0, 0, 0, 0), 0.0, dp_rank=1), message(ONE_PREFILL)],
        [message(ONE_PREFILL), message(ONE_PREFILL, dp_rank=1, worker_id="v")],
    ],
    ids=["the other rank is not in the file", "it is idle", "it is another worker"],
)
def test_one_rank_of_several_is_no_whole_step(read, rows):
    imported = read(*rows)
    assert imported.records == ()
    assert any("ranks ran different loads" in why for _, why in reasons(imported))
    assert imported.build_hints["dp"] == 2
    assert {r.latency_ms for r in read(*rows, uneven_ranks="fullest").records} == {10.0}


def test_a_rank_of_very_many_names_a_few(read):
    [(_, why)] = reasons(read(message(ONE_PREFILL, dp_rank=1 << 30)))
    assert "rank 7: nothing" in why
    assert "rank 8" not in why


def test_one_rank_without_counters_cannot_be_matched_either(read):
    old = {"dp_rank": 1, "wall_time": 0.1, "scheduled_requests": ONE_PREFILL}
    assert read(old).records == ()


def test_a_given_name_tells_runs_apart(read):
    imported = read(
        message(ONE_PREFILL, counter_id=5),
        message(ONE_PREFILL, counter_id=5, worker_id="v"),
        message(ONE_PREFILL, counter_id=4),
        message(ONE_PREFILL, counter_id=6, worker_id="v"),
        run="monday",
    )
    assert [(r.run, r.order) for r in imported.records] == [
        ("monday", 5), ("monday#2", 5), ("monday#3", 4), ("monday#2", 6),
    ]  # fmt: skip


def test_a_counter_that_falls_is_another_process(read):
    imported = read(
        message(ONE_PREFILL, counter_id=5),
        message(ONE_PREFILL, counter_id=6),
        message(ONE_PREFILL, 0.02, counter_id=5),
    )
    assert [(r.run, r.order) for r in imported.records] == [("w", 5), ("w", 6), ("w#2", 5)]
    assert imported.remarks == ("worker 'w': counter_id of rank 0 falls 1 times: 2 process runs",)


def test_a_counter_that_never_moves_is_not_filled_in(read):
    records = read(*(message(ONE_PREFILL, s, counter_id=0) for s in (0.01, 0.02, 0.03))).records
    assert [(record.run, record.order) for record in records] == [("w", 0), ("w", 1), ("w", 2)]


def test_the_same_message_twice_is_one(read):
    imported = read(*(message(ONE_PREFILL, counter_id=n) for n in (1, 2, 1, 2)))
    assert len(imported.records) == 2
    assert imported.reasons() == {"the same message twice": 2}


def test_ranks_without_counters_cannot_be_matched(read):
    old = [{"dp_rank": r, "wall_time": 0.1, "scheduled_requests": ONE_PREFILL} for r in (0, 1)]
    imported = read(*old)
    assert imported.records == ()
    assert imported.reasons() == {
        "several ranks without counter_id: their iterations cannot be matched": 2
    }


def test_a_message_without_a_worker_runs_under_the_name_of_the_file(read):
    assert read(message(ONE_PREFILL, worker_id="")).records[0].run == "fpm"


# --- conventions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("inclusive", "prefix"), [(False, 1000), (True, 999), (None, 1000)])
def test_the_current_token_is_counted_or_not(read, inclusive, prefix):
    imported = read(message(load(0, 0, 0, 4, 4000)), kv_includes_current=inclusive)
    assert imported.records[0].step == decodes(4, prefix)
    assert "current token" in imported.remarks[0]


def test_the_file_shows_whether_the_current_token_is_counted(read):
    after = {
        beyond: [message(ONE_PREFILL), message(load(0, 0, 0, 1, 1536 + beyond), counter_id=2)]
        for beyond in (0, 1, 2)
    }
    for beyond, said in ((0, "do not count"), (1, "count")):
        imported = read(*after[beyond])
        assert imported.records[1].step == decodes(1, 1536)
        assert imported.remarks == (
            f"contexts of decodes {said} the current token, as 1 prefills followed by their decode "
            "show",
        )
    assert "as Dynamo's own scheduler" in read(*after[2]).remarks[0]
    contradicted = read(*after[1], kv_includes_current=False)
    assert contradicted.records[1].step == decodes(1, 1537)
    assert "show the opposite: check kv_includes_current=False" in contradicted.remarks[0]


def test_a_context_that_counts_its_token_has_a_prompt_before_it(read):
    good = message(load(0, 0, 0, 3, 6), counter_id=2)
    imported = read(message(load(0, 0, 0, 3, 3)), good, kv_includes_current=True)
    assert imported.records[0].step == decodes(3, 1)
    assert "below 6" in imported.skipped[0].reason


def test_a_worker_that_always_says_0_says_nothing(read):
    imported = read(
        message(load(0, 0, 0, 3, 3001)),
        message(load(0, 0, 0, 3, 3000), counter_id=2),
        message(load(0, 0, 0, 3, 3000), worker_id="v"),
    )
    silent, also, even = (record.step for record in imported.records)
    assert silent == StepTotals(decode_requests=3, decode_kv_tokens=3001)
    assert also == StepTotals(decode_requests=3, decode_kv_tokens=3000)
    assert even == decodes(3, 1000)
    assert any("worker 'w': reports every variance as 0" in told for told in imported.remarks)


def test_a_worker_that_reports_variances_cannot_have_equal_lengths_of_an_odd_sum(read):
    imported = read(
        message(load(0, 0, 0, 3, 3001)),
        message(load(0, 0, 0, 3, 3000, contexts=200.0), counter_id=2),
    )
    assert len(imported.records) == 1
    assert imported.skipped[0].reason.startswith("StepTotals.decode_kv_variance = 0.0")


def test_equal_prompts_do_not_prove_equal_chunks(read):
    [record] = read(message(load(2, 256, 256, 0, 0, prompts=0.0))).records
    assert isinstance(record.step, StepTotals)
    assert record.requests is None
