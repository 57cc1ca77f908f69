"""Dense products and conversions: every way against FP32, by hand, and compared as engines do."""

from __future__ import annotations

import pytest
import torch
from answers import completed, inputs_of, memory_of, prepared, problem_of

from collectors.errors import InputError
from collectors.op.kernels.products import block_widened, quantised, widened
from collectors.op.kinds.registry import kind_of

FP8 = (
    "gemm rows=5 outputs=96 inputs=160",
    "gemm rows=20 outputs=160 inputs=64 operand=quantised",
    "gemm rows=3 outputs=128 inputs=64 groups=2",
    "gemm rows=17 outputs=256 inputs=256 dtype=fp8_block128",
)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("text", [*FP8, "site_quantise rows=5 inputs=96"])
def test_the_answer_is_the_references(text: str, kernel: str):
    assert problem_of(prepared(text, kernel)) == ""


@pytest.mark.parametrize(
    "text", ["gemm dtype=bf16 rows=5 outputs=33 inputs=65",
             "gemm dtype=bf16 rows=5 outputs=64 inputs=65 groups=4"]
)  # fmt: skip
def test_bf16_products(text: str):
    assert problem_of(prepared(text, "torch_matmul")) == ""


def test_embedding_rows_are_copied():
    assert problem_of(prepared("embedding rows=7 inputs=64 vocabulary=50", "torch")) == ""


def test_conversion_by_hand():
    """Largest 3.0 of 32 values: 2^-8 x 2^... the scale is 2^-7, since 448 x 2^-8 = 1.75 < 3."""
    values = torch.zeros(1, 32)
    values[0, 0], values[0, 1] = 3.0, -0.75
    codes, scales = quantised(values)
    assert scales.tolist() == [[127 - 7]]
    assert widened(codes, scales)[0, :2].tolist() == [3.0, -0.75]


def test_a_scale_holds_for_its_block():
    codes = torch.full((64, 64), 0x38, dtype=torch.uint8)  # 1.0 in E4M3
    scales = torch.tensor([[127, 128], [126, 127]], dtype=torch.uint8)
    values = block_widened(codes, scales, 32)
    assert [float(values[i, j]) for i, j in ((0, 0), (0, 32), (32, 0), (63, 63))] == [1, 2, 0.5, 1]


def test_a_wrong_product_is_found():
    ready = prepared(FP8[0], "torch")
    inputs = list(inputs_of(ready))
    right = ready.reference(*inputs)
    inputs[3] = inputs[3] + 1  # every weight twice as large
    assert not torch.allclose(ready.run(*inputs).float(), right, rtol=0.1)


@pytest.mark.parametrize("text", [*FP8, "gemm dtype=bf16 rows=50 outputs=128 inputs=128",
                                  "site_quantise rows=50 inputs=96",
                                  "embedding rows=7 inputs=64 vocabulary=50"])  # fmt: skip
def test_memory_is_what_the_kind_says(text: str):
    case = completed(text)
    ready = [one for one in kind_of(case).implementations if one.can_run(case)][-1]
    made = ready.load()(case, torch.device("cpu"))
    inputs = inputs_of(made)
    answer = made.run(*inputs)
    held = memory_of(inputs) + memory_of(answer if isinstance(answer, tuple) else (answer,))
    assert kind_of(case).input_bytes(case) == pytest.approx(held, rel=0.03)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gemm rows=4 outputs=64 inputs=33", "multiples of 32"),
        ("gemm rows=4 outputs=65 inputs=32 groups=2", "multiple of groups"),
        ("gemm rows=0 outputs=64 inputs=32", "rows must be"),
        ("gemm rows=4 outputs=64 inputs=32 dtype=int3", "dtype must be one of"),
    ],
)
def test_impossible_cases_are_refused(text: str, said: str):
    with pytest.raises(InputError, match=said):
        prepared(text, "torch")
