"""Fronts against every pair of points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.sweeps.best import pareto


@given(
    st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40),
    st.sampled_from([(["a"], ["b"]), (["a", "b"], []), ([], ["c", "a"]), (["a"], ["b", "c"])]),
)
def test_a_front_against_every_pair(rows: list[tuple[int, ...]], names: tuple[list[str], ...]):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    low, high = names
    front = pareto(frame, low=low, high=high)

    def beats(one: Any, other: Any) -> bool:
        costs = [(one[n], other[n]) for n in low] + [(-one[n], -other[n]) for n in high]
        return all(a <= b for a, b in costs) and any(a < b for a, b in costs)

    every = [row for _, row in frame.iterrows()]
    expected = [
        place for place, row in enumerate(every) if not any(beats(other, row) for other in every)
    ]
    assert sorted(front.index) == expected


def test_fronts_of_nothing():
    frame = pd.DataFrame({"a": [1.0, np.nan], "kind": ["x", "y"]})
    assert pareto(frame, low="a").index.tolist() == [0]
    for given_, words in (({}, "at least one"), ({"low": "b"}, "no column 'b'"),
                          ({"high": ["kind"]}, "no numbers")):  # fmt: skip
        with pytest.raises(aisim.InvalidInputError, match=words):
            pareto(frame, **given_)
