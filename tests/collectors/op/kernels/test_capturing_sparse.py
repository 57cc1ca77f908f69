"""What is timed can be captured in a graph: it waits for no value and copies none from the host."""

from __future__ import annotations

import pytest
import torch
from answers import inputs_of, prepared
from torch.utils._python_dispatch import TorchDispatchMode

NOT_IN_A_GRAPH = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "unique")
"""Calls that read a value back, whose result's size depends on values, or that copy from lists."""

CASES = (
    "compress_store rows=6 layout=bytes288",
    "kv_store rows=5 layout=bytes584",
    "index_key_store rows=5 key_format=fp8",
    "sparse_attention rows=4 heads=2 keys_per_row=140.5 layout=bytes288",
    "sparse_attention rows=4 heads=2 keys_per_row=140.5 layout=bytes584",
    "index_score rows=4 positions_per_row=30.5 rows_per_request=4",
    "index_score rows=3 positions_per_row=30 form=candidates key_format=fp8",
    "index_select rows=3 positions_per_row=30 top_k=9",
    "index_select_pool rows=3 positions_per_row=30 top_k=9 candidate_blocks=2",
)


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        self.names.add(str(function))
        return function(*arguments, **(named or {}))


def refused(run, inputs: tuple) -> list[str]:
    with _Calls() as calls:
        run(*inputs)
    return [name for name in calls.names if any(word in name for word in NOT_IN_A_GRAPH)]


@pytest.mark.parametrize("text", CASES)
def test_the_timed_call_can_be_captured(text: str):
    ready = prepared(text, "torch")
    inputs = inputs_of(ready)
    ready.run(*inputs)  # the harness checks the answer before it captures
    assert refused(ready.run, inputs) == []


def test_a_value_that_is_read_back_is_noticed():
    assert refused(lambda one: one * float(one.sum()), (torch.ones(2),)) != []
    assert refused(lambda one: one + torch.tensor([1.0]), (torch.ones(1),)) != []
