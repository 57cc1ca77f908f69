"""The precisions in which matrix units multiply. What is *stored* is a format, not this."""

from __future__ import annotations

from enum import StrEnum


class Arithmetic(StrEnum):
    """Arithmetic class of an operator's multiply-accumulates; GPUs have one dense peak for each."""

    FP4 = "fp4"
    """Both operands 4 bit."""
    MXFP4_MXFP8 = "mxfp4_mxfp8"
    """4-bit weights against 8-bit activations: the rate of the wider operand."""
    FP8 = "fp8"
    BF16 = "bf16"
    TF32 = "tf32"
    """FP32 operands on matrix units."""
    FP32 = "fp32"
    """FP32 on the scalar pipeline."""


WIDER: dict[Arithmetic, Arithmetic] = {
    Arithmetic.FP4: Arithmetic.FP8,
    Arithmetic.MXFP4_MXFP8: Arithmetic.FP8,
    Arithmetic.FP8: Arithmetic.BF16,
    Arithmetic.TF32: Arithmetic.BF16,
}
"""What runs an operator on a GPU without the class: values are widened (docs/assumptions.md,
"Arithmetic").

TF32 maps to BF16 because an FP32 product can be split into BF16 products; charging it once at the
BF16 rate keeps the bound a bound.
"""
