"""Eager forwards from measured modules: what is a plan of the tables, and how much was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aisim_v41.errors import AisimError, MissingProfileError, OutOfRangeError, UnsupportedPlanError
from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.op.eager_modules import MEASURED, EagerModules, eager_modules
from aisim_v41.evidence.host_calls import load_host_calls
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request

from .cases import model

EAGER = policy("sglang", prefill_execution="eager", decode_execution="eager")
DECODE = Request(new_tokens=1, prefix_tokens=512, kind="decode", count=2)
PREFILL = Request(new_tokens=96, prefix_tokens=512)


def plan_of(*requests: Request, runtime: RuntimePolicy = EAGER, tp: int = 4) -> Plan:
    return Plan(model(), list(requests), Parallel(tp=tp), runtime)


def modules(*requests: Request, on: str = "gb300", **more) -> EagerModules:
    return eager_modules(plan_of(*requests, **more), load_hardware(on))


def test_what_was_measured_and_what_was_counted():
    found = modules(DECODE)
    assert found.total_s == pytest.approx(found.measured_s + found.counted_s)
    assert 0.9 < found.measured_share < 0.95
    assert found.campaigns == ("profile-full-gb300",)
    assert found.modules["all_reduce"].calls == 81
    assert sum(one.calls * one.seconds for one in found.modules.values()) == found.measured_s
    assert modules(PREFILL).counted_s > found.counted_s


def test_it_is_near_what_counts_say():
    for on, tp in (("gb300", 4), ("b200", 4), ("gb200", 4), ("h200", 4), ("b300", 2)):
        # On Hopper, Engram of fewer than four rows was taken with the host ahead, and is left out.
        for one in (PREFILL,) if on == "h200" else (DECODE, PREFILL):
            plan = plan_of(one, tp=tp)
            counted = estimate(plan, load_hardware(on), method="op").latency_s
            assert eager_modules(plan, load_hardware(on)).total_s == pytest.approx(counted, rel=0.3)


def test_replay_takes_the_rows_of_replay():
    on = EAGER.with_overrides(decoder_replay=True)
    found = modules(Request(new_tokens=256), runtime=on)
    assert "reuse_r1_late" in found.modules
    assert found.campaigns == ("profile-decoder_bounded-gb300",)


def test_operators_inside_modules_are_known():
    assert set(load_host_calls("sglang")[0].operators) >= MEASURED


def test_modules_of_other_widths_are_refused():
    wider = replace(model(), experts=replace(model().experts, width=4096))
    plan = Plan(wider, [DECODE], Parallel(tp=4), EAGER)
    with pytest.raises(UnsupportedPlanError, match="another experts than that of deepseek"):
        eager_modules(plan, load_hardware("gb300"))


def test_modules_of_expert_groups_were_not_timed():
    plan = Plan(model(), [DECODE], Parallel(tp=4, ep=4), EAGER)
    with pytest.raises(UnsupportedPlanError, match="ep = 4: modules were timed with a slice"):
        eager_modules(plan, load_hardware("gb300"))


@pytest.mark.parametrize(
    ("requests", "more", "error", "words"),
    [
        ([DECODE], {"runtime": policy("sglang")}, UnsupportedPlanError, "decode_execution='eager'"),
        ([DECODE], {"runtime": policy("vllm", decode_execution="eager")}, UnsupportedPlanError,
         "policy('sglang')"),
        ([DECODE, PREFILL], {}, UnsupportedPlanError, "2 kinds of requests"),
        ([], {}, UnsupportedPlanError, "0 kinds of requests"),
        ([Request(new_tokens=6, prefix_tokens=512, kind="verify")], {}, UnsupportedPlanError,
         "verify"),
        ([DECODE], {"runtime": EAGER.with_overrides(engram_residency="host_shared")},
         UnsupportedPlanError, "hbm"),
        ([DECODE], {"tp": 2}, MissingProfileError, "measured: 4 ranks"),
        ([DECODE], {"on": "mi355x"}, MissingProfileError, "mi355x"),
        ([Request(new_tokens=4096)], {}, OutOfRangeError, "1 to 512"),
        ([Request(new_tokens=1, prefix_tokens=9000, kind="decode")], {}, OutOfRangeError, "2048"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(requests, more, error: type[AisimError], words: str):
    with pytest.raises(error) as caught:
        modules(*requests, **more)
    assert words in str(caught.value)
