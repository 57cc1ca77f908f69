"""Selection: both ways give a right answer, and wrong answers are told from right ones."""

from __future__ import annotations

import re

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.op.kernels import index_select_triton
from collectors.op.kinds.registry import kind_of

CASES = (
    "index_select rows=2 positions_per_row=1500",
    "index_select rows=2 positions_per_row=300",
    "index_select rows=3 positions_per_row=512",
    "index_select rows=4 positions_per_row=40 rows_per_request=4 top_k=20 score_pattern=equal "
    "score_format=fp32",
    "index_select rows=2 positions_per_row=1100 score_format=fp32",
    "index_select_pool rows=2 positions_per_row=1500 candidate_blocks=32 top_k=50",
    "index_select_pool rows=2 positions_per_row=501 candidate_blocks=20 top_k=50 "
    "score_pattern=ordered",
    "index_select_pool rows=4 positions_per_row=9 score_pattern=equal rows_per_request=4",
)


def listed(answer) -> tuple:
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("text", CASES)
def test_the_answer_is_a_right_one(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


@pytest.mark.parametrize("text", CASES)
def test_memory_is_what_the_kind_says(text: str):
    case, ready = completed(text), prepared(text, "torch")
    inputs = inputs_of(ready)
    answer = ready.run(*inputs)
    made = memory_of((*inputs, *listed(answer)))
    assert kind_of(case).input_bytes(case) == pytest.approx(made, rel=0.02, abs=100)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("scale", [1.0, -1.0, 0.0])
def test_selection_by_hand(kernel: str, scale: float):
    """Best 3 of 0, 5, -1, 7, 2, 6; of their opposites; and of six zeros, any three."""
    ready = prepared("index_select rows=1 positions_per_row=6 top_k=3", kernel)
    scores, counts = inputs_of(ready)
    scores[0] = scale * torch.tensor([0.0, 5.0, -1.0, 7.0, 2.0, 6.0])
    found = ready.run(scores, counts).tolist()
    if scale:
        assert found == [[1, 3, 5]] if scale > 0 else [[0, 2, 4]]
    assert ready.compare(torch.tensor(found).int(), ready.reference(scores, counts),
                         (scores, counts)) is None  # fmt: skip


@pytest.mark.parametrize("kernel", ["torch", "triton"])
def test_the_newest_block_is_always_in_the_pool(kernel: str):
    """Blocks of 8 of 20 scores: best are 9, 8, 1; the third is partial and kept all the same."""
    ready = prepared(
        "index_select_pool rows=1 positions_per_row=20 candidate_blocks=2 top_k=1", kernel
    )
    scores, counts = inputs_of(ready)
    scores[0] = 0.0
    scores[0, 3], scores[0, 10], scores[0, 19] = 9.0, 8.0, 1.0
    chosen, blocks = ready.run(scores, counts)
    assert (chosen.tolist(), blocks.tolist()) == ([[3]], [[0, 2]])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([0, 1, 2], "best scores"),
        ([1, 3, 3], "order"),
        ([3, 1, 5], "order"),
        ([1, 3, -1], "as many"),
        ([1, 3, 6], "behind the last"),
        ([1, 3], "are \\[1, 2\\]"),
        ([1, 3, 5], None),
    ],
)
def test_wrong_answers_are_found(answer: list[int], problem: str | None):
    ready = prepared("index_select rows=1 positions_per_row=6 top_k=3", "torch")
    scores, counts = inputs_of(ready)
    scores[0] = torch.tensor([0.0, 5.0, -1.0, 7.0, 2.0, 6.0])
    wanted = ready.reference(scores, counts)
    found = ready.compare(torch.tensor([answer]).int(), wanted, (scores, counts))
    assert found is None if problem is None else re.search(problem, found or "")


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize(
    "text",
    [
        "index_select rows=3 positions_per_row=700.5 rows_per_request=3 top_k=40",
        "index_select rows=1 positions_per_row=300 top_k=60 score_pattern=equal",
        "index_select rows=1 positions_per_row=300 top_k=60 score_pattern=ordered",
        "index_select_pool rows=2 positions_per_row=333 top_k=200 candidate_blocks=20",
        "index_select_pool rows=4 positions_per_row=50 rows_per_request=4 top_k=9 "
        "candidate_blocks=3",
    ],
)
def test_rows_in_parts_give_the_same(text: str, parts: int, monkeypatch: pytest.MonkeyPatch):
    """Parts that a row does not reach are empty; of equal scores the first are kept either way."""
    ready = prepared(text, "triton")
    inputs = inputs_of(ready)
    monkeypatch.setattr(index_select_triton, "_parts", lambda *_: 1)
    whole = ready.run(*inputs)
    monkeypatch.setattr(index_select_triton, "_parts", lambda *_: parts)
    assert problem_of(ready) == ""
    assert torch.equal(torch.cat(listed(ready.run(*inputs)), 1), torch.cat(listed(whole), 1))


def test_small_calls_of_long_rows_are_cut():
    """Of 8 processors: 1 row in 8 parts, 3 in 2, 8 in none; short rows and large pools are not."""
    parts = index_select_triton._parts
    found = [parts(rows, 1 << 17, 512, torch.device("cpu")) for rows in (1, 3, 8, 100)]
    assert found == [8, 2, 1, 1]
    assert parts(1, 16_383, 512, torch.device("cpu")) == 1
    assert parts(1, 1 << 17, 2048 * 8, torch.device("cpu")) == 2


def test_equal_scores_are_equally_good():
    ready = prepared("index_select rows=1 positions_per_row=6 top_k=3", "torch")
    scores, counts = inputs_of(ready)
    scores[0] = torch.tensor([1.0, 1.0, 1.0, 1.0, 2.0, 0.0])
    wanted = ready.reference(scores, counts)
    for picks in ([0, 1, 4], [2, 3, 4], [0, 3, 4]):
        assert ready.compare(torch.tensor([picks]).int(), wanted, (scores, counts)) is None
    assert ready.compare(torch.tensor([[0, 1, 2]]).int(), wanted, (scores, counts)) is not None
