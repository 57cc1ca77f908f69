"""Which law answers for a key: this GPU, a sibling, a family; engines, ranks, hosts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from aisim_v41 import InvalidInputError, MissingProfileError, load_hardware
from aisim_v41.evidence.calibration import (
    ENGINE_PENALTY,
    RANKS_PENALTY,
    SIBLING_PENALTY,
    load_calibration,
)
from aisim_v41.tables.schema import GPUS

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = sorted(path.stem for path in (ROOT / "hardware").glob("*.yaml"))
NEEDED = (
    "product.bf16", "product.fp8", "experts.mxfp4", "attention", "scores.fp8", "scores.fp4",
    "scores.bf16", "select", "hyper.pre", "hyper.post", "hyper.fused", "quantise", "elementwise",
    "gather.engram",
)  # fmt: skip
MESSAGES = ("all_reduce.sglang", "all_reduce.vllm", "all_reduce.trtllm", "all_gather.nccl")


@pytest.mark.parametrize("gpu", PACKAGED)
@pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm", "atom"])
def test_every_gpu_has_every_law(gpu: str, engine: str):
    calibration = load_calibration(load_hardware(gpu), engine)
    for key in NEEDED:
        law = calibration.law(key)
        assert law.key == key
        assert 0 <= law.error_median <= law.error_p90
    for key in MESSAGES:
        for ranks in (1, 2, 3, 4, 8):
            assert calibration.law(key, ranks).parameters


@pytest.mark.parametrize("gpu", GPUS)
def test_measured_gpus_are_calibrated(gpu: str):
    calibration = load_calibration(load_hardware(gpu))
    for key in ("product.bf16", "experts.mxfp4", "attention", "hyper.pre", "select"):
        law = calibration.law(key)
        assert law.origin == "calibrated"
        assert law.rows_fitted > 10
        assert law.hull
        assert law.sources


@pytest.mark.parametrize("gpu", sorted(set(PACKAGED) - set(GPUS)))
def test_other_gpus_have_defaults_with_wide_errors(gpu: str):
    calibration = load_calibration(load_hardware(gpu))
    for law in calibration.laws.values():
        assert law.origin == "default"
        assert law.error_p90 >= 0.4
        assert law.rows_fitted == 0
        assert law.sources


def test_a_sibling_takes_the_place_of_an_older_engine():
    """B200's tables end at SGLang 0.5.17; 0.5.20 is 15 % faster on the same chip."""
    b200, gb200 = (load_calibration(load_hardware(gpu)) for gpu in ("b200", "gb200"))
    law, source = b200.law("product.fp8"), gb200.law("product.fp8")
    assert (law.origin, source.origin) == ("sibling", "calibrated")
    assert law.parameters == source.parameters
    assert law.error_p90 == pytest.approx(source.error_p90 + SIBLING_PENALTY)
    assert law.note.startswith("of gb200")
    assert b200.law("product.fp8_older").origin == "calibrated"
    assert "product.fp8_older" not in gb200.laws


def test_links_of_one_machine_do_not_travel():
    """Eight GB200 are two trays; eight B200 are one board, and B300's board answers for it."""
    law = load_calibration(load_hardware("b200")).law("all_reduce.sglang", 8)
    assert law.origin == "sibling"
    assert law.note.startswith("of b300")
    assert law.reach == "one_board"


def test_another_engine_stands_in_with_a_penalty():
    sglang, vllm = (load_calibration(load_hardware("b300"), e) for e in ("sglang", "vllm"))
    own, lent = vllm.law("hyper.fused"), sglang.law("hyper.fused")
    assert lent.parameters == own.parameters
    assert lent.error_p90 == pytest.approx(own.error_p90 + ENGINE_PENALTY)
    assert lent.note.startswith("of vllm")
    assert sglang.law("hyper.pre").parameters != vllm.law("hyper.pre").parameters


def test_link_rates_follow_the_link():
    half = load_hardware("a100")
    double = replace(half, name="a100_fast", link_bytes_per_s=2 * half.link_bytes_per_s)
    slow, fast = (load_calibration(h).law("all_reduce.nccl", 8) for h in (half, double))
    assert fast.parameters["rate_4_bytes_per_s"] == 2 * slow.parameters["rate_4_bytes_per_s"]
    assert fast.parameters["alpha_4_s"] == slow.parameters["alpha_4_s"]


def test_other_numbers_of_gpus_take_the_nearest():
    calibration = load_calibration(load_hardware("h200"))
    six, eight = calibration.law("all_reduce.sglang", 6), calibration.law("all_reduce.sglang", 8)
    assert six.key == "all_reduce.sglang@6"
    assert six.origin == "sibling"
    assert six.error_p90 == pytest.approx(eight.error_p90 + RANKS_PENALTY)
    # a rank sends (n - 1)/n: 7/8 of eight, 5/6 of six
    ratio = six.parameters["rate_3_bytes_per_s"] / eight.parameters["rate_3_bytes_per_s"]
    assert ratio == pytest.approx((7 / 8) / (5 / 6))
    assert calibration.law("all_reduce.sglang", 8) is eight
    with pytest.raises(InvalidInputError, match="ranks must be 1 or more"):
        calibration.law("all_reduce.sglang", 0)


def test_unknown_keys_name_the_nearest():
    calibration = load_calibration(load_hardware("b300"))
    with pytest.raises(MissingProfileError, match=r"'product.fp9' for b300; nearest: product.fp8"):
        calibration.law("product.fp9")
    with pytest.raises(MissingProfileError, match=r"nearest: .*all_reduce.sglang"):
        calibration.law("all_reduce.sglan", 4)


def test_hosts():
    """peer-data-newer §4: 20 and 4 us on x86, 55 and 33 us on Grace."""
    x86 = load_calibration(load_hardware("b200")).launch
    grace = load_calibration(load_hardware("gb300")).launch
    assert (x86.platform, grace.platform) == ("x86", "grace")
    assert (x86.framework_call_s, x86.bare_launch_s) == (20e-6, 4e-6)
    assert (grace.framework_call_s, grace.bare_launch_s) == (55e-6, 33e-6)
    assert x86.python_call_s == 20e-6
    assert 1.5 <= grace.python_call_s / x86.python_call_s <= 1.8
    assert x86.error_relative == 0.07


def test_a_gpu_without_figures_is_placed_by_its_launch_time():
    made = replace(load_hardware("gb300"), figures=())
    assert load_calibration(made).launch.platform == "grace"
    assert load_calibration(replace(made, eager_launch_s=5e-6)).launch.platform == "x86"


def test_loading_again_is_cheap():
    hardware = load_hardware("gb300")
    load_calibration(hardware)
    started = time.perf_counter()
    for _ in range(100):
        load_calibration(hardware)
    assert (time.perf_counter() - started) / 100 < 5e-3


def test_a_users_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = (ROOT / "profiles/b300/op/calibration.yaml").read_text(encoding="utf-8")
    folder = tmp_path / "profiles/b300/op"
    folder.mkdir(parents=True)
    changed = text.replace('    "select":', '    "select.mine":')
    (folder / "calibration.yaml").write_text(changed, encoding="utf-8")
    monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))
    calibration = load_calibration(load_hardware("b300"))
    assert calibration.law("select.mine").origin == "calibrated"
    assert calibration.law("select").origin == "sibling"  # GB300's, now that B300 has none


def test_a_new_architecture_has_defaults():
    made = replace(load_hardware("b200"), name="r100", architecture="sm110")
    assert load_calibration(made).law("product.fp8").origin == "default"
    other = replace(made, architecture="accelerator9")
    assert load_calibration(other).law("product.fp8").origin == "default"
