"""The GPUs we ship: their figures, in SI, by name and by path. Bad files: test_hardware_file.py."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import json
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisim_v41 import hardware as hardware_module
from aisim_v41 import resources
from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import (
    InvalidInputError,
    MissingProfileError,
    SchemaError,
    UnsupportedPlanError,
)
from aisim_v41.hardware import Hardware, Peaks, load_hardware
from aisim_v41.reading import read_mapping

NAMES = (
    "a100",
    "b200",
    "b300",
    "gb10",
    "gb200",
    "gb300",
    "h100",
    "h200",
    "mi300x",
    "mi355x",
    "rtx_4090",
    "rtx_5090",
    "rtx_pro_6000",
)
T = 10**12
G = 10**9


def sheet(name: str = "gb300") -> dict[str, Any]:
    """A packaged file as plain data, to be changed."""
    return copy.deepcopy(read_mapping(resources.find("hardware", name, ".yaml")))


def save(folder: Path, raw: object, name: str = "mine.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def a_hardware(**changes: Any) -> Hardware:
    return dataclasses.replace(load_hardware("h100"), **changes)


# --- what we ship ---------------------------------------------------------------------------


def test_the_packaged_files_are_these() -> None:
    assert tuple(resources.names("hardware", ".yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_packaged_file_loads_under_its_own_name(name: str) -> None:
    gpu = load_hardware(name)
    assert gpu.name == name
    assert {Arithmetic.BF16, Arithmetic.FP32} <= set(gpu.peak_flop_per_s)
    assert gpu.figure("compute.bf16_tflop_per_s").value == gpu.peak("bf16")[0] / T
    for figure in gpu.figures:
        assert figure.kind in ("datasheet", "measured", "derived", "estimate")
        assert figure.source.strip()
        assert re.fullmatch(r"20[0-9]{2}(-[0-9]{2})?", figure.date)
        assert figure.note or figure.kind in ("datasheet", "measured")
        assert figure.value is not None or figure.kind == "datasheet"


@pytest.mark.parametrize("name", NAMES)
def test_no_packaged_file_names_a_machine_or_a_person(name: str) -> None:
    text = resources.find("hardware", name, ".yaml").read_text(encoding="utf-8")
    assert not re.search(r"/(home|work|tmp|root|Users|mnt)/|@|hostname", text)


FACTS = [
    # (file, figure, value): a row "GPU,quantity,value,unit" of the fact table each.
    ("gb200", "compute.bf16_tflop_per_s", 2500),  # GB200,bf16,2500,TFLOP/s
    ("gb200", "compute.fp8_tflop_per_s", 5000),  # GB200,fp8,5000,TFLOP/s
    ("gb200", "compute.fp4_tflop_per_s", 10000),  # GB200,fp4,10000,TFLOP/s
    ("gb200", "compute.mxfp4_mxfp8_tflop_per_s", 5000),  # GB200,mxfp4 x mxfp8,5000,TFLOP/s
    ("gb200", "compute.tf32_tflop_per_s", 1250),  # GB200,tf32,1250,TFLOP/s
    ("gb200", "compute.fp32_tflop_per_s", 80),  # GB200,fp32,80,TFLOP/s
    ("gb200", "compute.int8_top_per_s", 5000),  # GB200,int8,5000,TOP/s
    ("gb200", "compute.exp2_texp_per_s", 5.0),  # GB200,exp2,5.0,Texp/s
    ("gb200", "memory.hbm_bandwidth_tb_per_s", 8.0),  # GB200,hbm bandwidth,8.0,TB/s
    ("gb200", "memory.hbm_bandwidth_achieved_tb_per_s", 7.13),  # GB200,... achieved,7.13,TB/s
    ("gb200", "memory.hbm_marketing_gb", 192),  # GB200,hbm marketing,192,GB
    ("gb200", "memory.hbm_usable_gib", 189471 / 1024),  # GB200,hbm usable,189471,MiB
    ("gb200", "memory.l2_mib", 126.5),  # GB200,L2,126.5,MiB
    ("gb200", "links.scale_up_gb_per_s", 900),  # GB200,nvlink,900,GB/s
    ("gb200", "links.scale_up_domain_gpus", 72),  # GB200,nvlink domain,72,GPUs
    ("gb200", "links.nic_gb_per_s", 50),  # GB200,rdma nic,50,GB/s (not 100: corrected)
    ("gb200", "links.host_link_gb_per_s", 225),  # GB200,nvlink-c2c,225,GB/s
    ("gb200", "links.host_link_achieved_gb_per_s", 170),  # GB200,nvlink-c2c achieved H2D,170
    ("gb200", "host.memory_gb", 480),  # GB200,grace memory,480,GB per Grace
    ("gb200", "chip.tdp_w", 1200),  # GB200,tdp,1200,W
    ("gb300", "compute.bf16_tflop_per_s", 2500),  # GB300,bf16,2500,TFLOP/s
    ("gb300", "compute.fp8_tflop_per_s", 5000),  # GB300,fp8,5000,TFLOP/s (not 7000)
    ("gb300", "compute.fp4_tflop_per_s", 15000),  # GB300,fp4,15000,TFLOP/s
    ("gb300", "compute.mxfp4_mxfp8_tflop_per_s", 5000),  # GB300,mxfp4 x mxfp8,5000,TFLOP/s
    ("gb300", "compute.int8_top_per_s", 165),  # GB300,int8,165,TOP/s: cut
    ("gb300", "compute.exp2_texp_per_s", 10.7),  # GB300,exp2,10.7,Texp/s
    ("gb300", "memory.hbm_bandwidth_tb_per_s", 8.0),  # GB300,hbm bandwidth,8.0,TB/s
    ("gb300", "memory.hbm_usable_gib", 284208 / 1024),  # GB300,hbm usable,284208,MiB
    ("gb300", "links.nic_gb_per_s", 100),  # GB300,rdma nic,100,GB/s
    ("b200", "compute.bf16_tflop_per_s", 2250),  # B200,bf16,2250,TFLOP/s
    ("b200", "compute.fp4_tflop_per_s", 9000),  # B200,fp4,9000,TFLOP/s
    ("b200", "memory.hbm_bandwidth_tb_per_s", 7.672),  # B200,hbm bandwidth,7.672,TB/s
    ("b200", "memory.hbm_usable_gib", 178.35),  # B200,hbm usable,178.35,GiB
    ("b200", "links.nic_gb_per_s", 50),  # B200,rdma nic,50,GB/s
    ("b300", "compute.fp4_tflop_per_s", 13500),  # B300,fp4,13500,TFLOP/s
    ("b300", "compute.int8_top_per_s", 153.5),  # B300,int8,153.5,TOP/s
    ("b300", "memory.hbm_bandwidth_tb_per_s", 7.75),  # B300,hbm bandwidth,7.75,TB/s
    ("b300", "memory.hbm_usable_gib", 275040 / 1024),  # B300,hbm usable,275040,MiB
    ("h200", "compute.bf16_tflop_per_s", 989.4),  # H200,bf16,989.4,TFLOP/s
    ("h200", "compute.fp8_tflop_per_s", 1978.9),  # H200,fp8,1978.9,TFLOP/s (not 3958)
    ("h200", "memory.hbm_bandwidth_tb_per_s", 4.8),  # H200,hbm bandwidth,4.8,TB/s
    ("h200", "memory.hbm_usable_gib", 139.8),  # H200,hbm usable,139.8,GiB
    ("h200", "links.scale_up_gb_per_s", 450),  # H200,nvlink,450,GB/s
    ("h100", "memory.hbm_bandwidth_tb_per_s", 3.35),  # H100,hbm bandwidth,3.35,TB/s
    ("h100", "memory.hbm_usable_gib", 79.6),  # H100,hbm usable,79.6,GiB
    ("gb10", "compute.fp4_tflop_per_s", 500),  # GB10,fp4,500,TFLOP/s
    ("gb10", "memory.hbm_bandwidth_tb_per_s", 0.273),  # GB10,memory bandwidth,273,GB/s
    ("gb10", "links.nic_gb_per_s", 25),  # GB10,rdma nic,25,GB/s
    ("rtx_pro_6000", "compute.bf16_tflop_per_s", 467.8),  # RTX PRO 6000,bf16,467.8,TFLOP/s
    ("rtx_pro_6000", "compute.fp4_tflop_per_s", 1871),  # RTX PRO 6000,fp4,1871,TFLOP/s
    ("rtx_pro_6000", "memory.hbm_bandwidth_tb_per_s", 1.597),  # RTX PRO 6000,... 1.597,TB/s
    ("rtx_pro_6000", "memory.hbm_usable_gib", 97887 / 1024),  # RTX PRO 6000,usable,97887,MiB
    ("mi355x", "compute.bf16_tflop_per_s", 2516.6),  # MI355X,bf16,2516.6,TFLOP/s
    ("mi355x", "compute.fp8_tflop_per_s", 5033.2),  # MI355X,fp8,5033.2,TFLOP/s
    ("mi355x", "compute.fp4_tflop_per_s", 10066),  # MI355X,fp4,10066,TFLOP/s
    ("mi355x", "links.scale_up_gb_per_s", 537.6),  # MI355X,nvlink,537.6,GB/s
    # From the vendors' data sheets.
    ("a100", "compute.bf16_tflop_per_s", 312),
    ("a100", "compute.tf32_tflop_per_s", 156),
    ("a100", "memory.hbm_bandwidth_tb_per_s", 2.039),
    ("mi300x", "compute.bf16_tflop_per_s", 1307.4),
    ("mi300x", "compute.fp8_tflop_per_s", 2614.9),
    ("rtx_4090", "compute.bf16_tflop_per_s", 165.2),
    ("rtx_5090", "memory.hbm_bandwidth_tb_per_s", 1.792),
    # Absent units and links are null with a source, never 0.
    ("h200", "compute.fp4_tflop_per_s", None),  # H200,fp4,0,... absent
    ("h100", "compute.fp4_tflop_per_s", None),  # H100,fp4,0,... absent
    ("a100", "compute.fp8_tflop_per_s", None),
    ("gb10", "links.scale_up_gb_per_s", None),  # GB10,nvlink,0,... absent
    ("gb10", "host.memory_gb", None),
    ("mi355x", "compute.tf32_tflop_per_s", None),
]


@pytest.mark.parametrize(("name", "path", "value"), FACTS, ids=lambda item: str(item))
def test_figures_are_those_of_the_fact_table(name: str, path: str, value: float | None) -> None:
    assert load_hardware(name).figure(path).value == value


IN_SI = [
    ("gb300", "hbm_bandwidth_bytes_per_s", 8 * T),
    ("b200", "hbm_bandwidth_bytes_per_s", 7_672_000_000_000),
    ("gb200", "hbm_bytes", 189_471 * 2**20),  # 198.67e9, not 192e9
    ("gb300", "hbm_bytes", 284_208 * 2**20),  # 298.01e9
    ("rtx_pro_6000", "hbm_bytes", 97_887 * 2**20),
    ("mi300x", "hbm_bytes", 206_141_652_992),  # rocm-smi prints these bytes
    ("mi355x", "hbm_bytes", 309_220_868_096),
    ("gb200", "l2_bytes", 132_644_864),  # 126.5 x 2**20
    ("h100", "l2_bytes", 52_428_800),
    ("gb300", "link_bytes_per_s", 900 * G),
    ("gb300", "link_domain_gpus", 72),
    ("gb10", "link_bytes_per_s", None),
    ("gb10", "link_domain_gpus", 1),
    ("rtx_5090", "link_bytes_per_s", 64 * G),
    ("rtx_5090", "nic_bytes_per_s", None),  # the builder's choice
    ("gb300", "host_link_bytes_per_s", 225 * G),
    ("gb300", "host_memory_bytes", 240 * G),  # 480 GB of a Grace over its 2 GPUs
    ("h200", "host_memory_bytes", 250 * G),  # 2 TB of a DGX over its 8 GPUs
    ("gb10", "host_memory_bytes", None),  # not apart from the GPU's
    ("b200", "eager_launch_s", 3e-6),
    ("gb300", "eager_launch_s", 33e-6),
    ("gb300", "graph_node_gap_s", 1e-6),
]


@pytest.mark.parametrize(("name", "attribute", "expected"), IN_SI)
def test_conversion_to_si(name: str, attribute: str, expected: float | None) -> None:
    found = getattr(load_hardware(name), attribute)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-15))
    assert type(found) is not bool


def test_only_boards_with_an_nvlink_sharp_switch_add_in_the_network() -> None:
    adding = {name for name in NAMES if load_hardware(name).in_network_reduction}
    assert adding == {"h100", "h200", "b200", "b300", "gb200", "gb300"}


def test_achieved_bandwidth_is_a_figure_and_touches_no_peak() -> None:
    raw = sheet("gb300")
    gpu = load_hardware("gb300")
    assert gpu.figure("memory.hbm_bandwidth_achieved_tb_per_s").value == 7.11
    assert gpu.hbm_bandwidth_bytes_per_s == raw["memory"]["hbm_bandwidth_tb_per_s"]["value"] * T


# --- arithmetic -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted", "used", "peak"),
    [
        ("gb300", "fp4", "fp4", 15_000 * T),
        ("gb300", "mxfp4_mxfp8", "mxfp4_mxfp8", 5_000 * T),  # the rate of the wider operand
        ("h200", "mxfp4_mxfp8", "fp8", 1_978_900_000_000_000),  # no FP4 units: FP8
        ("h200", "fp4", "fp8", 1_978_900_000_000_000),
        ("a100", "fp4", "bf16", 312 * T),  # no FP8 either: BF16
        ("a100", "fp8", "bf16", 312 * T),
        ("a100", "tf32", "tf32", 156 * T),
        ("mi355x", "tf32", "bf16", 2_516_600_000_000_000),  # TF32 units dropped: BF16
        ("mi300x", "fp8", "fp8", 2_614_900_000_000_000),
        ("gb200", "fp32", "fp32", 80 * T),
    ],
)
def test_peak_widens_what_the_chip_lacks(name: str, wanted: str, used: str, peak: int) -> None:
    found, arithmetic = load_hardware(name).peak(Arithmetic(wanted))
    assert arithmetic is Arithmetic(used)
    assert found == pytest.approx(peak, rel=1e-15)


def test_peak_takes_a_name_and_refuses_an_unknown_one() -> None:
    assert load_hardware("gb300").peak("fp8") == load_hardware("gb300").peak(Arithmetic.FP8)
    with pytest.raises(InvalidInputError, match=r"'fp7'.*known: fp4"):
        load_hardware("gb300").peak("fp7")


def test_peak_refuses_when_no_wider_units_are_left() -> None:
    narrow = a_hardware(peak_flop_per_s={Arithmetic.FP8: 1e15})
    assert narrow.peak("fp4") == (1e15, Arithmetic.FP8)
    with pytest.raises(UnsupportedPlanError, match=r"h100 has no units for bf16.*it has fp8"):
        narrow.peak("bf16")
    with pytest.raises(UnsupportedPlanError, match="no units for tf32"):
        narrow.peak("tf32")


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(hardware_module)
    assert (result.failed, result.attempted) == (0, 1)


# --- the record -----------------------------------------------------------------------------


def test_a_record_is_frozen_hashable_and_survives_copying() -> None:
    gpu = load_hardware("gb300")
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.hbm_bytes = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        gpu.peak_flop_per_s[Arithmetic.FP8] = 1.0  # type: ignore[index]
    twin = pickle.loads(pickle.dumps(gpu))
    assert (twin, hash(twin)) == (gpu, hash(gpu))
    assert copy.deepcopy(gpu) == gpu
    assert len({gpu, twin, load_hardware("gb200")}) == 2


def test_peaks_are_a_copy_of_what_was_given() -> None:
    given = {Arithmetic.BF16: 1e15}
    gpu = a_hardware(peak_flop_per_s=given)
    given[Arithmetic.BF16] = 2e15
    assert gpu.peak("bf16")[0] == 1e15
    assert gpu.peak_flop_per_s == {Arithmetic.BF16: 1e15}
    assert repr(gpu.peak_flop_per_s) == "Peaks({<Arithmetic.BF16: 'bf16'>: 1000000000000000.0})"
    alone = Peaks(given)
    given[Arithmetic.BF16] = 1e15
    assert (alone[Arithmetic.BF16], len(alone)) == (2e15, 1)
    assert hash(Peaks(given)) == hash(gpu.peak_flop_per_s) != hash(alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hbm_bandwidth_bytes_per_s": 0}, r"hbm_bandwidth_bytes_per_s.*more than 0; found 0"),
        ({"hbm_bandwidth_bytes_per_s": math.nan}, "hbm_bandwidth_bytes_per_s.*finite"),
        ({"hbm_bandwidth_bytes_per_s": 10**400}, "hbm_bandwidth_bytes_per_s.*finite"),
        ({"hbm_bandwidth_bytes_per_s": None}, "hbm_bandwidth_bytes_per_s"),
        ({"hbm_bytes": 1.5}, r"hbm_bytes must be a whole number.*found 1\.5"),
        ({"hbm_bytes": True}, "hbm_bytes.*found True"),
        ({"nic_bytes_per_s": -1.0}, "nic_bytes_per_s"),
        ({"eager_launch_s": -1e-6}, "eager_launch_s must be a finite number, 0 or more"),
        ({"graph_node_gap_s": "1"}, "graph_node_gap_s"),
        ({"link_bytes_per_s": None}, "link_domain_gpus is 8, but link_bytes_per_s is None"),
        ({"peak_flop_per_s": {Arithmetic.BF16: math.inf}}, r"peak_flop_per_s\[bf16\]"),
        ({"peak_flop_per_s": {"int8": 1e15}}, "no arithmetic class 'int8'"),
        ({"peak_flop_per_s": 1e15}, "peak_flop_per_s must map"),
    ],
)
def test_a_what_if_that_means_nothing_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        a_hardware(**change)


def test_a_what_if_without_host_cost_is_accepted() -> None:
    ideal = a_hardware(eager_launch_s=0.0, graph_node_gap_s=0, nic_bytes_per_s=None)
    assert (ideal.eager_launch_s, ideal.graph_node_gap_s, ideal.nic_bytes_per_s) == (0, 0, None)


def test_an_unknown_figure_names_its_neighbours() -> None:
    with pytest.raises(MissingProfileError, match=r"gb300 has no figure.*nearest: memory\.l2_mib"):
        load_hardware("gb300").figure("memory.l2_mb")


# --- finding a file -------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["gb301", "GB300", "h20", "", "nvidia gb300", "x" * 5000, "a\0b"])
def test_a_wrong_name_is_answered_with_the_known_ones(wrong: str) -> None:
    with pytest.raises(MissingProfileError) as caught:
        load_hardware(wrong)
    assert "nearest: " in str(caught.value) or "known: a100" in str(caught.value)


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(MissingProfileError, match=r"named 'gb301'; nearest: .*gb300"):
        load_hardware("gb301")


@pytest.mark.parametrize("wrong", [5, None, b"gb300", ["gb300"], 2.5])
def test_what_is_neither_text_nor_path_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="load_hardware takes a name or a path"):
        load_hardware(wrong)


@pytest.mark.parametrize(
    "wrong", ["missing.yaml", "no/such/gpu", "../gb300", "a\0/b", "x" * 5000 + ".yml"]
)
def test_a_missing_file_is_a_typed_error(wrong: str) -> None:
    with pytest.raises((MissingProfileError, SchemaError), match=re.escape(wrong[:5])):
        load_hardware(wrong)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        load_hardware(tmp_path)


def test_a_path_works_as_text_as_object_and_as_json(tmp_path: Path) -> None:
    raw = sheet("gb300") | {"name": "mine"}
    path = save(tmp_path, raw)
    as_yaml = save(tmp_path, raw, "mine.yml")  # JSON is YAML
    expected = dataclasses.replace(load_hardware("gb300"), name="mine")
    assert load_hardware(path) == load_hardware(str(path)) == load_hardware(as_yaml) == expected


def with_cache_of(mebibytes: int, name: str = "gb300") -> dict[str, Any]:
    raw = sheet("gb300") | {"name": name}
    raw["memory"]["l2_mib"]["value"] = mebibytes
    return raw


def test_a_users_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hardware"
    folder.mkdir()
    for name in ("gb300", "mine"):
        save(folder, with_cache_of(64, name), f"{name}.yaml")
    monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))
    assert load_hardware("mine").l2_bytes == load_hardware("gb300").l2_bytes == 64 * 2**20
    monkeypatch.delenv("AISIM_V41_PATH")
    assert load_hardware("gb300").l2_bytes == 132_644_864


def test_a_file_is_read_once_and_again_when_it_changed(tmp_path: Path) -> None:
    path = save(tmp_path, sheet("gb300"))
    first = load_hardware(path)
    assert load_hardware(path) is first
    save(tmp_path, with_cache_of(64))
    os.utime(path, ns=(0, 0))
    assert load_hardware(path).l2_bytes == 64 * 2**20


def test_importing_the_module_reads_no_schema() -> None:
    code = "import sys, aisim_v41.hardware; print('aisim_v41.hardware_file' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_optional_figure_may_be_left_out(tmp_path: Path) -> None:
    raw = sheet("gb300")
    del raw["chip"], raw["links"]["nic_gb_per_s"], raw["host"]["memory_gb"]
    del raw["compute"]["tf32_tflop_per_s"]
    gpu = load_hardware(save(tmp_path, raw))
    assert (gpu.nic_bytes_per_s, gpu.host_memory_bytes) == (None, None)
    assert gpu.peak("tf32") == (2_500 * T, Arithmetic.BF16)
    assert not any(figure.path.startswith("chip.") for figure in gpu.figures)


def test_a_date_may_be_a_bare_year(tmp_path: Path) -> None:
    raw = sheet("gb300")
    raw["memory"]["l2_mib"]["date"] = 2026
    assert load_hardware(save(tmp_path, raw)).figure("memory.l2_mib").date == "2026"


def test_figures_keep_the_order_and_the_print_of_the_file() -> None:
    gpu = load_hardware("gb300")
    raw = sheet("gb300")
    sections = ("compute", "memory", "links", "host", "chip")
    assert [figure.path for figure in gpu.figures] == [
        f"{section}.{key}" for section in sections for key in raw[section]
    ]
    assert repr(gpu.figure("compute.bf16_tflop_per_s").value) == "2500"  # not 2500.0
    assert gpu.figure("links.in_network_reduction").value is True
    assert gpu.figure("host.platform").value == "grace"
