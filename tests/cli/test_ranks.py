"""``--dp`` and ``--cp`` as a user gives them."""

from __future__ import annotations

import json

from tests.cli.conftest import inside


def document(*arguments: str) -> dict:
    done = inside(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_data_parallel_ranks():
    answer = document("estimate", "--decode", "30x8k", "--tp", "2", "--dp", "4", "--method", "sol",
                      "--engine", "sglang", "--decoder-replay", "off")  # fmt: skip
    assert answer["parallel"] == {"tp": 2, "dp": 4}
    assert answer["rank"] == 0  # eight requests, seven on the last two
    told = inside("estimate", "--decode", "30x8k", "--tp", "2", "--dp", "4", "--method", "sol",
                  "--engine", "sglang", "--decoder-replay", "off").stdout  # fmt: skip
    assert "8 x gb300" in told
    assert "the step waits for rank 0" in told


def test_context_parallel_ranks():
    rows = document("ledger", "--prefill", "8192", "--cp", "4", "--engine", "sglang")["rows"]
    late = [row for row in rows if row["layer"] == 30]
    assert [(row["rank"], row["query_rows"]) for row in late] == [(r, 32) for r in range(4)]
    refused = inside("estimate", "--prefill", "8k", "--tp", "2", "--cp", "2")
    assert refused.returncode == 2
    assert "Parallel.cp = 2 with tp = 2" in refused.stderr


def test_capacity_of_ranks():
    answer = document("capacity", "--tp", "2", "--dp", "2", "--requests", "10")
    assert answer["parallel"] == {"tp": 2, "ep": 1, "dp": 2, "cp": 1, "pp": 1}
    assert answer["replica_tokens"] == 2 * answer["tokens"]
    refused = inside("capacity", "--tp", "2", "--cp", "2")
    assert refused.returncode == 2
    assert "Parallel.cp = 2 with tp = 2" in refused.stderr
