"""One pool of equal blocks (vLLM): grouping by hand, and start-up lines that it reproduces."""

from __future__ import annotations

from typing import Any

import pytest

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.memory.blocks import SharedBlocks
from aisim_v41.memory.pool import KvPool, kv_pool
from aisim_v41.model.description import Model
from aisim_v41.plan.policy import policy
from aisim_v41.units import GIB

MILLION = 1 << 20
SM12X = {"page_tokens": 64, "page_counts": "entries", "window_page_rows": 64,
         "kv_layout": "vllm_packed"}  # fmt: skip


def pool(model: Model, **overrides: Any) -> KvPool:
    return kv_pool(model, policy("vllm", **overrides))


def blocks(model: Model, **overrides: Any) -> SharedBlocks:
    found = pool(model, **overrides).blocks
    assert found is not None
    return found


def printed(model: Model, gib: float, length: int, **overrides: Any) -> int:
    """What the engine prints: concurrency x longest context."""
    sized = pool(model, **overrides)
    return int(sized.concurrency(int(gib * GIB), length) * length)


def test_grouping_by_hand(model: Model) -> None:
    """Four owners of 128 tokens make the largest group; windows go in groups of four layers.

    128 x 528 + 128 x 68 for ratio 1, 3 x (64 x 528 + 64 x 68 -> 4608) for ratio 2: 191,488 B.
    Groups of 4: 40 layers need no padding and 3 rings one; every other size pads more.
    """
    found = blocks(model)
    assert found.stride_bytes == 67_584 + 8_704 + 3 * (33_792 + 4_608) == 191_488
    assert found.spans == (128,)
    assert (found.window_groups, found.window_pages, found.state_groups) == (10, 5, 1)
    assert pool(model).bytes_per_token == 1496
    assert found.admitted_pages == -(-(127 + 8192) // 32) + 1 == 261


def test_grouping_where_owners_differ_in_span(model: Model) -> None:
    """SM12x: pages of 64 entries, so ratio 1 spans 64 tokens and ratio 2 spans 128."""
    found = blocks(model, **SM12X)
    assert found.spans == (128, 64)
    assert found.stride_bytes == 3 * (37_440 + 8_640)
    assert found.window_groups == 40  # one owner in the smallest group: groups of one layer
    assert found.window_pages == 3


@pytest.mark.parametrize(
    ("gib", "length", "measured", "overrides"),
    [
        # one GB300, chunk 8192: 4,458,466 tokens in 9.36 GiB (P0508, P0510)
        (9.36, MILLION, 4_458_466, {"kv_layout": "vllm_fp8_index_fp8"}),
        # 8 x GB10, chunk 8192: 3,193,029 tokens in 17.18 GiB at 300,000 (P0755, P0756)
        (17.18, 300_000, 3_193_029, SM12X),
    ],
)
def test_printed_tokens(
    model: Model, gib: float, length: int, measured: int, overrides: dict[str, Any]
) -> None:
    ours = printed(model, gib, length, speculation="dspark", **overrides)
    assert ours == pytest.approx(measured, rel=0.015)


def test_short_contexts_look_expensive(model: Model) -> None:
    """Deployment question 4: 26.76 KB a token at 33,792, about 2 KB at 1M.

    A request is charged for a chunk of window rows whatever its length.
    """
    kv_bytes = 20 * GIB
    at = {
        length: kv_bytes / printed(model, 20, length, kv_layout="vllm_packed")
        for length in (33_792, MILLION)
    }
    assert 15_000 < at[33_792] < 40_000
    assert 1_900 < at[MILLION] < 2_600


def test_blocks_add_up(model: Model) -> None:
    sized = pool(model)
    parts = {part.name: part.bytes for part in sized.parts(1000, 3)}
    assert parts["padding of shared blocks"] > 0
    assert sum(parts.values()) == sized.bytes_for(1000, 3) == (8 + 3 * 51) * 191_488
    assert sized.fixed_bytes_per_request == 51 * 191_488


def test_admission_asks_for_a_chunk_of_window_rows(model: Model) -> None:
    sized = pool(model)
    assert sized.admitted_bytes(MILLION) == (8192 + 10 * 261 + 1) * 191_488
    assert sized.session_bytes(MILLION) == (8192 + 51) * 191_488
    assert sized.admitted_bytes(100) == (1 + 10 * 4 + 1) * 191_488
    own = pool(model, kv_blocks="own")
    assert own.admitted_bytes(MILLION) == own.session_bytes(MILLION)


@pytest.mark.parametrize(
    ("field", "value"), [("window_pool", "ratio"), ("draft_pool", "pool_share")]
)
def test_rules_that_need_a_pool_of_their_own(model: Model, field: str, value: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=f"kv_blocks = 'shared' and {field}"):
        pool(model, **{field: value})
