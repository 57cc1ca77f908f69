"""Adapters of engines, with modules that stand for them: found, refused, and checked."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from collectors.case import Case
from collectors.errors import UnavailableError
from collectors.op.engines.calls import engine_call
from collectors.op.engines.found import ENGINES, availability, implementations
from collectors.op.kinds.registry import KINDS, kind_of
from collectors.op.results import INVALID, OK
from collectors.op.worker import run_case
from collectors.timing.ranks import Ranks

CPU = Ranks(0, 1, torch.device("cpu"), "gloo")
NORM = "site_norm rows=3 inputs=64"


def module(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    fake = ModuleType(name)
    for function, body in functions.items():
        setattr(fake, function, body)
    for place in range(1, name.count(".") + 1):
        parent = ".".join(name.split(".")[:place])
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, fake)


def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    root = torch.rsqrt(input.float().square().mean(-1, keepdim=True) + eps)
    return (input.float() * root * weight.float()).to(input.dtype)


def asked(text: str, engine: str = "") -> Any:
    timing = {"samples": 5, "seconds": 0.01, "execution": "eager"}
    return run_case({"case": text, "timing": timing, "engine": engine}, CPU)


def test_without_an_engine_the_own_kernels_run():
    found = asked(NORM)
    assert (found.status, found.engine) == (OK, "portable")
    assert asked(NORM, "sglang").status == "unsupported"
    assert "sgl_kernel cannot be imported" in asked(NORM, "sglang").error


def test_an_engines_kernel_comes_first_and_is_named(monkeypatch: pytest.MonkeyPatch):
    module(monkeypatch, "sgl_kernel", rmsnorm=norm)
    found = asked(NORM)
    assert (found.status, found.engine, found.kernel_source) == (OK, "sglang", "rmsnorm")


def test_a_wrong_answer_is_never_timed(monkeypatch: pytest.MonkeyPatch):
    module(monkeypatch, "sgl_kernel", rmsnorm=lambda input, weight, eps: input)
    found = asked(NORM)
    assert (found.status, found.timing, found.engine) == (INVALID, None, "sglang")
    assert "from the reference" in found.error


def test_another_signature_is_told(monkeypatch: pytest.MonkeyPatch):
    module(monkeypatch, "sgl_kernel", rmsnorm=lambda x, w: x)
    with pytest.raises(UnavailableError, match="takes x, w; expected input"):
        engine_call("sgl_kernel", "rmsnorm", ("input", "weight", "eps"))
    module(monkeypatch, "sgl_kernel")
    with pytest.raises(UnavailableError, match="has no rmsnorm"):
        engine_call("sgl_kernel", "rmsnorm")


def test_vllms_norm_writes_into_an_output(monkeypatch: pytest.MonkeyPatch):
    def rms_norm(out: torch.Tensor, input: torch.Tensor, weight: torch.Tensor,
                 epsilon: float) -> None:  # fmt: skip
        out.copy_(norm(input, weight, epsilon))

    module(monkeypatch, "vllm._custom_ops", rms_norm=rms_norm)
    found = asked(NORM, "vllm")
    assert (found.status, found.kernel_source) == (OK, "rms_norm")


def test_flashinfers_norm(monkeypatch: pytest.MonkeyPatch):
    module(monkeypatch, "flashinfer.norm", rmsnorm=norm)
    assert asked(NORM, "trtllm").status == OK


def test_deep_gemms_product(monkeypatch: pytest.MonkeyPatch):
    def fp8_gemm_nt(a: Any, b: Any, d: torch.Tensor) -> None:
        left = (a[0].float().unflatten(1, (-1, 128)) * a[1][..., None]).flatten(1)
        scale = b[1].repeat_interleave(128, 0).repeat_interleave(128, 1)
        d.copy_(left @ (b[0].float() * scale).T)

    module(monkeypatch, "deep_gemm", fp8_gemm_nt=fp8_gemm_nt)
    quantised = "gemm dtype=fp8_block128 operand=quantised rows=3 outputs=256 inputs=256"
    found = asked(quantised, "sglang")
    assert (found.status, found.kernel_source) == (OK, "deep_gemm_fp8_gemm_nt")
    assert asked("gemm rows=3 outputs=64 inputs=64", "sglang").status == "unsupported"


def test_flash_mlas_attention(monkeypatch: pytest.MonkeyPatch):
    def flash_mla_sparse_fwd(q: Any, kv: Any, indices: Any, sm_scale: float, d_v: int = 512,
                             attn_sink: Any = None) -> Any:  # fmt: skip
        out = torch.zeros_like(q)
        for row in range(len(q)):
            places = indices[row, 0]
            keys = kv[places[places >= 0].long(), 0].double()
            weights = torch.exp(q[row].double() @ keys.T * sm_scale)
            total = weights.sum(1) + torch.exp(attn_sink.double())
            out[row] = (weights @ keys / total[:, None]).to(q.dtype)
        return out, None, None

    module(monkeypatch, "flash_mla", flash_mla_sparse_fwd=flash_mla_sparse_fwd)
    text = "sparse_attention rows=3 keys_per_row=140 heads=2 layout=bytes1024"
    found = asked(text, "sglang")
    assert (found.status, found.kernel_source) == (OK, "flash_mla_sparse_fwd"), found.error


def test_every_adapter_is_for_a_kind_and_can_be_loaded():
    assert set(ENGINES) <= set(KINDS)
    for operator, kernels in ENGINES.items():
        for one in kernels:
            assert callable(one.load())
            assert one.engine in ("sglang", "vllm", "trtllm")
        kind = kind_of(Case(operator, {}, {}))
        assert list(implementations(kind))[-1] in kind.implementations


def test_what_is_here_is_told():
    found = availability("cpu")
    assert len(found) == sum(map(len, ENGINES.values()))
    assert all("cannot be imported" in one["status"] for one in found)
