"""What is no model, policy, tier, way or list is refused; what engines refuse is never lost."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.caching.adoption import adopt
from aisim_v41.caching.lookup import CacheLookup
from aisim_v41.caching.overlap import layer_times
from aisim_v41.caching.restore import break_even_tokens, restore_or_recompute
from aisim_v41.caching.state import Domain, sequence_state
from aisim_v41.caching.tiers import Tier, kept, report_tiers
from aisim_v41.caching.transfer import Role, transfer, transfer_images
from aisim_v41.caching.ways import Way, way_to
from aisim_v41.reports.caching import restore_text

MODEL = aisim.load_model("deepseek-v4.1-flash")
EARLIER = aisim.load_model("deepseek-v4-flash")
GB300 = aisim.load_hardware("gb300")
PAPER = aisim.policy("paper")
WAY = way_to(GB300, "host")
SIDE = Role(policy=PAPER)
HIT = CacheLookup(prompt_tokens=8256, global_tokens=8192)

TAKES_A_MODEL = {
    "state": lambda model: sequence_state(model, PAPER, 100),
    "kept": lambda model: kept(model, PAPER, (), prefix_tokens=1, turn_tokens=1, turns_per_s=1.0),
    "break even": lambda model: break_even_tokens(
        model, GB300, "replay", new_tokens=1, way=WAY, policy=PAPER
    ),
    "transfer": lambda model: transfer(model, GB300, HIT, sender=SIDE, receiver=SIDE, way=WAY),
    "images": lambda model: transfer_images(model, [(64, 64)], receiver=SIDE, way=WAY),
}


@pytest.mark.parametrize("call", TAKES_A_MODEL.values(), ids=TAKES_A_MODEL)
def test_no_model_and_an_earlier_one(call):
    for wrong in (None, "deepseek-v4.1-flash", 3):
        with pytest.raises(aisim.InvalidInputError, match="load_model"):
            call(wrong)
    with pytest.raises(aisim.UnsupportedPlanError, match="comparison only"):
        call(EARLIER)


def tiers_of(*tiers, **changed):
    return kept(MODEL, PAPER, *tiers, prefix_tokens=1, turn_tokens=1, turns_per_s=1.0, **changed)


WRONG = {
    "policy = None": lambda: sequence_state(MODEL, None, 100),
    "policy = 'paper'": lambda: break_even_tokens(
        MODEL, GB300, "replay", new_tokens=1, way=WAY, policy="paper"
    ),
    "tiers = None": lambda: tiers_of(None),
    r"tiers\[0\] = 'host'": lambda: tiers_of(("host",)),
    r"Tier\.domains = 3": lambda: Tier(name="a", domains=3),
    r"Tier\.domains = ": lambda: Tier(name="a", domains=("entries",)),
    r"Tier\.way = 'host'": lambda: Tier(name="a", domains=(Domain.ENTRIES,), way="host"),
    "hardware = 'gb300'": lambda: report_tiers("gb300", WAY),
    "hardware = None": lambda: way_to(None, "host"),
    "way None": lambda: way_to(GB300, None),
    r"way \['host'\]": lambda: way_to(GB300, ["host"]),
    "sizes = 3": lambda: transfer_images(MODEL, 3, receiver=SIDE, way=WAY),
    "sizes hold 3": lambda: transfer_images(MODEL, [3], receiver=SIDE, way=WAY),
    "sizes hold '1024x768'": lambda: transfer_images(MODEL, ["1024x768"], receiver=SIDE, way=WAY),
}


@pytest.mark.parametrize(("reason", "call"), WRONG.items(), ids=WRONG)
def test_arguments_of_the_wrong_kind(reason: str, call):
    with pytest.raises(aisim.InvalidInputError, match=reason):
        call()


def test_domains_may_be_any_list():
    assert Tier(name="a", domains=[Domain.ENTRIES]) == Tier(name="a", domains=(Domain.ENTRIES,))


REFUSED = [
    {"prefill_execution": "full_graph"},
    {"prefill_execution": "breakable_graph"},
    {"kv_blocks": "shared"},
]


@pytest.mark.parametrize("changed", REFUSED)
def test_a_hit_is_refused_where_its_plan_is(changed: dict):
    changed = {"encoder_replay": "folded", **changed}
    with pytest.raises(aisim.UnsupportedPlanError, match=r"encoder replay.*37ae292e"):
        adopt(MODEL, HIT, aisim.policy("sglang", **changed))
    found = adopt(MODEL, HIT, aisim.policy("custom", base="sglang", **changed))
    assert found.rows == 192
    (line,) = found.warnings
    assert "37ae292e" in line
    assert found.to_dict()["warnings"] == [line]
    assert f"warning: {line}" in found.text()


def test_more_drafts_than_a_pass_holds():
    with pytest.raises(aisim.UnsupportedPlanError, match="draft_tokens = 1000"):
        adopt(MODEL, HIT, aisim.policy("vllm", speculation="dspark", draft_tokens=1000))


def test_custom_rules_warn_wherever_they_answer():
    """On a GPU and mapping that the engine refuses, in text and in data."""
    changed = {"encoder_replay": "folded", "prefill_execution": "breakable_graph"}
    free = aisim.policy("custom", base="sglang", **changed)
    rocm = aisim.load_hardware("mi300x")
    found = restore_or_recompute(
        MODEL, rocm, 8192, new_tokens=64, way=Way(name="n", bytes_per_s=1e9), policy=free,
        parallel=aisim.Parallel(tp=8), method="sol",
    )  # fmt: skip
    assert len(found.warnings) == 2
    assert any("gfx950" in line for line in found.warnings)
    assert found.to_dict()["warnings"] == list(found.warnings)
    shown = restore_text([found, found])
    assert all(shown.count(f"warning: {line}") == 1 for line in found.warnings)
    side = Role(policy=free, parallel=aisim.Parallel(tp=8))
    sent = transfer(
        MODEL, rocm, HIT, sender=side, receiver=side, way=Way(name="n", bytes_per_s=1e9),
        method="sol",
    )  # fmt: skip
    assert set(found.warnings) < set(sent.warnings)  # and encoder replay on separate servers
    assert restore_or_recompute(
        MODEL, rocm, 8192, new_tokens=64, way=Way(name="n", bytes_per_s=1e9), policy=PAPER,
        parallel=aisim.Parallel(tp=8), method="sol",
    ).warnings == ()  # fmt: skip


def test_state_of_draft_blocks_is_that_of_the_ledgers_layers():
    """A block's window leaves after the block, not after the head, whose number is between."""
    drafting = aisim.policy("vllm", speculation="dspark")
    step = aisim.Plan(MODEL, [aisim.Request(new_tokens=512)], policy=drafting)
    times = dict(layer_times(aisim.estimate(step, GB300, "sol")))
    windows = [
        part.layer for part in sequence_state(MODEL, drafting, 512) if part.domain is Domain.WINDOW
    ]
    head = len(MODEL.layers)
    assert head in times
    assert windows == [layer for layer in sorted(times) if layer >= 0 and layer != head]


def test_more_new_tokens_than_a_context():
    with pytest.raises(aisim.OutOfRangeError, match="new_tokens = 2000000"):
        break_even_tokens(MODEL, GB300, "replay", new_tokens=2_000_000, way=WAY, policy=PAPER)
