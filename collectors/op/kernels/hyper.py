"""Hyper-connections: inputs, the torch way, and the answer in FP64."""

from __future__ import annotations

from collections.abc import Callable

import torch

from collectors.case import Case
from collectors.op.kernels.compiled import need_triton
from collectors.op.kinds.hyper import COEFFICIENTS, PARTS, STREAMS
from collectors.op.prepared import Agreement, Prepared

SINKHORN_ROUNDS = 20
EPSILON = 1e-6
NORM_EPSILON = 1e-20


def build_torch(case: Case, _: torch.device) -> Prepared:
    """The torch way: a pass of memory for every step."""
    return _prepared(case, lambda *inputs: site(*inputs, case.operator, torch.float32), "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """One sweep over the streams; coefficients are finished by a second, small kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import hyper_triton

    parts = PARTS[case.operator]
    return _prepared(case, lambda *inputs: hyper_triton.site(*inputs, parts), "triton")


def site(
    streams: torch.Tensor,
    output: torch.Tensor,
    expand: torch.Tensor,
    mix: torch.Tensor,
    collapse: torch.Tensor,
    matrix: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    weight: torch.Tensor,
    operator: str,
    number: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    """A site, said plainly.

    Args:
        streams: [rows, streams, hidden].
        output: of the sub-layer [rows, hidden].
        expand, mix: coefficients that expand it [rows, streams], [rows, streams, streams].
        collapse: coefficients of the site before [rows, streams].
        matrix: [coefficients, streams x hidden], FP32.
        scale, base: [3], [coefficients], FP32.
        weight: of the norm [hidden].
        operator: which parts.
        number: of the arithmetic.

    Returns:
        The streams if they are expanded; the coefficients [rows, coefficients] if they are made;
        the collapsed row if it is.
    """
    parts = PARTS[operator]
    given = streams.to(number)
    found: list[torch.Tensor] = []
    if parts.expands:
        mixed = torch.einsum("rij,rih->rjh", mix.to(number), given)
        given = expand.to(number)[..., None] * output.to(number)[:, None] + mixed
        streams = given.to(streams.dtype)
        found.append(streams)
        given = streams.to(number)
    if parts.measures:
        flat = given.flatten(1)
        root = torch.rsqrt(flat.square().mean(1, keepdim=True) + NORM_EPSILON)
        found.append(coefficients(flat @ matrix.to(number).T * root, scale, base))
    if parts.collapses:
        row = torch.einsum("rj,rjh->rh", collapse.to(number), given)
        if parts.norms:
            row = row * torch.rsqrt(row.square().mean(1, keepdim=True) + NORM_EPSILON)
            row = row * weight.to(number)
        found.append(row.to(streams.dtype))
    return tuple(found)


def coefficients(mixes: torch.Tensor, scale: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Those that collapse, expand and mix, side by side [rows, coefficients], from projections."""
    n = STREAMS
    scale, base = scale.to(mixes.dtype), base.to(mixes.dtype)
    pre = torch.sigmoid(mixes[:, :n] * scale[0] + base[:n]) + EPSILON
    post = 2 * torch.sigmoid(mixes[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    mix = (mixes[:, 2 * n :] * scale[2] + base[2 * n :]).unflatten(1, (n, n))
    mix = torch.softmax(mix, 2) + EPSILON
    mix = mix / (mix.sum(1, keepdim=True) + EPSILON)
    for _ in range(SINKHORN_ROUNDS - 1):
        mix = mix / (mix.sum(2, keepdim=True) + EPSILON)
        mix = mix / (mix.sum(1, keepdim=True) + EPSILON)
    return torch.cat((pre, post, mix.flatten(1)), 1)


def _prepared(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, hidden = case.whole("rows"), case.whole("hidden")

    def make(generator: torch.Generator):
        device = generator.device

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, device=device)

        def share(*shape: int) -> torch.Tensor:
            return torch.rand(*shape, generator=generator, device=device)

        return (
            normal(rows, STREAMS, hidden).bfloat16(),
            normal(rows, hidden).bfloat16(),
            share(rows, STREAMS) + 0.5,
            share(rows, STREAMS, STREAMS) / STREAMS,
            share(rows, STREAMS),
            normal(COEFFICIENTS, STREAMS * hidden) / (STREAMS * hidden) ** 0.5,
            share(3) + 0.5,
            normal(COEFFICIENTS) * 0.1,
            (share(hidden) + 0.5).bfloat16(),
        )

    def reference(*inputs):
        answer = site(*inputs, case.operator, torch.float64)
        return answer[0] if len(answer) == 1 else answer

    return Prepared(make=make, run=run, reference=reference, agreement=Agreement(relative=0.01),
                    kernel_source=kernel_source)  # fmt: skip
