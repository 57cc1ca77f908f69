"""Knees of curves whose knees are known."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.reports.surface import COLUMNS, grid, knees

SIZES = [1, 2, 4, 8, 16, 32, 64, 128]


def curve(time, at: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {"count": SIZES, "prefix_tokens": at, "latency_ms": [time(n) for n in SIZES]}
    )


def found(frame: pd.DataFrame) -> list[tuple[str, float, float]]:
    rows = knees(frame, "count", "prefix_tokens").itertuples()
    return [(row.kind, row.before, row.after) for row in rows]


def test_a_bend_is_where_doubling_begins_to_cost():
    # 16 + n: from 8 to 16 the time grows by 32/24, below the root of 2; from 16 to 32 by 48/32.
    assert found(curve(lambda n: 16 + n)) == [("bend", 16.0, 32.0)]
    assert found(curve(lambda n: max(n, 32))) == [("bend", 32.0, 64.0)]


def test_flat_and_straight_curves_have_none():
    assert found(curve(lambda n: 5.0)) == []
    assert found(curve(lambda n: 3.0 * n)) == []


def test_a_jump_is_more_than_the_work():
    assert found(curve(lambda n: 10.0 if n <= 32 else 90.0)) == [("jump", 32.0, 64.0)]


def test_a_jump_is_no_part_of_a_bend():
    time = {1: 10, 2: 10, 4: 10, 8: 10, 16: 40, 32: 40, 64: 80, 128: 160}
    assert found(curve(time.__getitem__)) == [("bend", 32.0, 64.0), ("jump", 8.0, 16.0)]


def test_rounding_between_near_sizes_is_no_jump():
    frame = pd.DataFrame({"count": [256, 257], "prefix_tokens": 0, "latency_ms": [19.0, 19.3]})
    assert found(frame) == []


def test_every_row_of_the_grid_has_its_own():
    frame = pd.concat([curve(lambda n: max(n, 32), 0), curve(lambda n: max(n, 8), 4096)])
    table = knees(frame, "count", "prefix_tokens")
    assert list(table.columns) == list(COLUMNS)
    assert table[["at", "before"]].to_numpy().tolist() == [[0, 32.0], [4096, 8.0]]
    assert (table["along"] == "count").all()


def test_points_without_value_and_zero_sizes_are_passed_over():
    frame = curve(lambda n: max(n, 32))
    frame.loc[2, "latency_ms"] = float("nan")
    more = pd.DataFrame({"count": [0], "prefix_tokens": [0], "latency_ms": [1.0]})
    assert found(pd.concat([frame, more])) == [("bend", 32.0, 64.0)]


def test_the_grid_rises_both_ways():
    frame = pd.DataFrame({"a": [2, 1, 2, 1], "b": [5, 5, 3, 3], "c": [4.0, 3.0, 2.0, 1.0]})
    table = grid(frame.assign(b=frame["b"]), "a", "b", "c")
    assert table.to_numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_captured_batches_end_in_a_jump():
    """Above the largest captured batch, 512, SGLang decodes eagerly and the host decides."""
    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
    policy = aisim.policy("sglang")
    step = aisim.compile(model, gpu, parallel=aisim.Parallel(tp=4), policy=policy)
    frame = pd.DataFrame({"new_tokens": 1, "kind": "decode", "prefix_tokens": 8192,
                          "count": [128, 256, 512, 1024]})  # fmt: skip
    timed = step.sweep(frame)
    assert found(timed) == [("jump", 512.0, 1024.0)]
    assert timed.attrs["about"].endswith("method op")
    assert "4 × gb300 (tp 4), policy sglang" in timed.attrs["about"]


def test_refusals():
    frame = curve(lambda n: n)
    with pytest.raises(aisim.InvalidInputError, match="no column 'counts'; nearest: count"):
        knees(frame, "counts", "prefix_tokens")
    with pytest.raises(aisim.InvalidInputError, match="holds no numbers"):
        knees(frame.assign(count="many"), "count", "prefix_tokens")
    with pytest.raises(aisim.InvalidInputError, match="three columns"):
        knees(frame, "count", "count")
    with pytest.raises(aisim.InvalidInputError, match="pandas frame"):
        knees(None, "count", "prefix_tokens")
    twice = pd.concat([frame.assign(tp=4), frame.assign(tp=8)])
    with pytest.raises(aisim.SchemaError, match=r"count = 1, prefix_tokens = 0 .* one value of tp"):
        knees(twice, "count", "prefix_tokens")


@given(st.lists(st.floats(0, 1e9) | st.just(float("nan")), min_size=8, max_size=8))
def test_any_curve_has_an_answer(times):
    frame = pd.DataFrame({"count": SIZES, "prefix_tokens": 0, "latency_ms": times})
    table = knees(frame, "count", "prefix_tokens")
    assert set(table["kind"]) <= {"bend", "jump"}
    assert (table["before"] < table["after"]).all()
