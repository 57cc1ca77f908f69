"""Sparse attention: one softmax over the window and the selected entries of each row.

Source: model-facts §4.2; row bytes runtime-semantics §6.1.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import (
    BF16_BYTES,
    FP32_BYTES,
    INT32_BYTES,
    LATENT,
    MAIN,
    ROW_BYTES,
    SELECTED,
    WINDOW,
    WINDOW_BESIDE,
)
from collectors.op.kinds.spread import ROWS, ROWS_PER_REQUEST, requests_of

ENTRIES_PER_SELECTED = 16
"""Global entries of a request for each selected one, where a case does not say: 512 of 8,192."""


def keys_of(case: Case) -> tuple[float, float]:
    """Window rows and selected entries of a row, on average."""
    keys = float(case.size("keys_per_row"))
    return min(keys, WINDOW), max(keys - WINDOW, 0.0)


def window_rows(case: Case) -> int:
    """Window rows of all requests: each row of a request sees one that the row before did not."""
    requests = requests_of(case)
    widest = -int(-keys_of(case)[0] // 1)
    return requests.count * (widest + requests.rows - 1)


def entries_of(case: Case) -> int:
    """Global entries of each request, from which its rows select.

    Raises:
        InputError: fewer than a row selects.
    """
    selected = -int(-keys_of(case)[1] // 1)
    entries = case.whole("entries") or max(ENTRIES_PER_SELECTED * selected, 1)
    if entries < selected:
        raise InputError(f"case {case.text}: a row selects {selected}, of {entries} entries")
    return entries


def attention_work(case: Case) -> Work:
    """Both products of a query and the rows that it sees; a request's rows are read once.

    Of the selected entries, those that one row must read: others may read the same.
    """
    rows, heads, requests = case.whole("rows"), case.whole("heads"), requests_of(case)
    window, selected = keys_of(case)
    layout = case.options["layout"]
    queries = rows * heads * LATENT * BF16_BYTES
    seen = requests.count * (window + requests.rows - 1)
    return Work(
        flops={"bf16": 4.0 * heads * LATENT * rows * (window + selected)},
        read_bytes=ROW_BYTES[WINDOW_BESIDE[layout]] * seen
        + ROW_BYTES[MAIN[layout]] * requests.count * selected
        + queries
        + heads * FP32_BYTES,
        written_bytes=queries,
    )


def attention_bytes(case: Case) -> float:
    """Memory [B] of the rows, indices, queries and answers."""
    rows, layout = case.whole("rows"), case.options["layout"]
    entries = requests_of(case).count * entries_of(case)
    return (
        ROW_BYTES[WINDOW_BESIDE[layout]] * window_rows(case)
        + ROW_BYTES[MAIN[layout]] * entries
        + rows * (float(case.size("keys_per_row")) + 3) * INT32_BYTES
        + 2 * rows * case.whole("heads") * LATENT * BF16_BYTES
    )


_BUILDS = "collectors.op.kernels.attention"

ATTENTION_KINDS: tuple[Kind, ...] = (
    Kind(
        operator="sparse_attention",
        about="gathers cached rows, widens them, and attends with a sink per head; one latent is "
        "key and value",
        sizes=(
            ROWS,
            SizeRule(
                "keys_per_row",
                f"cached rows that a row attends to, on average: up to {WINDOW} of its window, "
                "then selected entries",
                highest=WINDOW + SELECTED, whole=False,
            ),
            SizeRule("heads", "query heads on this GPU", highest=256),
            ROWS_PER_REQUEST,
            SizeRule(
                "entries",
                f"global entries of a request; 0: {ENTRIES_PER_SELECTED} for each selected one",
                lowest=0, default=0,
            ),
        ),
        options={"layout": tuple(MAIN), "row_locality": ("scattered", "contiguous")},
        work=attention_work,
        input_bytes=attention_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{_BUILDS}:build_triton"),
            Implementation(PORTABLE, "torch", f"{_BUILDS}:build_torch"),
        ),
        source="model-facts §4.2; report §2.3",
    ),
)  # fmt: skip
