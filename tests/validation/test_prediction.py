"""One reading predicted: sampled bands, groups, ratios, conditions of the measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

import aisim_v41 as aisim
from aisim_v41.validation import prediction
from aisim_v41.validation.cases import Case
from aisim_v41.validation.conversion import Conversion
from aisim_v41.validation.convert import convert
from aisim_v41.validation.prediction import (
    SAMPLES,
    SIMULATED_ACCEPT_S,
    Prediction,
    executed,
    predict,
)
from aisim_v41.validation.ratios import ratio


def told(model: aisim.Model, case: Case) -> Prediction:
    conversion = convert(case, certain=False)
    assert isinstance(conversion, Conversion)
    return predict(model, conversion, conversion.claims[0].ways[0], by_size=True)


def side(value_s: float, spread: float = 0.0, **errors: float) -> Prediction:
    return Prediction(
        value_s=value_s, low_s=0.5 * value_s, high_s=2 * value_s, error_by_law_s=errors,
        error_by_size_s=errors, spread=spread,
    )  # fmt: skip


def test_bands_of_sampled_chunks_are_those_of_all(
    model: aisim.Model, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
):
    case = cases["gb10-tail-ttft-128k-tail-128rows"]
    sampled = told(model, case)
    monkeypatch.setattr(prediction, "SAMPLES", 64)
    every = told(model, case)
    assert sampled.value_s == pytest.approx(every.value_s, rel=1e-9)
    assert sampled.low_s == pytest.approx(every.low_s, rel=0.01)
    assert sampled.high_s == pytest.approx(every.high_s, rel=0.01)


@pytest.mark.parametrize("parts", [1, SAMPLES, SAMPLES + 1, 64, 196])
def test_samples_are_spread_over_the_prompt(parts: int):
    asked = {prediction._sample(place, parts) for place in range(parts)}
    assert len(asked) == min(parts, SAMPLES)
    assert {0, parts - 1} <= asked
    assert all(prediction._sample(place, parts) == place for place in asked)


def test_groups_add_up_to_the_sum_of_kernels(model: aisim.Model, cases: dict[str, Case]):
    names = ("moe", "indexer", "dense_gemm", "norm_rope_quant", "mhc", "sparse_attention",
             "engram", "compressor")  # fmt: skip
    of = {name: told(model, cases[f"b200-prof-ekern-p64k-{name}"]) for name in (*names, "sum")}
    comm = replace(cases["b200-prof-ekern-p64k-sum"], quantity="kernel_ms:comm")
    parts = sum(of[name].value_s for name in names) + told(model, comm).value_s
    assert parts == pytest.approx(of["sum"].value_s)


def test_a_kernel_sum_is_never_shorter_than_its_step(model: aisim.Model, cases: dict[str, Case]):
    """Kernels of a decode step run side by side; a sum does not know that."""
    case = cases["b200-trace-step-c1"]
    step = told(model, case)
    kernels = told(model, replace(case, quantity="kernel_ms:sum"))
    assert kernels.value_s > step.value_s


def test_simulated_acceptance_is_a_condition(model: aisim.Model, cases: dict[str, Case]):
    case = cases["gb300-39674-pr-step-c1"]
    real = told(model, replace(case, includes=("host", "draft", "sampling")))
    simulated = told(model, case)
    assert simulated.value_s - real.value_s == pytest.approx(SIMULATED_ACCEPT_S)
    assert simulated.high_s - real.high_s == pytest.approx(SIMULATED_ACCEPT_S)


def test_eager_cases_run_eagerly(cases: dict[str, Case]):
    policy = aisim.policy("sglang")
    eager = executed(cases["gb300-eager-on-prefill-b2-n96-p512"], policy)
    assert (eager.prefill_execution, eager.decode_execution) == ("eager", "eager")
    assert executed(cases["gb300-39674-pr-step-c1"], policy) == policy


def test_a_law_that_is_off_on_both_sides_cancels():
    same = ratio(side(2.0, gemm=0.2), side(1.0, gemm=0.1))
    assert same.value_s == 2.0
    assert same.high_s - same.low_s == pytest.approx(0.0, abs=1e-12)
    # A law with a tenth of one side and none of the other moves the ratio by a tenth of it.
    one = ratio(side(2.0, gemm=0.2), side(1.0))
    assert one.high_s == pytest.approx(2.0 * 1.1)


def test_a_build_adds_one_time_to_both_sides():
    # 10 % of the shorter side on both: (2 + 0.1) / (1 + 0.1) = 1.909, 5 % less than 2 to first
    # order: spread x (1 - 1/2).
    told = ratio(side(2.0, spread=0.1), side(1.0, spread=0.1))
    assert told.high_s - told.value_s == pytest.approx(2.0 * 0.1 * 0.5)
    upside_down = ratio(side(1.0, spread=0.1), side(2.0, spread=0.1))
    assert upside_down.high_s / upside_down.value_s == pytest.approx(told.high_s / told.value_s)


def test_a_side_that_waits_for_its_host_widens_the_ratio():
    """Kernels of 9 and 5 behind a host of 10: the ratio is 1 until kernels are 11 % longer."""
    sides = [
        Prediction(
            value_s=10.0, low_s=9.0, high_s=11.0, error_by_law_s={"gemm": 0.2 * time},
            error_by_size_s={"gemm": 0.2 * time}, paths=((1.0, time, 10.0),), host_relative=0.1,
        )
        for time in (9.0, 5.0)
    ]  # fmt: skip
    told = ratio(*sides)
    assert told.value_s == 1.0
    # 20 % longer kernels: 10.8 against the host's 10.
    assert told.high_s >= 1.08
    # Nothing makes the first side shorter than the second, but the laws' unlike shares.
    assert told.low_s == pytest.approx(1 - (0.18 - 0.1))


def test_without_a_host_both_sides_scale_alike():
    sides = [
        Prediction(value_s=time, low_s=time, high_s=time, error_by_law_s={"gemm": 0.1 * time},
                   error_by_size_s={"gemm": 0.1 * time}, paths=((1.0, time, 0.0),))
        for time in (9.0, 5.0)
    ]  # fmt: skip
    told = ratio(*sides)
    assert told.low_s == pytest.approx(told.value_s) == pytest.approx(told.high_s)


def test_an_error_of_a_whole_time_has_a_ratio_still():
    sides = [
        Prediction(value_s=time, low_s=0.0, high_s=2 * time, error_by_law_s={"gemm": time},
                   error_by_size_s={"gemm": time}, paths=((1.0, time, 0.0),))
        for time in (2.0, 1.0)
    ]  # fmt: skip
    told = ratio(*sides)
    assert told.low_s == pytest.approx(told.value_s) == pytest.approx(2.0)


def test_errors_by_size_are_those_by_law_apart(model: aisim.Model, cases: dict[str, Case]):
    found = told(model, cases["gb300-39674-pr-step-c1"])
    for law, error in found.error_by_law_s.items():
        parts = [e for key, e in found.error_by_size_s.items() if key.startswith(f"{law} at ")]
        assert sum(parts) == pytest.approx(error)
