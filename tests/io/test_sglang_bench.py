"""Lines of SGLang's bench_one_batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError, SchemaError
from aisim_v41.io import Imported, read_sglang_bench
from tests.io.files import json_lines


def line(batch: int = 4, length: int = 1024, output: int = 17, **more: Any) -> dict[str, Any]:
    prefill, decode = 0.050, 0.010
    return {
        "run_name": "sweep", "batch_size": batch, "input_len": length, "output_len": output,
        "prefill_latency": prefill, "prefill_throughput": batch * length / prefill,
        "median_decode_latency": decode, "median_decode_throughput": batch / decode,
        "total_latency": prefill + (output - 1) * decode, **more,
    }  # fmt: skip


@pytest.fixture
def read(tmp_path: Path):
    def made(*rows: Any, **options: Any) -> Imported:
        return read_sglang_bench(json_lines(tmp_path / "out.jsonl", rows), **options)

    return made


def test_a_line_is_a_prefill_and_the_decode_in_the_middle(read):
    prefill, decode = read(line()).records
    assert prefill.step == (Request(new_tokens=1024, count=4),)
    assert (prefill.latency_ms, prefill.samples, prefill.order) == (50.0, 1, 0)
    # 16 steps over 1024 ... 1039 tokens: the median lies between 1031 and 1032.
    assert decode.step == (Request(new_tokens=1, prefix_tokens=1031, kind="decode", count=4),)
    assert (decode.latency_ms, decode.samples, decode.order) == (10.0, 16, 1)
    assert (prefill.note, decode.note) == ("", "median over growing contexts")
    assert decode.point == "decode, batch 4, input 1024, output 17"
    assert (prefill.run, prefill.source) == ("sweep", "out.jsonl:1")


@pytest.mark.parametrize(("output", "prefix"), [(2, 100), (3, 100), (4, 101), (32, 115)])
def test_the_middle_of_a_life(read, output: int, prefix: int):
    """Steps read 100 ... 100 + output - 2 tokens."""
    decode = read(line(length=100, output=output)).records[1]
    assert decode.step[0].prefix_tokens == prefix
    assert 100 <= prefix <= 100 + output - 2


def test_one_output_token_has_no_decode(read):
    row = line(output=1)
    assert len(read(row).records) == 1
    del row["median_decode_latency"]
    assert len(read(row).records) == 1


def test_the_same_batch_again_is_another_invocation(read):
    imported = read(line(), line(batch=8), line(), line(batch=8), line(batch=16))
    assert [record.run for record in imported.records] == ["sweep"] * 4 + ["sweep#2"] * 6
    assert [record.order for record in imported.records] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert "run 'sweep' has the same batch again: 2 invocations" in imported.remarks
    named = read(line(), run="monday", regime="cold").records[0]
    assert (named.run, named.regime) == ("monday", "cold")


def test_a_given_name_tells_invocations_apart(read):
    imported = read(line(), line(), line(run_name="other"), run="monday")
    assert [record.run for record in imported.records] == [
        "monday", "monday", "monday#2", "monday#2", "monday#3", "monday#3",
    ]  # fmt: skip
    assert [record.order for record in imported.records] == [0, 1] * 3


def test_arguments_that_are_no_path(read):
    with pytest.raises(InvalidInputError, match="engine_args = 5: must be the path of a file"):
        read(line(), engine_args=5)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (line(run_name="warmup"), "warm-up (run_name 'warmup')"),
        (line(prefill_latency=50.0), "prefill_latency = 50 s and prefill_throughput = 81920/s"),
        (line(median_decode_latency=10.0), "median_decode_latency = 10 s"),
        (line(prefill_latency=0), "prefill_latency = 0 s"),
        (line(prefill_latency=-0.05), "prefill_latency = -0.05 s"),
        (line(total_latency=0.01), "total_latency below prefill_latency"),
        (line(batch=0), "batch_size = 0: must be a whole number from 1"),
        (line(input_len="1024"), "input_len = '1024'"),
        (line(output_len=None), "output_len = absent"),
        ({"latency": 1.0, "batch_size": 1}, "a result of bench_one_batch_server"),
        ({"a": 1}, "no prefill_latency: not a result of bench_one_batch"),
        ("[]", "not a JSON object"),
    ],
)
def test_what_is_no_step_is_skipped_with_the_reason(read, row, reason):
    imported = read(row, line())
    assert len(imported.records) == 2
    [entry] = imported.skipped
    assert entry.place == "out.jsonl:1"
    assert entry.reason.startswith(reason)


def test_the_arguments_of_the_engine_come_from_a_file_beside(read, tmp_path: Path):
    assert any("engine_args" in remark for remark in read(line()).remarks)
    arguments = tmp_path / "arguments.yaml"
    arguments.write_text("model_path: m\ntp_size: 4\ndisable_cuda_graph: true\nlist: [1]\n")
    imported = read(line(), engine_args=arguments)
    assert imported.build_hints == {
        "engine": "sglang", "timer": "sync_wall", "checkpoint": "m", "tp": 4,
        "settings.disable_cuda_graph": True,
    }  # fmt: skip
    assert not any("engine_args" in remark for remark in imported.remarks)


def test_a_file_without_results(read):
    with pytest.raises(SchemaError, match=r"no result of bench_one_batch; out\.jsonl:1: no pref"):
        read({"a": 1})
    assert read(line(run_name="warm-up")).records == ()
