"""Routed experts of one GPU, and the router's choice.

Source: model-facts §2 (MXFP4), §4.5 (router); splits and padding: model-facts §9. Loads are those
of public tables (docs/tables.md): ``balanced``, ``uniform`` draws, power laws of popularity.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import BF16_BYTES, FP32_BYTES, INT64_BYTES
from collectors.op.kinds.products import ROWS, SCALE_GROUP

MXFP4_BYTES = 0.5 + 1 / 32
"""Of one weight: 4 bits and a shared scale per 32."""
LOADS = ("uniform", "balanced", "power_law_1.01", "power_law_1.2", "histogram")
"""How rows choose experts; a histogram is the user's own counts."""


def slice_width(case: Case) -> int:
    """Inner width of an expert on this GPU, padded as kernels pad it.

    Raises:
        InputError: the slices do not divide the width.
    """
    width, slices = case.whole("expert_width"), case.whole("tensor_parallel")
    if width % slices:
        raise InputError(f"case {case.text}: {slices} slices do not divide {width}")
    return _up(width // slices, case.whole("width_multiple"))


def least_touched(case: Case) -> int:
    """Experts that some rows must visit, however they choose: those of one row."""
    return case.whole("experts_per_token")


def experts_work(case: Case) -> Work:
    """Three products a row and visit; of the weights, those of the experts that one row visits."""
    rows, hidden = case.whole("rows"), case.whole("hidden")
    width = case.whole("expert_width") // case.whole("tensor_parallel")
    visits = float(rows) * case.whole("experts_per_token")
    return Work(
        flops={"mxfp4_mxfp8": 2.0 * 3 * visits * hidden * width},
        read_bytes=least_touched(case) * 3.0 * hidden * width * MXFP4_BYTES
        + rows * hidden * (1 + 1 / SCALE_GROUP),
        written_bytes=float(rows) * hidden * BF16_BYTES,
    )


def experts_bytes(case: Case) -> float:
    """Memory [B] of all experts' weights, and of rows on their way through them."""
    rows, hidden, width = case.whole("rows"), case.whole("hidden"), slice_width(case)
    visits = float(rows) * case.whole("experts_per_token")
    weights = case.whole("experts_routed") * 3.0 * hidden * width * MXFP4_BYTES
    return weights + rows * hidden * 4.0 + visits * (width * 1.1 + hidden * FP32_BYTES)


def select_work(case: Case) -> Work:
    """Logits in, the chosen experts and their weights out."""
    rows = float(case.whole("rows"))
    chosen = case.whole("experts_per_token")
    return Work(
        read_bytes=(rows + 1) * case.whole("experts_routed") * FP32_BYTES,
        written_bytes=rows * chosen * (FP32_BYTES + FP32_BYTES),
    )


def select_bytes(case: Case) -> float:
    """Memory [B] of logits, bias and what is chosen."""
    rows = float(case.whole("rows"))
    chosen = case.whole("experts_per_token")
    return (rows + 1) * case.whole("experts_routed") * FP32_BYTES + rows * chosen * (
        FP32_BYTES + INT64_BYTES
    )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


_ROUTED = SizeRule("experts_routed", "experts on this GPU", highest=1 << 16)
_CHOSEN = SizeRule("experts_per_token", "of those, that a row visits", highest=1 << 10)
_BUILDS = "collectors.op.kernels.experts"

EXPERT_KINDS: tuple[Kind, ...] = (
    Kind(
        operator="routed_experts",
        about="rows sorted by expert, gate and up, SwiGLU, down, and the weighted sum; rows "
        "arrive quantised",
        sizes=(
            ROWS,
            SizeRule("hidden", "width of a row", highest=1 << 18),
            SizeRule("expert_width", "inner width of an expert before it is cut", highest=1 << 18),
            SizeRule("tensor_parallel", "slices that an expert is cut into", default=1,
                     highest=1024),
            _ROUTED,
            _CHOSEN,
            SizeRule("width_multiple", "a slice is padded to a multiple of this", default=32,
                     highest=1 << 12),
        ),
        options={"dtype": ("mxfp4",), "expert_load": LOADS},
        work=experts_work,
        input_bytes=experts_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_torch"),
        ),
        source="model-facts §2, §4.1",
    ),
    Kind(
        operator="router_select",
        about="root of softplus, the best six by biased score, weights that add to 1.5",
        sizes=(
            ROWS,
            SizeRule("experts_routed", "experts of the layer", default=384, highest=1 << 16),
            SizeRule("experts_per_token", "that a row visits", default=6, highest=1 << 10),
        ),
        options={"dtype": ("fp32",)},
        work=select_work,
        input_bytes=select_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_select_triton"),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_select_torch"),
        ),
        source="model-facts §1 (scoring_func, topk_method, routed_scaling_factor)",
    ),
)  # fmt: skip
