"""Features of the operators that tables hold, from their sizes: the same names as the laws take.

The ledger brings features of its own tasks; these are for rows of measured tables, whose sizes are
known and whose bytes are those of the kernels that were timed. Sizes are float64 arrays and
broadcast; a GPU gives the peaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import numpy as np

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.evidence.laws import FloatArray
from aisim_v41.hardware import Hardware
from aisim_v41.units import FLOP_PER_MAC

Features = dict[str, FloatArray]
BF16_BYTES: Final = 2.0
FP8_BYTES: Final = 1.0
SCALED_FP8_BYTES: Final = 1 + 1 / 32
"""One value with its share of a scale byte per 32."""
EXPERT_BYTES: Final[Mapping[str, float]] = {
    "mxfp4_mxfp8": (1 + 1 / 16) / 2,
    "mxfp4_bf16": (1 + 1 / 16) / 2,
    "fp8_block128": 1.0,
}
"""Bytes of one stored expert weight: 4 bits and a scale byte per 32 values; or 8 bits."""
EXPERT_CLASS: Final[Mapping[str, Arithmetic]] = {
    "mxfp4_mxfp8": Arithmetic.MXFP4_MXFP8,
    "mxfp4_bf16": Arithmetic.MXFP4_MXFP8,
    "fp8_block128": Arithmetic.FP8,
}
"""Class whose peak the law's share refers to; widened weights are charged as the ledger does."""
PRODUCT_CLASS: Final[Mapping[str, tuple[Arithmetic, float]]] = {
    "bf16": (Arithmetic.BF16, BF16_BYTES),
    "fp8_block128": (Arithmetic.FP8, FP8_BYTES),
    "fp8_block32": (Arithmetic.FP8, FP8_BYTES),
}
HyperPart = Literal["pre", "post", "fused"]
HYPER_PASSES: Final[Mapping[HyperPart, float]] = {"pre": 5.0, "post": 9.0, "fused": 10.0}
"""Hidden widths a row and site that a single sweep moves: streams in and input out; streams and
output in, streams out; both, with nothing between (model-facts §4.1, four streams)."""
WINDOW: Final = 128
CACHE_ROW_BYTES: Final = 584.0
"""One latent cache row of V4 in FP8 with its scales and rotary part."""
INDEX_ROW_BYTES: Final = 132.0
"""One index key in FP8 with its scale."""


def product_features(
    hardware: Hardware, dtype: str, rows: FloatArray, outputs: FloatArray, inputs: FloatArray
) -> Features:
    """Dense product [rows, inputs] x [outputs, inputs]; the result leaves in BF16.

    Raises:
        InvalidInputError: no such operand type.
    """
    if dtype not in PRODUCT_CLASS:
        raise InvalidInputError(f"no product of {dtype!r}; {nearest(dtype, PRODUCT_CLASS)}")
    kind, each = PRODUCT_CLASS[dtype]
    moved = (rows + outputs) * inputs * each + rows * outputs * BF16_BYTES
    return {
        "compute_s": FLOP_PER_MAC * rows * outputs * inputs / hardware.peak(kind)[0],
        "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
        "rows": np.asarray(rows),
        "inputs": np.asarray(inputs),
        "outputs": np.asarray(outputs),
    }


def experts_features(
    hardware: Hardware,
    dtype: str,
    load: str,
    sizes: Mapping[str, FloatArray],
    tensor_parallel: int,
    expert_parallel: int,
) -> Features:
    """Routed experts of one rank; ``tokens`` are those of all ranks.

    Balanced rows spread as evenly as whole numbers allow; uniform ones draw each expert alike.

    Args:
        sizes: axes of the experts tables.

    Raises:
        InvalidInputError: no such weights, or a load other than ``balanced`` or ``uniform``.
    """
    if dtype not in EXPERT_BYTES:
        raise InvalidInputError(f"no experts of {dtype!r}; {nearest(dtype, EXPERT_BYTES)}")
    ranks = max(expert_parallel, 1)
    tokens = np.asarray(sizes["tokens"])
    routed = np.asarray(sizes["experts_routed"] / ranks)
    chosen = np.asarray(sizes["experts_per_token"] / ranks)
    values = 3.0 * sizes["hidden"] * sizes["expert_width"] / tensor_parallel
    if load == "balanced":
        touched = np.minimum(routed, np.maximum(tokens * chosen, 1.0))
        spread = np.zeros_like(touched)
    elif load == "uniform":
        touched = routed * (1.0 - (1.0 - chosen / routed) ** tokens)
        spread = np.sqrt(tokens * chosen / touched)
    else:
        raise InvalidInputError(
            f"expert load {load!r}: only balanced and uniform say which experts are touched"
        )
    peak = hardware.peak(EXPERT_CLASS[dtype])[0]
    moved = touched * values * EXPERT_BYTES[dtype]
    moved = moved + tokens * sizes["hidden"] * (SCALED_FP8_BYTES + BF16_BYTES)
    return {
        "compute_s": FLOP_PER_MAC * values * tokens * chosen / peak,
        "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
        "rows": tokens,
        "touched": np.asarray(touched),
        "top_k": chosen,
        "routed": routed,
        "spread": spread,
    }


def hyper_features(
    hardware: Hardware, part: HyperPart, tokens: FloatArray, hidden: FloatArray
) -> Features:
    """One site of the hyper-connections, in one sweep."""
    moved = HYPER_PASSES[part] * tokens * hidden * BF16_BYTES
    return {
        "compute_s": np.zeros_like(moved),
        "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
        "rows": np.asarray(tokens),
    }


def quantise_features(hardware: Hardware, rows: FloatArray, inputs: FloatArray) -> Features:
    """BF16 read, FP8 written."""
    moved = rows * inputs * (BF16_BYTES + FP8_BYTES)
    return {
        "compute_s": np.zeros_like(moved),
        "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
        "rows": np.asarray(rows),
    }


def message_features(message_bytes: FloatArray, ranks: FloatArray) -> Features:
    """A collective."""
    size = np.asarray(message_bytes)
    return {
        "compute_s": np.zeros_like(size),
        "memory_s": np.zeros_like(size),
        "rows": np.ones_like(size),
        "message_bytes": size,
        "ranks": np.asarray(ranks),
    }


def attention_features(
    hardware: Hardware,
    heads: int,
    ratio: int,
    batch: FloatArray,
    new_tokens: FloatArray,
    prefix: FloatArray,
    head_dim: int = 512,
) -> Features:
    """V4's HCA kernel: the window and every compressed entry, one latent row as key and value."""
    rows = batch * new_tokens
    pairs = batch * _each(prefix, new_tokens, lambda at: np.minimum(at, WINDOW) + at // ratio)
    last = prefix + new_tokens
    cached = batch * (np.minimum(last, WINDOW + new_tokens) + last // ratio)
    moved = rows * heads * head_dim * 2 * BF16_BYTES + cached * CACHE_ROW_BYTES
    flop = FLOP_PER_MAC * 2 * heads * head_dim * pairs
    return {
        "compute_s": flop / hardware.peak(Arithmetic.BF16)[0],
        "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
        "rows": np.asarray(rows),
        "pairs": np.asarray(pairs),
    }


def scores_features(
    hardware: Hardware,
    heads: int,
    ratio: int,
    batch: FloatArray,
    new_tokens: FloatArray,
    prefix: FloatArray,
    head_dim: int = 128,
) -> Features:
    """FP8 index scores of every visible entry, written in FP32."""
    positions = batch * _each(prefix, new_tokens, lambda at: at // ratio)
    keys = batch * ((prefix + new_tokens) // ratio)
    rows = batch * new_tokens
    moved = keys * INDEX_ROW_BYTES + rows * heads * head_dim * FP8_BYTES + positions * 4.0
    flop = FLOP_PER_MAC * heads * head_dim * positions
    return {
        "compute_s": flop / hardware.peak(Arithmetic.FP8)[0],
        "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
        "rows": np.asarray(rows),
        "positions": np.asarray(positions),
    }


def select_features(
    hardware: Hardware, ratio: int, batch: FloatArray, new_tokens: FloatArray, prefix: FloatArray
) -> Features:
    """Top-k over FP32 scores of every visible entry."""
    positions = batch * _each(prefix, new_tokens, lambda at: at // ratio)
    return {
        "compute_s": np.zeros_like(positions),
        "memory_s": positions * 4.0 / hardware.hbm_bandwidth_bytes_per_s,
        "rows": np.asarray(batch * new_tokens),
        "positions": np.asarray(positions),
    }


def _each(
    prefix: FloatArray, new_tokens: FloatArray, visible: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Sum over the new positions of one request of what each of them sees."""
    ends = np.broadcast_arrays(prefix, new_tokens)
    totals = [
        visible(np.arange(first + 1, first + count + 1)).sum()
        for first, count in zip(*(end.ravel() for end in ends), strict=True)
    ]
    return np.array(totals, dtype=np.float64).reshape(ends[0].shape)
