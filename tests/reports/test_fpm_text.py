"""The report as data and as text: everything that was measured, believed or not, is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aisim_v41.reports.fpm.report import AXES, Band, Regime, coverage_of
from aisim_v41.reports.fpm.text import WIDTH, residuals
from reports import example


def lines_of(**changes) -> list[str]:
    return example.report(**changes).to_text().splitlines()


def test_coverage_is_by_phase_and_requests():
    found = {(one.phase, one.requests): one for one in coverage_of(example.POINTS)}
    assert list(found) == [
        ("prefill", 1), ("prefill", 2), ("decode", 1), ("decode", 2), ("mixed", 3),
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
        "10 records (9 ok, 1 out_of_memory); regime all: 9 measured steps of 2 process runs",
        "2 records are totals",
        "settings.dspark  False",
        "decode           2       1      1",
        "errors with the site left out",
        "prefill  fpm                      4    2.1%    2.2%    2.8%   -2.2%     100%",
        "bands of 90 % hold 88% with the site left out",
        "time = floor + the longer of host and kernels",
        "floor             2.0%        -        -",
        "host             98.0%  x 1.000  x 1.050",
        "and 1 terms below 0.1% each",
        "noise (standard deviations): repeats of a point 0.40%, between runs 3.10%",
        "one, decode-2-1024 (400.0 ms): 5 times its neighbours",
        "data: Copyright somebody (Apache-2.0)",
        "steps.csv, abc",
    ):
        assert part in told


def test_the_text_fits_a_terminal():
    long = tuple(replace(p, flag="far " * 60 if p.flag else "") for p in example.POINTS)
    identity = {
        "build": {"image": "x" * 70, "topology": "one node " * 20, "settings": {}},
        "execution": {"gpu": "gb300"},
    }
    told = lines_of(points=long, identity=identity)
    assert max(map(len, told)) <= WIDTH


def test_ranges_of_an_axis_hold_every_sound_point_once():
    (line,) = [one for one in lines_of() if "requests of the step:" in one]
    # Seven sound points: residuals of one request -3.0 to +1.3 %, of two and three -2.5 and +0.8 %.
    assert line.strip() == "requests of the step: 1 -1.5%; 2 to 3 -0.9%"


def test_what_is_absent_is_not_told():
    told = example.report(
        aggregates=0, noise={}, errors={}, left_out=(), band=Band(level=0.9, held={}),
        points=tuple(p for p in example.POINTS if not p.flag),
    ).to_text()  # fmt: skip
    for part in ("regimes", "totals", "noise", "stand for all", "bands of", "along each axis"):
        assert part not in told
    assert "nothing can be left out" in told
    assert "flagged: none" in told


def test_several_regimes_are_listed():
    regimes = (
        Regime(name="monday", points=5, low_ms=141.0, high_ms=158.0),
        Regime(name="slow", points=4, low_ms=784.0, high_ms=784.0),
    )
    told = lines_of(regime="monday", regimes=regimes)
    place = told.index("regimes, never mixed  records              ms")
    assert told[place + 1].split() == ["monday", "5", "141.0", "to", "158.0"]
    assert told[place + 2].split() == ["slow", "4", "784.0"]


def test_a_thinned_fit_is_told():
    assert "4 of them, far apart, stand for all in the fit" in lines_of(thinned=4)


def test_json_has_every_record():
    data = json.loads(json.dumps(example.report().to_dict(), allow_nan=False))
    assert len(data["points"]) == len(example.POINTS)
    assert data["points"][6]["flag"] == "5 times its neighbours"
    assert data["left_out"][3] == {
        "point": 3, "by": "site", "predicted_ms": 117.0, "low_ms": 113.0, "high_ms": 122.0,
    }  # fmt: skip
    assert [row["method"] for row in data["errors"]["site"] if row["phase"] == "all"] == [
        "fpm", "constant per phase", "linear on totals",
    ]  # fmt: skip
    assert [term["name"] for term in data["terms"]] == [
        "floor", "host", "experts", "experts link",
    ]  # fmt: skip
