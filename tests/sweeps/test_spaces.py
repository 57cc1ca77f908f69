"""What is a space and what is none."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.sweeps.space import read_space
from tests.sweeps.cases import same


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({}, "no section 'hardware'"),
        ({"hardware": "gb300"}, "no section 'requests'"),
        ({"hardware": "gb300", "requests": {"new_tokens": 1}, "tp": 4}, "'tp' is no section"),
        ({"hardware": "gb301", "requests": {"new_tokens": 1}}, "gb300"),
        ({"hardware": "gb300", "requests": {}}, "no new_tokens"),
        ({"hardware": "gb300", "requests": []}, "empty list"),
        ({"hardware": [], "requests": {"new_tokens": 1}}, "empty list"),
        ({"hardware": "gb300", "requests": {"new_token": 1}}, "new_tokens"),
        ({"hardware": "gb300", "requests": {"new_tokens": 1.5}}, "whole number"),
        ({"hardware": "gb300", "requests": {"new_tokens": -1}}, "whole number"),
        ({"hardware": "gb300", "requests": {"new_tokens": 1, "kind": "decoding"}}, "decode"),
        ({"hardware": "gb300", "requests": {"new_tokens": 1, "prompt_logprobs": 1}}, "true or"),
        ({"hardware": "gb300", "requests": [{"new_tokens": 1}, {"new_tokens": 2}]}, "a name each"),
        ({"hardware": "gb300", "requests": [{"name": "a", "new_tokens": 1}] * 2}, "one name"),
        ({"hardware": "gb300", "requests": {"table": []}}, "holds no row"),
        ({"hardware": "gb300", "requests": {"table": [{"tokens": 3}]}}, "'tokens'"),
        ({"hardware": "gb300", "requests": {"table": [{"new_tokens": 1.5}]}}, "row 0"),
        ({"hardware": "gb300", "requests": {"table": [{"new_tokens": 1}], "new_tokens": 2}},
         "beside it"),
        ({"hardware": "gb300", "requests": {"table": "no-such.csv"}}, "no such file"),
        ({"hardware": {"hbm_bytes": 5}, "requests": {"new_tokens": 1}}, "name of a GPU"),
        ({"hardware": {"name": "gb300", "hbm": 5}, "requests": {"new_tokens": 1}}, "hardware.hbm"),
        ({"hardware": {"name": "gb300", "hbm_bytes": {"times": [0]}},
          "requests": {"new_tokens": 1}}, "above 0"),
        ({"hardware": {"name": "gb300", "peak_flop_per_s": 5}, "requests": {"new_tokens": 1}},
         "factors"),
        ({"hardware": "gb300", "parallel": {"tps": 4}, "requests": {"new_tokens": 1}}, "tp"),
        ({"hardware": "gb300", "parallel": 4, "requests": {"new_tokens": 1}}, "mapping"),
        ({"hardware": "gb300", "policy": "sglan", "requests": {"new_tokens": 1}}, "sglang"),
        ({"hardware": "gb300", "policy": {"replay": True}, "requests": {"new_tokens": 1}},
         "policy.replay"),
        ({"hardware": "gb300", "method": "best", "requests": {"new_tokens": 1}}, "sol"),
        ({"hardware": "gb300", "memory": 1, "requests": {"new_tokens": 1}}, "memory"),
        ({"hardware": "gb300", "requests": {"new_tokens": 1}, "where": "gpu == 'x'"}, "gpus"),
        ({"hardware": "gb300", "requests": {"new_tokens": 1}, "where": 5}, "where"),
        *(
            ({"hardware": "gb300", "requests": {"table": rows}}, words)
            for rows, words in (
                ([{"new_tokens": 5}, {"new_tokens": "x"}], "row 1: new_tokens = 'x'"),
                ([{"new_tokens": True}], "whole number"),
                ([{"new_tokens": 10**30}], "whole number"),
                ([{"new_tokens": 5}, {"new_tokens": 1 << 63}], "row 1"),
                ([{"new_tokens": 5}, {"new_tokens": float("inf")}], "row 1: new_tokens = inf"),
                ([{"new_tokens": 5, "kind": datetime(2026, 12, 1)}], "must be a text"),
                ([{"new_tokens": 5, "kind": b"x"}], "must be a text"),
                ([{"new_tokens": 5, "prompt_logprobs": True},
                  {"new_tokens": 5, "prompt_logprobs": "yes"}], "row 1: prompt_logprobs"),
            )
        ),
        (5, "mapping or a path"),
        ("no-such-space.yaml", "no such file"),
    ],
)  # fmt: skip
def test_bad_spaces_are_typed_errors(given_: Any, words: str):
    with pytest.raises(aisim.AisimError) as error:
        aisim.sweep(given_)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"jobs": 0},
        {"jobs": 1.5},
        {"part_points": 0},
        {"part_points": "7"},
        {"backend": "nobody"},
        {"backend": 5},
        {"backend": ["loky"]},
        {"folder": 5},
        {"folder": b"x"},
        {"folder": ""},
        {"folder": "x\0y"},
    ],
)
def test_bad_arguments_are_typed_errors(arguments: dict[str, Any]):
    with pytest.raises(aisim.InvalidInputError, match=next(iter(arguments))):
        aisim.sweep({"hardware": "gb300", "requests": {"new_tokens": 1}}, **arguments)


def test_a_file_says_what_a_mapping_says(tmp_path: Path):
    (tmp_path / "plans.csv").write_text("new_tokens,prefix_tokens\n5,0\n7,512\n")
    text = (
        f"hardware: gb300\nmethod: sol\nrequests:\n  table: {tmp_path / 'plans.csv'}\n"
        "  count: [1, 2]\n"
    )
    (tmp_path / "space.yaml").write_text(text)
    found = aisim.sweep(tmp_path / "space.yaml").frame()
    plans = pd.DataFrame({"new_tokens": [5, 7], "prefix_tokens": [0, 512]})
    other = aisim.sweep({"hardware": "gb300", "method": "sol",
                         "requests": {"table": plans, "count": [1, 2]}}).frame()  # fmt: skip
    same(found, other)
    assert found[["new_tokens", "count"]].to_numpy().tolist() == [[5, 1], [5, 2], [7, 1], [7, 2]]
    plain_frame = aisim.sweep({"hardware": "gb300", "method": "sol", "requests": plans}).frame()
    assert plain_frame["latency_ms"].tolist() == found[found["count"] == 1]["latency_ms"].tolist()


def test_hardware_may_be_as_fast_as_one_likes_to_write():
    rates = [10**30, 10**400, 8.0e12]
    found = aisim.sweep({
        "hardware": {"name": "gb300", "hbm_bandwidth_bytes_per_s": rates}, "method": "sol",
        "requests": {"new_tokens": 1},
    }).frame()  # fmt: skip
    assert found["status"].tolist() == ["ok", "refused", "ok"]
    assert found["latency_ms"][0] < found["latency_ms"][2]
    assert "finite" in found["reason"][1]


NAMES = st.sampled_from(
    ["hardware", "requests", "parallel", "policy", "method", "where", "model", "memory", "tp",
     "new_tokens", "name", "table", "range", "log", "points", "step", "times"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.sampled_from(["gb300", "sol", "x"]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(NAMES, TREES, max_size=5))
def test_whatever_is_given_is_a_space_or_a_typed_error(tree: dict[str, Any]):
    try:
        space = read_space({"hardware": "gb300", "requests": {"new_tokens": 1}} | tree)
    except aisim.AisimError:
        return
    assert space.points >= 1
