"""Hyper-connections: what a kernel does at a site of the residual streams.

A site expands a sub-layer's output into the streams, makes coefficients of them, collapses them
into the next input, and norms it. Kernels do one of these, or several in one sweep.
Source: model-facts §4.1; report §2.4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectors.case import Case
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import BF16_BYTES, FP32_BYTES
from collectors.op.kinds.products import ROWS

STREAMS = 4
COEFFICIENTS = STREAMS * (STREAMS + 2)
"""Of a site: one to collapse and one to expand a stream, and one for each pair of streams."""


@dataclass(frozen=True)
class Parts:
    """What a kernel does, in this order."""

    expands: bool = False
    measures: bool = False
    collapses: bool = False
    norms: bool = False


PARTS = {
    "mhc_statistics": Parts(measures=True),
    "mhc_collapse": Parts(collapses=True),
    "head_collapse": Parts(collapses=True),
    "mhc_post": Parts(expands=True),
    "mhc_pre": Parts(measures=True, collapses=True),
    "mhc_fused": Parts(expands=True, measures=True, collapses=True),
    "mhc_post_collapse": Parts(expands=True, collapses=True),
    "combine_norm": Parts(collapses=True, norms=True),
    "final_collapse_norm": Parts(collapses=True, norms=True),
    "post_combine_norm": Parts(expands=True, collapses=True, norms=True),
    "mega_mhc": Parts(expands=True, measures=True, collapses=True, norms=True),
}
"""Kernels by name: ``mhc_fused`` is a site in a single pass; ``mhc_statistics``, ``mhc_collapse``
and ``mhc_post`` are the same in three."""


def hyper_work(case: Case) -> Work:
    """One sweep: streams in, what is asked for out."""
    rows, hidden = float(case.whole("rows")), case.whole("hidden")
    parts = PARTS[case.operator]
    width = hidden * BF16_BYTES
    read = STREAMS * width + parts.expands * width
    written = parts.expands * STREAMS * width + parts.collapses * width
    flops = 2.0 * STREAMS * hidden * COEFFICIENTS * rows if parts.measures else 0.0
    weights = COEFFICIENTS * STREAMS * hidden * FP32_BYTES if parts.measures else 0.0
    return Work(
        flops={"tf32": flops} if flops else {},
        read_bytes=rows * read + weights + parts.norms * width,
        written_bytes=rows * (written + parts.measures * COEFFICIENTS * FP32_BYTES),
    )


def hyper_bytes(case: Case) -> float:
    """Memory [B] of streams, coefficients and results."""
    rows = float(case.whole("rows"))
    work = hyper_work(case)
    return work.read_bytes + work.written_bytes + rows * 2 * COEFFICIENTS * FP32_BYTES


_BUILDS = "collectors.op.kernels.hyper"

HYPER_KINDS: tuple[Kind, ...] = tuple(
    Kind(
        operator=name,
        about=" and ".join(
            what
            for what, done in (
                ("expands the streams", parts.expands),
                ("makes a site's coefficients", parts.measures),
                ("collapses the streams", parts.collapses),
                ("norms the result", parts.norms),
            )
            if done
        ),
        sizes=(
            ROWS,
            SizeRule("hidden", "width of a stream", highest=1 << 16, default=5120),
        ),
        options={"dtype": ("bf16",)},
        work=hyper_work,
        input_bytes=hyper_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_torch"),
        ),
        source="model-facts §4.1; report §2.4.1",
    )
    for name, parts in PARTS.items()
)
