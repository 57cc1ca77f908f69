"""Rooflines and methods side by side, by their points and bars."""

from __future__ import annotations

import numpy as np
import pytest

import aisim_v41 as aisim
from aisim_v41.pictures import methods, roofline
from aisim_v41.pictures.canvas import caption_of
from aisim_v41.pictures.palette import FAMILIES, METHODS
from aisim_v41.reports.roofline import roofline_points, roofs
from tests.pictures.reading import bars, colour


@pytest.fixture(scope="module")
def table(plans, gb300):
    return aisim.compare(plans["decode"], gb300)


def test_points_are_work_over_bytes_and_over_time(estimates):
    estimate = estimates["decode"]
    points = roofline_points(estimate).set_index("operator")
    rows = [row for row in estimate.rows if row.operator == "routed_experts"]
    flop = sum(row.flop for row in rows)
    moved = sum(sum(row.bytes_by_kind.values()) for row in rows)
    seconds = sum(row.seconds for row in rows)
    found = points.loc["routed_experts"]
    assert found["flop_per_byte"] == pytest.approx(flop / moved)
    assert found["flop_per_s"] == pytest.approx(flop / seconds)
    assert points["ms"].sum() == pytest.approx(1e3 * sum(row.seconds for row in estimate.rows))


def test_marks_stand_where_the_points_are(estimates):
    ax = roofline(estimates["decode"])
    points = roofline_points(estimates["decode"]).dropna()
    drawn = {}
    for one in ax.collections:
        assert colour(one) == FAMILIES[one.get_gid()]
        drawn[one.get_gid()] = sorted(map(tuple, one.get_offsets().tolist()))
    for family, own in points.groupby("family"):
        wanted = sorted(zip(own["flop_per_byte"], own["flop_per_s"] / 1e12, strict=True))
        assert np.allclose(drawn[family], wanted)
    assert sum(map(len, drawn.values())) == len(points)


def test_areas_say_time(estimates):
    ax = roofline(estimates["decode"])
    points = roofline_points(estimates["decode"]).dropna()
    (experts,) = (one for one in ax.collections if one.get_gid() == "experts")
    own = points[points["family"] == "experts"]
    areas = experts.get_sizes() - 12.0
    assert np.allclose(areas / areas.sum(), own["ms"] / own["ms"].sum())


def test_roofs_are_the_peaks_of_the_gpu(estimates, gb300):
    ax = roofline(estimates["decode"])
    levels = {line.get_gid(): line.get_ydata()[-1] for line in ax.get_lines()}
    for name, peak in roofs(estimates["decode"]).items():
        assert levels[f"roof {name}"] == pytest.approx(peak / 1e12)
        assert peak in set(gb300.peak_flop_per_s.values())
    (slope,) = (line for line in ax.get_lines() if line.get_gid() == "roof hbm")
    rate = np.asarray(slope.get_ydata()) / np.asarray(slope.get_xdata())
    assert rate == pytest.approx([gb300.hbm_bandwidth_bytes_per_s / 1e12] * 2)


@pytest.mark.parametrize("step", ["prefill", "decode"])
def test_nothing_of_a_bound_is_above_the_roofs(plans, gb300, step: str):
    bound = aisim.estimate(plans[step], gb300, "sol")
    points = roofline_points(bound).dropna()
    highest = max(roofs(bound).values())
    rate = gb300.hbm_bandwidth_bytes_per_s
    assert (points["flop_per_s"] <= highest * (1 + 1e-9)).all()
    assert (points["flop_per_s"] <= points["flop_per_byte"] * rate * (1 + 1e-9)).all()


def test_bars_are_the_rows_of_the_table(table):
    ax = methods(table)
    rows = table[table["operator"] != "whole step"].head(14).reset_index()
    for method in ("sol", "op"):
        found = [(round(place), length) for gid, _, length, place, shade in bars(ax)
                 if gid == method and shade == METHODS[method]]  # fmt: skip
        assert found == [(i, pytest.approx(ms)) for i, ms in enumerate(rows[f"{method}_ms"])]
    assert [t.get_text() for t in ax.get_yticklabels()] == rows["operator"].tolist()
    assert "No whole forward of this was measured" in caption_of(ax)
    assert "32 decodes after 32,768 tokens" in caption_of(ax)


def test_the_whole_step(table):
    measured = table.assign(fpm_ms=[float("nan")] * (len(table) - 1) + [9.25])
    found = {gid: length for gid, _, length, _, _ in bars(methods(measured, of="whole"))}
    whole = table.iloc[-1]
    assert found == {"sol": whole["sol_ms"], "op": whole["op_ms"], "fpm": 9.25}


def test_refusals(table, estimates):
    with pytest.raises(aisim.InvalidInputError, match="of = 'parts'"):
        methods(table, of="parts")
    with pytest.raises(aisim.SchemaError, match="no column op_ms"):
        methods(table.drop(columns="op_ms"))
    with pytest.raises(aisim.SchemaError, match="0 rows 'whole step'"):
        methods(table.head(3))
    with pytest.raises(aisim.InvalidInputError, match="not list"):
        methods([])
    with pytest.raises(aisim.InvalidInputError, match="must be an Estimate"):
        roofline(table)


def test_a_step_of_nothing_has_no_roofline(model, gb300):
    empty = aisim.estimate(aisim.Plan(model, [aisim.Request(new_tokens=0)]), gb300, "sol")
    with pytest.raises(aisim.InvalidInputError, match="no operator of this step computes"):
        roofline(empty)
