"""Engines, mappings and GPUs of cases: always the reading with the least work."""

from __future__ import annotations

from dataclasses import replace

import pytest

import aisim_v41 as aisim
from aisim_v41.plan.policy import preset_names
from aisim_v41.units import TB_PER_S
from aisim_v41.validation.cases import Case, CaseParallel
from aisim_v41.validation.setting import ENGINES, lean_policy, machine, preset_policy


def with_mapping(case: Case, gpus: int, tp: int, ep: int | None, dp: int | None) -> Case:
    return replace(case, gpus=gpus, parallel=CaseParallel(tp=tp, ep=ep, dp=dp))


@pytest.mark.parametrize(
    ("gpus", "tp", "ep", "dp", "ranks", "groups", "replicas", "streams"),
    [
        (4, 4, 1, 1, 4, 1, 1, 1),
        (4, 4, None, 1, 4, 1, 1, 1),
        (8, 8, 8, 1, 8, 8, 1, 1),
        (8, 8, 4, 1, 8, 4, 1, 1),
        # Experts over eight ranks, attention in two groups of four.
        (8, 4, 8, 2, 8, 1, 1, 2),
        # Two workers of four: taken as one group of eight, which holds less a rank.
        (8, 4, 4, 2, 8, 1, 1, 2),
        # Three workers of four.
        (12, 4, 4, None, 4, 4, 3, 1),
        # One rank's kernels, timed alone.
        (1, 4, 1, 1, 4, 1, 1, 1),
        (2, 1, 2, 2, 2, 1, 1, 2),
    ],
)
def test_ranks_that_share_the_experts(
    cases: dict[str, Case],
    gpus: int, tp: int, ep: int | None, dp: int | None,
    ranks: int, groups: int, replicas: int, streams: int,
) -> None:  # fmt: skip
    case = with_mapping(cases["gb300-39674-pr-step-c1"], gpus, tp, ep, dp)
    system = machine(case)
    assert system.parallel == aisim.Parallel(tp=ranks, ep=groups)
    assert (system.replicas, system.streams) == (replicas, streams)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("gb300-39674-pr-step-c1", 1.0),  # TP4 alone, BF16 sums
        ("gb300-38976-pr-step-c1", 0.5),  # EP not stated
        ("rtxpro-step-512-c1", 0.5),  # EP4: one of the two sums may be an exchange
        ("mi355-warm64k-step-c1", 0.5),  # ROCm: sums may be INT8
        ("mi355-fix-sgl-off-opus-step-c1", 0.25),  # EP4 and stated INT8 sums
    ],
)
def test_certain_share_of_the_collectives(cases: dict[str, Case], name: str, share: float) -> None:
    assert machine(cases[name]).link_share == share


def test_experts_on_the_host_arrive_over_both_ways(cases: dict[str, Case]) -> None:
    card = aisim.load_hardware("rtx_5090")
    assert card.host_link_bytes_per_s is not None
    rate = machine(cases["rtx5090-tpot-c8"]).hardware.hbm_bandwidth_bytes_per_s
    assert rate == card.hbm_bandwidth_bytes_per_s + card.host_link_bytes_per_s


def test_a_floor_holds_on_the_fastest_card_of_a_name(cases: dict[str, Case]) -> None:
    system = machine(cases["rtxpro-step-512-c1"])
    assert system.hardware.hbm_bandwidth_bytes_per_s == 1.792 * TB_PER_S
    assert system.packaged == aisim.load_hardware("rtx_pro_6000")


def test_every_engine_has_a_preset(cases: dict[str, Case]) -> None:
    assert {case.engine for case in cases.values()} <= set(ENGINES)
    assert set(ENGINES.values()) <= set(preset_names())


@pytest.mark.parametrize("engine", ["sglang", "vllm", "atom"])
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize(
    "requests",
    [
        [aisim.Request(new_tokens=8192)],
        [aisim.Request(new_tokens=8192, prompt_tokens=20000)],
        [aisim.Request(new_tokens=512, prefix_tokens=65536, window="cached")],
        [aisim.Request(new_tokens=1, prefix_tokens=500, kind="decode", count=3)],
        [aisim.Request(new_tokens=6, prefix_tokens=100_000, kind="verify", count=32)],
    ],
)
def test_the_lean_reading_is_never_above_the_preset(
    cases: dict[str, Case], engine: str, replay: bool, requests: list[aisim.Request]
) -> None:
    case = replace(cases["gb300-39674-pr-step-c1"], engine=engine)
    gb300, model = aisim.load_hardware("gb300"), aisim.load_model("deepseek-v4.1-flash")
    assert isinstance(model, aisim.Model)

    def bounds(policy: aisim.RuntimePolicy) -> tuple[float, float]:
        plan = aisim.Plan(model, requests, parallel=aisim.Parallel(tp=4), policy=policy)
        found = aisim.estimate(plan, gb300).bounds
        return found.resource_s, found.graph_s

    lean = bounds(lean_policy(case, decoder_replay=replay, hit_without_window=False))
    packaged = preset_policy(case, decoder_replay=replay, hit_without_window=False)
    alike = {"expert_routing": "independent", "expert_popularity": 0.0}
    preset = bounds(packaged.with_overrides(**alike))
    assert lean[0] <= preset[0]
    assert lean[1] <= preset[1]


def test_an_anchor_that_the_code_of_a_build_states_is_taken(cases: dict[str, Case]) -> None:
    fork = preset_policy(
        cases["rtx4090-replay-on-128k"], decoder_replay=True, hit_without_window=False
    )
    assert fork.replay_anchor == "prompt_end"
    main = replace(cases["rtx4090-replay-on-128k"], engine="vllm")
    assert (
        preset_policy(main, decoder_replay=True, hit_without_window=False).replay_anchor
        == aisim.policy("vllm").replay_anchor
        == "step_end"
    )
