"""How benchmark points are spread over requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41 import Request
from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.records import StepTotals
from aisim_v41.io.balanced import BLOCK_TOKENS, decode_point, prefill_point, spread


@given(st.integers(0, 10_000), st.integers(1, 300), st.sampled_from(BLOCK_TOKENS))
def test_a_spread_keeps_total_count_and_blocks(total: int, count: int, unit: int):
    groups = spread(total, count, unit)
    if total % unit or total // unit < count:
        assert groups is None
        return
    assert sum(length * times for length, times in groups) == total
    assert sum(times for _, times in groups) == count
    lengths = [length for length, _ in groups]
    assert all(length % unit == 0 and length >= unit for length in lengths)
    assert max(lengths) - min(lengths) in (0, unit)
    assert lengths == sorted(lengths, reverse=True)


@given(st.integers(1, 64), st.integers(1, 4096), st.integers(0, 64), st.integers(0, 3))
def test_a_point_keeps_its_sums(batch: int, new: int, blocks: int, unit: int):
    new, kv = new + batch, blocks * batch * BLOCK_TOKENS[unit]
    step = prefill_point(batch, new, kv, block_tokens=BLOCK_TOKENS[unit])
    assert not isinstance(step, StepTotals)
    assert sum(r.count for r in step) == batch
    assert sum(r.count * r.new_tokens for r in step) == new
    assert sum(r.count * r.prefix_tokens for r in step) == kv


def test_a_batch_without_prefix_is_as_even_as_can_be():
    assert prefill_point(3, 100, 0) == (
        Request(new_tokens=34),
        Request(new_tokens=33, count=2),
    )


def test_the_first_requests_have_more_of_both():
    assert prefill_point(3, 100, 5, block_tokens=1) == (
        Request(new_tokens=34, prefix_tokens=2),
        Request(new_tokens=33, prefix_tokens=2),
        Request(new_tokens=33, prefix_tokens=1),
    )


def test_prefixes_lie_in_blocks_of_a_size_that_must_not_matter():
    assert prefill_point(2, 96, 3072) == (Request(new_tokens=48, prefix_tokens=1536, count=2),)
    unknown = prefill_point(2, 96, 48)  # 32 + 16 in blocks of 16, 24 + 24 in single tokens
    assert unknown == StepTotals(prefill_requests=2, prefill_tokens=96, prefill_kv_tokens=48)
    assert prefill_point(2, 96, 48, block_tokens=16) == (
        Request(new_tokens=48, prefix_tokens=32),
        Request(new_tokens=48, prefix_tokens=16),
    )
    assert prefill_point(1, 96, 48) == (Request(new_tokens=96, prefix_tokens=48),)


@pytest.mark.parametrize(("variance", "pasts"), [(64.0, [32, 16]), (0.0, [24, 24])])
def test_the_variance_of_the_prompts_tells_blocks_apart(variance: float, pasts: list[int]):
    step = prefill_point(2, 96, 48, prompt_variance=variance)
    assert not isinstance(step, StepTotals)
    assert [r.prefix_tokens for r in step for _ in range(r.count)] == pasts


def test_the_variance_is_that_of_prefix_and_new_tokens_together():
    # Prompts of 50 + 32 and 49 + 16 tokens, or of 50 + 24 and 49 + 24.
    first, second = prefill_point(2, 99, 48, prompt_variance=72.25)  # type: ignore[misc]
    assert (first.end, second.end) == (82, 65)
    first, second = prefill_point(2, 99, 48, prompt_variance=0.25)  # type: ignore[misc]
    assert (first.end, second.end) == (74, 73)


def test_a_variance_that_no_spread_has_leaves_sums():
    step = prefill_point(2, 96, 48, prompt_variance=5.0)
    assert isinstance(step, StepTotals)
    assert step.prefill_length_variance == 5.0


def test_decodes():
    assert decode_point(3, 3000) == (
        Request(new_tokens=1, prefix_tokens=1000, kind="decode", count=3),
    )
    assert decode_point(2, 5) == (
        Request(new_tokens=1, prefix_tokens=3, kind="decode"),
        Request(new_tokens=1, prefix_tokens=2, kind="decode"),
    )
    assert decode_point(3, 2) == StepTotals(decode_requests=3, decode_kv_tokens=2)


def test_a_large_batch_costs_nothing():
    assert len(decode_point(1 << 20, (1 << 30) + 7)) == 2  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="StepTotals"):
        decode_point(1 << 40, 1 << 40)
