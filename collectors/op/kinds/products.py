"""Dense products, the conversion before them, and rows of the embedding.

Source: model-facts §2 (formats), §4.2 (shapes); the output's ``wo_a`` is one product in groups.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import BF16_BYTES, INT64_BYTES

SCALE_GROUP = 32
"""Values of an activation that share a scale."""
BLOCKS = {"fp8_block32": 32, "fp8_block128": 128}
"""Edge of the block of weights that shares a scale."""

ROWS = SizeRule("rows", "rows of activations", highest=1 << 20)
INPUTS = SizeRule("inputs", "length of the inner product", highest=1 << 18)


def _weight_bytes(case: Case) -> float:
    values = float(case.whole("outputs")) * case.whole("inputs")
    if case.options["dtype"] == "bf16":
        return values * BF16_BYTES
    return values * (1 + 1 / BLOCKS[case.options["dtype"]] ** 2)


def _input_bytes(case: Case) -> float:
    values = float(case.whole("rows")) * case.whole("groups") * case.whole("inputs")
    if case.options["operand"] == "quantised":
        return values * (1 + 1 / SCALE_GROUP)
    return values * BF16_BYTES


def product_work(case: Case) -> Work:
    """Every output once: 2 FLOP an element of the matrix and row; weights and activations once."""
    rows, outputs = case.whole("rows"), case.whole("outputs")
    arithmetic = "bf16" if case.options["dtype"] == "bf16" else "fp8"
    return Work(
        flops={arithmetic: 2.0 * rows * outputs * case.whole("inputs")},
        read_bytes=_weight_bytes(case) + _input_bytes(case),
        written_bytes=float(rows) * outputs * BF16_BYTES,
    )


def product_bytes(case: Case) -> float:
    """Memory [B] of weights, activations and the result."""
    work = product_work(case)
    return work.read_bytes + work.written_bytes


def quantise_work(case: Case) -> Work:
    """BF16 in, a byte a value and a scale a group out."""
    values = float(case.whole("rows")) * case.whole("inputs")
    return Work(read_bytes=values * BF16_BYTES, written_bytes=values * (1 + 1 / SCALE_GROUP))


def embedding_work(case: Case) -> Work:
    """A row of the table for each token."""
    rows, width = float(case.whole("rows")), case.whole("inputs")
    return Work(
        read_bytes=rows * (width * BF16_BYTES + INT64_BYTES),
        written_bytes=rows * width * BF16_BYTES,
    )


def embedding_bytes(case: Case) -> float:
    """Memory [B] of the table, the tokens and their rows."""
    rows, width = float(case.whole("rows")), case.whole("inputs")
    return (case.whole("vocabulary") + rows) * width * BF16_BYTES + rows * INT64_BYTES


def _total(work: Work) -> float:
    return work.read_bytes + work.written_bytes


_BUILDS = "collectors.op.kernels.products"

PRODUCT_KINDS: tuple[Kind, ...] = (
    Kind(
        operator="gemm",
        about="a dense product; 8-bit ones convert their BF16 input inside unless it arrives "
        "quantised; with groups, as many products side by side",
        sizes=(
            ROWS,
            SizeRule("outputs", "columns of the result, of all groups", highest=1 << 20),
            INPUTS,
            SizeRule("groups", "products side by side, each of its own inputs", default=1,
                     highest=1024),
        ),
        options={
            "dtype": ("fp8_block32", "bf16", "fp8_block128"),
            "operand": ("bf16", "quantised"),
        },
        work=product_work,
        input_bytes=product_bytes,
        implementations=(
            Implementation(PORTABLE, "torch_matmul", f"{_BUILDS}:build_bf16",
                           {"dtype": ("bf16",), "operand": ("bf16",)}),
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_fp8_triton",
                           {"dtype": ("fp8_block32", "fp8_block128")}),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_fp8_torch",
                           {"dtype": ("fp8_block32", "fp8_block128")}),
        ),
        source="model-facts §2, §4.2",
    ),
    Kind(
        operator="site_quantise",
        about="BF16 activations to E4M3 with a UE8M0 scale per 32",
        sizes=(ROWS, SizeRule("inputs", "values of a row", highest=1 << 18, default=5120)),
        options={"dtype": ("fp8",)},
        work=quantise_work,
        input_bytes=lambda case: _total(quantise_work(case)),
        implementations=(
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_quantise_triton"),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_quantise_torch"),
        ),
        source="model-facts §4.2",
    ),
    Kind(
        operator="embedding",
        about="gathers the embedding's row of each token",
        sizes=(
            ROWS,
            SizeRule("inputs", "width of a row", highest=1 << 18, default=5120),
            SizeRule("vocabulary", "rows of the table on this GPU", default=32320,
                     highest=1 << 20),
        ),
        options={"dtype": ("bf16",)},
        work=embedding_work,
        input_bytes=embedding_bytes,
        implementations=(Implementation(PORTABLE, "torch", f"{_BUILDS}:build_embedding"),),
        source="model-facts §2",
    ),
)  # fmt: skip
