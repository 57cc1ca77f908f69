"""RMSNorm as the engines have it: the same mathematics in three packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from collectors.case import Case
from collectors.op.engines.calls import engine_call, version_of
from collectors.op.kernels.elementwise import EPSILON, build_torch
from collectors.op.prepared import Prepared


def build_sgl_kernel(case: Case, device: torch.device) -> Prepared:
    """``sgl_kernel.rmsnorm(input, weight, eps)``."""
    norm = engine_call("sgl_kernel", "rmsnorm", ("input", "weight", "eps"))
    return _with(case, device, lambda x, w: norm(x, w, EPSILON), "rmsnorm", "sgl-kernel")


def build_flashinfer(case: Case, device: torch.device) -> Prepared:
    """``flashinfer.norm.rmsnorm(input, weight, eps)``, which SGLang and TensorRT-LLM call."""
    norm = engine_call("flashinfer.norm", "rmsnorm", ("input", "weight", "eps"))
    return _with(case, device, lambda x, w: norm(x, w, EPSILON), "flashinfer_rmsnorm",
                 "flashinfer-python")  # fmt: skip


def build_vllm(case: Case, device: torch.device) -> Prepared:
    """``vllm._custom_ops.rms_norm(out, input, weight, epsilon)``."""
    norm = engine_call("vllm._custom_ops", "rms_norm", ("out", "input", "weight", "epsilon"))

    def run(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(values)
        norm(out, values, weight, EPSILON)
        return out

    return _with(case, device, run, "rms_norm", "vllm")


def _with(
    case: Case, device: torch.device, run: Callable[..., torch.Tensor], kernel: str, package: str
) -> Prepared:
    """The portable case with another call: same inputs, same reference."""
    plain = build_torch(case, device)
    return replace(plain, run=run, kernel_source=kernel, engine_version=version_of(package))
