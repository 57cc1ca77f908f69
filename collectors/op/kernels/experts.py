"""Routed experts and the router's choice: inputs, the torch way, and the answer in FP32."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256

import torch

from collectors.case import Case
from collectors.errors import InputError, UnavailableError
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.products import quantised, widened
from collectors.op.kernels.rows import e2m1_values, ue8m0_values
from collectors.op.kinds.experts import slice_width
from collectors.op.kinds.products import SCALE_GROUP
from collectors.op.prepared import Agreement, Prepared

SWIGLU_LIMIT = 10.0
ROUTED_SCALE = 1.5
HISTOGRAM_VARIABLE = "AISIM_V41_EXPERT_COUNTS"
"""Environment variable: a JSON file with a list of tokens that each expert of a layer got."""
_SEED_DIGITS = 8


def build_torch(case: Case, device: torch.device) -> Prepared:
    """The torch way: expert by expert; every expert takes all rows and keeps its own."""
    number = torch.bfloat16 if device.type == "cuda" else torch.float32

    def run(codes, scales, chosen, weights, up, up_scales, down, down_scales):
        rows = widened(codes, scales).to(number)
        answer = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        for expert in range(len(up)):
            share = (weights * (chosen == expert)).sum(1, keepdim=True)
            inner = _swiglu(rows @ _mxfp4(up[expert], up_scales[expert]).to(number).T)
            inner = widened(*quantised(inner)).to(number)
            outer = inner @ _mxfp4(down[expert], down_scales[expert]).to(number).T
            answer += share * outer
        return answer.bfloat16()

    return _prepared(case, device, run, "torch")


def build_triton(case: Case, device: torch.device) -> Prepared:
    """Grouped products over rows sorted by expert.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import experts_triton

    return _prepared(case, device, experts_triton.routed_experts, "triton")


def build_select_torch(case: Case, _: torch.device) -> Prepared:
    """The router's choice the torch way."""
    chosen = case.whole("experts_per_token")

    def run(logits, bias):
        scores = torch.sqrt(torch.nn.functional.softplus(logits))
        experts = torch.topk(scores + bias, chosen, dim=1).indices
        weights = scores.gather(1, experts)
        return experts, weights / weights.sum(1, keepdim=True) * ROUTED_SCALE

    return _select(case, run, "torch")


def build_select_triton(case: Case, device: torch.device) -> Prepared:
    """The router's choice in one kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import experts_triton

    chosen = case.whole("experts_per_token")
    return _select(case, lambda *inputs: experts_triton.select(*inputs, chosen), "triton")


def routing(case: Case, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts that each row visits, all different, [rows, visits], and their weights.

    The same for every set of inputs of a case, so that all are as hard.
    """
    rows, routed, visits = (
        case.whole(name) for name in ("rows", "experts_routed", "experts_per_token")
    )
    if visits > routed:
        raise InputError(f"case {case.text}: a row visits {visits} of {routed} experts")
    seed = int(sha256(case.text.encode()).hexdigest()[:_SEED_DIGITS], 16)
    generator = torch.Generator().manual_seed(seed)
    if case.options["expert_load"] == "balanced":
        place = torch.arange(rows * visits).view(rows, visits)
        chosen = place % routed
    else:
        keys = -torch.log(-torch.log(torch.rand(rows, routed, generator=generator)))
        chosen = torch.topk(keys + torch.log(_popularity(case, routed)), visits, dim=1).indices
    weights = torch.rand(rows, visits, generator=generator) + 0.5
    weights = weights / weights.sum(1, keepdim=True) * ROUTED_SCALE
    return chosen.to(device), weights.to(device)


def _popularity(case: Case, routed: int) -> torch.Tensor:
    """Share of the visits that each expert is drawn with.

    Raises:
        UnavailableError: a histogram is asked for and not given.
    """
    load = case.options["expert_load"]
    if load == "uniform":
        return torch.full((routed,), 1.0 / routed)
    if load.startswith("power_law_"):
        exponent = float(load.removeprefix("power_law_"))
        shares = torch.arange(1, routed + 1, dtype=torch.float64) ** -exponent
        return (shares / shares.sum()).float()
    path = os.environ.get(HISTOGRAM_VARIABLE)
    if not path:
        raise UnavailableError(f"a histogram needs {HISTOGRAM_VARIABLE}: a JSON list of counts")
    try:
        with open(path, encoding="utf-8") as stream:
            counts = torch.tensor(json.load(stream), dtype=torch.float64)
    except (OSError, ValueError, TypeError) as error:
        raise UnavailableError(
            f"{HISTOGRAM_VARIABLE}: not a JSON list of counts ({error})"
        ) from None
    if counts.shape != (routed,) or not bool((counts >= 0).all()) or counts.sum() <= 0:
        raise UnavailableError(f"{HISTOGRAM_VARIABLE}: must be {routed} counts, 0 or more")
    return ((counts + 1e-6) / (counts + 1e-6).sum()).float()


def _prepared(case: Case, device: torch.device, run: Callable, kernel_source: str) -> Prepared:
    rows, hidden, routed = (case.whole(name) for name in ("rows", "hidden", "experts_routed"))
    width = slice_width(case)
    if hidden % SCALE_GROUP or width % SCALE_GROUP:
        raise InputError(f"case {case.text}: widths must be multiples of {SCALE_GROUP}")
    chosen, weights = routing(case, device)

    def make(generator: torch.Generator):
        values = torch.randn(rows, hidden, generator=generator, device=device)
        return (
            *quantised(values), chosen, weights,
            *_weights(routed, 2 * width, hidden, generator),
            *_weights(routed, hidden, width, generator),
        )  # fmt: skip

    def reference(codes, scales, chosen, weights, up, up_scales, down, down_scales):
        values = widened(codes, scales)
        answer = torch.zeros(rows, hidden, device=device)
        for expert in chosen.unique().tolist():
            row, visit = (chosen == expert).nonzero(as_tuple=True)
            inner = _swiglu(values[row] @ _mxfp4(up[expert], up_scales[expert]).T)
            inner = widened(*quantised(inner))
            outer = inner @ _mxfp4(down[expert], down_scales[expert]).T
            answer.index_add_(0, row, outer * weights[row, visit][:, None])
        return answer

    return Prepared(
        make=make, run=run, reference=reference, agreement=Agreement(relative=0.03),
        kernel_source=kernel_source, outcome={"touched": float(len(chosen.unique()))},
    )  # fmt: skip


def _select(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, routed, visits = (
        case.whole(name) for name in ("rows", "experts_routed", "experts_per_token")
    )

    def make(generator: torch.Generator):
        logits = torch.randn(rows, routed, generator=generator, device=generator.device)
        bias = torch.rand(routed, generator=generator, device=generator.device)
        return logits, bias * 0.1

    def reference(logits, bias):
        chosen = torch.empty(rows, visits, dtype=torch.int64, device=logits.device)
        weights = torch.empty(rows, visits, dtype=torch.float64, device=logits.device)
        for row in range(rows):
            scores = torch.log1p(torch.exp(logits[row].double())).sqrt()
            order = torch.argsort(scores + bias.double(), descending=True)[:visits]
            chosen[row] = order
            weights[row] = scores[order] / scores[order].sum() * ROUTED_SCALE
        return chosen, weights

    def compare(answer, wanted, _):
        for (ours, our_weights), (theirs, their_weights) in [(answer, wanted)]:
            ours, place = ours.sort(1)
            theirs, their_place = theirs.sort(1)
            if not torch.equal(ours, theirs):
                return f"{int((ours != theirs).any(1).sum())} rows choose other experts"
            apart = our_weights.double().gather(1, place) - their_weights.gather(1, their_place)
            if float(apart.abs().max()) > 1e-4:
                return f"weights are off by {float(apart.abs().max()):.2g}"
        return None

    return Prepared(make=make, run=run, reference=reference, compare=compare,
                    kernel_source=kernel_source)  # fmt: skip


def _swiglu(both: torch.Tensor) -> torch.Tensor:
    """Gate and up side by side; the gate clamped from above, up on both sides."""
    gate, up = both.float().chunk(2, -1)
    gate = gate.clamp(max=SWIGLU_LIMIT)
    return gate * torch.sigmoid(gate) * up.clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)


def _weights(
    experts: int, outputs: int, inputs: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random codes of MXFP4, two a byte, [experts, outputs, inputs / 2], and their scales."""
    device = generator.device
    codes = torch.randint(
        256, (experts, outputs, inputs // 2), generator=generator, device=device, dtype=torch.uint8
    )
    scales = torch.randint(
        119, 122, (experts, outputs, inputs // SCALE_GROUP), generator=generator, device=device,
        dtype=torch.uint8,
    )  # fmt: skip
    return codes, scales


def _mxfp4(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Values of such weights, FP32; the low half of a byte comes first."""
    pairs = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    grouped = e2m1_values(pairs).unflatten(-1, (-1, SCALE_GROUP))
    return (grouped * ue8m0_values(scales)[..., None]).flatten(-2)
