"""Kernels that only pass over rows: norms, rotations, activations, sums, copies.

One line each: values that a row brings and leaves. Source: model-facts §4.1, §4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collectors.case import Case
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import BF16_BYTES, QUERY_BYTES
from collectors.op.kinds.products import ROWS, SCALE_GROUP

FP8_BYTES = 1 + 1 / SCALE_GROUP
"""Of a value with its share of a scale per 32."""
HEAD = 512
INDEX_HEADS, INDEX_HEAD = 32, 128


@dataclass(frozen=True)
class Pass:
    """A kernel that passes over rows.

    Attributes:
        computes: name of the function in `collectors.op.kernels.elementwise`.
        about: what it does.
        width: values of a row, or the width of a head.
        read, written: bytes a value of ``width``, for BF16 and 8-bit results [B].
        heads: rows hold so many heads; 0: the width is the row's.
        weight: a weight a value is read as well.
    """

    computes: str
    about: str
    width: int
    read: float
    written: float
    heads: int = 0
    weight: bool = False


PASSES: Mapping[str, Pass] = {
    "site_norm": Pass("norm", "RMSNorm before a sub-layer", 5120, 2, 2, weight=True),
    "final_norm": Pass("norm", "RMSNorm before the head", 5120, 2, 2, weight=True),
    "q_norm": Pass("norm_quantise", "RMSNorm of the query latent, and its conversion", 1280,
                   2, FP8_BYTES, weight=True),
    "q_rope": Pass("rope", "rotates the last 64 values of each head", HEAD, 2, 2, heads=16),
    "inverse_rope": Pass("inverse_rope", "rotates them back", HEAD, 2, 2, heads=16),
    "index_query_rope": Pass("index_rope", "rotates the index queries, and quantises them to FP4",
                             INDEX_HEAD, 2, QUERY_BYTES["fp4"] / INDEX_HEAD,
                             heads=INDEX_HEADS),
    "shared_expert": Pass("swiglu", "SwiGLU of the shared expert, and its conversion", 576,
                          4, FP8_BYTES),
    "expert_sum": Pass("add", "adds the shared expert's rows to the routed ones", 5120, 4, 2),
    "stream_copy": Pass("spread", "copies the embedding into the four streams", 5120, 2, 8),
    "small_kernel": Pass("copy", "a kernel with next to nothing to do", 128, 2, 2),
}  # fmt: skip
"""Kernels by name."""


def _values(case: Case) -> float:
    heads = case.whole("heads") if "heads" in case.sizes else 1
    return float(case.whole("rows")) * heads * case.whole("inputs")


def pass_work(case: Case) -> Work:
    """Every value once in and once out."""
    one = PASSES[case.operator]
    return Work(
        read_bytes=_values(case) * one.read + one.weight * case.whole("inputs") * BF16_BYTES,
        written_bytes=_values(case) * one.written,
    )


def pass_bytes(case: Case) -> float:
    """Memory [B] of both."""
    work = pass_work(case)
    return work.read_bytes + work.written_bytes


_BUILDS = "collectors.op.kernels.elementwise"

ELEMENTWISE_KINDS: tuple[Kind, ...] = tuple(
    Kind(
        operator=name,
        about=one.about,
        sizes=(
            ROWS,
            SizeRule("inputs", "values of a row, or of a head", default=one.width,
                     highest=1 << 18),
            *([SizeRule("heads", "heads of a row on this GPU", default=one.heads, highest=1024)]
              if one.heads else []),
        ),
        options={"dtype": ("bf16",)},
        work=pass_work,
        input_bytes=pass_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_torch"),
        ),
        source="model-facts §4.1, §4.2",
    )
    for name, one in PASSES.items()
)  # fmt: skip
