"""What V4.1's own rows say: eager, so that only their growth belongs to the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.evidence import features as of
from aisim_v41.evidence.fit import samples
from aisim_v41.evidence.fit.jobs import Fitted, derived, fitted
from aisim_v41.evidence.laws import FloatArray, LawKind, law_seconds
from aisim_v41.evidence.robust import Free, errors, fit
from aisim_v41.hardware import Hardware
from aisim_v41.tables.load import load_table
from aisim_v41.units import MICROSECOND

MAIN_EXPERTS = "experts.mxfp4"
HIDDEN = 5120.0
SHARED_WIDTH = 2304.0
ENGRAM = (25600.0, 6144.0)
"""Outputs and inputs of the Engram projection."""
BUSY_TOKENS = 1024
"""Rows of experts end the flat part of the eager table before this."""
BUSY_COMPUTE_S = 2e-5
"""Arithmetic at peak beyond which the GPU is the longer side of a module on Hopper: at a share of
.06 it takes 330 us, twice what the host needs."""
_MOST_TOKENS = 2048
SWEPT_TOKENS = 2048
"""Rows of the residual streams' module from here on: the GPU is the longer side."""
AHEAD_TOKENS = 896
"""From here on those whose host was ahead hold the module's whole GPU time."""
SITE_PASSES = of.HYPER_PASSES["pre"] + of.HYPER_PASSES["post"]
_STEPS = np.linspace(0.0, 1.0, 101)


def unevenness(hardware: Hardware, parameters: Mapping[str, float]) -> float:
    """Value of ``uneven`` that makes eager minus predicted the same at every size.

    What is left is the host's time, which knows nothing of tokens an expert. The median over the
    tensor-parallel widths that were timed.
    """
    best = []
    for width in (4, 2):
        rows = samples.own_experts(hardware, width)
        if rows is None or rows.scale.max() < BUSY_TOKENS:
            continue
        rows = rows.where(rows.scale <= _MOST_TOKENS)
        spread = []
        for value in _STEPS:
            left = rows.seconds - law_seconds(
                LawKind.EXPERTS, rows.features, {**parameters, "uneven": float(value)}
            )
            spread.append(float(np.abs(left - np.median(left)).mean()))
        best.append(float(_STEPS[int(np.argmin(spread))]))
    return float(np.median(best))


def hopper_experts(hardware: Hardware, free: Mapping[str, Free]) -> Iterator[Fitted]:
    """4-bit experts widened to BF16: one kernel at TP4, a slower one at TP2.

    The host's time is fitted beside the law and left out of it.
    """
    for width, key, kernel in (
        (4, MAIN_EXPERTS, "humming"),
        (2, "experts.mxfp4_cutlass", "cutlass"),
    ):
        rows = samples.own_experts(hardware, width, kernel)
        if rows is None:
            continue
        law = _with_host(key, rows, free)
        yield law
        if key == MAIN_EXPERTS:
            yield widened(hardware, law)
    graph = samples.experts_samples(hardware, "vllm", "mxfp4_bf16", "marlin")
    if graph is not None:
        law = fitted(
            "vllm", MAIN_EXPERTS, LawKind.EXPERTS, graph, free, {"uneven": 0.0},
            bands=(1.0, 8.0, 64.0), penalty=0.2, note="shapes of another model",
        )  # fmt: skip
        yield law
        yield widened(hardware, law)


def widened(hardware: Hardware, law: Fitted) -> Fitted:
    """The same experts where a plan says that they multiply in BF16: shares of that peak."""
    narrow = hardware.peak(Arithmetic.MXFP4_MXFP8)[0]
    wide = hardware.peak(Arithmetic.BF16)[0]
    share = min(law.parameters["compute_share"] * narrow / wide, 1.0)
    return derived(
        law, "experts.w4a16", {"compute_share": share}, penalty=0.0,
        note=f"{law.note}; share of the BF16 peak",
    )  # fmt: skip


def _with_host(key: str, rows: samples.Samples, free: Mapping[str, Free]) -> Fitted:
    free = {
        **{name: free[name] for name in ("memory_share", "step_8", "tile", "compute_share")},
        "host_s": Free(start=4e-4, low=0, high=6e-4),
    }
    free["memory_share"] = Free(start=0.5, low=0.1, high=0.95)
    free["compute_share"] = Free(start=0.15, low=0.02, high=0.9)
    free["tile"] = Free(start=32, low=8, high=200)
    fixed = {"launch_s": 2e-5, "expert_s": 1e-7, "step_32": 0.0, "uneven": 0.0}

    def predict(values: Mapping[str, float]) -> FloatArray:
        return values["host_s"] + law_seconds(LawKind.EXPERTS, rows.features, values)

    found = fit(predict, rows.seconds, free, fixed)
    off = errors(predict(found), rows.seconds)
    del found["host_s"]
    return Fitted(
        engine="sglang", key=key, kind=LawKind.EXPERTS, parameters=found, within=off, left_out=off,
        samples=rows, penalty=0.2, sources=rows.sources,
        note="eager rows; the host's share was fitted beside and is left out",
    )  # fmt: skip


def block32_product(hardware: Hardware, convert_s: float) -> Fitted:
    """Hopper's product over V4.1's own blocks of 32 in that build: a property of the build."""
    table = load_table(hardware.name, "v41_modules")
    parts = []
    for operator in ("shared_gate_up", "shared_down", "engram_layer_1"):
        for identity in table.matching(operator=operator):
            partition = table.select(flags=(), **identity)
            tokens = partition.sizes["tokens"].astype(np.float64)
            inner = SHARED_WIDTH / float(identity["tensor_parallel"])
            outputs, inputs = {
                "shared_gate_up": (2 * inner, HIDDEN),
                "shared_down": (HIDDEN, inner),
                "engram_layer_1": ENGRAM,
            }[operator]
            feature = of.product_features(
                hardware, "fp8_block32", tokens,
                np.full_like(tokens, outputs), np.full_like(tokens, inputs),
            )  # fmt: skip
            parts.append(
                samples.Samples(
                    features=feature,
                    seconds=partition.latency_us * MICROSECOND,
                    group=np.zeros(len(tokens), dtype=np.int64),
                    scale=tokens,
                    hull={
                        "rows": tokens, "outputs": feature["outputs"], "inputs": feature["inputs"]
                    },
                    sources=samples.named(partition),
                ).where(feature["compute_s"] > BUSY_COMPUTE_S)
            )  # fmt: skip
    return fitted(
        "any", "product.fp8_block32_triton", LawKind.PRODUCT,
        samples.joined([part for part in parts if len(part)]),
        {"compute_share": Free(start=0.06, low=0.01, high=0.9)},
        {"launch_s": 5e-6, "inner_s": 1e-9, "quantise_launch_s": convert_s, "quantise_s": 0.0,
         "memory_share": 0.8, "norm": 2.0},
        bands=(2048.0,), penalty=0.1,
        note="eager rows where the GPU is the longer side; only that build's Triton kernel",
    )  # fmt: skip


def swept_streams(hardware: Hardware) -> Iterator[Fitted]:
    """Residual streams as one build of September 2026 runs them: many passes, no single sweep.

    V4.1's own module, both sites of a layer in one timing. Only its growth and what the GPU needs
    beside it are kept: rows of many tokens, and such as hold GPU time since the host was ahead.
    Collapse and expansion are taken to share the time by the bytes of a single sweep.
    """
    parts = []
    table = load_table(hardware.name, "v41_modules")
    for identity in table.matching(operator="mhc"):
        rows = table.select(flags=("host_ahead",), **identity)
        tokens = rows.sizes["tokens"].astype(np.float64)
        ahead = (rows.flag == "host_ahead") & (tokens >= AHEAD_TOKENS)
        busy = np.flatnonzero((tokens >= SWEPT_TOKENS) | ahead)
        if len(busy) < 2:
            continue
        features = of.hyper_features(hardware, "pre", tokens[busy], np.asarray(HIDDEN))
        features["memory_s"] = features["memory_s"] * (SITE_PASSES / of.HYPER_PASSES["pre"])
        parts.append(
            samples.Samples(
                features=features,
                seconds=rows.latency_us[busy] * MICROSECOND / 2,
                group=np.arange(len(busy), dtype=np.int64),
                scale=tokens[busy],
                hull={"rows": tokens[busy], "hidden": np.full(len(busy), HIDDEN)},
                sources=samples.named(rows),
            )
        )
    if not parts:
        return
    site = fitted(
        "sglang", "hyper.swept", LawKind.HYPER, samples.joined(parts),
        {
            "launch_s": Free(start=6e-5, low=0, high=3e-4),
            "memory_share": Free(start=0.15, low=0.02, high=1),
        },
        {"floor_s": 0.0, "row_walk": 0.0, "norm": 2.0}, bands=(4096.0,),
        note="V4.1's own eager module of one build, September 2026",
    )  # fmt: skip
    for part in ("pre", "post"):
        yield derived(
            site, f"hyper.swept_{part}", {"launch_s": site.parameters["launch_s"] / 2},
            penalty=0.1, note=f"{site.note}; both halves share its rate",
        )  # fmt: skip
