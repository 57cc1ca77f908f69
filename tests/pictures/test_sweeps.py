"""Fronts and surfaces, by what they draw."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import aisim_v41 as aisim
from aisim_v41.pictures import pareto, surface
from aisim_v41.pictures.canvas import axis_text, caption_of
from aisim_v41.pictures.palette import nth
from aisim_v41.pictures.sweeps import KNEES
from aisim_v41.sweeps.best import pareto as front_of
from tests.pictures.reading import colour, key

POINTS = pd.DataFrame(
    {
        "hardware": ["b200"] * 4 + ["h200"] * 4,
        "count": [1, 8, 64, 512] * 2,
        "latency_ms": [3.0, 5.0, 9.0, float("nan"), 6.0, 5.5, 14.0, 40.0],
        "tokens_per_s_per_gpu": [80.0, 400.0, 1500.0, 4000.0, 40.0, 200.0, 900.0, 3000.0],
        "fits": [True] * 7 + [False],
        "policy": "sglang",
    }
)


def lines(ax) -> dict[str, list[tuple[float, float]]]:
    return {
        line.get_gid(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in ax.get_lines()
        if (line.get_gid() or "").startswith("front")
    }


def test_fronts_are_those_of_each_group():
    ax = pareto(POINTS, by="hardware")
    drawn = lines(ax)
    assert drawn["front b200"] == [(3.0, 80.0), (5.0, 400.0), (9.0, 1500.0)]
    # 6.0 ms for 40 is beaten by 5.5 ms for 200; 40 ms does not fit.
    assert drawn["front h200"] == [(5.5, 200.0), (14.0, 900.0)]
    assert key(ax) == ["b200", "h200"]


def test_every_point_is_there_and_those_that_do_not_fit_are_crossed():
    ax = pareto(POINTS, by="hardware")
    drawn = {one.get_gid(): one for one in ax.collections}
    assert len(drawn["points b200"].get_offsets()) == 3
    assert len(drawn["points h200"].get_offsets()) == 3
    assert drawn["not fitting h200"].get_offsets().tolist() == [[40.0, 3000.0]]
    assert colour(drawn["points h200"]) == nth(1)
    said = caption_of(ax)
    assert "7 points, 1 of them do not fit (crossed); 1 without a value are left out" in said
    assert "policy sglang" in said


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_points_without_a_group_are_one_of_their_own(nothing):
    frame = POINTS.assign(engine=["vllm", nothing, nothing, nothing] * 2)
    ax = pareto(frame, by="engine")
    drawn = {one.get_gid(): one for one in ax.collections}
    assert len(drawn["points vllm"].get_offsets()) == 2
    assert len(drawn["points no engine"].get_offsets()) == 4
    assert len(drawn["not fitting no engine"].get_offsets()) == 1
    assert key(ax) == ["vllm", "no engine"]


@pytest.mark.parametrize("by", [5, None, {"hardware"}, ["hardware", 3], "list"])
def test_groups_are_named_by_columns_of_plain_values(by):
    with pytest.raises(aisim.InvalidInputError, match="column"):
        pareto(POINTS.assign(list=[[1]] * 8), by=by)


def test_one_front_without_groups_and_several_columns_as_one():
    known = POINTS[POINTS["fits"]]
    front = front_of(known, low="latency_ms", high="tokens_per_s_per_gpu")
    (drawn,) = lines(pareto(POINTS)).values()
    assert [x for x, _ in drawn] == front["latency_ms"].tolist()
    both = pareto(POINTS.assign(tp=4), by=["hardware", "tp"])
    assert key(both) == ["b200, tp 4", "h200, tp 4"]


def test_points_of_fronts_carry_their_column():
    ax = pareto(POINTS, by="hardware", label="count")
    told = {text.get_text() for text in ax.texts if not text.get_gid()}
    assert {"1", "8", "64"} <= told
    assert "512" not in told


def test_units_follow_from_names():
    ax = pareto(POINTS)
    assert ax.get_xlabel() == "latency [ms]"
    assert ax.get_ylabel() == "tokens [1/s a GPU]"
    assert axis_text("count") == "count [requests]"
    assert axis_text("hbm_gib") == "hbm [GiB]"


def test_fronts_of_a_sweep():
    found = aisim.sweep(
        {
            "hardware": ["gb300"], "parallel": {"tp": 4}, "policy": "sglang", "method": "sol",
            "requests": {"kind": "decode", "new_tokens": 1, "prefix_tokens": 8192,
                         "count": [1, 16, 256]},
        }
    )  # fmt: skip
    frame = found.frame()
    (drawn,) = lines(pareto(frame)).values()
    assert [x for x, _ in drawn] == frame["latency_ms"].tolist()


def test_fronts_refuse():
    with pytest.raises(aisim.SchemaError, match="no column cost"):
        pareto(POINTS, low="cost")
    many = pd.concat([POINTS.assign(gpu=f"gpu {n}") for n in range(9)])
    with pytest.raises(aisim.InvalidInputError, match="make 9 groups, and there are 7 colours"):
        pareto(many, by="gpu")
    with pytest.raises(aisim.InvalidInputError, match="column 'policy' holds 'sglang'"):
        pareto(POINTS, low="policy")


def cells(frame: pd.DataFrame, **names):
    ax = surface(frame, **names)
    (mesh,) = (one for one in ax.collections if one.get_gid() == "cells")
    return ax, mesh


GRID = pd.DataFrame(
    [
        {"count": n, "prefix_tokens": c, "latency_ms": max(n, 8) * (1 + c / 4096)}
        for n in (1, 2, 4, 8, 16, 32)
        for c in (0, 4096)
    ]
)


def test_cells_are_the_points():
    ax, mesh = cells(GRID)
    wanted = [[8, 8, 8, 8, 16, 32], [16, 16, 16, 16, 32, 64]]
    assert np.allclose(mesh.get_array().reshape(2, 6), wanted)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "4", "8", "16", "32"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "4,096"]
    numbers = [t.get_text() for t in ax.texts if not t.get_gid()]
    assert sorted(map(float, numbers)) == sorted(map(float, np.ravel(wanted)))


def test_knees_stand_between_the_cells():
    ax, _ = cells(GRID)
    drawn = [(line.get_gid(), line.get_xdata()[0], line.get_ydata()[0], line.get_color())
             for line in ax.get_lines()]  # fmt: skip
    assert drawn == [("bend 0", 3.5, -0.5, KNEES["bend"]), ("bend 4096", 3.5, 0.5, KNEES["bend"])]


def test_cells_without_value_are_blank():
    frame = GRID.copy()
    frame.loc[0, "latency_ms"] = float("nan")
    ax, mesh = cells(frame)
    assert np.ma.getmaskarray(mesh.get_array()).sum() == 1
    assert "1 cells have no value" in caption_of(ax)


def test_a_surface_says_what_it_is_of(model, gb300):
    step = aisim.compile(model, gb300, parallel=aisim.Parallel(tp=4), method="sol")
    frame = pd.DataFrame([(n, c) for n in (64, 512) for c in (0, 8192)],
                         columns=["new_tokens", "prefix_tokens"])  # fmt: skip
    ax = surface(step.sweep(frame), x="new_tokens")
    assert "4 × gb300 (tp 4)" in caption_of(ax)
    assert "method sol" in caption_of(ax)
    assert ax.get_xlabel() == "new tokens [tokens]"
    assert "latency [ms]" in ax.get_title("left")


def test_surfaces_refuse():
    with pytest.raises(aisim.InvalidInputError, match="no value above 0"):
        surface(GRID.assign(latency_ms=float("nan")))
    with pytest.raises(aisim.SchemaError, match="more than once"):
        surface(pd.concat([GRID, GRID]))
