"""The worlds' own counts are right: the ledger, which shares no line with them, has the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from benchmarks.worlds.work import EXPERTS, LAYERS, work_of

COLUMNS = {
    "window_pairs": "window_pairs",
    "selected": "selected_entries",
    "scored": "scored_positions",
}
KNEES = (0, 1, 126, 127, 128, 511, 512, 1022, 1025, 16_383, 16_384, 16_391, 40_000)

requests = st.builds(
    lambda new, prefix, count, decodes: aisim.Request(
        new_tokens=1 if decodes else new,
        prefix_tokens=prefix,
        count=count,
        kind="decode" if decodes else "prefill",
    ),
    st.integers(1, 1500),
    st.one_of(st.sampled_from(KNEES), st.integers(0, 60_000)),
    st.integers(1, 5),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(requests, min_size=1, max_size=4))
def test_counts_are_those_of_the_ledger(step):
    plan = aisim.Plan(
        aisim.load_model("deepseek-v4.1-flash"),
        step,
        parallel=aisim.Parallel(tp=4),
        policy=aisim.policy("sglang"),
    )
    counted = aisim.ledger(plan).to_frame()
    work = work_of(step)
    assert work.rows * LAYERS == counted["query_rows"].sum()
    for own, ledgers in COLUMNS.items():
        assert getattr(work, own) == counted[ledgers].sum()


def test_dummies_are_rows_without_a_past_and_one_more_draw_of_experts():
    step = [aisim.Request(new_tokens=1, prefix_tokens=500, kind="decode", count=5)]
    filled, real = work_of(step, dummies=3), work_of(step)
    assert filled.rows == filled.requests == 8
    assert filled.experts == pytest.approx(EXPERTS * (1 - (1 - 6 / 384) ** 6))
    assert filled.window_pairs - real.window_pairs == 3 * LAYERS
    assert filled.pages == real.pages
