"""JSON of vllm bench latency: a step only with one output token."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.io import read_vllm_latency

SECONDS = [0.030, 0.031, 0.034]


def saved(folder: Path, twin: Any = None, **change: Any) -> Path:
    document = {"avg_latency": fmean(SECONDS), "latencies": SECONDS, "percentiles": {}, **change}
    (folder / "out.json").write_text(json.dumps(document))
    if twin is not None:
        (folder / "out.pytorch.json").write_text(json.dumps(twin))
    return folder / "out.json"


def twin(seconds: list[float] = SECONDS, **arguments: Any) -> list[dict[str, Any]]:
    sizes = {"input_len": 512, "output_len": 1, "batch_size": 4, "n": 1, **arguments}
    return [
        {
            "benchmark": {"name": "vLLM benchmark", "extra_info": {"args": sizes}},
            "metric": {"name": "latency", "benchmark_values": seconds},
        }
    ]


def test_a_call_of_one_token_is_a_prefill(tmp_path: Path):
    arguments = {"model": "m", "tensor_parallel_size": 4, "enforce_eager": True}
    imported = read_vllm_latency(saved(tmp_path, twin(max_num_batched_tokens=8192, **arguments)))
    [record] = imported.records
    assert record.step == (Request(new_tokens=512, count=4),)
    assert record.latency_ms == pytest.approx(31.0)
    assert record.samples_ms == pytest.approx((30.0, 31.0, 34.0))
    assert record.samples == 3
    assert (record.run, record.point) == ("out", "4 requests of 512 + 1 tokens")
    assert imported.build_hints == {
        "engine": "vllm", "timer": "other", "checkpoint": "m", "tp": 4,
        "settings.enforce_eager": True,
    }  # fmt: skip
    assert len(imported.remarks) == 1


def test_what_the_engine_takes_at_once_may_not_be_said(tmp_path: Path):
    imported = read_vllm_latency(saved(tmp_path), input_len=512, output_len=1, batch_size=4)
    assert imported.records[0].step == (Request(new_tokens=512, count=4),)
    assert "only if the engine takes 2048 tokens at once" in imported.remarks[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"output_len": 128}, "a call generates 128 tokens a request: 128 steps"),
        ({"use_beam_search": True}, "beam search"),
        ({"n": 2}, "beam search, or several sequences a prompt"),
        ({"enable_prefix_caching": True}, "prefix caching was on"),
        ({"max_num_batched_tokens": 2047}, "2048 tokens in steps of at most 2047: several steps"),
        ({"max_num_seqs": 3}, "4 requests in steps of at most 3: several steps"),
    ],
)
def test_other_calls_are_no_step(tmp_path: Path, arguments, reason):
    imported = read_vllm_latency(saved(tmp_path, twin(**arguments)))
    assert imported.records == ()
    [entry] = imported.skipped
    assert entry.reason.startswith(reason)
    [remark] = imported.remarks
    assert remark.startswith("whole calls: 4 requests of 512 + ")
    assert remark.endswith(" tokens: 3 calls, median 31 ms")


def test_arguments_that_the_twin_contradicts(tmp_path: Path):
    file = saved(tmp_path, twin())
    assert len(read_vllm_latency(file, input_len=512, batch_size=4).records) == 1
    with pytest.raises(InvalidInputError, match=r"input_len = 64, but out\.pytorch\.json .* 512"):
        read_vllm_latency(file, input_len=64)


def test_without_a_twin_the_sizes_are_arguments(tmp_path: Path):
    with pytest.raises(InvalidInputError, match=r"output_len not known.*out\.pytorch\.json"):
        read_vllm_latency(saved(tmp_path), input_len=512, batch_size=4)
    with pytest.raises(InvalidInputError, match="batch_size = 0"):
        read_vllm_latency(saved(tmp_path), input_len=512, output_len=1, batch_size=0)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (twin([0.030, 0.031, 0.035]), "benchmark_values are not the latencies of out.json"),
        (twin(input_len="512"), "input_len = '512'"),
        ([], "must be a list of benchmark records"),
        ({}, "must be a list of benchmark records"),
        ([{"metric": []}], "metric = []: must be a mapping"),
    ],
)
def test_a_twin_of_another_file(tmp_path: Path, other, told):
    with pytest.raises(SchemaError, match=r"out\.pytorch\.json: ") as caught:
        read_vllm_latency(saved(tmp_path, other))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"avg_latency": 31.67}, "avg_latency = 31.67, but the mean of latencies is 0.0316667"),
        ({"latencies": []}, "must be times above 0"),
        ({"latencies": [0.0]}, "must be times above 0"),
        ({"latencies": ["1"]}, "latencies = '1': must be a number"),
        ({"latencies": {}}, "latencies = {}: must be a list"),
    ],
)
def test_times_that_contradict_each_other(tmp_path: Path, change, told):
    with pytest.raises(SchemaError, match=r"out\.json: ") as caught:
        read_vllm_latency(saved(tmp_path, twin(), **change))
    assert told in str(caught.value)


def test_another_file(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"a": 1}')
    with pytest.raises(SchemaError, match="not a result of vllm bench latency"):
        read_vllm_latency(tmp_path / "a.json")
    with pytest.raises(MissingProfileError):
        read_vllm_latency(tmp_path / "none.json")
