"""``aisim-v41 speculate`` as a user calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import inside


def answer(*arguments: str) -> Any:
    done = inside("speculate", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments: str) -> str:
    done = inside("speculate", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_batch_and_a_published_length():
    document = answer("--gpu", "gb300", "--tp", "4", "--decode", "8x8k", "--accept", "3.51")
    rows = {row["schedule"]: row for row in document["schedules"]}
    assert rows["fixed 5"]["tokens_per_step"] == pytest.approx(8 * 3.51)
    assert rows["fixed 5"]["gain"] > 1.5
    named = answer("--decode", "8x8k", "--accept", "benchmark", "--schedule", "fixed")
    assert named["schedules"][-1] == rows["fixed 5"]
    told = inside("speculate", "--decode", "8x8k", "--accept", "gsm8k").stdout
    assert "by-batch" in told
    assert "2.82 tokens a step" in told


def test_vectors_and_one_acceptance_for_each_group():
    document = answer("--decode", "2x8k", "--acceptance", "0.9,0.8,0.7,0.6,0.5", "--decode", "2x1k",
                      "--acceptance", "0.2,0.2,0.2,0.2,0.2", "--schedule", "confident")  # fmt: skip
    (row,) = document["schedules"]
    assert sum(row["drafts"][:2]) > sum(row["drafts"][2:])


def test_batches_show_which_number_pays():
    document = answer("--decode", "8k", "--accept", "3.51", "--batches", "1, 32")
    assert [one["requests"][0]["count"] for one in document] == [1, 32]
    told = inside("speculate", "--decode", "8k", "--accept", "3.51", "--batches", "1,32").stdout
    assert "best fixed" in told


def test_mappings_of_requests_over_ranks():
    document = answer("--tp", "1", "--dp", "4", "--ep", "4", "--decode", "9x8k", "--accept", "3",
                      "--schedule", "fixed")  # fmt: skip
    assert document["gpus"] == 4
    assert document["schedules"][-1]["rows"] == 54


def test_the_context_of_a_profile():
    for context in ("8k", "512k"):
        document = answer("--decode", "4x64k", "--accept", "3", "--schedule", "profiled",
                          "--profile-context", context)  # fmt: skip
        assert document["schedules"][0]["schedule"] == "profiled"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decode", "8k"], "--accept 3.51"),
        (["--decode", "8k", "--accept", "3", "--acceptance", "0.5"], "--accept 3.51"),
        (["--decode", "8k", "--accept", "gsm8"], "nearest: gsm8k"),
        (["--decode", "8k", "--accept", "7"], "between 1 and 6"),
        (["--decode", "8k", "--acceptance", "0.5,x"], "must be a number"),
        (["--decode", "8k", "--acceptance", "0.5,1.5"], "probability"),
        (["--decode", "8k", "--acceptance", "0.5,0.5"], "set draft_tokens=2"),
        (["--decode", "8k", "--accept", "3", "--accept", "4"], "2 acceptances and 1"),
        (["--decode", "8k", "--accept", "3", "--schedule", "never"], "cap-accept"),
        (["--accept", "3"], "no requests"),
        (["--decode", "8k", "--accept", "3", "--batches", "0"], "no requests"),
        (["--decode", "8k", "--accept", "3", "--batches", "1,"], "whole number"),
        (["--decode", "8k", "--accept", "3", "--batches", "1", "--schedule", "off"], "no --sched"),
        (["--decode", "8k", "--decode", "9k", "--accept", "3", "--batches", "1"], "one kind of"),
        (["--decode", "8k", "--accept", "3", "--decoder-replay", "both"], "on or off"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(arguments: list[str], message: str):
    assert message in refused(*arguments)
