"""Measured against predicted, by points and bands."""

from __future__ import annotations

import pandas as pd
import pytest

import aisim_v41 as aisim
from aisim_v41.pictures import predictions
from aisim_v41.pictures.canvas import caption_of
from aisim_v41.pictures.palette import PHASES
from tests.pictures.reading import colour

ROWS = pd.DataFrame(
    {
        "gpu": ["b200", "b200", "h200", "h200", "h200"],
        "class": ["decode", "prefill", "decode", "decode", "decode"],
        "unit": ["ms", "ms", "ms", "ms", "GiB"],
        "standing": ["counted", "counted", "counted", "eager forward", "counted"],
        "measured": [10.0, 100.0, 20.0, 30.0, 40.0],
        "predicted": [11.0, 90.0, 30.0, 31.0, 41.0],
        "low": [9.0, 80.0, 25.0, 29.0, None],
        "high": [12.0, 110.0, 36.0, 33.0, None],
    }
)


def test_points_stand_where_they_were_measured_and_predicted():
    ax = predictions(ROWS, by="gpu")
    drawn = {one.get_gid(): one for one in ax.collections}
    assert drawn["points b200"].get_offsets().tolist() == [[10.0, 11.0], [100.0, 90.0]]
    assert drawn["points h200"].get_offsets().tolist() == [[20.0, 30.0]]
    assert colour(drawn["points b200"]) != colour(drawn["points h200"])
    (equal,) = (line for line in ax.get_lines() if line.get_gid() == "equal")
    assert list(equal.get_xdata()) == list(equal.get_ydata()) == [10.0, 100.0]


def test_bands_that_miss_have_no_colour():
    ax = predictions(ROWS, by="gpu")
    drawn = {one.get_gid(): one for one in ax.collections}
    held = [segment[:, 1].tolist() for segment in drawn["bands hold b200"].get_segments()]
    assert held == [[9.0, 12.0], [80.0, 110.0]]
    missed = [segment[:, 1].tolist() for segment in drawn["bands miss h200"].get_segments()]
    assert missed == [[25.0, 36.0]]
    assert "bands hold h200" not in drawn


def test_phases_keep_their_colours():
    ax = predictions(ROWS, by="class")
    drawn = {one.get_gid(): one for one in ax.collections}
    assert colour(drawn["points decode"]) == PHASES["decode"]
    assert colour(drawn["points prefill"]) == PHASES["prefill"]


def test_the_face_says_the_errors_of_what_is_drawn():
    # Errors: +10 %, -10 %, +50 %; two of three bands hold.
    said = caption_of(predictions(ROWS, about="three cases"))
    assert said.startswith("three cases. Of these")
    assert "median |error| 10%, 90th percentile 42%, bias +10%" in said
    assert "they hold 67%" in said


def test_units_and_other_units():
    ax = predictions(ROWS, unit="GiB")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("measured [GiB]", "predicted [GiB]")
    assert ax.get_title("left").startswith("1 measurements")


def test_bands_are_optional():
    ax = predictions(ROWS[["measured", "predicted"]])
    assert len(ax.collections) == 1
    assert "Bands" not in caption_of(ax)


def test_refusals():
    with pytest.raises(aisim.SchemaError, match="no column predicted"):
        predictions(ROWS.drop(columns="predicted"))
    with pytest.raises(aisim.InvalidInputError, match="no row in 's'"):
        predictions(ROWS, unit="s")
    with pytest.raises(aisim.InvalidInputError, match="nothing to draw"):
        predictions(ROWS[["measured", "predicted"]].head(0))
    with pytest.raises(aisim.InvalidInputError, match="case has 9 values"):
        predictions(pd.concat([ROWS.assign(case=n) for n in range(9)]), by="case")
