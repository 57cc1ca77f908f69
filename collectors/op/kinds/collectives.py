"""Collectives between the GPUs of one node, by the library that engines use.

``message_bytes`` is counted as the library's tables count it (docs/tables.md): of an all-reduce
the tensor of one rank, of the others the buffer of all ranks. Least bytes that a rank must send:
docs/bounds.md, "Links".
"""

from __future__ import annotations

from collectors.case import Case
from collectors.op.kind import Implementation, Kind, SizeRule, Work

SENT_SHARE = {
    "all_reduce": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: 1 / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks / ranks,
}
"""Least share of the message that a rank sends; switches that add or copy halve what rings need."""


def collective_work(case: Case) -> Work:
    """What a rank must send at the least."""
    share = SENT_SHARE[case.operator](case.whole("ranks"))
    return Work(sent_bytes=case.whole("message_bytes") * share)


def collective_bytes(case: Case) -> float:
    """Memory [B] of a rank's buffers."""
    return 2.0 * case.whole("message_bytes")


COLLECTIVE_KINDS: tuple[Kind, ...] = tuple(
    Kind(
        operator=name,
        about=about,
        sizes=(
            SizeRule("message_bytes", "as the library's tables count it", highest=1 << 34),
            SizeRule("ranks", "GPUs that take part", lowest=2, highest=72),
        ),
        options={"dtype": ("bf16",), "library": ("nccl", "gloo")},
        work=collective_work,
        input_bytes=collective_bytes,
        implementations=(
            Implementation("nccl", "torch_distributed", "collectors.op.kernels.collectives:build",
                           {"library": ("nccl",)}, ranks=True),
            Implementation("gloo", "torch_distributed", "collectors.op.kernels.collectives:build",
                           {"library": ("gloo",)}, ranks=True),
        ),
        source="runtime-semantics §4.3; torch.distributed",
    )
    for name, about in (
        ("all_reduce", "every rank gets the sum of all"),
        ("all_gather", "every rank gets the parts of all"),
        ("reduce_scatter", "every rank gets its part of the sum"),
        ("all_to_all", "every rank gives every other its part"),
    )
)  # fmt: skip
