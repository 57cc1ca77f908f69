"""Hyper-connections and passes over rows: both ways against FP64, and worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.errors import InputError
from collectors.op.kernels.hyper import coefficients
from collectors.op.kinds.elementwise import PASSES
from collectors.op.kinds.hyper import PARTS, STREAMS
from collectors.op.kinds.registry import kind_of

WIDTHS = {"q_rope": "inputs=128 heads=3", "inverse_rope": "inputs=96 heads=2",
          "index_query_rope": "inputs=128 heads=2", "shared_expert": "inputs=96"}  # fmt: skip


def small(name: str, rows: int) -> str:
    if name in PARTS:
        return f"{name} rows={rows} hidden=160"
    return f"{name} rows={rows} {WIDTHS.get(name, 'inputs=160')}"


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("name", [*PARTS, *PASSES])
def test_the_answer_is_the_references(name: str, kernel: str):
    assert problem_of(prepared(small(name, 5), kernel)) == ""


@pytest.mark.parametrize("name", ["mhc_fused", "mega_mhc", "mhc_post"])
def test_many_rows(name: str):
    assert problem_of(prepared(small(name, 37), "triton")) == ""


def test_coefficients_by_hand():
    """Projections of zero: half collapses, one expands, and streams mix evenly."""
    found = coefficients(torch.zeros(1, 24, dtype=torch.float64), torch.ones(3), torch.zeros(24))
    assert found[0, :4].tolist() == pytest.approx([0.5] * 4, abs=1e-5)
    assert found[0, 4:8].tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    assert found[0, 8:].tolist() == pytest.approx([0.25] * 16, abs=1e-5)


def test_mixing_rows_and_columns_add_to_one():
    generator = torch.Generator().manual_seed(3)
    mixes = torch.randn(9, 24, generator=generator, dtype=torch.float64)
    mix = coefficients(mixes, torch.ones(3), torch.zeros(24))[:, 8:].unflatten(1, (4, 4))
    assert torch.allclose(mix.sum(1), torch.ones(9, 4, dtype=torch.float64), atol=1e-3)
    assert torch.allclose(mix.sum(2), torch.ones(9, 4, dtype=torch.float64), atol=1e-3)


def test_a_site_by_hand():
    """Streams 1, 2, 3, 4 collapse with shares 1, 0, 0, 2 to 9."""
    ready = prepared("mhc_collapse rows=1 hidden=32", "torch")
    streams, *others = inputs_of(ready)
    streams = torch.arange(1.0, 5.0).view(1, 4, 1).expand(1, 4, 32).bfloat16()
    others[3] = torch.tensor([[1.0, 0.0, 0.0, 2.0]])
    for answer in (ready.run(streams, *others)[0], ready.reference(streams, *others)):
        assert answer.tolist() == [[9.0] * 32]


def test_rotation_by_hand():
    ready = prepared("q_rope rows=1 heads=1 inputs=64", "torch")
    values = torch.zeros(1, 1, 64).bfloat16()
    values[0, 0, 0] = 1.0
    angle = torch.full((1, 32), math.pi / 2)
    turned = ready.run(values, torch.cos(angle), torch.sin(angle))
    assert turned[0, 0, :2].tolist() == pytest.approx([0.0, 1.0], abs=1e-2)
    back = prepared("inverse_rope rows=1 heads=1 inputs=64", "torch")
    assert back.run(turned, torch.cos(angle), torch.sin(angle))[0, 0, 0] == 1.0


def test_wrong_codes_are_found():
    ready = prepared("q_norm rows=4 inputs=64", "torch")
    inputs = inputs_of(ready)
    codes, scales = ready.run(*inputs)
    right = ready.reference(*inputs)
    assert ready.compare((codes, scales), right, inputs) is None
    assert "codes differ" in ready.compare((codes ^ 1, scales), right, inputs)
    assert "is (4," in ready.compare((codes[:, :32], scales), right, inputs)


@pytest.mark.parametrize("name", ["mhc_fused", "mhc_post", "site_norm", "shared_expert", "q_rope"])
def test_memory_is_what_the_kind_says(name: str):
    text = small(name, 300)
    case, ready = completed(text), prepared(text, "torch")
    inputs = inputs_of(ready)
    answer = ready.run(*inputs)
    held = memory_of(inputs) + memory_of(answer if isinstance(answer, tuple) else (answer,))
    assert kind_of(case).input_bytes(case) == pytest.approx(held, rel=0.3)


@pytest.mark.parametrize(
    ("text", "said"),
    [("q_norm rows=1 inputs=33", "multiple of 32"), ("q_rope rows=1 inputs=32", "rotated values")],
)
def test_impossible_cases_are_refused(text: str, said: str):
    with pytest.raises(InputError, match=said):
        prepared(text, "torch")


def test_streams_are_four():
    assert STREAMS == 4
