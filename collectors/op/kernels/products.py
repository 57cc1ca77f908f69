"""Dense products and conversions: inputs, the torch way, and the answer in FP32."""

from __future__ import annotations

from collections.abc import Callable

import torch

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kernels.compiled import need_triton
from collectors.op.kernels.rows import E4M3_MAX, e4m3_bytes, e4m3_values, ue8m0_bytes, ue8m0_values
from collectors.op.kinds.products import BLOCKS, SCALE_GROUP
from collectors.op.prepared import Agreement, Prepared

_CONVERTED = Agreement(relative=0.02)
"""A code at the edge between two may fall either way."""


def quantised(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 codes and UE8M0 scales of groups of 32: [rows, n] to [rows, n] and [rows, n / 32]."""
    grouped = values.float().unflatten(-1, (-1, SCALE_GROUP))
    scales = ue8m0_bytes(grouped.abs().amax(-1), E4M3_MAX)
    codes = e4m3_bytes((grouped / ue8m0_values(scales)[..., None]).flatten(-2))
    return codes, scales


def widened(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Values of such codes, FP32."""
    grouped = e4m3_values(codes).unflatten(-1, (-1, SCALE_GROUP))
    return (grouped * ue8m0_values(scales)[..., None]).flatten(-2)


def block_weights(
    outputs: int, inputs: int, block: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights as E4M3 codes [outputs, inputs] with a UE8M0 scale a block."""
    device = generator.device
    codes = e4m3_bytes(torch.randn(outputs, inputs, generator=generator, device=device))
    scales = torch.randint(
        118, 122, (-(-outputs // block), -(-inputs // block)), generator=generator, device=device
    )
    return codes, scales.to(torch.uint8)


def block_widened(codes: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    """Values of such weights, FP32."""
    outputs, inputs = codes.shape
    spread = ue8m0_values(scales).repeat_interleave(block, 0)[:outputs]
    return e4m3_values(codes) * spread.repeat_interleave(block, 1)[:, :inputs]


def build_bf16(case: Case, device: torch.device) -> Prepared:
    """BF16 products by torch, which has a library do them, as engines do."""
    rows, outputs, inputs, groups = _sizes(case)

    def make(generator: torch.Generator):
        weights = torch.randn(groups, outputs // groups, inputs, generator=generator, device=device)
        values = torch.randn(groups, rows, inputs, generator=generator, device=device)
        return values.bfloat16(), (weights / inputs**0.5).bfloat16()

    def run(values, weights):
        if groups == 1:
            return values[0] @ weights[0].T
        return torch.bmm(values, weights.transpose(1, 2))

    def reference(values, weights):
        answer = values.float() @ weights.float().transpose(1, 2)
        return answer[0] if groups == 1 else answer

    library = "cublas" if device.type == "cuda" and torch.version.cuda else "torch_matmul"
    return Prepared(make=make, run=run, reference=reference, agreement=Agreement(relative=0.01),
                    kernel_source=library)  # fmt: skip


def build_fp8_torch(case: Case, device: torch.device) -> Prepared:
    """8-bit products the torch way: widen the weights, then multiply."""
    block, groups = BLOCKS[case.options["dtype"]], case.whole("groups")
    arrives = case.options["operand"] == "quantised"
    number = torch.bfloat16 if device.type == "cuda" else torch.float32

    def run(values, scales, codes, code_scales):
        activations = widened(values, scales) if arrives else widened(*quantised(values))
        weights = block_widened(codes, code_scales, block).to(number)
        return _grouped(activations.to(number), weights, groups).bfloat16()

    return _fp8(case, run, "torch")


def build_fp8_triton(case: Case, device: torch.device) -> Prepared:
    """8-bit products by one kernel after the conversion of the input.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import products_triton

    block, groups = BLOCKS[case.options["dtype"]], case.whole("groups")
    arrives = case.options["operand"] == "quantised"

    def run(values, scales, codes, code_scales):
        if not arrives:
            values, scales = products_triton.quantise(values)
        return products_triton.product(values, scales, codes, code_scales, block, groups)

    return _fp8(case, run, "triton")


def build_quantise_torch(case: Case, _: torch.device) -> Prepared:
    """The conversion the torch way."""
    return _quantise(case, quantised, "torch")


def build_quantise_triton(case: Case, device: torch.device) -> Prepared:
    """The conversion by one kernel.

    Raises:
        UnavailableError: triton cannot run here.
    """
    need_triton(device)
    from collectors.op.kernels import products_triton

    return _quantise(case, products_triton.quantise, "triton")


def build_embedding(case: Case, device: torch.device) -> Prepared:
    """Rows of the embedding."""
    rows, width, vocabulary = (case.whole(name) for name in ("rows", "inputs", "vocabulary"))

    def make(generator: torch.Generator):
        table = torch.randn(vocabulary, width, generator=generator, device=device).bfloat16()
        return table, torch.randint(vocabulary, (rows,), generator=generator, device=device)

    def reference(table, tokens):
        return torch.stack([table[token] for token in tokens.tolist()])

    return Prepared(make=make, run=lambda table, tokens: table[tokens], reference=reference,
                    agreement=Agreement(exact=True), kernel_source="torch")  # fmt: skip


def _fp8(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, outputs, inputs, groups = _sizes(case)
    block = BLOCKS[case.options["dtype"]]
    if inputs % SCALE_GROUP or (outputs // groups) % min(block, SCALE_GROUP):
        raise InputError(f"case {case.text}: inputs and outputs of a group must be multiples of "
                         f"{SCALE_GROUP}")  # fmt: skip
    arrives = case.options["operand"] == "quantised"

    def make(generator: torch.Generator):
        values = torch.randn(rows, groups * inputs, generator=generator, device=generator.device)
        codes, scales = quantised(values)
        weights = block_weights(outputs, inputs, block, generator)
        if arrives:
            return codes, scales, *weights
        return values.bfloat16(), scales[:0], *weights

    def reference(values, scales, codes, code_scales):
        activations = widened(values, scales) if arrives else widened(*quantised(values))
        return _grouped(activations, block_widened(codes, code_scales, block), groups)

    return Prepared(make=make, run=run, reference=reference, agreement=_CONVERTED,
                    kernel_source=kernel_source)  # fmt: skip


def _quantise(case: Case, run: Callable, kernel_source: str) -> Prepared:
    rows, inputs = case.whole("rows"), case.whole("inputs")

    def make(generator: torch.Generator):
        values = torch.randn(rows, inputs, generator=generator, device=generator.device)
        return (values.bfloat16(),)

    def reference(values):
        codes = torch.empty(values.shape, dtype=torch.uint8, device=values.device)
        scales = torch.empty(rows, inputs // SCALE_GROUP, dtype=torch.uint8, device=values.device)
        for group in range(inputs // SCALE_GROUP):
            part = values[:, group * SCALE_GROUP : (group + 1) * SCALE_GROUP].float()
            scale = ue8m0_bytes(part.abs().amax(1), E4M3_MAX)
            scales[:, group] = scale
            codes[:, group * SCALE_GROUP : (group + 1) * SCALE_GROUP] = e4m3_bytes(
                part / ue8m0_values(scale)[:, None]
            )
        return codes, scales

    return Prepared(make=make, run=run, reference=reference, agreement=Agreement(exact=True),
                    kernel_source=kernel_source)  # fmt: skip


def _grouped(values: torch.Tensor, weights: torch.Tensor, groups: int) -> torch.Tensor:
    """Products side by side: [rows, groups x inputs] and [outputs, inputs] to [rows, outputs]."""
    rows = len(values)
    if groups == 1:
        return values @ weights.T
    apart = values.unflatten(1, (groups, -1)).transpose(0, 1)
    return (
        torch.bmm(apart, weights.unflatten(0, (groups, -1)).transpose(1, 2))
        .transpose(0, 1)
        .reshape(rows, -1)
    )


def _sizes(case: Case) -> tuple[int, int, int, int]:
    rows, outputs, inputs, groups = (
        case.whole(name) for name in ("rows", "outputs", "inputs", "groups")
    )
    if outputs % groups:
        raise InputError(f"case {case.text}: outputs must be a multiple of groups")
    return rows, outputs, inputs, groups
