"""Curves of what-if questions, against one step after another."""

from __future__ import annotations

from typing import Any

import pytest

import aisim_v41 as aisim
from aisim_v41.estimators.compiled import CompiledStep
from aisim_v41.reports.whatif import decode_ms, prompt_ms


def compiled(**fields: Any) -> CompiledStep:
    return aisim.compile(
        aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300"),
        parallel=aisim.Parallel(tp=4), policy=aisim.policy("sglang", **fields), method="sol",
    )  # fmt: skip


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("chunk", [1, 700, 2048, 10_000])
def test_a_prompt_is_its_chunks(chunk: int, replay: bool):
    step = compiled(decoder_replay=replay)
    lengths = [1, 5, 2048, 5000] if chunk > 1 else [1, 5]
    expected = [
        1e3 * sum(step([one]) for one in aisim.chunked(length, chunk_tokens=chunk))
        for length in lengths
    ]
    assert prompt_ms(step, lengths, chunk) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("speculation", ["off", "dspark"])
def test_decodes_of_a_batch(speculation: str):
    step = compiled(speculation=speculation)
    rows = 1 + (step.policy.draft_tokens if speculation == "dspark" else 0)
    kind = "verify" if speculation == "dspark" else "decode"
    expected = [
        1e3 * step([aisim.Request(new_tokens=rows, prefix_tokens=9000, kind=kind, count=batch)])
        for batch in (1, 7, 64)
    ]
    assert decode_ms(step, [1, 7, 64], 9000) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda step: prompt_ms(step, [], 5), "lengths"),
        (lambda step: prompt_ms(step, [0], 5), "lengths"),
        (lambda step: prompt_ms(step, [5], 0), "chunk_tokens"),
        (lambda step: prompt_ms(step, [1 << 18], 1), "chunks"),
        (lambda step: decode_ms(step, [1.5], 5), "batches"),
    ],
)
def test_what_is_no_curve(call: Any, words: str):
    with pytest.raises(aisim.InvalidInputError, match=words):
        call(compiled())
