"""Expert parallelism from the shell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import inside

STEP = ("--decode", "64x4096", "--gpu", "b200", "--tp", "8", "--engine", "vllm")
SENT = ("--set", "expert_exchange=all_to_all", "--set", "shared_expert=replicated")


def answer(*arguments: str) -> Any:
    told = inside(*arguments, "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_groups_of_ranks_and_the_fullest():
    whole = answer("estimate", *STEP, "--ep", "8")
    assert whole["parallel"] == {"tp": 8, "ep": 8}
    assert answer("estimate", *STEP)["parallel"] == {"tp": 8}
    fuller = answer("estimate", *STEP, "--ep", "8", "--set", "expert_imbalance=2")
    assert fuller["latency_ms"] > whole["latency_ms"]
    assert fuller["policy_changed_fields"]["expert_imbalance"] == "2.0"


def test_an_exchange_operator_by_operator():
    document = answer("compare", *STEP, "--ep", "8", *SENT)
    names = {row["operator"] for row in document["operators"]}
    assert {"dispatch_rows", "combine_rows", "gather_expert_rows"} <= names
    kernels = answer("coverage", *STEP, "--ep", "8", *SENT)["kernels"]
    (sent,) = (one for one in kernels if one["operator"] == "dispatch_rows")
    assert sent["collector_case"].startswith("all_to_all library=vllm ranks=8 message_bytes=")
    experts = next(one for one in kernels if one["operator"] == "routed_experts")
    for size in ("tensor_parallel=1", "experts_routed=48", "experts_per_token=1"):
        assert size in experts["collector_case"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ep", "3"), "ep = 3 does not divide the 8 ranks"),
        (("--ep", "4", *SENT), "experts cut into slices"),
        (("--ep", "8", "--set", "expert_imbalance=0.5"), "number from 1 to 1000"),
        (("--ep", "8", "--set", "expert_imbalance=much"), "must be a number"),
    ],
)
def test_what_is_refused(options: tuple[str, ...], message: str):
    told = inside("estimate", *STEP, *options)
    assert told.returncode != 0
    assert message in " ".join(told.stderr.split())


def test_memory_of_an_exchange():
    step = ("capacity", "--gpu", "b200", "--tp", "8", "--ep", "8", "--engine", "vllm")
    assert "buffers of the all-to-all" not in inside(*step).stdout
    told = inside(*step, *SENT, "--set", "exchange_mib=512").stdout
    assert "buffers of the all-to-all" in told
    assert "exchange_mib=512" in told
