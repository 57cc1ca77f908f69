"""Narrow numbers inside triton kernels, by their bits: the same code on every GPU and interpreted.

Source: OCP Microscaling Formats (MX) v1.0, §5.3.
"""

# ruff: noqa: N803  (constants of a kernel)

from __future__ import annotations

import triton
import triton.language as tl

from collectors.op.kernels.compiled import interpreted


def operand_type() -> tl.dtype:
    """Of matrix products: BF16, but FP32 interpreted, where BF16 products are those of the bits."""
    return tl.float32 if interpreted() else tl.bfloat16


@triton.jit
def rounded_codes(
    values, LEAST: tl.constexpr, MANTISSA: tl.constexpr, HIGHEST: tl.constexpr, SIGN: tl.constexpr
):
    """Nearest codes, ties to even, of a format with ``MANTISSA`` bits and least exponent LEAST.

    Adding and taking away 1.5 x 2^23 rounds an FP32 number to a whole one.
    """
    size = tl.minimum(tl.abs(values), HIGHEST)
    exponent = tl.maximum((size.to(tl.int32, bitcast=True) >> 23) - 127, LEAST)
    steps = size * ((127 + MANTISSA - exponent) << 23).to(tl.float32, bitcast=True)
    whole = (steps + 12582912.0) - 12582912.0
    code = (exponent - LEAST) * (1 << MANTISSA) + whole.to(tl.int32)
    return code | tl.where(values < 0, SIGN, 0)


@triton.jit
def e4m3_codes(values):
    """E4M3 codes, saturating."""
    return rounded_codes(values, -6, 3, 448.0, 128)


@triton.jit
def e2m1_codes(values):
    """E2M1 codes, saturating."""
    return rounded_codes(values, 0, 1, 6.0, 8)


@triton.jit
def e4m3_values(codes):
    """FP16 values of E4M3 codes: their bits under FP16's wider exponent, times 2^8."""
    codes = codes.to(tl.int32)
    bits = ((codes & 127) << 7) | ((codes & 128) << 8)
    return bits.to(tl.int16).to(tl.float16, bitcast=True) * 256.0


@triton.jit
def e2m1_values(codes):
    """FP16 values of E2M1 codes: their bits under FP16's wider exponent, times 2^14."""
    codes = codes.to(tl.int32)
    bits = ((codes & 7) << 9) | ((codes & 8) << 12)
    return bits.to(tl.int16).to(tl.float16, bitcast=True) * 16384.0


@triton.jit
def ue8m0_codes(largest, EXPONENT: tl.constexpr, MANTISSA_BITS: tl.constexpr):
    """Codes of the least powers of two that bring ``largest`` down to a format's largest number.

    That number is given by its exponent and its 23 bits behind the point.
    """
    bits = largest.to(tl.int32, bitcast=True)
    above = ((bits & 0x7FFFFF) > MANTISSA_BITS).to(tl.int32)
    return tl.minimum(tl.maximum((bits >> 23) - EXPONENT + above, 0), 254)


@triton.jit
def ue8m0_values(codes):
    """FP32 powers of two."""
    return (codes.to(tl.int32) << 23).to(tl.float32, bitcast=True)


@triton.jit
def ue8m0_inverses(codes):
    """One over them."""
    return ((254 - codes) << 23).to(tl.float32, bitcast=True)
