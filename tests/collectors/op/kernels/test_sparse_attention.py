"""Sparse attention: both ways against FP64, by hand, and what the inputs look like."""

from __future__ import annotations

import math

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.errors import InputError, UnavailableError
from collectors.op.kernels import attention
from collectors.op.kinds.registry import kind_of

CASES = (
    "sparse_attention rows=1 heads=16 keys_per_row=300 entries=400",
    "sparse_attention rows=3 heads=5 keys_per_row=100.4 layout=bytes584",
    "sparse_attention rows=6 heads=33 keys_per_row=129.4 layout=bytes528 rows_per_request=3",
    "sparse_attention rows=2 heads=16 keys_per_row=140 layout=bytes1024",
    "sparse_attention rows=9 heads=16 keys_per_row=150 layout=bytes512 rows_per_request=9 "
    "row_locality=contiguous",
    "sparse_attention rows=9 heads=2 keys_per_row=170 layout=bytes584 rows_per_request=9",
    "sparse_attention rows=4 heads=16 keys_per_row=1",
)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("text", CASES)
def test_the_answer_is_the_references(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


@pytest.mark.parametrize("text", CASES)
def test_memory_is_what_the_kind_says(text: str):
    case, ready = completed(text), prepared(text, "torch")
    inputs = inputs_of(ready)
    made = memory_of((*inputs, ready.run(*inputs)))
    assert kind_of(case).input_bytes(case) == pytest.approx(made, rel=0.02, abs=200)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_attention_by_hand(kernel: str):
    """Rows x and y at logits log 3 and 0, and a sink of log 2: (3 x + y) / (3 + 1 + 2)."""
    ready = prepared("sparse_attention rows=1 heads=1 keys_per_row=2 layout=bytes1024", kernel)
    queries, window, *others, sink = inputs_of(ready)
    x, y = torch.zeros(2, 512)
    x[0], y[1] = 12.0, 6.0
    window[:] = torch.stack((x, y)).bfloat16().view(torch.uint8)
    queries.zero_()
    queries[0, 0, 0] = math.log(3) * math.sqrt(512) / 12
    sink[:] = math.log(2)
    for answer in (ready.run, ready.reference):
        found = answer(queries, window, *others, sink)[0, 0].float()
        assert found[:3].tolist() == pytest.approx([6.0, 1.0, 0.0], rel=0.01)


def test_parts_of_a_call_make_the_same_answer(monkeypatch: pytest.MonkeyPatch):
    ready = prepared(CASES[5], "torch")
    inputs = inputs_of(ready)
    whole = ready.run(*inputs)
    monkeypatch.setattr(attention, "_GATHERED_VALUES", 1)
    assert torch.allclose(ready.run(*inputs).float(), whole.float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_rows_that_are_not_seen_do_not_count(kernel: str):
    ready = prepared("sparse_attention rows=2 heads=2 keys_per_row=4.5", kernel)
    queries, window, main, window_index, main_index, *counts, sink = inputs_of(ready)
    assert counts[0].tolist() == [4, 5]
    before = ready.run(queries, window, main, window_index, main_index, *counts, sink)
    window_index[0, 4:] = 0
    after = ready.run(queries, window, main, window_index, main_index, *counts, sink)
    assert torch.equal(before, after)


def test_rows_of_a_request_slide_over_its_window():
    ready = prepared("sparse_attention rows=4 heads=1 keys_per_row=130 rows_per_request=2", "torch")
    _, window, main, window_index, main_index, window_count, main_count, _ = inputs_of(ready)
    assert window.shape[0] == 2 * (128 + 1)
    assert window_index[:, 0].tolist() == [0, 1, 129, 130]
    assert window_index[:, -1].tolist() == [127, 128, 256, 257]
    assert window_count.tolist() == [128] * 4
    assert main_count.tolist() == [2] * 4
    assert main.shape[0] == 2 * 32
    assert (main_index[:2] < 32).all()
    assert (main_index[2:] >= 32).all()


def test_selected_entries_are_in_order_and_once():
    generator = torch.Generator().manual_seed(0)
    chosen = attention.chosen_entries(50, 7, 23, "scattered", generator)
    assert (chosen[:, 1:] > chosen[:, :-1]).all()
    assert chosen.min() >= 0
    assert chosen.max() < 23
    assert len({tuple(row) for row in chosen.tolist()}) > 10
    last = attention.chosen_entries(2, 3, 23, "contiguous", generator)
    assert last.tolist() == [[20, 21, 22]] * 2


def test_fewer_entries_than_are_selected_are_refused():
    case = completed("sparse_attention rows=1 heads=1 keys_per_row=200 entries=71")
    with pytest.raises(InputError, match="selects 72, of 71"):
        kind_of(case).input_bytes(case)


def test_without_a_gpu_or_interpreter_triton_is_unavailable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(UnavailableError, match="TRITON_INTERPRET=1"):
        prepared(CASES[0], "triton")
