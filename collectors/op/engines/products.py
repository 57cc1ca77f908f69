"""8-bit products by DeepGEMM, which SGLang and vLLM call; its blocks of weights are 128 wide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from collectors.case import Case
from collectors.errors import UnavailableError
from collectors.op.engines.calls import engine_call, version_of
from collectors.op.kernels.products import build_fp8_torch
from collectors.op.kernels.rows import E4M3_MAX, e4m3_bytes, ue8m0_values
from collectors.op.prepared import Agreement, Prepared

BLOCK = 128


def build_deep_gemm(case: Case, device: torch.device) -> Prepared:
    """``deep_gemm.fp8_gemm_nt((a, a_scale), (b, b_scale), d)``; activations scale per 1 x 128.

    Raises:
        UnavailableError: the package is not here, or the case is in groups.
    """
    product = engine_call("deep_gemm", "fp8_gemm_nt", ("a", "b", "d"))
    if case.whole("groups") != 1 or case.options["operand"] != "quantised":
        raise UnavailableError("deep_gemm: one product of quantised activations only")
    plain = build_fp8_torch(case, device)

    def make(generator: torch.Generator) -> tuple[Any, ...]:
        _, _, codes, scales = plain.make(generator)
        shape = (case.whole("rows"), case.whole("inputs"))
        values = torch.randn(*shape, generator=generator, device=device)
        grouped = values.unflatten(1, (-1, BLOCK))
        scale = (grouped.abs().amax(-1) / E4M3_MAX).clamp(min=1e-12)
        activations = e4m3_bytes((grouped / scale[..., None]).flatten(1)).view(torch.float8_e4m3fn)
        out = torch.empty(shape[0], case.whole("outputs"), dtype=torch.bfloat16, device=device)
        weights = codes.view(torch.float8_e4m3fn)
        return activations, scale, weights, ue8m0_values(scales), out

    def run(activations, scale, weights, weight_scale, out):
        product((activations, scale), (weights, weight_scale), out)
        return out

    def reference(activations, scale, weights, weight_scale, _):
        left = (activations.float().unflatten(1, (-1, BLOCK)) * scale[..., None]).flatten(1)
        spread = weight_scale.repeat_interleave(BLOCK, 0)[: len(weights)]
        return left @ (weights.float() * spread.repeat_interleave(BLOCK, 1)).T

    return replace(plain, make=make, run=run, reference=reference,
                   agreement=Agreement(relative=0.02), kernel_source="deep_gemm_fp8_gemm_nt",
                   engine_version=version_of("deep-gemm", "deep_gemm"))  # fmt: skip
