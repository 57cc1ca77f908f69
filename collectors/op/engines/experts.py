"""The router's choice and the activation as engines have them."""

from __future__ import annotations

from dataclasses import replace

import torch

from collectors.case import Case
from collectors.op.engines.calls import engine_call, version_of
from collectors.op.kernels.experts import ROUTED_SCALE, build_select_torch
from collectors.op.prepared import Prepared


def build_trtllm_select(case: Case, device: torch.device) -> Prepared:
    """``torch.ops.trtllm.noaux_tc_op(logits, bias, n_group, topk_group, topk, scale)``.

    It scores by a sigmoid, not by V4.1's root of softplus: the check of the answer decides.
    """
    engine_call("tensorrt_llm", "__version__")
    select = engine_call("torch", "ops.trtllm.noaux_tc_op")
    visits = case.whole("experts_per_token")
    plain = build_select_torch(case, device)

    def run(logits: torch.Tensor, bias: torch.Tensor):
        weights, experts = select(logits, bias, 1, 1, visits, ROUTED_SCALE)
        return experts.long(), weights

    return replace(plain, run=run, kernel_source="noaux_tc_op",
                   engine_version=version_of("tensorrt-llm", "tensorrt_llm"))  # fmt: skip
