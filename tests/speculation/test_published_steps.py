"""Published speculative steps beside ours: prices know nothing of these rows' speculation."""

from __future__ import annotations

import pytest

import aisim_v41 as aisim
from aisim_v41.speculation.published import PUBLISHED

CONTEXT = 4096 + 512
"""Half way through the answers of the run: prompts of 4096, answers of 1024 tokens."""
TOLERANCE = 0.15


def step_ratio(count: int) -> float:
    """A step of 6 verify rows a request with its draft, over a plain one, on 4x MI355X."""
    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("mi355x")
    setting = {"parallel": aisim.Parallel(tp=4), "method": "op"}
    drafting = aisim.policy("sglang", speculation="dspark")
    speculative = aisim.compile(model, gpu, policy=drafting, **setting)
    plain = aisim.compile(model, gpu, policy=aisim.policy("sglang"), **setting)
    verify = aisim.Request(new_tokens=6, prefix_tokens=CONTEXT, kind="verify", count=count)
    decode = aisim.Request(new_tokens=1, prefix_tokens=CONTEXT, kind="decode", count=count)
    return speculative([verify]) / plain([decode])


def test_one_request_on_four_mi355x():
    """Published: a step of 1.36 plain ones, 2.57 times the rate, at accept length 3.51."""
    ratio = step_ratio(1)
    emitted = PUBLISHED["benchmark"].acceptance().expected_emitted()
    assert ratio == pytest.approx(1.36, rel=TOLERANCE)
    assert emitted / ratio == pytest.approx(2.57, rel=TOLERANCE)


def test_thirty_two_requests_on_four_mi355x():
    """Prompts of the same run stall its decodes, which leaves an interval: 1.5 ... 2.8."""
    assert 1.5 < step_ratio(32) < 2.8
