"""Kernels that only pass over rows: inputs, the torch way, and the answer in FP64."""

from __future__ import annotations

from collections.abc import Callable

import torch

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.products import quantised
from collectors.op.kernels.rows import pack_mxfp4
from collectors.op.kinds.elementwise import PASSES
from collectors.op.kinds.layouts import ROTATED
from collectors.op.kinds.products import SCALE_GROUP
from collectors.op.prepared import Agreement, Prepared

EPSILON = 1e-20
SWIGLU_LIMIT = 10.0
CODED = ("norm_quantise", "index_rope", "swiglu")
"""Passes whose result is quantised."""


def norm(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMSNorm of rows."""
    root = torch.rsqrt(values.square().mean(-1, keepdim=True) + EPSILON)
    return values * root * weight.to(values.dtype)


def rope(
    values: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, sign: float
) -> torch.Tensor:
    """Rotates the last values of each head by the row's angles, in neighbouring pairs."""
    turned = values[..., -ROTATED:]
    real, imaginary = cosine.to(values.dtype)[:, None], sign * sine.to(values.dtype)[:, None]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    both = torch.stack((even * real - odd * imaginary, even * imaginary + odd * real), -1)
    return torch.cat((values[..., :-ROTATED], both.flatten(-2)), -1)


def swiglu(values: torch.Tensor) -> torch.Tensor:
    """Gate and up side by side to their product; both clamped as the model clamps them."""
    gate, up = values.chunk(2, -1)
    gate = gate.clamp(max=SWIGLU_LIMIT)
    return gate * torch.sigmoid(gate) * up.clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)


def passed(computes: str, inputs: tuple[torch.Tensor, ...], number: torch.dtype) -> torch.Tensor:
    """The result of a pass, before it is rounded to what is stored."""
    first = inputs[0].to(number)
    if computes in ("norm", "norm_quantise"):
        return norm(first, inputs[1])
    if computes in ("rope", "index_rope"):
        return rope(first, inputs[1], inputs[2], 1.0)
    if computes == "inverse_rope":
        return rope(first, inputs[1], inputs[2], -1.0)
    if computes == "swiglu":
        return swiglu(first)
    if computes == "add":
        return first + inputs[1].to(number)
    if computes == "spread":
        return first[:, None].expand(-1, 4, -1)
    return first


def stored(computes: str, values: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The result as it is stored."""
    if computes == "index_rope":
        return pack_mxfp4(values.float())
    if computes in CODED:
        return quantised(values)
    return values.to(torch.bfloat16).contiguous()


def build_torch(case: Case, _: torch.device) -> Prepared:
    """The torch way: a pass of memory for every step."""
    computes = PASSES[case.operator].computes

    def run(*inputs):
        return stored(computes, passed(computes, inputs, torch.float32))

    return _prepared(case, run, "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """One kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import elementwise_triton

    computes = PASSES[case.operator].computes
    return _prepared(case, lambda *given: elementwise_triton.passed(computes, *given), "triton")


def _prepared(case: Case, run: Callable, kernel_source: str) -> Prepared:
    one = PASSES[case.operator]
    rows, width = case.whole("rows"), case.whole("inputs")
    if one.computes in CODED and width % SCALE_GROUP:
        raise InputError(f"case {case.text}: inputs must be a multiple of {SCALE_GROUP}")
    if one.heads and width < ROTATED:
        raise InputError(f"case {case.text}: a head has {ROTATED} rotated values or more")
    shape = (rows, case.whole("heads"), width) if one.heads else (rows, width)

    def make(generator: torch.Generator):
        device = generator.device

        def normal(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=generator, device=device).bfloat16()

        if one.weight:
            return normal(*shape), normal(width)
        if one.heads:
            angles = torch.rand(rows, ROTATED // 2, generator=generator, device=device) * 6.0
            return normal(*shape), torch.cos(angles), torch.sin(angles)
        if one.computes == "swiglu":
            return (normal(rows, 2 * width),)
        return (normal(*shape), normal(*shape)) if one.computes == "add" else (normal(*shape),)

    def reference(*inputs):
        return stored(one.computes, passed(one.computes, inputs, torch.float64))

    coded = one.computes in CODED
    return Prepared(
        make=make, run=run, reference=reference, agreement=Agreement(relative=0.01),
        compare=_codes_apart if coded else None, kernel_source=kernel_source,
    )  # fmt: skip


MOST_APART = 0.01
"""Share of codes that may differ: values at the edge between two fall either way."""


def _codes_apart(answer, wanted, _) -> str | None:
    """Codes may differ where a value lies at an edge, and nowhere else."""
    ours = answer if isinstance(answer, tuple) else (answer,)
    theirs = wanted if isinstance(wanted, tuple) else (wanted,)
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {place} is {tuple(one.shape)} {one.dtype}"
        apart = int((one != other).sum())
        if apart > max(1, MOST_APART * one.numel()):
            return f"output {place}: {apart} of {one.numel()} codes differ"
    return None
