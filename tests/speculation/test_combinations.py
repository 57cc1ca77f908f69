"""Mappings, engines and features: a report of speculation answers, or is refused as a plan is."""

from __future__ import annotations

from itertools import product

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.reports.speculate import speculate
from aisim_v41.speculation.acceptance import Acceptance

MODEL = aisim.load_model("deepseek-v4.1-flash")
MAPPINGS = [
    {"tp": 1}, {"tp": 4}, {"tp": 4, "ep": 4}, {"tp": 8, "ep": 2}, {"tp": 3}, {"tp": 2, "dp": 2},
    {"tp": 1, "dp": 4, "ep": 4}, {"tp": 2, "cp": 2}, {"tp": 2, "pp": 2},
]  # fmt: skip
FEATURES = [
    {}, {"decoder_replay": True}, {"decode_execution": "eager"}, {"draft_tokens": 1},
    {"verify_lengths": "ragged", "speculation": "dspark"}, {"expert_exchange": "all_to_all"},
    {"engram_residency": "host_shared"}, {"verify_graph_sizes": "1, 2"},
    {"expert_routing": "independent"}, {"expert_routing": "fewest"},
]  # fmt: skip
SOME = 23
"""Every so many-th is asked: coprime to every number of choices."""


def outcome(gpu: str, engine: str, mapping: dict, feature: dict, method: str) -> bool:
    """Whether it answers; what it answers is checked."""
    runtime = aisim.policy(engine, **feature)
    one = aisim.Request(new_tokens=1, prefix_tokens=3000, kind="decode", count=3)
    try:
        plan = aisim.Plan(MODEL, [one], aisim.Parallel(**mapping), runtime)
        report = speculate(
            plan, aisim.load_hardware(gpu), Acceptance.constant(0.7, runtime.draft_tokens), method
        )
    except UnsupportedPlanError:
        return False
    found = report.outcomes
    assert len(found) + len(report.refused) == 6 + runtime.draft_tokens
    assert {name for name, _ in report.refused} <= {"confident", "profiled", "cap-accept"}
    for one_of in found:
        assert one_of.step_s > 0.0
        assert one_of.rows >= 3 + sum(one_of.drafts) or one_of.schedule == "cap-accept"
        assert 3.0 <= one_of.emitted <= 3.0 * (1 + runtime.draft_tokens)
        assert one_of.emitted == pytest.approx(3.0 * one_of.bursts.mean)
    fixed = [o for o in found if o.schedule.startswith("fixed")]
    assert report.best.tokens_per_s >= max(o.tokens_per_s for o in fixed)
    return True


def test_every_combination_answers_or_is_refused():
    every = list(
        product(("b200", "mi355x"), ("sglang", "vllm", "paper"), MAPPINGS, FEATURES, ("sol", "op"))
    )
    answers = [outcome(*combination) for combination in every[::SOME]]
    assert sum(answers) > len(answers) / 3
    assert not all(answers)
