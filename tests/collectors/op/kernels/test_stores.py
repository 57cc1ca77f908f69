"""Compressor and stores: both ways against FP64, what is written where, and wrong answers."""

from __future__ import annotations

import math

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.op.kernels.stores import slots_of
from collectors.op.kinds.registry import kind_of

CASES = (
    "compress_pool rows=7",
    "compress_pool rows=4 ratio=1",
    "main_store rows=6",
    "main_store rows=3 ratio=1 layout=bytes528",
    "compress_store rows=6 layout=bytes584",
    "compress_store rows=5 ratio=1",
    "kv_store rows=5 layout=bytes528",
    "kv_store rows=5 layout=bytes584",
    "kv_store rows=5 layout=bytes512",
    "kv_store rows=5 layout=bytes1024",
    "index_key_store rows=5",
    "index_key_store rows=5 key_format=fp8",
)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("text", CASES)
def test_the_answer_is_the_references(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


@pytest.mark.parametrize("text", [*CASES, "kv_store rows=600"])
def test_memory_is_what_the_kind_says(text: str):
    case = completed(text)
    ready = prepared(text, "torch")
    inputs = inputs_of(ready)
    answer = ready.run(*inputs)
    made = memory_of(inputs)
    if case.operator in ("compress_pool", "compress_store"):
        made += memory_of((answer[-1] if isinstance(answer, tuple) else answer,))
    assert kind_of(case).input_bytes(case) == pytest.approx(made, rel=0.1, abs=5000)


def test_pooling_by_hand():
    """Gates 0 and log 3: a quarter of the first row and three of the second, then the norm."""
    ready = prepared("compress_pool rows=2", "torch")
    source, weight, *others = inputs_of(ready)
    first = torch.cat((torch.full((512,), 4.0), torch.zeros(512)))
    second = torch.cat((torch.full((512,), 8.0), torch.full((512,), math.log(3))))
    source[0] = torch.cat((first, second))
    for answer in (ready.run, ready.reference):
        assert torch.allclose(answer(source, weight, *others).float(), weight.float(), rtol=0.01)


def test_rotation_keeps_the_length_of_a_pair_and_other_values():
    ready = prepared("kv_store rows=4 layout=bytes1024", "torch")
    source, weight, cosine, sine, _, slots, cache = inputs_of(ready)
    here = torch.full((4,), 5)
    stored = ready.run(source, weight, cosine, sine, here, slots, cache)
    turned = stored[slots].view(torch.bfloat16).float()
    ready.run(source, weight, cosine, sine, torch.zeros(4, dtype=torch.int64), slots, cache)
    still = cache[slots].view(torch.bfloat16).float()
    assert torch.equal(turned[:, :448], still[:, :448])
    assert not torch.equal(turned[:, 448:], still[:, 448:])
    lengths = [rows[:, 448:].unflatten(-1, (-1, 2)).norm(dim=-1) for rows in (turned, still)]
    assert torch.allclose(*lengths, rtol=0.02)
    # the first pair turns by 5 radians
    even, odd = still[0, 448:450].tolist()
    assert turned[0, 448] == pytest.approx(even * math.cos(5) - odd * math.sin(5), abs=0.03)


@pytest.mark.parametrize("spoil", ["row", "neighbour", "latent"])
def test_wrong_answers_are_found(spoil: str):
    ready = prepared("compress_store rows=8 layout=bytes528", "torch")
    inputs = inputs_of(ready)
    cache, latents = ready.run(*inputs)
    slots = inputs[5]
    if spoil == "row":
        cache[slots[2], 10:200] = 0
    elif spoil == "neighbour":
        free = next(row for row in range(cache.shape[0]) if row not in slots.tolist())
        cache[free, 3] = 1
    else:
        latents[1] = 0
    problem = ready.compare((cache, latents), ready.reference(*inputs), inputs)
    expected = {"row": "stored rows", "neighbour": "own", "latent": "latents"}[spoil]
    assert problem is not None
    assert expected in problem


@pytest.mark.parametrize("rows", [1, 64, 512, 513, 1000])
def test_every_row_has_a_place_of_its_own(rows: int):
    slots = slots_of(rows, torch.Generator().manual_seed(3)).tolist()
    assert len(set(slots)) == len(slots) == rows
    if rows <= 512:
        assert len({slot // 64 for slot in slots}) == rows
    else:
        assert [slot % 64 for slot in slots] == [row % 64 for row in range(rows)]
