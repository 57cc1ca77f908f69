"""Windows of SGLang with encoder replay: rings of requests, no pool with kept tails (RS 2.1)."""

from __future__ import annotations

import pytest

from aisim_v41.caching.state import Domain, sequence_state
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.hardware import load_hardware
from aisim_v41.memory.capacity import capacity
from aisim_v41.memory.pool import kv_pool
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy, policy


def sglang(**changed: object) -> RuntimePolicy:
    return policy("sglang", encoder_replay="folded", **changed)


def windows(model: Model, runtime: RuntimePolicy, requests: int) -> int:
    (found,) = (
        part for part in kv_pool(model, runtime).parts(0, requests) if part.name == "window KV"
    )
    return found.bytes


def test_a_ring_for_each_request_that_may_run(model: Model) -> None:
    # 256 requests x 40 layers x 128 rows x 528 B
    assert windows(model, sglang(), 256) == 256 * 40 * 128 * 528 == 692_060_160
    # 128 rows and 5 drafts fill two pages of 128 rows
    drafting = sglang(speculation="dspark", draft_pool="layers")
    assert windows(model, drafting, 256) == 256 * 43 * 256 * 528
    # Without replay every request has 2,304 rows, those of four kept tails among them.
    assert windows(model, policy("sglang"), 256) == (256 * 2304 + 33_024) * 40 * 528


@pytest.mark.parametrize("kind", ["ratio", "request_cap", "per_request"])
def test_whatever_the_pool_would_be(model: Model, kind: str) -> None:
    assert windows(model, sglang(window_pool=kind), 64) == 64 * 40 * 128 * 528


def test_others_keep_their_rule(model: Model) -> None:
    plain = policy("custom", base="atom")
    replaying = plain.with_overrides(encoder_replay="folded")
    assert windows(model, replaying, 64) == windows(model, plain, 64)


def test_the_workspace_by_hand(model: Model) -> None:
    # 257 slots x 128 rows and a chunk of 16,384; with six rows a request and a chunk of 512, those.
    for changed, rows in (
        ({}, 257 * 128 + 16_384),
        ({"speculation": "dspark", "chunk_tokens": 512}, 257 * (128 + 6)),
    ):
        report = capacity(
            model, load_hardware("b200"), parallel=Parallel(tp=8), policy=sglang(**changed)
        )
        (term,) = (t for t in report.budget.terms if t.name == "window rows copied from rings")
        assert term.bytes == rows * 528


def test_replay_leaves_more_memory_for_entries(model: Model) -> None:
    gpu, ranks = load_hardware("b200"), Parallel(tp=8)
    with_rings = capacity(model, gpu, parallel=ranks, policy=sglang())
    pooled = capacity(model, gpu, parallel=ranks, policy=policy("sglang"))
    assert with_rings.tokens > pooled.tokens
    assert not any("prefix hits" in note for note in with_rings.notes)


def test_custom_rules_warn_beside_a_capacity() -> None:
    model, ranks = load_model("deepseek-v4.1-flash"), Parallel(tp=8)
    free = policy(
        "custom", base="sglang", encoder_replay="folded", prefill_execution="breakable_graph"
    )
    with pytest.raises(UnsupportedPlanError, match="prefill graphs"):
        capacity(model, load_hardware("mi300x"), parallel=ranks,
                 policy=free.with_overrides(engine_rules="enforced"))  # fmt: skip
    report = capacity(model, load_hardware("mi300x"), parallel=ranks, policy=free)
    for reason in ("prefill graphs", "gfx950"):
        (note,) = (note for note in report.notes if reason in note)
        assert "37ae292e" in note
        assert f"note: {note}" in report.explain()
        assert note in report.to_dict()["notes"]


def test_a_ring_begins_anywhere(model: Model) -> None:
    """A window of 128 rows at 200 tokens lies in one ring, and in two pages of a pool."""
    for runtime, pages in ((sglang(), 1), (policy("sglang"), 2)):
        parts = [p for p in sequence_state(model, runtime, 200) if p.domain is Domain.WINDOW]
        assert {part.bytes for part in parts} == {pages * 128 * 528}
