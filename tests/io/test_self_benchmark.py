"""Rank files of Dynamo's self-benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.forwards.records import StepTotals
from aisim_v41.io import read_self_benchmark
from aisim_v41.io.self_benchmark import SYNTHETIC
from tests.io.files import load, measured, message, point, rank_file

REAL = {"sample_reasons": ["capture", "kvwarm_real_kv"]}
FAKE = {"sample_reasons": ["kvwarm_fake_fallback"]}
WARM = {"kvwarm": {"enabled": True, "warm_eligible": True, "skip_reason": None}}
PREFILL = measured(point(1, "prefill", 2, 512, 0), 0.030)
HIT = measured(point(2, "prefill", 1, 64, 128), 0.020)
DECODE = measured(point(3, "decode", 4, 0, 4096, **REAL), 0.010)
RESULTS = [PREFILL, HIT, DECODE]


def saved(folder: Path, results=RESULTS, name: str = "benchmark.json", **more) -> Path:
    return rank_file(folder / name, results, **{**WARM, **more})


def test_points_become_requests_in_the_order_in_which_they_ran(tmp_path: Path):
    imported = read_self_benchmark(saved(tmp_path))
    assert imported.skipped == ()
    assert [record.step for record in imported.records] == [
        (Request(new_tokens=256, count=2),),
        (Request(new_tokens=64, prefix_tokens=128),),
        (Request(new_tokens=1, prefix_tokens=1024, kind="decode", count=4),),
    ]
    assert [record.latency_ms for record in imported.records] == [30.0, 20.0, 10.0]
    assert [record.order for record in imported.records] == [0, 1, 2]
    assert [record.point for record in imported.records] == ["prefill-1", "prefill-2", "decode-3"]
    assert {record.run for record in imported.records} == {"run-1"}
    assert imported.records[2].source == "benchmark.json: results[2]"
    assert imported.build_hints == {"timer": "scheduler_wall"}


def test_the_current_token_may_be_counted(tmp_path: Path):
    imported = read_self_benchmark(saved(tmp_path), kv_includes_current=True)
    assert imported.records[2].step == (
        Request(new_tokens=1, prefix_tokens=1023, kind="decode", count=4),
    )


@pytest.mark.parametrize(
    ("marks", "envelope", "why"),
    [
        (FAKE, WARM, "kvwarm_fake_fallback"),
        ({}, WARM, "no kvwarm"),
        (REAL, {"kvwarm": None}, "no kvwarm"),
        (REAL, {"kvwarm": {"warm_eligible": False, "skip_reason": "off"}}, "no kvwarm"),
    ],
)
def test_decodes_over_kv_that_no_model_computed_are_skipped_or_marked(
    tmp_path: Path, marks, envelope, why
):
    decode = measured(point(1, "decode", 4, 0, 4096, **marks), 0.010)
    file = saved(tmp_path, [decode], **envelope)
    imported = read_self_benchmark(file)
    assert imported.records == ()
    [entry] = imported.skipped
    assert entry.reason == f"the KV that it reads was allocated, not computed ({why})"
    [record] = read_self_benchmark(file, fake_kv="mark", regime="monday").records
    assert record.regime == "fake_kv"
    assert record.note == f"graph NONE; {entry.reason}"


@pytest.mark.parametrize("word", ["real_kv", "real_prefix"])
def test_a_result_may_say_itself_that_its_kv_was_computed(tmp_path: Path, word: str):
    decode = measured(point(1, "decode", 4, 0, 4096), 0.010, kv_seed_regime=word)
    assert len(read_self_benchmark(saved(tmp_path, [decode], kvwarm=None)).records) == 1
    hit = measured(point(1, "prefill", 1, 64, 128), 0.01, kv_seed_regime="fake_fallback")
    assert read_self_benchmark(saved(tmp_path, [hit])).records == ()


@pytest.mark.parametrize("computed", [0, 1])
def test_kv_that_one_rank_only_allocated_is_not_real(tmp_path: Path, computed: int):
    for rank in (0, 1):
        word = "real_kv" if rank == computed else "fake_fallback"
        decode = measured(point(1, "decode", 4, 0, 4096), 0.010, kv_seed_regime=word)
        saved(tmp_path, [decode], f"benchmark_{rank}.json", rank=rank, ranks=2)
    imported = read_self_benchmark(tmp_path)
    assert imported.records == ()
    assert "allocated, not computed (fake_fallback)" in imported.skipped[0].reason


def test_a_word_is_no_answer_to_yes_or_no(tmp_path: Path):
    for word in ("no", "false", 0, 1, None):
        with pytest.raises(InvalidInputError, match="kv_includes_current = "):
            read_self_benchmark(saved(tmp_path), kv_includes_current=word)


def test_the_shortest_contexts(tmp_path: Path):
    decode = measured(point(1, "decode", 4, 0, 4, **REAL), 0.010)
    file = saved(tmp_path, [decode], iteration_groups=[7, {"benchmark_id": "1"}])
    [record] = read_self_benchmark(file).records
    assert record.step == (Request(new_tokens=1, prefix_tokens=1, kind="decode", count=4),)
    [entry] = read_self_benchmark(file, kv_includes_current=True).skipped
    assert entry.reason == "total_kv_read_tokens = 4: below 8, 4 decodes"


def test_prefixes_of_a_batch_need_a_block_size(tmp_path: Path):
    file = saved(tmp_path, [measured(point(1, "prefill", 2, 96, 48), 0.01)])
    [record] = read_self_benchmark(file).records
    assert isinstance(record.step, StepTotals)
    [record] = read_self_benchmark(file, block_tokens=16).records
    assert record.step == (
        Request(new_tokens=48, prefix_tokens=32),
        Request(new_tokens=48, prefix_tokens=16),
    )
    with pytest.raises(InvalidInputError, match="block_tokens = 0"):
        read_self_benchmark(file, block_tokens=0)


def test_the_slowest_rank_counts(tmp_path: Path):
    slow = [{**result, "fpms": [{**result["fpms"][0], "wall_time": 0.040}]} for result in RESULTS]
    groups = [
        {"benchmark_id": 1, "complete": True, "wall_time": 0.040},
        {"benchmark_id": 2, "complete": True, "wall_time": 0.050},
        {"benchmark_id": 3, "complete": False, "wall_time": 0.040},
    ]
    saved(tmp_path, name="pod-0/benchmark.json", ranks=2, iteration_groups=groups)
    saved(tmp_path, slow, "pod-1/benchmark_dp1.json", rank=1, ranks=2, iteration_groups=groups)
    imported = read_self_benchmark(tmp_path)
    [record] = imported.records
    assert (record.latency_ms, record.step) == (40.0, (Request(new_tokens=256, count=2),))
    assert [entry.reason for entry in imported.skipped] == [
        "iteration group: wall_time 0.05 s, but the slowest rank took 0.04 s",
        "its iteration group is not complete",
    ]
    assert imported.build_hints["dp"] == 2


def test_merged_files_are_skipped(tmp_path: Path):
    saved(tmp_path)
    saved(tmp_path, name="benchmark_x.json", artifact_type="merged")
    saved(tmp_path, name="benchmark_merged.json")
    imported = read_self_benchmark(tmp_path)
    assert len(imported.records) == 3
    assert [entry.place for entry in imported.skipped] == [
        "benchmark_merged.json",
        "benchmark_x.json",
    ]
    (tmp_path / "benchmark.json").unlink()
    with pytest.raises(SchemaError, match="only merged files"):
        read_self_benchmark(tmp_path)


def test_runs_in_one_folder_stay_apart(tmp_path: Path):
    saved(tmp_path, name="a/benchmark.json", run_id="run-a")
    saved(tmp_path, name="b/benchmark.json", run_id="run-b")
    assert [r.run for r in read_self_benchmark(tmp_path).records] == ["run-a"] * 3 + ["run-b"] * 3


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({"producer": {"vllm_package_version": "0.9"}},
         {"producer": {"vllm_package_version": "0.10"}}, "engine_build is '0.9' and '0.10'"),
        ({"execution_mode": "eager"}, {}, "settings.execution_mode is 'eager' and None"),
        ({"execution_identity": {"input_modality": "text"}},
         {"execution_identity": {"input_modality": "image"}}, "modality is 'text' and 'image'"),
    ],
)  # fmt: skip
def test_runs_of_two_builds_are_never_read_as_one(tmp_path: Path, one, other, told):
    saved(tmp_path, name="a/benchmark.json", run_id="run-a", **one)
    saved(tmp_path, name="b/benchmark.json", run_id="run-b", **other)
    with pytest.raises(SchemaError, match=r"a/benchmark\.json and b/benchmark\.json: ") as caught:
        read_self_benchmark(tmp_path)
    assert told in str(caught.value)


def test_ranks_of_one_run_are_of_one_build(tmp_path: Path):
    for rank, version in ((0, "0.9"), (1, "0.10")):
        saved(tmp_path, name=f"benchmark_{rank}.json", rank=rank, ranks=2,
              producer={"vllm_package_version": version})  # fmt: skip
    with pytest.raises(SchemaError, match=r"engine_build is '0\.9' and '0\.10'"):
        read_self_benchmark(tmp_path)


def test_runs_of_one_rank_and_of_two_are_never_read_as_one(tmp_path: Path):
    saved(tmp_path, name="a/benchmark.json", run_id="run-a")
    for rank in (0, 1):
        saved(tmp_path, name=f"b/benchmark_{rank}.json", run_id="run-b", rank=rank, ranks=2)
    with pytest.raises(SchemaError, match="dp is None and 2"):
        read_self_benchmark(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"grid_digest": "other"}, "disagree on grid_digest: 'grid' and 'other'"),
        ({"ranks": 3}, "disagree on dp.size: 2 and 3"),
        ({"results": [PREFILL]}, "disagree on points"),
        ({"kvwarm": None}, "disagree on kvwarm"),
        ({"iteration_groups": [{"benchmark_id": 1}]}, "disagree on iteration_groups"),
        ({"rank": 0}, "found files of ranks 0, 0"),
        ({"run_id": "other"}, "run 'run-1' has 2 ranks, found files of ranks 0"),
    ],
)
def test_ranks_that_are_not_of_one_run_are_refused(tmp_path: Path, change, told):
    saved(tmp_path, name="benchmark_0.json", ranks=2)
    change = {"rank": 1, "ranks": 2, **change}
    saved(tmp_path, change.pop("results", RESULTS), "benchmark_1.json", **change)
    with pytest.raises(SchemaError, match=r"benchmark_0\.json") as caught:
        read_self_benchmark(tmp_path)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema_version": 1}, "schema_version 1, artifact_type 'rank'"),
        ({"artifact_type": "plan"}, "artifact_type 'plan'"),
        ({"status": "failed"}, "status 'failed'"),
        ({"usable": False}, "usable False"),
        ({"valid": False}, "valid False"),
        ({"timing_valid": False}, "timing_valid False"),
        ({"error": "boom"}, "error 'boom'"),
        ({"run_id": ""}, "run_id is empty"),
        ({"grid_digest": None}, "grid_digest = absent: must be text"),
        ({"dp": {"rank": 0, "size": 0}}, "size = 0"),
        ({"dp": {"rank": 0, "size": 1 << 40}}, "has 1099511627776 ranks, found files of ranks 0"),
        ({"coverage": {"completed_points": 9}}, "completed_points = 9, but 3 results"),
        ({"results": {}}, "results = {}: must be a list"),
        ({"results": [7], "coverage": {}}, "results: 7 must be a mapping"),
        ({"results": [{"point": {"point_type": "decode"}}], "coverage": {}},
         "a point without benchmark_id, batch_size, total_prefill_tokens, total_kv_read_tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, change, told):
    with pytest.raises(SchemaError, match=r"benchmark\.json: ") as caught:
        read_self_benchmark(saved(tmp_path, **change))
    assert told in str(caught.value)


def test_points_that_went_wrong_are_listed(tmp_path: Path):
    entry = point(1, "prefill", 2, 512, 0)
    other = [message(load(2, 511, 0, 0, 0))]
    zero = [message(load(2, 512, 0, 0, 0), 0.0)]
    results = [
        {"point": entry, "fpms": other},
        {"point": entry, "fpms": []},
        {"point": entry, "fpms": zero},
        {"point": point(4, "mixed", 2, 512, 0), "fpms": other},
        measured(point(5, "prefill", 2, 1, 0), 0.01),
        measured(point(6, "decode", 4, 0, 3, **REAL), 0.01),
        measured(point(7, "prefill", 1, 8, 0, sample_reasons=["eager_warmup"]), 0.01),
    ]
    imported = read_self_benchmark(
        saved(tmp_path, results, warmup_results=[{"point": point(8, "prefill", 1, 8, 0)}])
    )
    assert imported.records == ()
    assert [entry.reason for entry in imported.skipped] == [
        "ran 2 prefills of 511 tokens after 0, which is not the point's load",
        "0 forward pass messages; a point has one",
        "wall_time = 0 s",
        "ran 2 prefills of 511 tokens after 0, which is not the point's load",
        "total_prefill_tokens = 1: must be a whole number from 2 to 1099511627776",
        "total_kv_read_tokens = 3: below 4, 4 decodes",
        "warm-up (eager_warmup)",
        "warm-up (prefill-8)",
    ]
    assert imported.skipped[-1].place == "benchmark.json: warmup_results[0]"


def test_what_the_benchmark_skipped_is_missing(tmp_path: Path):
    skipped = [{"point": point(4, "decode", 8, 0, 8192), "reason": "kv_exhausted"}, 7]
    imported = read_self_benchmark(
        saved(
            tmp_path, status="partial", valid=False, stop_reason="timeout", skipped_points=skipped
        )
    )
    record = imported.records[-1]
    assert (record.status, record.latency_ms) == ("missing", None)
    assert record.step == (Request(new_tokens=1, prefix_tokens=1024, kind="decode", count=8),)
    assert record.note == "skipped by the benchmark: 'kv_exhausted'"
    assert imported.remarks == ("run 'run-1' stopped early: 'timeout'", SYNTHETIC)
    assert [entry.place for entry in imported.skipped] == ["benchmark.json: skipped_points[1]"]


def test_what_the_file_says_of_the_build(tmp_path: Path):
    file = saved(tmp_path, execution_mode="eager", producer={"vllm_package_version": "0.30.0"},
                 execution_identity={"input_modality": "text"})  # fmt: skip
    assert read_self_benchmark(file, timer="gpu_events").build_hints == {
        "timer": "gpu_events", "engine": "vllm", "engine_build": "0.30.0", "modality": "text",
        "settings.execution_mode": "eager",
    }  # fmt: skip


def test_prompts_are_one_token_repeated_unless_said_otherwise(tmp_path: Path):
    assert read_self_benchmark(saved(tmp_path)).remarks == (SYNTHETIC,)
    text = {"source": "tokenizer_text"}
    assert read_self_benchmark(saved(tmp_path, input_provenance=text)).remarks == ()


def test_folders_without_such_files(tmp_path: Path):
    with pytest.raises(MissingProfileError, match=r"no file benchmark\*\.json"):
        read_self_benchmark(tmp_path)
    (tmp_path / "benchmark.json").write_text(json.dumps([1]))
    with pytest.raises(SchemaError, match=r"benchmark\.json: the top level must be a mapping"):
        read_self_benchmark(tmp_path)
