"""What the sidecars say: builds, sources, notice, remarks."""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.forwards.identity import Build

LICENCE = "Apache-2.0"
NOTICE = (
    "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved. Licensed under "
    "the Apache License, Version 2.0. Changed by us: rows selected, columns renamed, repeats of a "
    "geometry put into one record."
)
CAMPAIGNS = ("study38_run1", "study38_run2")
"""Campaigns of GB300 that are packaged."""

_CHECKPOINT = "deepseek-ai/DeepSeek-V4.1-Flash@fb2764a5cf321eaa5070ca8f9e892818f477c16d"
_REPOSITORY = "github.com/ai-dynamo/aisimulate"
_DATA = "data/experimental/deepseek-v41"

GB300 = Build(
    checkpoint=_CHECKPOINT,
    engine="sglang",
    engine_build="0.0.0.dev0, commit not known",
    image="sha256:800cc9adea5be1e18f48185451220c4bc487c545b7095c720d2ccc9ba9bb3b5d",
    topology="one node, 4 x GB300",
    modality="text",
    timer="sync_wall",
    settings={
        "custom_all_reduce": False,
        "flashinfer_all_reduce_fusion": False,
        "shared_expert_fusion": False,
        "moe_runner": "Mxfp4FlashinferTrtllmMoE",
        "linear_precision": "fp8 blocks",
        "kv_precision": "fp8",
        "page_tokens": 256,
        "host": "Grace, ARM64",
        "pytorch": "2.13.0+cu130",
        "nccl": "2.29.7",
    },
)
GB200 = Build(
    checkpoint=_CHECKPOINT,
    engine="vllm",
    engine_build="0.1.dev20904+g179dd0fa9, recipe ce19de141d448df3e739de977da0830e9a175de5",
    image="sha256:d84a123255b822fc22508635218000187221794f59c0694c33b0650d1e377d58",
    topology="one node, 4 x GB200",
    modality="text",
    timer="scheduler_wall",
    settings={
        "moe_runner": "FLASHINFER_TRTLLM_MXFP4_MXFP8",
        "linear_precision": "fp8 blocks",
        "kv_precision": "fp8",
        "max_model_tokens": 2050,
        "max_scheduled_tokens": 512,
        "max_running_requests": 2,
        "host": "ARM64",
        "dynamo": "1.4.2",
        "dynamo_instrumentation": "54960177085413259859c88bd34ed0734d4c2ea9",
        "prepared_image": "c42ea19c53004855c25731f2cf5e6b5e3955ed677f8d3a7b854b864b11e32d52",
        "nccl": "2.30.7",
    },
)


def _source(file: str, commit: str, note: str) -> Mapping[str, str]:
    return {
        "file": f"{_DATA}/{file}",
        "repository": _REPOSITORY,
        "commit": commit,
        "licence": LICENCE,
        "note": note,
    }


def _study(name: str) -> tuple[Mapping[str, str], ...]:
    folder = f"gb300-silicon/study/{name}"
    second = "2899e4ed3c7606992857d043df2c1cc28a8eaa14"
    return (
        _source(f"{folder}/heldout/forward-results.json",
                "283f7f38ff6fe512b38e4f611a76108c69b440e4",
                f"run study38_run1; its times as {folder}/precision-v2/comparison-to-v1.json at "
                f"{second[:8]} repeats them"),
        _source(f"{folder}/precision-v2/forward-results.json", second, "run study38_run2"),
    )  # fmt: skip


GB300_SOURCES = {"off": _study("full"), "on": _study("decoder_bounded")}
GB200_SOURCES = (
    _source("gb200-fpm/calibration-v1/consumer-verification.json",
            "3f9be213c8ac2b35a7e57ae2765a077c61fa5a3b", "regime historical_2026_09_10"),
    _source("prediction-refresh-20260914/fpm/results/diagnostic-predictions.csv",
            "24d9e57d1cfc29f50b6841654e2ffbcc1e18640b", "regime dl_diagnostic"),
)  # fmt: skip

_PRESET = (
    "What the source does not say of the execution, such as cache rows, streams and encoder "
    "replay, is what the preset of the engine has."
)
GB300_REMARKS = (
    "The host sets these times: a forward takes 154 to 210 ms whatever it computes, where the GPUs "
    "need 0.6 to 9 at their peaks. They say how long eager launches take, and next to nothing of "
    "kernels; they hold for no engine with CUDA graphs.",
    "One prefill of study38_run1 with replay has 380 ms, twice its neighbours and its repetition "
    "in study38_run2: a bad sample, kept.",
    "One or two requests, 48 to 384 new tokens, at most 1792 past ones, four ranks of one node, no "
    "expert parallelism, no drafts, text, Engram in HBM. Nothing was measured beyond that.",
    "Two process runs of the same 38 geometries differ by 5.3 % in the median without replay and "
    "by 3.1 % with it; repeats inside one run by 0.3 to 0.4 %. The run is the independent unit: "
    "there are two, and an error below their difference is luck.",
    "latency_ms is the median of the repeats: three in study38_run1, ten in study38_run2, after "
    "one warm-up that is left out. Single repeats reach 1.45 times it.",
    "A time is wall-clock time of batch preparation, forward and sampling, synchronised, the "
    "largest of the four ranks; no HTTP and no scheduler loop.",
    "order is the place in the source's file; that it is the order in time is our reading.",
    "The source calls all of these geometries held out; replay off is its name full, replay on "
    "decoder_bounded. Input: real text of 1129 different tokens, keys and values computed by the "
    "model.",
    _PRESET,
)
GB200_REMARKS = (
    "Two regimes, 5.1 to 5.6 times apart at the same coordinates: regime historical_2026_09_10 "
    "(696 to 890 ms) and dl_diagnostic (140 to 153 ms). Nobody found the cause; by everything that "
    "is recorded they are one identity. The authors themselves admit the first neither for "
    "prediction nor for serving. Choose one; never mix them in one fit or one error.",
    "The full identity of dl_diagnostic is not public; its authors say that many runtime settings "
    "were matched.",
    "Eager, four ranks, one or two requests, contexts up to 2049, decoder replay off. There is "
    "nothing with CUDA graphs, replay, larger batches, longer contexts, drafts or images.",
    "A time is wall-clock time of one scheduler iteration of Dynamo: host scheduling, launches, "
    "GPU work, sampling and output handling. It is not comparable with synchronised or GPU times.",
    "historical_2026_09_10: one sample a point, no order, 18 warm-ups left out by the source; its "
    "38 held-out points are not here. The text was 294 tokens, 201 of them different, repeated: "
    "Engram rows and experts repeat unusually often.",
    "dl_diagnostic: two paths to the engine are the runs, native (Dynamo's benchmark mode) and "
    "ordinary (a matched step of ordinary serving). Five correlated repeats a geometry, median in "
    "latency_ms. Left out: one warm-up a geometry and path, ten measured, of which two took 2.2 "
    "and 2.3 s at first use. Where ordinary serving had no step of a geometry of two requests, the "
    "record has the status missing.",
    _PRESET,
)
