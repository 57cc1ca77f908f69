"""Compressor and stores: what turns latents into cached rows.

Source: model-facts §4.2, §4.4; runtime-semantics §5.2; row bytes §6.1.
"""

from __future__ import annotations

from collectors.case import Case
from collectors.op.kind import PORTABLE, Implementation, Kind, SizeRule, Work
from collectors.op.kinds.layouts import (
    BF16_BYTES,
    FP32_BYTES,
    INT64_BYTES,
    KEY,
    KEY_BYTES,
    LATENT,
    MAIN,
    ROTATED,
    ROW_BYTES,
    WINDOW_ROWS,
)
from collectors.op.kinds.spread import DECODE_ROWS, ROWS

PAGE_ROWS = 64
"""Rows of a page of the cache; each row of a decode step goes to a page of its own."""
TURNS = 1024
"""Positions that have angles; later ones would cost the same."""


def stored_rows(case: Case) -> int:
    """Rows that the call writes: every one, or an entry for each group of compressed rows.

    The last group of a count that does not divide is closed by rows that waited.
    """
    return -(-case.whole("rows") // int(case.sizes.get("ratio", 1)))


def pool_rows(case: Case) -> int:
    """Rows of the cache that is written to."""
    rows = stored_rows(case)
    return PAGE_ROWS * (rows if rows <= DECODE_ROWS else -(-rows // PAGE_ROWS))


def row_bytes(case: Case) -> int:
    """Bytes [B] of one stored row; 0 where nothing is stored."""
    if "key_format" in case.options:
        return KEY_BYTES[case.options["key_format"]]
    return ROW_BYTES[MAIN[case.options["layout"]]] if "layout" in case.options else 0


def _read(case: Case) -> int:
    rows = case.whole("rows")
    if case.operator in ("compress_pool", "compress_store"):
        gates = 1 if case.whole("ratio") == 1 else 2
        return (rows * gates + 1) * LATENT * BF16_BYTES
    if case.operator == "kv_store":
        return (rows + 1) * LATENT * BF16_BYTES
    if case.operator == "index_key_store":
        return (rows + 1) * KEY * BF16_BYTES
    return stored_rows(case) * LATENT * BF16_BYTES


def _latent_bytes(case: Case) -> int:
    return LATENT * BF16_BYTES if case.operator in ("compress_pool", "compress_store") else 0


def store_work(case: Case) -> Work:
    """Latents (and gates and the norm's weight) are read, rows (and latents) written once."""
    row = _latent_bytes(case) + row_bytes(case)
    return Work(read_bytes=_read(case), written_bytes=stored_rows(case) * row)


def store_bytes(case: Case) -> float:
    """Memory [B] of inputs, of the cache that is written to, and of latents."""
    rows, cache = stored_rows(case), pool_rows(case) * row_bytes(case)
    where, angles = 2 * rows * INT64_BYTES, TURNS * ROTATED * FP32_BYTES
    return _read(case) + rows * _latent_bytes(case) + cache + where + angles


def _kind(
    operator: str, about: str, options: dict[str, tuple[str, ...]], source: str, ratio: bool
) -> Kind:
    builds = "collectors.op.kernels.stores"
    sizes = (ROWS, SizeRule("ratio", "rows of an entry", highest=2, default=2))
    return Kind(
        operator=operator,
        about=about,
        sizes=sizes if ratio else sizes[:1],
        options=options,
        work=store_work,
        input_bytes=store_bytes,
        implementations=(
            Implementation(PORTABLE, "triton", f"{builds}:build_triton"),
            Implementation(PORTABLE, "torch", f"{builds}:build_torch"),
        ),
        source=source,
    )


_MAIN_ROWS = {"layout": tuple(MAIN)}

STORE_KINDS: tuple[Kind, ...] = (
    _kind("compress_pool", "pools pairs by a softmax of their gates per channel, and norms",
          {}, "model-facts §4.4", ratio=True),
    _kind("main_store", "rotates, quantises and stores finished entries",
          _MAIN_ROWS, "runtime-semantics §5.2", ratio=True),
    _kind("compress_store", "compress_pool and main_store in one; latents are kept",
          _MAIN_ROWS, "runtime-semantics §5.2", ratio=True),
    _kind("kv_store", "norms, rotates, quantises and stores window rows",
          {"layout": WINDOW_ROWS}, "runtime-semantics §5.2", ratio=False),
    _kind("index_key_store", "norms, rotates, quantises and stores index keys",
          {"key_format": ("fp4", "fp8")}, "runtime-semantics §5.2", ratio=False),
)  # fmt: skip
