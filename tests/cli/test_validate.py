"""``aisim-v41 validate``: the report of some sources as text and as JSON."""

from __future__ import annotations

import json

from tests.cli.test_shell import shell


def test_text_of_one_source():
    told = shell("validate", "--source", "gb300-39674")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("SOL is a floor: 2 of 2 cases checked, 0 below a bound\n")
    assert "data-centre GPUs, steps + prefills + ratios: median |error|" in told.stdout
    assert "native 16-head attention" not in told.stdout
    listed = shell("validate", "--source", "gb300-39674", "--cases").stdout
    assert listed.startswith(told.stdout.rstrip("\n"))
    assert "native 16-head attention" in listed


def test_json_of_one_source():
    told = shell("validate", "--source", "gb10-sglang", "--json")
    answer = json.loads(told.stdout)
    assert answer["ok"] is True
    assert answer["op_headline"] is None
    assert answer["op_bands"] is None
    assert {error["class"] for error in answer["op_errors"]} == {"capacity"}
    assert all(error["low"] is None for error in answer["op_errors"])
    assert all("layout sglang_v4" in error["assumptions"] for error in answer["op_errors"])


def test_what_stands_apart_alone_has_no_headline():
    seen = shell("validate", "--source", "mi355-moe").stdout
    assert "no measurement that counts" in seen
    assert "kernel rows that laws were made from" in seen
    unpredicted = shell("validate", "--source", "gb300-serve")
    assert unpredicted.returncode == 0
    assert "no case of that source can be predicted" in unpredicted.stdout


def test_json_has_both_lines_under_the_title():
    answer = json.loads(shell("validate", "--source", "gb300-39674", "--json").stdout)
    assert answer["op_headline"]["cases"] == 2
    assert answer["op_bands"]["cases"] == 2
    assert 0 <= answer["op_bands"]["contained"] <= 1


def test_a_source_that_does_not_exist_is_one_line():
    told = shell("validate", "--source", "gb300-39675")
    assert told.returncode == 2
    assert told.stdout == ""
    assert "gb300-39674" in told.stderr
    assert told.stderr.count("\n") == 1
