"""Index scores: both ways against FP64, by hand, and what the inputs look like."""

from __future__ import annotations

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.errors import InputError
from collectors.op.kernels import index_score
from collectors.op.kinds.registry import kind_of

CASES = (
    "index_score rows=3 positions_per_row=200",
    "index_score rows=12 positions_per_row=140.5 rows_per_request=6",
    "index_score rows=8 positions_per_row=3 rows_per_request=8 score_format=fp32",
    "index_score rows=3 positions_per_row=130 form=candidates",
    "index_score rows=6 positions_per_row=50 form=candidates rows_per_request=3 keys=100",
    "index_score rows=12 positions_per_row=140.5 rows_per_request=4 key_format=fp8",
    "index_score rows=2 positions_per_row=30 form=candidates key_format=fp8",
)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("text", CASES)
def test_the_answer_is_the_references(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


@pytest.mark.parametrize("text", CASES)
def test_memory_is_what_the_kind_says(text: str):
    case = completed(text)
    made = memory_of(inputs_of(prepared(text, "torch")))
    assert kind_of(case).input_bytes(case) == pytest.approx(made, rel=0.02, abs=100)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_a_score_by_hand(kernel: str):
    """Head 0 meets the key at 2 x 3 + 1 x 1 = 7, head 1 at -6, which counts nothing: 7 x 0.5."""
    ready = prepared("index_score rows=1 positions_per_row=1 score_format=fp32", kernel)
    queries, weights, keys, *others = inputs_of(ready)
    codec = index_score.KEY_CODECS["fp4"]
    values = torch.zeros(32, 128)
    values[0, :2], values[1, 0] = torch.tensor([2.0, 1.0]), -2.0
    key = torch.zeros(1, 128)
    key[0, :2] = torch.tensor([3.0, 1.0])
    queries[0], keys[:] = codec.pack(values), codec.pack(key)
    weights.fill_(0.5)
    for answer in (ready.run, ready.reference):
        assert answer(queries, weights, keys, *others).tolist() == [[3.5]]


def test_parts_of_a_call_make_the_same_answer(monkeypatch: pytest.MonkeyPatch):
    for text in (CASES[1], CASES[4]):
        ready = prepared(text, "torch")
        whole = ready.run(*inputs_of(ready))
        monkeypatch.setattr(index_score, "_PRODUCTS", 1)
        assert torch.allclose(ready.run(*inputs_of(ready)).float(), whole.float(), rtol=0.02)
        monkeypatch.undo()


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_positions_that_are_not_visible_are_left_alone(kernel: str):
    ready = prepared("index_score rows=4 positions_per_row=2.5 rows_per_request=4", kernel)
    *inputs, scores = inputs_of(ready)
    assert inputs[3].tolist() == [1, 2, 3, 4]
    scores.fill_(9.0)
    answer = ready.run(*inputs, scores)
    above = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    assert (answer[above] == 9).all()
    assert (answer[~above] != 9).all()


def test_candidates_are_blocks_of_the_requests_keys():
    text = "index_score rows=4 positions_per_row=20 form=candidates keys=80 rows_per_request=2"
    _, _, keys, counts, blocks, scores = inputs_of(prepared(text, "torch"))
    assert keys.shape[0] == 2 * 80
    assert counts.tolist() == [20, 21, 20, 21]
    assert blocks.shape == (4, 3)
    assert blocks.max() < 10
    assert scores.shape[1] == counts.max()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("index_score rows=1 positions_per_row=20 form=candidates keys=16", "24 candidates"),
        ("index_score rows=1 positions_per_row=20 keys=16", "form=candidates"),
        ("index_score rows=5 positions_per_row=20 rows_per_request=2", "multiple"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(text: str, match: str):
    case = completed(text)
    with pytest.raises(InputError, match=match):
        kind_of(case).input_bytes(case)
