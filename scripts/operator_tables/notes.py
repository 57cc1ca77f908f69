"""What the sidecars say: notice, sources, timing, changes, remarks."""

from __future__ import annotations

from collections.abc import Mapping

LICENCE = "Apache-2.0"
NOTICE = (
    "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved. Licensed under "
    "the Apache License, Version 2.0. Module geometry follows SGLang (Apache-2.0, SGLang Team and "
    "contributors). Changed by us: rows selected, columns renamed, milliseconds turned into "
    "microseconds, repeats merged, rows marked; see dropped, changed and flags."
)

_NEW = {"package": "aisimulate", "version": "0.13.0.dev202610270000000085", "date": "2026-10-27"}
_OLD = {"package": "aiconfigurator-core", "version": "0.12.0", "date": "2026-09"}
_DATA = "aisimulate_core/systems/data/<system>"
_OLD_DATA = "aiconfigurator_core/systems/data/<system>"
_LEAST = "repeated keys: the fastest"
_MEAN = "repeated keys: the mean; sglang has most keys twice, within 1.35"

SOURCES: Mapping[str, Mapping[str, str]] = {
    "peer_graph_tables_gemm.csv": {**_NEW, "path": f"{_DATA}/gemm", "note": _LEAST},
    "peer_gb200_gb300_gemm.csv": {**_OLD, "path": f"{_OLD_DATA}/gemm", "note": _LEAST},
    "peer_graph_tables_moe.csv": {**_NEW, "path": f"{_DATA}/moe", "note": _MEAN},
    "peer_gb200_gb300_moe.csv": {**_OLD, "path": f"{_OLD_DATA}/moe", "note": _MEAN},
    "peer_gb200_gb300_megamoe.csv": {**_OLD, "path": f"{_OLD_DATA}/moe/sglang/0.5.10",
                                     "note": "dispatch, experts and combine in one kernel"},
    "peer_graph_tables_comm.csv": {**_NEW, "path": f"{_DATA}/comm",
                                   "note": "sizes counted elements in the source, bytes here"},
    "peer_graph_tables_mhc.csv": {**_NEW, "path": f"{_DATA}/mhc", "note": "V4's two passes"},
    "peer_gb200_gb300_mhc.csv": {**_OLD, "path": f"{_OLD_DATA}/mhc", "note": "V4's two passes"},
    "peer_graph_tables_attention.csv": {**_NEW, "path": f"{_DATA}/sparse_attention",
                                        "note": f"a part of the lengths; {_LEAST}"},
    "peer_gb200_gb300_dsv4_attention.csv": {**_OLD, "path": f"{_OLD_DATA}/sparse_attention",
                                            "note": f"a part of the lengths; {_LEAST}"},
    "peer_graph_tables_quantize.csv": {**_NEW, "path": f"{_DATA}/quantize",
                                       "note": "table scale_matrix"},
    "dsv41_modules.csv": {**_NEW, "path": "aisimulate_core/systems: data/<system>/dsv41, "
                          "profiles/dsv41", "note": "V4.1 checkpoint fb2764a5, every row"},
    "dsv41_comm_moe_gemm.csv": {**_NEW, "path": "aisimulate_core/systems: data/<system>/"
                                "{gemm,moe,comm}, profiles/dsv41",
                                "note": "V4.1 checkpoint fb2764a5, every row"},
}  # fmt: skip

_GRAPH = {
    "method": "device time of captured or replayed kernels; all-reduce rows with execution eager "
    "are host-issued calls",
    "statistic": "mean over replays of one run (as the source's collector does); driver, clocks "
    "and power limit not published",
    "environment": "release containers of the engines",
}
_EAGER = {
    "method": "interval around one module call, eager, no CUDA graph, no collective inside",
    "statistic": "maximum over ranks, then median over samples",
    "environment": "SGLang 1aa0e962b206102b7c439a4a0c4981cfec6e87bc. gb200, b200, h200, h100: "
    "torch 2.13.0+cu130, NCCL 2.30.7, 2026-09-22. gb300: ARM64 image sha256:800cc9adea5b, NCCL "
    "2.29.7, September 2026. b300: AMD64 image sha256:c4ca651192e5, NCCL 2.29.7, driver "
    "610.57.04, 2026-09-17. Clocks and power limit not published",
}
TIMING: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("gemm", "experts", "collectives", "hyper_connections", "attention",
                     "quantise"), _GRAPH),
    **dict.fromkeys(("v41_modules", "v41_dense"), _EAGER),
}  # fmt: skip

CHANGED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "gemm": (("dtype", "fp8_block is fp8_block128: scales over 128 x 128 blocks, not V4.1's 32"),
             ("kernel_source", "engine_choice: the engine picks kernels by size")),
    "experts": (("tokens", "of all ranks together; mega_moe rows gave those of one rank"),
                ("dtype", "w4a8_mxfp4_mxfp8 is mxfp4_mxfp8, w4a16_mxfp4 is mxfp4_bf16"),
                ("engine_version", "gb300 mega_moe: 0.5.11, as its rows say, not the folder's "
                 "0.5.10"),
                ("kernel_source", "from the source where a series has one kernel, else "
                 "engine_choice")),
    "collectives": (("message_bytes", "elements of the source times the element's size"),
                    ("engine_version", "of the rows, where their folder says another: gb200 beyond "
                     "4 GPUs is NCCL 2.27.7 (folder 2.23), sglang 0.5.17 (folder 0.5.14)"),
                    ("execution", "from the kernel's name: graph and eager are not mixed")),
    "hyper_connections": (("sites_per_timing", "num_sites: 2 means both sites of a layer in one "
                           "number"),
                          ("resolution_us", "2.05 us steps, seen on Blackwell, not on Hopper")),
    "attention": (("new_tokens_per_request", "isl"), ("prefix_tokens", "step"),
                  ("cache_state", "index_logits_decode is warm: 250 k keys in 2.5 us would be "
                   "13 TB/s"),
                  ("score_pattern", "of top-k tables, and of sglang's CSA decode, which was timed "
                   "on equal scores"),
                  ("tensor_parallel", "64 heads over those of the row")),
    "quantise": (("dtype", "to FP8 from BF16"),),
    "v41_modules": (("latency_us", "milliseconds times 1000"),
                    ("prefix_tokens", "decode rows gave the length with the token itself and a "
                     "prefix of 0: here length less one"),
                    ("new_tokens_per_request", "1 in decode; bounded rows: at most 128, as the "
                     "kernel sees them, with the prefix moved by the rows cut"),
                    ("tensor_parallel", "0 where the source says any"),
                    ("batch", "geometry columns left out: module and ranks fix them")),
    "v41_dense": (("latency_us", "milliseconds times 1000"),
                  ("message_bytes", "elements of the source times 2"),
                  ("tensor_parallel", "0 where the source says any, and for all-reduce (see "
                   "ranks)")),
}  # fmt: skip

_LEVELS = (
    "Campaigns data-* are a module bench, profile-* are hooks inside whole forwards with a "
    "serialised side stream: their levels differ; gb200 compares with b200, gb300 with b300 only."
)
_HOST = (
    "Eager: a row is the larger of host time and GPU time. What is flat with size is the host; no "
    "kernel efficiency can be read from it."
)
_PROCESS = (
    "The same work in gb300's off and on campaigns differs by 7 % in the median (17 % at the 90th "
    "percentile), b300's by 1 to 5 %: a property of the process, not of the model."
)
_SOFTWARE = "b200 stops at older engines than the other GPUs: part of its gap to b300 is software."
REMARKS: Mapping[str, tuple[str, ...]] = {
    "gemm": (_SOFTWARE,
             "No table anywhere has MXFP8 or 32 x 32 blocks, V4.1's own formats.",
             "sglang 0.5.14 fp8_block128 of gb200 is the faster of two noisy runs, key by key."),
    "experts": ("balanced rows touch min(experts, experts_per_token x tokens) experts; uniform "
                "draws touch fewer. No graph rows at V4.1's 5120 / 2304 / 384 / 6.", _SOFTWARE),
    "collectives": ("Beyond 4 GPUs gb200 and gb300 cross trays; sglang falls back to NCCL there.",
                    _SOFTWARE),
    "hyper_connections": ("V4's two-pass form, not V4.1's single pass; widths 4096 and 7168.",
                          "expand and contract are one site; the others are both sites of a "
                          "layer.", _SOFTWARE),
    "attention": ("V4's CSA and HCA, not V4.1's CSA2: for calibration, never in its place.",
                  "top-k takes 62 to 82 us over equal scores and 3 to 6 us over ordered ones at "
                  "2 to 16 thousand entries."),
    "quantise": ("sglang's path is a slow one; trtllm and vllm stream at .65 to .95 of HBM.",),
    "v41_modules": (_HOST, _LEVELS, _PROCESS,
                    "Replay-on rows of data-* campaigns: bounded rows of reuse_r1 and reindex_r1, "
                    "and 18 rows of each other attention module.",
                    "Calls a forward: swa 2, full_r2 3, full_r1 1, reuse_r2 15, reuse_r1 15, "
                    "reindex_r1 4, shared_gate_up 40, shared_down 40, mhc 40, each Engram layer 1.",
                    "mhc is both sites of a layer; shared_* include the quantisation of the "
                    "input. Hopper has no fast kernel for 32-wide FP8 blocks in this build."),
    "v41_dense": (_HOST, _LEVELS, _PROCESS,
                  "Experts draw uniformly at random: 384 (1 - (1 - 1/64)^tokens) are touched.",
                  "Hopper's experts are humming at 4 ranks and CUTLASS at 2: different kernels."),
}  # fmt: skip
