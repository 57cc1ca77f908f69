"""The report as data and as text: everything that was measured, believed or not, is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aisim_v41.reports.fpm import AXES, Band, Regime, coverage_of
from aisim_v41.reports.fpm_text import WIDTH, residuals
from reports import example


def lines_of(**changes) -> list[str]:
    return example.report(**changes).to_text().splitlines()


def test_coverage_is_by_phase_and_requests():
    found = {(one.phase, one.requests): one for one in coverage_of(example.POINTS)}
    assert list(found) == [
        ("prefill", 1), ("prefill", 2), ("decode", 1), ("decode", 2), ("verify", 1), ("mixed", 3),
    ]  # fmt: skip
    one = found["prefill", 1]
    assert (one.points, one.sites) == (3, 2)
    assert (one.new_tokens, one.prefix_tokens, one.measured_ms) == ((64, 128), (0, 0), (100, 110))
    assert sum(one.points for one in found.values()) == len(example.POINTS)


def test_residuals_are_those_of_sound_points_with_a_place():
    for axis in AXES:
        found = residuals(example.report(), axis)
        sound = [p for p in example.POINTS if not p.flag and p.axis(axis) is not None]
        assert [place for place, _ in found] == [p.axis(axis) for p in sound]
    assert residuals(example.report(), "order")[0] == (0.0, pytest.approx(0.01))


def test_the_text_names_everything():
    told = example.report().to_text()
    for part in (
        "gb300, sglang-tp4-replay_off-eager-sync_wall-0123456789abcdef",
        "10 records (9 ok, 1 out_of_memory) of 2 process runs",
        "2 records are totals",
        "settings.dspark  false",
        "decode           2       1      1",
        "one site  prefill  FPM",
        "bands of 90 % hold 88% with one site left out",
        "host                  90.0%      1    1.05",
        "noise: repeat 0.40%, run 3.10%",
        "one, decode-2-1024 (400.0 ms): 5 times its neighbours",
        "data: Copyright somebody (Apache-2.0)",
        "campaign, steps.csv",
    ):
        assert part in told


def test_the_text_fits_a_terminal():
    long = tuple(replace(p, flag="far " * 60 if p.flag else "") for p in example.POINTS)
    told = lines_of(points=long, identity={"image": "x" * 70, "topology": "one node " * 20})
    assert max(map(len, told)) <= WIDTH


def test_ranges_of_an_axis_hold_every_sound_point_once():
    (line,) = [one for one in lines_of() if "requests of the step:" in one]
    # Seven sound points: residuals of one request -3.0 to +1.3 %, of two and three -2.5 and +0.8 %.
    assert line.strip() == "requests of the step: 1 -1.5%; 2 to 3 -0.9%"


def test_what_is_absent_is_not_told():
    told = example.report(
        regime="", aggregates=0, noise={}, errors=(), left_out=(), band=Band(level=0.9, held={}),
        points=tuple(p for p in example.POINTS if not p.flag),
    ).to_text()  # fmt: skip
    for part in ("regime", "totals", "noise", "bands of", "along each axis"):
        assert part not in told
    assert "nothing can be left out" in told
    assert "flagged: none" in told


def test_several_regimes_are_listed():
    regimes = (
        Regime(name="monday", points=5, median_ms=149.0),
        Regime(name="", points=4, median_ms=784.0),
    )
    told = lines_of(regime="monday", regimes=regimes)
    assert "regime: monday" in told
    place = told.index("regimes of this identity; they never mix")
    assert told[place + 2].split() == ["monday", "5", "149.0"]
    assert told[place + 3].split() == ["(without", "a", "label)", "4", "784.0"]


def test_json_has_every_record():
    data = json.loads(json.dumps(example.report().to_dict(), allow_nan=False))
    assert len(data["points"]) == len(example.POINTS)
    assert data["points"][6]["flag"] == "5 times its neighbours"
    assert data["left_out"][3] == {
        "point": 3, "by": "site", "predicted_ms": 117.0, "low_ms": 113.0, "high_ms": 122.0,
    }  # fmt: skip
    assert data["errors"][1]["in_band"] is None
    assert data["terms"][0]["name"] == "host"
