"""Every law of one GPU that has tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.evidence.calibration import SIBLINGS
from aisim_v41.evidence.features import HyperPart
from aisim_v41.evidence.fit import regimes, samples
from aisim_v41.evidence.fit.jobs import Fitted, assessed, derived, fitted
from aisim_v41.evidence.fit.own import (
    block32_product,
    hopper_experts,
    swept_streams,
    unevenness,
)
from aisim_v41.evidence.laws import FloatArray, LawKind, law_seconds
from aisim_v41.evidence.robust import Free
from aisim_v41.hardware import Hardware
from aisim_v41.units import KIB, MIB

ENGINES = ("sglang", "vllm", "trtllm")
LIBRARIES = (*ENGINES, "nccl")
SWITCH_BYTES = {"sglang": 16 * MIB}
"""Where a library hands large messages to another (docs/calibration.md, "Collectives")."""
RANKS = (2, 4, 8, 16)
PARTS: tuple[HyperPart, ...] = ("pre", "post", "fused")

BLOCK_PENALTY = 0.10
"""V4.1 scales blocks of 32, the tables blocks of 128: the distance between one engine's 8-bit
kernels and another's."""
SHAPE_PENALTY = 0.10
"""V4's CSA and HCA kernels stand for V4.1's, whose keys and heads differ."""
UNEVEN_PENALTY = 0.15
"""An engine whose experts were timed under balanced load only."""
FP4_PENALTY = 0.30
"""The 4-bit scoring kernel was never timed; the rate of the 8-bit one is taken."""

SERVED_ATTENTION = {"padded": (6.0e-6, 2.1e-8), "native": (7.4e-6, 2.5e-9)}
"""Start [s] and walk along a key [s] of SGLang's decode kernels: with 64 padded heads 8.7 and 19.5
us for 128 and 640 keys, with a rank's own 16 heads 7.7 and 9 us (production-measurements §3, SGLang
pull request 39674)."""
FEWEST_KEYS = 64
"""V4.1 reads 128 keys and more; with fewer another path of the kernel runs."""

_ROWS = (16.0, 257.0, 2049.0)
_EACH = (1.0, 8.0, 64.0)
_TOKENS = (16.0, 128.0, 1024.0, 16384.0)
_MESSAGE = (256.0 * KIB, 16.0 * MIB)
_EXPERTS = {
    "launch_s": Free(start=18e-6, low=0, high=5e-5),
    "expert_s": Free(start=8e-8, low=0, high=1e-6),
    "memory_share": Free(start=0.9, low=0.4, high=0.95),
    "step_8": Free(start=0.5, low=0, high=5),
    "step_32": Free(start=0.7, low=0, high=5),
    "tile": Free(start=100, low=30, high=200),
    "compute_share": Free(start=0.45, low=0.1, high=1),
}


def fit_gpu(hardware: Hardware, twin: Hardware) -> list[Fitted]:
    """Laws of a GPU.

    Args:
        hardware: with packaged tables.
        twin: the GPU whose V4.1 rows show how uneven counts cost, where this one's do not.
    """
    found = [*_products(hardware), *_experts(hardware, twin), *_attention(hardware)]
    found += [*_hyper(hardware), *swept_streams(hardware)]
    found += [*_elementwise(hardware), *_collectives(hardware)]
    return [_aged(hardware, law) for law in found]


def _aged(hardware: Hardware, law: Fitted) -> Fitted:
    """A law of an engine that a sibling GPU has newer, and faster on one and the same chip, goes
    under a name of its own, so that the sibling's takes its place."""
    family, engine = _MOVED.get(law.key.partition("@")[0], ("", ""))
    if not family or (engine != law.engine and law.engine != "any"):
        return law
    own = samples.newest_version(hardware.name, family, engine)
    siblings = [samples.newest_version(gpu, family, engine) for gpu in SIBLINGS[hardware.name]]
    if own >= max(siblings):
        return law
    name, at, ranks = law.key.partition("@")
    return replace(law, key=f"{name}_older{at}{ranks}")


_MOVED = {
    "product.fp8": ("gemm", "sglang"),
    "all_reduce.sglang": ("collectives", "sglang"),
    "all_reduce.vllm": ("collectives", "vllm"),
}
"""Laws that engine releases changed by 10 % and more on GB200 (peer-data-newer §6)."""


def _products(hardware: Hardware) -> Iterator[Fitted]:
    convert = _quantise_launch(hardware)
    for engine in ENGINES:
        for dtype, name in (("bf16", "bf16"), ("fp8_block128", "fp8")):
            rows = samples.product_samples(hardware, engine, dtype)
            if rows is None:
                continue
            quantised = dtype != "bf16"
            bandwidth = hardware.hbm_bandwidth_bytes_per_s
            free = {
                "launch_s": Free(start=2.5e-6, low=1e-7, high=3e-5),
                "inner_s": Free(start=4e-10, low=0, high=5e-9),
                "compute_share": Free(start=0.7, low=0.3, high=0.98),
                "memory_share": Free(start=0.9, low=0.85, high=0.93),
                "norm": Free(start=2, low=1, high=8),
            }
            fixed = {"quantise_launch_s": convert if quantised else 0.0}
            if quantised:
                free["quantise_s"] = Free(start=3 / bandwidth, low=0, high=20 / bandwidth)
            else:
                fixed["quantise_s"] = 0.0
            # vLLM's 8-bit product packs or converts far longer than its kernels take; no other
            # engine's does, so it is kept apart and never stands for V4.1.
            apart = quantised and engine == "vllm"
            key = "product.fp8_vllm_block128" if apart else f"product.{name}"
            yield fitted(
                engine, key, LawKind.PRODUCT, rows, free, fixed, bands=_ROWS,
                penalty=BLOCK_PENALTY if quantised else 0.0,
                note="blocks of 128 stand for V4.1's 32; converts its input" if quantised else "",
            )  # fmt: skip
    if Arithmetic.MXFP4_MXFP8 not in hardware.peak_flop_per_s:
        yield block32_product(hardware, convert)


def _quantise_launch(hardware: Hardware) -> float:
    rows = samples.quantise_samples(hardware, "trtllm")
    assert rows is not None
    return float(np.median(rows.seconds[rows.scale == 1]))


def _experts(hardware: Hardware, twin: Hardware) -> Iterator[Fitted]:
    if Arithmetic.MXFP4_MXFP8 not in hardware.peak_flop_per_s:
        yield from hopper_experts(hardware, _EXPERTS)
        return
    for engine in ENGINES:
        rows = samples.experts_samples(hardware, engine, "mxfp4_mxfp8")
        if rows is None:
            continue
        ours = engine == "sglang"  # whose eager rows of V4.1 there are
        note = "balanced rows of V4; unevenness from V4.1's own rows"
        law = fitted(
            engine, "experts.mxfp4", LawKind.EXPERTS, rows, _EXPERTS, {"uneven": 0.0}, bands=_EACH,
            penalty=0.0 if ours else UNEVEN_PENALTY,
            note=note if ours else "balanced rows of V4; uneven counts were never timed",
        )  # fmt: skip
        uneven = unevenness(twin, law.parameters) if ours else 0.0
        yield replace(law, parameters={**law.parameters, "uneven": uneven})


def _attention(hardware: Hardware) -> Iterator[Fitted]:
    rows = samples.request_samples(hardware, "attention_kernel", "vllm", "FLASHMLA_SPARSE_DSV4")
    assert rows is not None
    several = rows.hull["new_tokens"] > 1
    keys = rows.features["pairs"] / rows.features["rows"]
    rows = rows.where(~(several & (rows.hull["batch"] > 1)) & (keys >= FEWEST_KEYS))
    kernel = fitted(
        "vllm", "attention", LawKind.ATTENTION, rows,
        {
            "launch_s": Free(start=1e-5, low=1e-6, high=3e-5),
            "key_s": Free(start=4e-9, low=0, high=1e-7),
            "key_overhead": Free(start=300, low=0, high=3000),
            "compute_share": Free(start=0.55, low=0.1, high=0.98),
        },
        {"memory_share": 0.8, "norm": 1.0}, bands=_TOKENS, penalty=SHAPE_PENALTY,
        note="kernel of V4's HCA, 64 heads of 512; one request's rows, or one row a request",
    )  # fmt: skip
    yield kernel
    sglang = _sglang_attention(hardware, kernel)
    yield sglang
    if Arithmetic.FP4 in hardware.peak_flop_per_s:
        for name, (launch, walk) in SERVED_ATTENTION.items():
            yield derived(
                sglang, f"attention.{name}", {"launch_s": launch, "key_s": walk}, penalty=0.1,
                note="start and walk from one serving trace on GB300, 6 rows of 128 and 640 keys",
            )  # fmt: skip
    for engine, name in (
        ("sglang", "deep_gemm.fp8_paged_mqa_logits"),
        ("vllm", "vllm.utils.deep_gemm.fp8_fp4_paged_mqa_logits"),
    ):
        yield from _scores(hardware, engine, name)
    yield _select(hardware)


def _sglang_attention(hardware: Hardware, kernel: Fitted) -> Fitted:
    """SGLang times no kernel of its own: its HCA modules differ by keys alone."""
    slope = samples.seconds_per_pair(hardware)
    assert kernel.samples is not None
    work = kernel.samples.features
    flop_s = float((work["compute_s"] / work["pairs"])[0])
    share = min(flop_s / slope, 0.98)
    scale = share / kernel.parameters["compute_share"]
    return derived(
        kernel, "attention",
        {"compute_share": share, "key_overhead": kernel.parameters["key_overhead"] * scale},
        engine="sglang", penalty=0.05,
        note="growth with keys from SGLang's HCA modules, the rest from vLLM's kernel",
    )  # fmt: skip


def _scores(hardware: Hardware, engine: str, kernel: str) -> Iterator[Fitted]:
    parts = [
        samples.request_samples(hardware, operator, engine, kernel, model_shapes="v4_family")
        for operator in ("index_logits_prefill", "index_logits_decode")
    ]
    rows = samples.joined([part for part in parts if part is not None])
    rows = rows.where(
        (rows.hull["prefix_tokens"] >= rows.hull["new_tokens"]) & (rows.features["positions"] > 0)
    )
    law = fitted(
        engine, "scores.fp8", LawKind.SCORES, rows,
        {
            "floor_s": Free(start=4e-6, low=2e-6, high=2e-5),
            "launch_s": Free(start=(1e-6, 4e-6), low=0, high=1e-5),
            "compute_share": Free(start=0.3, low=0.05, high=0.9),
        },
        {"memory_share": 0.8, "norm": 4.0}, bands=_TOKENS, penalty=SHAPE_PENALTY,
        note="64 index heads of 128, as many products a score and head as V4.1",
    )  # fmt: skip
    yield law
    eight = hardware.peak(Arithmetic.FP8)[0]
    four = hardware.peak(Arithmetic.FP4)[0]
    share = law.parameters["compute_share"]
    yield derived(
        law, "scores.fp4", {"compute_share": share * eight / four}, penalty=FP4_PENALTY,
        note="FLOP a second of the 8-bit kernel: what follows each product is the same",
    )  # fmt: skip
    yield derived(
        law, "scores.bf16", {"compute_share": min(1.25 * share, 0.9)}, penalty=FP4_PENALTY,
        note="share of the 8-bit kernel, a quarter more since the products take longer",
    )  # fmt: skip


def _select(hardware: Hardware) -> Fitted:
    parts = []
    for kernel, several in (("topk_transform_v2", False), ("topk_transform_v1", True)):
        rows = samples.request_samples(
            hardware, "index_topk", "sglang", kernel, score_pattern="ordered"
        )
        if rows is not None:
            parts.append(rows.where((rows.hull["new_tokens"] > 4) == several))
    return fitted(
        "sglang", "select", LawKind.SELECT, samples.joined(parts),
        {
            "launch_s": Free(start=2e-6, low=0, high=1e-5),
            "entry_s": Free(start=5e-11, low=0, high=1e-8),
            "row_s": Free(start=4e-9, low=0, high=1e-7),
            "memory_share": Free(start=0.3, low=0.01, high=1),
        },
        {}, bands=_TOKENS, penalty=SHAPE_PENALTY,
        note="ordered scores; decode by the second kernel, prefill by the first",
    )  # fmt: skip


def _hyper(hardware: Hardware) -> Iterator[Fitted]:
    for engine in ENGINES:
        for part in PARTS:
            rows = samples.hyper_samples(hardware, engine, part)
            if rows is None or (engine, part) == ("trtllm", "pre"):  # follows no single curve
                continue
            free = {
                "floor_s": Free(start=7e-6, low=1e-6, high=3e-5),
                "row_walk": Free(start=150, low=0, high=1000),
                "launch_s": Free(start=4e-6, low=0, high=3e-5),
                "memory_share": Free(start=0.6, low=0.1, high=1),
                "norm": Free(start=(3, 20), low=2, high=40),
            }
            fixed = {}
            if len(np.unique(rows.hull["hidden"])) == 1:
                fixed["row_walk"] = 150.0
                del free["row_walk"]
            yield fitted(
                engine, f"hyper.{part}", LawKind.HYPER, rows, free, fixed, bands=_TOKENS,
                note="one site; V4's two sweeps over the streams",
            )  # fmt: skip


def _elementwise(hardware: Hardware) -> Iterator[Fitted]:
    for engine, owner in (("trtllm", "any"), ("vllm", "vllm")):
        rows = samples.quantise_samples(hardware, engine)
        if rows is None:
            continue
        law = fitted(
            owner, "quantise", LawKind.ELEMENTWISE, rows,
            {
                "launch_s": Free(start=2e-6, low=1e-7, high=2e-5),
                "memory_share": Free(start=0.7, low=0.05, high=1),
            },
            {}, bands=_ROWS,
        )  # fmt: skip
        yield law
        if owner == "any":
            yield derived(law, "elementwise", {}, penalty=0.3, note="as the conversion to 8 bits")
            yield derived(
                law, "gather.engram",
                {"memory_share": 0.3}, penalty=0.5,
                note="no table of the look-up alone; 264 B rows at scattered places",
            )  # fmt: skip


def _collectives(hardware: Hardware) -> Iterator[Fitted]:
    for operator in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for library in LIBRARIES:
            for ranks in RANKS:
                rows = samples.collective_samples(hardware, operator, library, ranks)
                if rows is not None:
                    law = _collective(operator, library, ranks, rows)
                    reach = samples.reach_of(hardware, operator, library, ranks)
                    yield replace(law, reach=reach)


def _collective(operator: str, library: str, ranks: int, rows: samples.Samples) -> Fitted:
    """Three regimes or four, whichever predicts sizes that it has not seen better."""

    def predict(some: samples.Samples, parameters: Mapping[str, float]) -> FloatArray:
        return law_seconds(LawKind.COLLECTIVE, some.features, parameters)

    tried = []
    for count in (3, 4):
        limits = regimes.search(rows, count, SWITCH_BYTES.get(library))
        tried.append(
            assessed(
                "any", f"{operator}.{library}@{ranks}", LawKind.COLLECTIVE, rows,
                partial(regimes.solve, limits=limits), predict,
                bands=_MESSAGE, penalty=0.0, note="",
            )
        )  # fmt: skip
    return min(tried, key=lambda law: law.left_out.median)
