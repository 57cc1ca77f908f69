"""The resource bound, worked by hand: what holds whatever is routed, selected, cached or fused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from aisim_v41.ops.fusion import PROFILES
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from estimators.cases import POLICIES, estimated, gpu, policies, steps

DECODE = Request(new_tokens=1, prefix_tokens=4095, kind="decode")


def resource_bound(requests: list[Request], runtime=POLICIES["paper"], *, tp: int = 1) -> float:
    return estimated(requests, runtime, tp=tp).bounds.resource_s


def test_one_decoded_token_at_4096():
    """Memory decides. Weights 13,035,097,920 B (model-facts §2) less the image bias 61,440, the
    embedding row 10,240 and Engram rows 12,672, which repeated text may find cached. Old cache
    rows: 40 x 127 of 528 B, 4 x 511 of 288 B, 3 x 2047 + 4095 keys of 68 B. New ones: 40 of 528 B
    and four entries of 356 B."""
    weights = 13_035_097_920 - 61_440 - 10_240 - 12_672
    old = 40 * 127 * 528 + 4 * 511 * 288 + (3 * 2047 + 4095) * 68
    new = 40 * 528 + 4 * 356
    expected = (weights + old + new) / gpu().hbm_bandwidth_bytes_per_s
    assert resource_bound([DECODE]) == pytest.approx(expected, rel=1e-12)


def test_a_long_prefill_is_bound_by_its_products():
    """65,536 tokens on one GPU: the seconds of all products at their peaks, summed."""
    found = estimated([Request(new_tokens=65_536)], POLICIES["paper"], tp=1)
    assert found.bounds.resource_s == pytest.approx(found.resource_s["tensor"], rel=1e-12)


@pytest.mark.parametrize("request_", [DECODE, Request(new_tokens=3000), Request(new_tokens=1)])
def test_routing_does_not_enter(request_: Request):
    """All rows may choose the same experts."""
    independent, fewest = (
        policy("paper", expert_routing=routing) for routing in ("independent", "fewest")
    )
    many = Request(
        new_tokens=request_.new_tokens,
        prefix_tokens=request_.prefix_tokens,
        kind=request_.kind,
        count=50,
    )
    for requests in ([request_], [many]):
        assert resource_bound(requests, independent) == pytest.approx(
            resource_bound(requests, fewest), rel=1e-12
        )
        spent = [estimated(requests, p, tp=1).latency_s for p in (fewest, independent)]
        assert spent[0] <= spent[1] * (1 + 1e-12)


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("request_", [DECODE, Request(new_tokens=3000)])
def test_fusion_does_not_enter(request_: Request, tp: int):
    bounds = {
        name: resource_bound([request_], policy("paper", fusion=name), tp=tp) for name in PROFILES
    }
    assert list(bounds.values()) == pytest.approx([bounds["elementary"]] * len(PROFILES), rel=1e-12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(name=policies, requests=steps)
def test_fusing_never_adds_time(name: str, requests: list[Request]):
    """The graph bound of every profile is at most that of separate kernels."""
    runtime = POLICIES[name]
    apart = estimated(requests, runtime.with_overrides(fusion="elementary")).latency_s
    for profile in PROFILES:
        fused = estimated(requests, runtime.with_overrides(fusion=profile)).latency_s
        assert fused <= apart * (1 + 1e-12)


def test_repeated_text_does_not_enter():
    """Engram rows may be cached: only the graph bound counts them."""
    distinct, repeated = (policy("paper", engram_distinct_share=share) for share in (1.0, 0.1))
    prompt = [Request(new_tokens=4000)]
    assert resource_bound(prompt, distinct) == resource_bound(prompt, repeated)
    rows = [
        sum(row.bytes_by_kind.get("table_read", 0.0) for row in estimated(prompt, p, tp=1).rows)
        for p in (distinct, repeated)
    ]
    assert rows == pytest.approx([4000 * 12_672, 400 * 12_672], rel=1e-12)
