"""Published times, within the errors that the laws state for themselves.

Numbers from `peer-data-newer.md` §2-§3 and `production-measurements.md` §3, which the project was
given: aisimulate 0.13.0.dev202610270000000085 (Apache-2.0).
"""

from __future__ import annotations

import numpy as np
import pytest

from aisim_v41 import load_hardware
from aisim_v41.evidence import features as of
from aisim_v41.evidence.calibration import CalibratedLaw, load_calibration
from aisim_v41.tables.load import load_table

KIB, MIB = 1024, 1024 * 1024


def law_of(gpu: str, key: str, engine: str = "sglang", ranks: int | None = None) -> CalibratedLaw:
    return load_calibration(load_hardware(gpu), engine).law(key, ranks)


def assert_near(law: CalibratedLaw, predicted_us, measured_us) -> None:
    """No point beyond one and a half of the law's 90 % error, half of them in twice its median."""
    off = np.abs(np.asarray(predicted_us) / np.asarray(measured_us) - 1)
    assert off.max() <= 1.5 * law.error_p90
    assert np.median(off) <= max(2 * law.error_median, 0.03)


@pytest.mark.parametrize(
    ("gpu", "engine", "sizes", "measured_us"),
    [
        ("gb300", "sglang", [8 * KIB, 64 * KIB, 256 * KIB], [3.86, 4.15, 5.07]),
        ("gb300", "sglang", [MIB, 2 * MIB, 4 * MIB], [8.8, 13.6, 19.0]),
        ("gb300", "sglang", [16 * MIB, 32 * MIB, 64 * MIB], [46.6, 126, 202]),
        ("gb200", "sglang", [8 * KIB, 64 * KIB, 256 * KIB], [3.89, 4.15, 5.01]),
        ("gb200", "sglang", [MIB, 2 * MIB, 4 * MIB], [8.7, 13.6, 19.1]),
        ("gb200", "sglang", [16 * MIB, 32 * MIB, 64 * MIB], [46.9, 124, 185]),
        ("gb300", "vllm", [MIB, 4 * MIB, 16 * MIB, 32 * MIB], [7.1, 15.1, 45.4, 86.6]),
        ("gb200", "vllm", [MIB, 4 * MIB, 16 * MIB, 32 * MIB], [7.3, 15.2, 45.5, 86.7]),
    ],
)
def test_all_reduce(gpu: str, engine: str, sizes: list[int], measured_us: list[float]):
    law = law_of(gpu, f"all_reduce.{engine}", engine, 4)
    features = of.message_features(np.array(sizes, np.float64), np.array(4.0))
    assert_near(law, law.seconds(features) * 1e6, measured_us)


@pytest.mark.parametrize("gpu", ["gb200", "gb300", "b300", "h200", "h100"])
def test_the_library_switch_of_sglang_is_a_step(gpu: str):
    """47 us at 16 MiB, 122 to 126 one byte above on Blackwell: NCCL takes over."""
    law = law_of(gpu, "all_reduce.sglang", ranks=4)
    at = law.seconds(of.message_features(np.array([16.0 * MIB, 16.0 * MIB + 1]), np.array(4.0)))
    assert law.parameters["limit_3_bytes"] == 16 * MIB
    assert at[1] / at[0] > (1.6 if gpu[0] == "g" or gpu[0] == "b" else 1.1)


@pytest.mark.parametrize(
    ("gpu", "measured_us"),
    [
        ("gb200", [18.9, 21.0, 24.9, 33.1, 70.2, 211, 406, 791]),
        ("gb300", [18.9, 20.9, 24.9, 33.0, 68.2, 212, 410, 794]),
    ],
)
def test_fused_hyper_connections_of_a_layer(gpu: str, measured_us: list[float]):
    """Width 4096, both sites: 18.9 us at one token."""
    law = law_of(gpu, "hyper.fused", "vllm")
    tokens = np.array([1, 16, 64, 384, 1024, 4096, 8192, 16384], np.float64)
    features = of.hyper_features(load_hardware(gpu), "fused", tokens, np.array(4096.0))
    assert_near(law, 2 * law.seconds(features) * 1e6, measured_us)


def test_single_hyper_connections():
    hardware = load_hardware("gb200")
    for part, measured_us in (("pre", [19.0, 232]), ("post", [8.7, 177])):
        law = law_of("gb200", f"hyper.{part}")
        features = of.hyper_features(hardware, part, np.array([1.0, 8192.0]), np.array(4096.0))
        assert_near(law, 2 * law.seconds(features) * 1e6, measured_us)


@pytest.mark.parametrize(
    ("gpu", "one_us", "many_us"),
    [
        ("gb200", [8.2, 8.3, 6.3, 5.6, 4.9], [37.6, 62.2, 66.8, 32.2, 27.4]),
        ("gb300", [8.7, 8.1, 6.0, 5.6, 5.4], [37.6, 56.2, 63.2, 30.4, 25.5]),
    ],
)
def test_eight_bit_products(gpu: str, one_us: list[float], many_us: list[float]):
    """SGLang 0.5.20 with the conversion, outputs x inputs of V4.1's order, 1 and 8192 rows."""
    law, hardware = law_of(gpu, "product.fp8"), load_hardware(gpu)
    outputs = np.array([512, 1536, 5120, 4096, 5120], np.float64)
    inputs = np.array([5120, 5120, 2048, 1024, 512], np.float64)
    for rows, measured_us in ((1.0, one_us), (8192.0, many_us)):
        features = of.product_features(hardware, "fp8_block128", np.array(rows), outputs, inputs)
        assert_near(law, law.seconds(features) * 1e6, measured_us)


TOKENS = np.array([1, 2, 4, 8, 16, 32, 64, 128], np.float64)


def v41_experts(gpu: str, tokens: np.ndarray, width: int) -> np.ndarray:
    """Seconds of V4.1's routed experts under uniform routing."""
    sizes = {
        "tokens": tokens, "hidden": np.array(5120.0), "expert_width": np.array(2304.0),
        "experts_routed": np.array(384.0), "experts_per_token": np.array(6.0),
    }  # fmt: skip
    hardware = load_hardware(gpu)
    features = of.experts_features(hardware, "mxfp4_mxfp8", "uniform", sizes, width, 1)
    return law_of(gpu, "experts.mxfp4").seconds(features)


def test_experts_of_v41_on_b200():
    """GPU part by the binomial sum over the tables' efficiencies, peer-data-newer §2.3.

    Below 8 tokens that sum scales the start of the kernel with the bytes of the weights, 16 and 31
    us at 1 and 4 tokens; the tables show a start of 19 us whatever the shape, and peer-data §3 has
    23 and 36 us for the same points on GB200, as here.
    """
    law = law_of("b200", "experts.mxfp4")
    predicted_us = v41_experts("b200", TOKENS, 4) * 1e6
    assert_near(law, predicted_us[3:], [51, 87, 143, 215, 274])
    assert_near(law, predicted_us[[0, 2]], [23, 36])
    assert_near(law, v41_experts("b200", TOKENS, 2)[3:] * 1e6, [81, 143, 243, 375, 492])


@pytest.mark.parametrize(("gpu", "width"), [("b200", 4), ("b200", 2), ("b300", 4), ("b300", 2)])
def test_what_the_experts_law_leaves_of_an_eager_call_is_the_host(gpu: str, width: int):
    """Eager minus law is the same from 4 to 256 tokens, whatever the law says grows tenfold."""
    table = load_table(gpu, "v41_dense")
    for identity in table.matching(operator="routed_experts", tensor_parallel=width):
        rows = table.select(flags=(), **identity)
        tokens = rows.sizes["tokens"].astype(np.float64)
        left_us = rows.latency_us - v41_experts(gpu, tokens, width) * 1e6
        few = left_us[(tokens >= 4) & (tokens <= 256)]
        assert 200 < np.median(few) < 320
        assert np.abs(few - np.median(few)).max() < 40


def test_attention_kernels():
    """V4's decode kernel with 64 heads: 15, 25, 48 us at 1, 256, 512 requests of past 1 k."""
    law, hardware = law_of("b200", "attention", "vllm"), load_hardware("b200")
    batch = np.array([1.0, 256.0, 512.0])
    one = np.ones(3)
    features = of.attention_features(hardware, 64, 128, batch, one, 1024 * one)
    assert_near(law, law.seconds(features) * 1e6, [15, 25, 48])


def test_attention_as_it_is_served():
    """SGLang pull request 39674, 6 rows: 128 keys 8.7 and 7.7 us, 640 keys 19.5 and 9."""
    hardware = load_hardware("gb300")
    for name, heads, measured_us in (("padded", 64, [8.7, 19.5]), ("native", 16, [7.7, 9.0])):
        keys = np.array([128.0, 640.0])
        flop = 6 * keys * heads * 512 * 4
        moved = 6 * heads * 512 * 4 + 6 * keys * of.CACHE_ROW_BYTES
        features = {
            "compute_s": flop / hardware.peak("bf16")[0],
            "memory_s": moved / hardware.hbm_bandwidth_bytes_per_s,
            "rows": np.array(6.0),
            "pairs": 6 * keys,
        }
        law = law_of("gb300", f"attention.{name}")
        np.testing.assert_allclose(law.seconds(features) * 1e6, measured_us, rtol=0.1)


@pytest.mark.parametrize(
    ("gpu", "share"), [("gb200", 0.31), ("gb300", 0.34), ("b200", 0.30), ("b300", 0.33),
                       ("h200", 0.39), ("h100", 0.40)],
)  # fmt: skip
def test_index_scores(gpu: str, share: float):
    """Share of the FP8 peak in prefill, floor of 3 to 4 us in decode."""
    law, hardware = law_of(gpu, "scores.fp8"), load_hardware(gpu)
    assert law.parameters["compute_share"] == pytest.approx(share, rel=0.08)
    one = np.array(1.0)
    decode = law.seconds(of.scores_features(hardware, 64, 4, one, one, np.array(8192.0)))
    assert decode * 1e6 == pytest.approx(3.9 if gpu[0] != "h" else 3.3, rel=0.2)
    four = law_of(gpu, "scores.fp4")
    rate = four.parameters["compute_share"] * hardware.peak("fp4")[0]
    eight = law.parameters["compute_share"] * hardware.peak("fp8")[0]
    assert rate == pytest.approx(eight, rel=1e-3)
    assert four.error_p90 > law.error_p90 + 0.2


def test_selection():
    """Ordered scores: 3 to 6 us up to 16 thousand entries, whatever equal scores would take."""
    hardware = load_hardware("b200")
    law = law_of("b200", "select")
    one = np.array(1.0)
    past = np.array([8192.0, 65536.0])
    seconds = law.seconds(of.select_features(hardware, 4, one, one, past))
    assert (seconds > 2.5e-6).all()
    assert (seconds < 6e-6).all()


def test_conversion_to_eight_bits():
    """2.0 us and .67 of the memory's rate on GB200; Hopper 1.3 us."""
    law = law_of("gb200", "quantise")
    assert law.parameters["launch_s"] == pytest.approx(2.0e-6, rel=0.1)
    assert law.parameters["memory_share"] == pytest.approx(0.67, rel=0.05)
    assert law_of("h200", "quantise").parameters["launch_s"] == pytest.approx(1.3e-6, rel=0.1)


@pytest.mark.parametrize("gpu", ["h200", "h100"])
def test_a_slow_build_is_kept_apart(gpu: str):
    """V4.1's blocks of 32 ran at .055 to .06 of the FP8 peak in that build, of 128 at .66."""
    slow = law_of(gpu, "product.fp8_block32_triton").parameters["compute_share"]
    assert slow == pytest.approx(0.057, rel=0.15)
    assert law_of(gpu, "product.fp8").parameters["compute_share"] > 0.6


@pytest.mark.parametrize(
    ("gpu", "call_us", "launch_us"), [("b200", 19, 3), ("h200", 20, 4), ("gb200", 55, 34)]
)
def test_hosts_from_the_router_gate(gpu: str, call_us: float, launch_us: float):
    """Eager time of one small product, minus its kernel; and the second launch at 32 rows."""
    table = load_table(gpu, "v41_dense")
    identity = table.matching(operator="router_gate", decoder_replay="off")[0]
    rows = table.select(flags=(), **identity)
    few, more = (
        float(np.median(rows.latency_us[(rows.sizes["rows"] >= low) & (rows.sizes["rows"] <= top)]))
        for low, top in ((1, 16), (32, 128))
    )
    launch = load_calibration(load_hardware(gpu)).launch
    assert few - 5 == pytest.approx(call_us, abs=2)
    assert few - 5 == pytest.approx(launch.framework_call_s * 1e6, rel=0.1)
    assert more - few == pytest.approx(launch_us, abs=2)
