"""Defaults against the six GPUs that have tables: the stated errors hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aisim_v41 import load_hardware
from aisim_v41.evidence.calibration_file import read_calibration
from aisim_v41.evidence.fit import samples
from aisim_v41.evidence.laws import law_seconds
from aisim_v41.tables.schema import GPUS

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


@pytest.mark.parametrize("gpu", GPUS)
def test_the_stated_errors_hold_on_gpus_with_tables(gpu: str):
    """GPUs of the family that the defaults were read off; link rates follow the link."""
    laws = defaults("datacenter")
    scale = load_hardware(gpu).link_bytes_per_s / 900e9
    for key, rows in rows_of(gpu):
        if rows is None:
            continue
        law = laws[key]
        parameters = {
            name: value * scale if name.startswith("rate_") else value
            for name, value in law.parameters.items()
        }
        off = np.abs(law_seconds(law.kind, rows.features, parameters) / rows.seconds - 1)
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
    nccl = "all_reduce.nccl@8"
    assert card[nccl].parameters["alpha_1_s"] > 3 * data[nccl].parameters["alpha_1_s"]
    assert set(data) == set(amd) == set(card)
