"""The laws: zero without rows, never below the peak rates, never falling; numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import InvalidInputError, load_hardware
from aisim_v41.evidence.calibration import CalibratedLaw, load_calibration
from aisim_v41.evidence.laws import FORMS, LawKind, law_seconds

GPUS = ("gb200", "gb300", "b200", "b300", "h200", "h100", "a100", "mi355x", "gb10", "rtx_4090")
ENGINES = ("sglang", "vllm", "trtllm")


def all_laws() -> dict[str, CalibratedLaw]:
    found = {}
    for gpu in GPUS:
        for engine in ENGINES:
            for key, law in load_calibration(load_hardware(gpu), engine).laws.items():
                found[f"{gpu}-{engine}-{key}"] = law
    return found


LAWS = all_laws()


def work(kind: LawKind, rows: np.ndarray, each_compute_s: float, each_memory_s: float,
         fixed_memory_s: float, each: float) -> dict[str, np.ndarray]:  # fmt: skip
    """Features of a kernel whose rows all do the same."""
    active = np.where(rows > 0, 1.0, 0.0)
    features = {
        "compute_s": each_compute_s * rows,
        "memory_s": each_memory_s * rows + fixed_memory_s * active,
        "rows": rows,
    }
    if kind is LawKind.PRODUCT:
        features |= {"inputs": np.array(each * 64), "outputs": np.array(each * 32)}
    elif kind is LawKind.EXPERTS:
        touched = 384 * (1 - (1 - 1 / 64) ** rows)
        features |= {"touched": touched, "top_k": np.array(6.0), "routed": np.array(384.0)}
        features["memory_s"] = each_memory_s * rows + fixed_memory_s * touched / 384
    elif kind is LawKind.ATTENTION:
        features["pairs"] = each * rows
    elif kind is LawKind.HYPER:  # streams only: the weights' bytes are in the floor
        features["memory_s"] = each_memory_s * rows
    elif kind in (LawKind.SCORES, LawKind.SELECT):
        features["positions"] = each * rows
    elif kind is LawKind.COLLECTIVE:
        features |= {"message_bytes": rows * each * 64, "ranks": np.array(4.0)}
        features |= {"compute_s": np.zeros_like(rows), "memory_s": np.zeros_like(rows)}
    return features


amounts = st.floats(1e-9, 1e-6)


def test_nothing_takes_no_time():
    for name, law in LAWS.items():
        seconds = law.seconds(work(law.kind, np.array([0.0, 1.0]), 1e-8, 1e-8, 1e-6, 100.0))
        assert seconds[0] == 0.0, name
        assert seconds[1] > 0.0, name


@given(st.sampled_from(sorted(LAWS)), amounts, amounts, st.floats(1e-8, 1e-3), st.floats(1, 1e4))
def test_more_rows_never_take_less_and_peaks_are_a_floor(name, compute, memory, fixed, each):
    law = LAWS[name]
    rows = np.unique(np.round(np.logspace(0, 4.5, 120)))
    features = work(law.kind, rows, compute, memory, fixed, each)
    seconds = law.seconds(features)
    assert np.isfinite(seconds).all()
    assert (seconds >= np.maximum(features["compute_s"], features["memory_s"])).all()
    assert (np.diff(seconds) >= -1e-12 * seconds[1:]).all()


def test_longer_messages_never_take_less():
    size = np.unique(np.round(np.logspace(0, 10, 400)))
    features = work(LawKind.COLLECTIVE, size / 64, 0.0, 0.0, 0.0, 1.0)
    for name, law in LAWS.items():
        if law.kind is LawKind.COLLECTIVE:
            assert (np.diff(law.seconds(features)) >= 0).all(), name


def test_one_rank_sends_nothing():
    law = LAWS["b200-sglang-all_reduce.sglang@4"]
    features = work(LawKind.COLLECTIVE, np.array([1.0, 100.0]), 0.0, 0.0, 0.0, 1.0)
    assert (law.seconds(features | {"ranks": np.array(1.0)}) == 0).all()


@pytest.mark.parametrize("kind", LawKind)
def test_tasks_and_steps_broadcast(kind: LawKind):
    """A column of tasks with their parameters meets a row of steps, as one call or as many."""
    laws = [law for name, law in LAWS.items() if law.kind is kind][:3]
    rows = np.array([0.0, 1.0, 33.0, 4096.0])
    together = {
        name: np.array([[law.parameters[name]] for law in laws]) for name in FORMS[kind].parameters
    }
    features = work(kind, rows, 1e-8, 2e-8, 1e-6, 300.0)
    seconds = law_seconds(kind, features, together)
    assert seconds.shape == (len(laws), len(rows))
    for place, law in enumerate(laws):
        np.testing.assert_allclose(seconds[place], law.seconds(features), rtol=1e-13)
        for step, count in enumerate(rows):
            alone = law.seconds(work(kind, np.array(count), 1e-8, 2e-8, 1e-6, 300.0))
            assert float(alone) == pytest.approx(seconds[place, step], rel=1e-12)


@pytest.mark.parametrize("kind", LawKind)
def test_what_is_missing_is_named(kind: LawKind):
    law = next(law for law in LAWS.values() if law.kind is kind)
    features = work(kind, np.array([1.0]), 1e-8, 1e-8, 1e-6, 100.0)
    for name in FORMS[kind].features:
        kept = {key: value for key, value in features.items() if key != name}
        with pytest.raises(InvalidInputError, match=name):
            law_seconds(kind, kept, law.parameters)
    for name in FORMS[kind].parameters:
        kept = {key: value for key, value in law.parameters.items() if key != name}
        with pytest.raises(InvalidInputError, match=name):
            law_seconds(kind, features, kept)


def test_a_product_by_hand():
    parameters = {
        "launch_s": 2e-6, "inner_s": 1e-9, "quantise_launch_s": 1e-6, "quantise_s": 1e-12,
        "compute_share": 0.5, "memory_share": 0.8, "norm": 2.0,
    }  # fmt: skip
    features = {
        "compute_s": np.array([1.5e-6]), "memory_s": np.array([3.2e-6]), "rows": np.array([100.0]),
        "inputs": np.array([1000.0]), "outputs": np.array([10.0]),
    }  # fmt: skip
    # 2 + 1 us of K, 1 + 0.1 us of conversion, sqrt(3^2 + 4^2) = 5 us
    assert law_seconds(LawKind.PRODUCT, features, parameters)[0] == pytest.approx(9.1e-6)
    ready = features | {"quantised": np.array([1.0])}
    assert law_seconds(LawKind.PRODUCT, ready, parameters)[0] == pytest.approx(8.0e-6)


def test_experts_by_hand():
    parameters = {
        "launch_s": 1e-5, "expert_s": 1e-7, "memory_share": 0.8, "step_8": 0.5, "step_32": 1.0,
        "uneven": 0.4, "tile": 100.0, "compute_share": 0.5,
    }  # fmt: skip

    def seconds(tokens: float, spread: float) -> float:
        features = {
            "compute_s": np.array(1e-7 * tokens), "memory_s": np.array(2e-4),
            "rows": np.array(tokens), "touched": np.array(100.0), "top_k": np.array(1.0),
            "routed": np.array(100.0), "spread": np.array(spread),
        }  # fmt: skip
        return float(law_seconds(LawKind.EXPERTS, features, parameters))

    # 10 us + 100 experts at 0.1 us + weights 200 us / .8
    assert seconds(200, 0.0) == pytest.approx(2.7e-4)
    # 20 tokens an expert: half the weights' time more, evenly drawn
    assert seconds(2000, 0.0) == pytest.approx(2e-5 + 2e-4 * (1.25 + 0.5))
    # 200 tokens an expert: both steps, and the 100 beyond the tile are half of 2 ms, at half peak
    assert seconds(20000, 0.0) == pytest.approx(2e-5 + 2e-4 * 2.75 + 0.002 / 2 / 0.5)
    # drawn at random: 40 % more where every expert is past 8 tokens
    assert seconds(2000, np.sqrt(20)) == pytest.approx(2e-5 + 2e-4 * 1.75 * 1.4, rel=0.02)


def test_attention_by_hand():
    parameters = {
        "launch_s": 1e-5, "key_s": 1e-9, "key_overhead": 100.0, "compute_share": 0.5,
        "memory_share": 0.5, "norm": 1.0,
    }  # fmt: skip
    features = {
        "compute_s": np.array(2e-6), "memory_s": np.array(1e-6), "rows": np.array(2.0),
        "pairs": np.array(400.0),
    }  # fmt: skip
    # 10 us + 200 keys at 1 ns + 2 us x (1 + 100/200)/.5 + 1 us/.5
    assert float(law_seconds(LawKind.ATTENTION, features, parameters)) == pytest.approx(18.2e-6)


def test_a_collective_by_hand():
    parameters = {"limit_1_bytes": 1e6, "limit_2_bytes": 1.6e7, "limit_3_bytes": 1.6e7}
    for regime, (alpha, rate) in enumerate([(4e-6, 2e11), (1e-5, 4e11)] + 2 * [(4e-5, 4e11)], 1):
        parameters |= {f"alpha_{regime}_s": alpha, f"rate_{regime}_bytes_per_s": rate}
    size = np.array([2e5, 1e6, 8e6, 1.6e7, 1.6000001e7])
    features = {
        "compute_s": np.zeros(5), "memory_s": np.zeros(5), "rows": np.ones(5),
        "message_bytes": size, "ranks": np.array(4.0),
    }  # fmt: skip
    expected = [5e-6, 9e-6, 3e-5, 5e-5, 8e-5]
    np.testing.assert_allclose(
        law_seconds(LawKind.COLLECTIVE, features, parameters), expected, rtol=1e-6
    )
