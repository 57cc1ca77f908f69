"""Defaults against the six GPUs that have tables and against public timings: stated errors hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aisim_v41 import load_hardware
from aisim_v41.evidence.calibration import load_calibration
from aisim_v41.evidence.calibration_file import read_calibration
from aisim_v41.evidence.fit import samples
from aisim_v41.evidence.laws import law_seconds
from aisim_v41.hardware import Hardware
from aisim_v41.tables.schema import GPUS
from aisim_v41.units import MICROSECOND
from aisim_v41.validation.cases import load_cases

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("ampere", "cdna", "consumer", "datacenter")


def defaults(family: str):
    return read_calibration(ROOT / "profiles" / "defaults" / f"{family}.yaml").engines["any"]


def rows_of(gpu: str):
    hardware = load_hardware(gpu)
    yield "product.bf16", samples.product_samples(hardware, "sglang", "bf16")
    yield "product.fp8", samples.product_samples(hardware, "sglang", "fp8_block128")
    for part in ("pre", "post"):
        yield f"hyper.{part}", samples.hyper_samples(hardware, "sglang", part)
    yield "hyper.fused", samples.hyper_samples(hardware, "vllm", "fused")
    yield "quantise", samples.quantise_samples(hardware, "trtllm")
    yield "experts.mxfp4", samples.experts_samples(hardware, "sglang", "mxfp4_mxfp8")
    for ranks in (2, 4):
        yield (
            f"all_reduce.sglang@{ranks}",
            samples.collective_samples(hardware, "all_reduce", "sglang", ranks),
        )


def without_tables(hardware: Hardware):
    """The defaults of a data-centre GPU that nobody measured, with these peaks and links."""
    return load_calibration(replace(hardware, name="made", architecture="sm100"))


@pytest.mark.parametrize("gpu", GPUS)
def test_the_stated_errors_hold_on_gpus_with_tables(gpu: str):
    """GPUs of the family that the defaults were read off; link rates follow the link."""
    hardware = load_hardware(gpu)
    calibration = without_tables(hardware)
    for key, rows in rows_of(gpu):
        if rows is None:
            continue
        name, _, ranks = key.partition("@")
        law = calibration.law(name, int(ranks) if ranks else None)
        assert law.origin == "default"
        off = np.abs(law_seconds(law.kind, rows.features, law.parameters) / rows.seconds - 1)
        assert np.median(off) <= law.error_median, key
        assert np.quantile(off, 0.9) <= law.error_p90, key


@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_say_that_they_are_defaults(family: str):
    for law in defaults(family).values():
        assert law.origin == "default"
        assert law.note
        assert law.rows_fitted == 0
        assert not law.hull


def test_families_differ_where_they_say():
    data, amd, card = (defaults(name) for name in ("datacenter", "cdna", "consumer"))
    share = "compute_share"
    assert amd["product.fp8"].parameters[share] < 0.7 * data["product.fp8"].parameters[share]
    assert amd["attention"].parameters[share] < 0.5 * data["attention"].parameters[share]
    assert card["attention"].parameters[share] == 0.5 * data["attention"].parameters[share]
    assert set(data) == set(amd) == set(card)


def seconds(gpu: str, key: str, **features: float) -> float:
    """One kernel of a GPU by its default."""
    law = load_calibration(load_hardware(gpu)).law(key)
    assert law.origin == "default"
    filled = {"compute_s": 0.0, "memory_s": 0.0, "rows": 1.0} | features
    return float(law.seconds({name: np.array(value) for name, value in filled.items()}))


def product_us(gpu: str, rows: float, outputs: float, inputs: float) -> float:
    hardware = load_hardware(gpu)
    moved = rows * inputs + outputs * inputs + 2 * rows * outputs
    time = seconds(
        gpu, "product.fp8", rows=rows, inputs=inputs, outputs=outputs, quantised=1.0,
        compute_s=2 * rows * outputs * inputs / hardware.peak("fp8")[0],
        memory_s=moved / hardware.hbm_bandwidth_bytes_per_s,
    )  # fmt: skip
    return time / MICROSECOND


@pytest.mark.parametrize(
    ("rows", "outputs", "inputs", "measured_us"),
    [(1, 2624, 6144, 8.0), (1, 6144, 6144, 11.0), (4, 6144, 6144, 11.3), (16384, 7168, 1024, 148),
     (16384, 8192, 1536, 224)],
)  # fmt: skip
def test_products_of_mi355x(rows: float, outputs: float, inputs: float, measured_us: float):
    """aiter pulls 5278 and 5279: kernels alone, so without the gap to the next."""
    assert product_us("mi355x", rows, outputs, inputs) == pytest.approx(measured_us, rel=0.2)


def test_the_portable_product_walks_whatever_the_rows():
    """sglang pull 39872: the portable 32-wide kernel leaves the GPU idle at few rows; tuned kernels
    take a third to a sixth. Beside it bytes do not matter: 64 rows take as long as one."""
    one, many = (product_us("rtx_pro_6000", rows, 1792, 5120) for rows in (1, 64))
    assert 35 < one < 60
    assert many < 1.05 * one
    assert one > 4 * product_us("a100", 1, 1792, 5120)


def experts_us(gpu: str, rows: float, routed: float, top_k: float, width: float) -> float:
    """A layer of V4.1's hidden width, experts drawn evenly, 4.25 bits a weight."""
    hardware = load_hardware(gpu)
    weights = 3 * 5120 * width
    touched = routed * (1 - (1 - top_k / routed) ** rows)
    time = seconds(
        gpu, "experts.mxfp4", rows=rows, touched=touched, top_k=top_k, routed=routed,
        compute_s=2 * rows * top_k * weights / hardware.peak("mxfp4_mxfp8")[0],
        memory_s=touched * weights * 17 / 32 / hardware.hbm_bandwidth_bytes_per_s,
    )  # fmt: skip
    return time / MICROSECOND


@pytest.mark.parametrize(("rows", "measured_us"), [(1, 18.5), (2048, 398.9), (4096, 652.2)])
def test_experts_of_mi355x(rows: float, measured_us: float):
    """Public tuner rows: the shared expert is one more routed one, slices are padded to 640."""
    assert experts_us("mi355x", rows, 385, 7, 640) == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize(("rows", "measured_us"), [(6, 849), (24, 3191), (96, 6819), (512, 8648)])
def test_experts_of_gb10(rows: float, measured_us: float):
    """Public timings of a rank's 96 whole experts: a quarter of each row's six."""
    assert experts_us("gb10", rows, 96, 1.5, 2304) == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(("rows", "measured_us"), [(128, 51.0), (1024, 254.0), (4096, 910.6)])
def test_attention_of_rtx_pro_6000(rows: float, measured_us: float):
    """flashinfer pull 3834: 32 heads, 256 keys of 512 values and as many summed."""
    hardware = load_hardware("rtx_pro_6000")
    pairs = rows * 256
    time = seconds(
        "rtx_pro_6000", "attention", rows=rows, pairs=pairs,
        compute_s=2 * pairs * 32 * 1024 / hardware.peak("bf16")[0],
    )  # fmt: skip
    assert time / MICROSECOND == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(("rows", "measured_us"), [(1, 16.3), (6, 16.6), (24, 16.9), (48, 17.2)])
def test_hyper_connections_of_mi355x(rows: float, measured_us: float):
    """vllm pull 56503, in a graph."""
    moved = rows * 5 * 5120 * 2 / load_hardware("mi355x").hbm_bandwidth_bytes_per_s
    time = seconds("mi355x", "hyper.pre", rows=rows, memory_s=moved)
    assert time / MICROSECOND == pytest.approx(measured_us, rel=0.1)


def test_cases_behind_a_law_are_named():
    """Their values shaped a law, so that no error table may count them."""
    known = {case.name for case in load_cases()}
    for gpu, some in (("mi355x", "mi355-moe-layer-rows1"), ("gb10", "gb10-moe-layer-rows6")):
        used = load_calibration(load_hardware(gpu)).used_cases
        assert some in used
        assert used <= known
    assert not load_calibration(load_hardware("b200")).used_cases
