"""Compile triton kernels for a GPU that is not here: ``python compiling.py 90`` (for sm_90)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import triton.language as tl
from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from collectors.op.kernels.attention_triton import attend_kernel, combine_kernel
from collectors.op.kernels.elementwise_triton import head_kernel, row_kernel
from collectors.op.kernels.engram_triton import gate_kernel, hash_kernel, lookup_kernel
from collectors.op.kernels.experts_triton import down_kernel, gate_up_kernel
from collectors.op.kernels.experts_triton import select_kernel as choose_kernel
from collectors.op.kernels.hyper_triton import coefficients_kernel, site_kernel
from collectors.op.kernels.index_score_triton import score_kernel
from collectors.op.kernels.index_select_triton import join_kernel, select_kernel
from collectors.op.kernels.products_triton import product_kernel, quantise_kernel
from collectors.op.kernels.stores_triton import GROUPS, store_kernel
from collectors.op.kinds.layouts import KEY_BYTES, QUERY_BYTES, ROW_BYTES

Job = tuple[Any, dict[str, str], dict[str, Any], int]
"""Kernel, types of its arguments, constants, warps."""

INDICES = dict.fromkeys(
    ("window_index", "main_index", "window_count", "main_count", "counts", "blocks", "chosen",
     "names", "sorted_visits", "block_expert", "block_first", "block_end"), "*i32",
)  # fmt: skip
WHOLE = dict.fromkeys(
    ("window_width", "main_width", "heads", "request_rows", "request_keys", "width",
     "block_width", "most", "part", "listed", "total", "rows", "outputs", "inputs", "hidden",
     "routed"), "i32",
)  # fmt: skip
BYTES = dict.fromkeys(
    ("window", "main", "keys", "cache", "codes", "scales", "values", "value_scales", "weights",
     "weight_scales", "inner", "inner_scales"), "*u8",
)  # fmt: skip
REAL = dict.fromkeys(("sink", "bests", "totals", "sums", "cosine", "sine", "shares"), "*fp32")
SHARED = {**INDICES, **WHOLE, **BYTES, **REAL, "scale": "fp32", "eps": "fp32", "limit": "fp32"}


def attention_jobs() -> Iterator[Job]:
    types = dict.fromkeys(("queries", "window16", "main16", "out"), "*bf16")
    for window, main, splits in (("mxfp8", "nvfp4", 4), ("packed", "bf16", 1)):
        constants = {
            "WINDOW_BYTES": ROW_BYTES[window], "WINDOW_FORMAT": window,
            "MAIN_BYTES": ROW_BYTES[main], "MAIN_FORMAT": main,
            "HEADS": 16, "KEYS": 32, "SPLITS": splits, "NUMBER": tl.bfloat16,
        }  # fmt: skip
        yield attend_kernel, types, constants, 8
    yield combine_kernel, types, {"SPLITS": 8}, 4


def score_jobs() -> Iterator[Job]:
    for keys, candidates, rows in (("fp4", False, 8), ("fp8", True, 1)):
        types = {
            "queries": "*u8", "weights": "*bf16", "scores": "*bf16",
            "key_scales": "*u8" if keys == "fp4" else "*fp32",
        }  # fmt: skip
        constants = {
            "FP4": keys == "fp4", "CANDIDATES": candidates, "KEY_BYTES": KEY_BYTES[keys],
            "QUERY_BYTES": QUERY_BYTES[keys], "ROWS": rows, "KEYS": 128, "HEADS": 32,
            "NUMBER": tl.bfloat16,
        }  # fmt: skip
        yield score_kernel, types, constants, 8
    for bits, group in ((16, 8), (32, 1)):
        constants = {"BITS": bits, "GROUP": group, "ITEMS": 1024 // group}
        yield select_kernel, {"bits": f"*i{bits}"}, constants, 8
        yield join_kernel, {"bits": f"*i{bits}"}, constants, 8


def store_jobs() -> Iterator[Job]:
    types = {
        "source": "*bf16", "weight": "*bf16", "latent": "*bf16", "positions": "*i64",
        "slots": "*i64", "cache_halves": "*i16", "cache_words": "*i32",
    }  # fmt: skip
    for name, groups in GROUPS.items():
        key = name.startswith("key_")
        width = 128 if key else 512
        constants = {
            "ROW_BYTES": KEY_BYTES[name[4:]] if key else ROW_BYTES[name], "WIDTH": width,
            "GROUPS": groups, "HALF": width // groups // 2, "RATIO": 1 if key else 2,
            "NORM": True, "KEEP": not key, "HALF_ROTATED": 32, "FORMAT": name,
        }  # fmt: skip
        yield store_kernel, types, constants, 4


def product_jobs() -> Iterator[Job]:
    yield quantise_kernel, {"source": "*bf16"}, {"GROUPS": 32, "GROUP": 32}, 4
    tiles = {"OUTPUTS": 128, "INPUTS": 128}
    yield product_kernel, {"out": "*bf16"}, {"BLOCK": 32, "ROWS": 64, **tiles}, 8


def expert_jobs() -> Iterator[Job]:
    yield gate_up_kernel, {}, {"VISITS": 6, "ROWS": 16, "OUTPUTS": 64, "INPUTS": 128}, 4
    yield down_kernel, {"out": "*bf16"}, {"ROWS": 64, "OUTPUTS": 128, "INPUTS": 128}, 4
    types = dict.fromkeys(("logits", "bias"), "*fp32") | {"experts": "*i64", "chosen": "i32"}
    yield choose_kernel, types, {"ROUTED": 512, "CHOSEN": 8}, 4


def stream_jobs() -> Iterator[Job]:
    halves = dict.fromkeys(("streams", "output", "weight", "out", "row_out", "source", "other",
                            "keys", "query_weight", "key_weight"), "*bf16")  # fmt: skip
    reals = dict.fromkeys(("expand", "mix", "collapse", "matrix", "raw", "squares", "scale",
                           "base"), "*fp32")  # fmt: skip
    numbers = dict.fromkeys(("epsilon", "norm_epsilon", "sign", "root"), "fp32") | {
        "rounds": "i32", "width": "i32",
    }  # fmt: skip
    types = {**halves, **reals, **numbers}
    shape = {"STREAMS": 4, "COEFFICIENTS": 24, "NARROW": 32}
    for measures, rows, block in ((True, 16, 128), (False, 1, 1024)):
        parts = {"EXPANDS": True, "MEASURES": measures, "COLLAPSES": True, "NORMS": True}
        yield site_kernel, types, {**parts, "ROWS": rows, "BLOCK": block, **shape}, 4
    yield coefficients_kernel, {**types, "out": "*fp32"}, {"STREAMS": 4}, 1
    for kind in ("norm", "norm_quantise", "swiglu", "add", "spread", "copy"):
        coded = "*u8" if kind in ("norm_quantise", "swiglu") else "*bf16"
        yield row_kernel, {**types, "out": coded}, {"KIND": kind, "WIDTH": 1024, "GROUP": 32}, 4
    for fp4 in (False, True):
        constants = {"WIDTH": 128, "PAIRS": 64, "TURNED": 32, "FP4": fp4, "ROW_BYTES": 68}
        yield head_kernel, {**types, "out": "*u8" if fp4 else "*bf16"}, constants, 1


def engram_jobs() -> Iterator[Job]:
    longs = dict.fromkeys(("classes", "starts", "primes", "multipliers", "out", "numbers",
                           "places"), "*i64")  # fmt: skip
    yield hash_kernel, longs, {"HEADS": 8, "ORDERS": 3, "DEEPEST": 3, "ROWS": 64}, 4
    rows = {"ROW_BYTES": 264, "GROUPS": 8, "GROUP": 32}
    yield lookup_kernel, {**longs, "table": "*u8", "out": "*bf16"}, rows, 1
    halves = dict.fromkeys(("streams", "keys", "query_weight", "key_weight", "out"), "*bf16")
    reals = {"root": "fp32", "epsilon": "fp32"}
    yield gate_kernel, {**halves, **reals}, {"STREAMS": 4, "BLOCK": 512}, 4


def compile_all(capability: int) -> int:
    jobs = [*attention_jobs(), *score_jobs(), *store_jobs(), *product_jobs(), *expert_jobs(),
            *stream_jobs(), *engram_jobs()]  # fmt: skip
    for kernel, types, constants, warps in jobs:
        names = kernel.arg_names
        signature = {
            name: "constexpr" if name in constants else {**SHARED, **types}[name] for name in names
        }
        places = {(names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=places)
        options = {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
        compiled(source, target=GPUTarget("cuda", capability, 32), options=options)
    return len(jobs)


if __name__ == "__main__":
    sys.stdout.write(str(compile_all(int(sys.argv[1]))))
