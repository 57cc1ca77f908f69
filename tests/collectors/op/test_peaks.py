"""Peaks are those of the library's hardware files; the least time is the longest part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aisim_v41 as aisim
from aisim_v41 import resources
from aisim_v41.arithmetic import WIDER as LIBRARY_WIDER
from collectors.errors import InputError
from collectors.op import peaks
from collectors.op.kind import Work

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "collectors" / "data" / "peaks.json"
NOTE = "Written by `python -m tests.collectors.op.test_peaks` from hardware/*.yaml; SI units."


def wanted() -> str:
    gpus = {}
    for name in resources.names("hardware", ".yaml"):
        gpu = aisim.load_hardware(name)
        gpus[name] = {
            "flop_per_s": {str(kind): rate for kind, rate in gpu.peak_flop_per_s.items()},
            "memory_bytes_per_s": gpu.hbm_bandwidth_bytes_per_s,
            "memory_bytes": gpu.hbm_bytes,
            "l2_bytes": gpu.l2_bytes,
            "link_bytes_per_s": gpu.link_bytes_per_s or 0.0,
        }
    return json.dumps({"note": NOTE, "gpus": gpus}, indent=1) + "\n"


def test_they_are_those_of_the_library():
    assert FILE.read_text() == wanted(), NOTE


def test_narrow_arithmetic_is_widened_as_in_the_library():
    assert {str(a): str(b) for a, b in LIBRARY_WIDER.items()} == peaks.WIDER


def test_the_longest_part_counts():
    gpu = peaks.peaks_of("gb300")
    assert gpu is not None
    flops = Work(flops={"bf16": gpu.flop_per_s["bf16"], "fp8": 2 * gpu.flop_per_s["fp8"]})
    assert peaks.least_seconds(flops, gpu) == pytest.approx(3.0)
    half = gpu.memory_bytes_per_s / 2
    assert peaks.least_seconds(Work(read_bytes=half, written_bytes=half), gpu) == 1.0
    assert peaks.least_seconds(Work(sent_bytes=gpu.link_bytes_per_s), gpu) == 1.0
    assert peaks.least_seconds(Work(), gpu) == 0.0


def test_h200_widens_four_bits_to_eight():
    gpu = peaks.peaks_of("h200")
    assert gpu is not None
    work = Work(flops={"mxfp4_mxfp8": gpu.flop_per_s["fp8"]})
    assert peaks.least_seconds(work, gpu) == 1.0


def test_what_is_not_known_is_said():
    gpu = peaks.peaks_of("h200")
    assert gpu is not None
    assert peaks.peaks_of("abacus") is None
    with pytest.raises(InputError, match="no peak of 'int3'"):
        peaks.least_seconds(Work(flops={"int3": 1.0}), gpu)


if __name__ == "__main__":
    FILE.write_text(wanted())
