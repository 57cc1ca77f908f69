"""Engram: which rows a text asks for, fetching them, and gating what they bring.

The projection between look-up and gate is a ``gemm`` with inputs=6144, outputs=25600.
Source: model-facts §4.6.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.hyper import STREAMS
from collectors.op.kinds.layouts import BF16_BYTES, INT64_BYTES
from collectors.op.kinds.products import ROWS

HEADS = 8
ORDERS = 3
"""2-, 3- and 4-grams."""
ROWS_PER_TOKEN = HEADS * ORDERS
VALUES = 256
ROW_BYTES = VALUES + VALUES // 32
CLASSES = 99_092
"""Classes of tokens that are hashed."""
DEEPEST = ORDERS
"""Tokens before one that its hashes hold."""
LOCALITIES = ("cold", "hot", "text")
"""Rows drawn over the whole table, over a hundredth of it, or hashed from the user's own text."""


def own_rows(case: Case) -> float:
    """Rows that this GPU holds for one token."""
    return ROWS_PER_TOKEN / case.whole("ranks_of_table")


def hash_work(case: Case) -> Work:
    """Tokens in, row numbers out."""
    rows = float(case.whole("rows"))
    return Work(read_bytes=rows * INT64_BYTES, written_bytes=rows * ROWS_PER_TOKEN * INT64_BYTES)


def hash_bytes(case: Case) -> float:
    """Memory [B] of both."""
    return hash_work(case).read_bytes + hash_work(case).written_bytes


def lookup_work(case: Case) -> Work:
    """The least: a row's bytes once for every token's share; the values as BF16."""
    rows = float(case.whole("rows"))
    return Work(
        read_bytes=rows * own_rows(case) * ROW_BYTES * _distinct(case),
        written_bytes=rows * ROWS_PER_TOKEN * VALUES * BF16_BYTES,
    )


def _distinct(case: Case) -> float:
    """Share of rows that must be read: of repeated ones next to none."""
    return 1.0 if case.options["row_locality"] == "cold" else 0.0


def lookup_bytes(case: Case) -> float:
    """Memory [B] of what one call touches; the table is shared by all sets of inputs."""
    rows = float(case.whole("rows"))
    return rows * (
        own_rows(case) * (ROW_BYTES + INT64_BYTES) + ROWS_PER_TOKEN * VALUES * BF16_BYTES
    )


def gate_work(case: Case) -> Work:
    """Streams and keys in, streams out."""
    rows, hidden = float(case.whole("rows")), case.whole("hidden")
    streams = STREAMS * hidden * BF16_BYTES
    return Work(
        flops={"fp32": 2.0 * 3 * STREAMS * hidden * rows},
        read_bytes=rows * (streams + (STREAMS + 1) * hidden * BF16_BYTES) + 2 * streams,
        written_bytes=rows * streams,
    )


def gate_bytes(case: Case) -> float:
    """Memory [B] of both."""
    return gate_work(case).read_bytes + gate_work(case).written_bytes


def table_bytes(case: Case) -> float:
    """Memory [B] of this GPU's part of the table, as cases have it."""
    return case.whole("table_rows") * ROW_BYTES * 1.0


_BUILDS = "collectors.op.kernels.engram"
_TRITON_AND_TORCH = "triton", "torch"

ENGRAM_KINDS: tuple[Kind, ...] = tuple(
    Kind(
        operator=name,
        about=about,
        sizes=(ROWS, *sizes),
        options=options,
        work=work,
        input_bytes=held,
        implementations=tuple(
            Implementation(PORTABLE, source, f"{_BUILDS}:build_{name[7:]}_{source}")
            for source in _TRITON_AND_TORCH
        ),
        source="model-facts §4.6",
    )
    for name, about, sizes, options, work, held in (
        (
            "engram_hash", "row numbers of every token's 2-, 3- and 4-grams", (),
            {"dtype": ("int64",)}, hash_work, hash_bytes,
        ),
        (
            "engram_lookup", "rows of the table, widened; zeros where another GPU has the row",
            (
                SizeRule("ranks_of_table", "GPUs that share the table", default=4, highest=1024),
                SizeRule("table_rows", "rows of this GPU's part in the test", default=1 << 21,
                         highest=1 << 29),
            ),
            {"dtype": ("fp8",), "row_locality": LOCALITIES}, lookup_work, lookup_bytes,
        ),
        (
            "engram_gate", "gates from streams and keys, and the gated addition",
            (SizeRule("hidden", "width of a stream", default=5120, highest=1 << 16),),
            {"dtype": ("bf16",)}, gate_work, gate_bytes,
        ),
    )
)  # fmt: skip
