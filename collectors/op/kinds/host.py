"""What the host takes to issue work, and the gap between two kernels of a graph.

Measured by themselves, since no operator holds them alone: docs/op.md, "Host"; the three costs are
those of `aisim_v41.evidence.calibration.Launch`.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work

CALLS = ("framework", "bare", "python")


def _nothing(_: Case) -> Work:
    return Work()


HOST_KINDS: tuple[Kind, ...] = (
    Kind(
        operator="host_launch",
        about="one call from the host: through the framework, a further kernel inside it, or "
        "Python code that launches nothing",
        sizes=(SizeRule("calls", "calls that a sample is divided by", default=256),),
        options={"dtype": ("none",), "call": CALLS},
        work=_nothing,
        input_bytes=lambda _: 1024.0,
        implementations=(
            Implementation(PORTABLE, "torch", "collectors.op.kernels.host:build_launch"),
        ),
        source="docs/op.md",
    ),
    Kind(
        operator="graph_gap",
        about="time that one more empty kernel adds to a graph",
        sizes=(SizeRule("nodes", "kernels of the longer graph", lowest=2, default=512,
                        highest=1 << 16),),
        options={"dtype": ("none",)},
        work=_nothing,
        input_bytes=lambda _: 1024.0,
        implementations=(
            Implementation(PORTABLE, "torch", "collectors.op.kernels.host:build_gap"),
        ),
        source="docs/op.md",
    ),
)  # fmt: skip
