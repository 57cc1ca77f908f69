"""The cases are read as data: typed, complete, and refused by name where they are not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from aisim_v41 import resources
from aisim_v41.errors import SchemaError
from aisim_v41.reading import MAX_FILE_BYTES
from aisim_v41.validation.cases import CASES_FILE, Case, load_cases

DATA = resources.find("profiles", CASES_FILE, ".jsonl")


def first_line() -> dict[str, Any]:
    return json.loads(DATA.read_text().splitlines()[0])


def write(tmp_path: Path, *records: object) -> Path:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def test_every_case_is_read(cases: dict[str, Case]) -> None:
    assert len(cases) == 569


def test_the_data_is_the_file_that_its_note_describes() -> None:
    note = DATA.with_suffix(".md").read_text()
    assert hashlib.sha256(DATA.read_bytes()).hexdigest() in note


def test_fields_of_a_step(cases: dict[str, Case]) -> None:
    case = cases["rtxpro-step-512-c2"]
    (group,) = case.workload.step
    assert (group.new_tokens, group.prefix_tokens, group.kind, group.count) == (
        6,
        4608,
        "verify",
        2,
    )
    assert case.policy.speculation is not None
    assert case.policy.speculation.accept_length == 5.11
    assert (case.gpu, case.gpus, case.parallel.ep) == ("rtx_pro_6000", 4, 4)
    assert case.source == "rtxpro-step"


def test_fields_of_a_closed_loop(cases: dict[str, Case]) -> None:
    load = cases["mi355-fix-sgl-off-ttft-c8"].workload
    assert (load.prompt_tokens, load.output_tokens, load.new_tokens) == (4096, 1024, 4096)
    assert load.concurrency == 8


def test_nulls_stay_null(cases: dict[str, Case]) -> None:
    case = cases["gb300-39674-pr-step-c1"]
    assert case.policy.decoder_replay is None
    assert case.policy.engram is None
    assert case.take["engram"] == "hbm"
    assert cases["gb10-res-step-c8"].workload.step[0].prefix_tokens is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"case": None}, ["cases.jsonl:1", "case is missing"]),
        ({"gpus": "four"}, ["gpus = 'four'", "int"]),
        ({"gpus": -4}, ["gpus = -4", "negative"]),
        ({"gpus": True}, ["gpus = True"]),
        ({"measured": "58.6"}, ["measured = '58.6'", "float"]),
        ({"policy": []}, ["policy", "dict"]),
        ({"parallel": {"tp": 1.5}}, ["parallel", "tp = 1.5"]),
        ({"includes": [1]}, ["includes", "texts"]),
        ({"workload": {"kind": "step", "requests": [7]}}, ["requests[0]", "mapping"]),
        (
            {"workload": {"kind": "step", "requests": [{"new_tokens": 1, "kind": "train"}]}},
            ["kind = 'train'"],
        ),
    ],
)
def test_a_wrong_field_is_named(
    tmp_path: Path, change: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(SchemaError) as error:
        load_cases(write(tmp_path, first_line() | change))
    for word in words:
        assert word in str(error.value)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("{")
    with pytest.raises(SchemaError, match=r"cases\.jsonl:1: not JSON"):
        load_cases(path)


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="not a finite number"):
        load_cases(write(tmp_path, first_line() | {"measured": float("nan")}))


def test_a_name_counts_once(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=first_line()["case"]):
        load_cases(write(tmp_path, first_line(), first_line()))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(SchemaError, match="at most"):
        load_cases(path)
