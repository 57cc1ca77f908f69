"""The tornado, by its bars."""

from __future__ import annotations

import pandas as pd
import pytest

import aisim_v41 as aisim
from aisim_v41.pictures import tornado
from aisim_v41.pictures.canvas import caption_of
from aisim_v41.pictures.tornados import KINDS
from aisim_v41.reports.sensitivity import COLUMNS, sensitivity
from tests.pictures.reading import bars, colour


@pytest.fixture(scope="module")
def table(plans, gb300):
    return sensitivity(plans["decode"], gb300, method="sol")


def test_bars_reach_from_the_step_to_the_changed_step(table):
    ax = tornado(table)
    rows = table.set_index("change")
    base = table["base_ms"].iloc[0]
    drawn = {bar.get_gid(): bar for bar in ax.patches if bar.get_gid()}
    for name, row in rows[rows["swing_ms"] > 1e-4 * base].iterrows():
        for side in ("low", "high"):
            if row[f"{side}_ms"] == row[f"{side}_ms"] and row[f"{side}_ms"] != base:
                bar = drawn.pop(f"{side} {name}")
                ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()))
                assert ends == pytest.approx(sorted((base, row[f"{side}_ms"])))
                assert colour(bar) == KINDS[row["kind"]].upper()
                assert (bar.get_alpha() == 1.0) == (side == "high")
    assert drawn == {}


def test_the_longest_is_above_and_what_does_nothing_is_told(table):
    ax = tornado(table)
    names = [t.get_text() for t in ax.get_yticklabels()]
    moved = table[table["swing_ms"] > 1e-4 * table["base_ms"]]
    assert names == moved["change"].tolist()
    assert "No effect:" in caption_of(ax)
    assert "eager launch" in caption_of(ax)
    assert "speed of light" in caption_of(ax)
    assert ax.get_xlabel() == "time of the step [ms]"


def test_nothing_moves_a_step_that_waits_for_its_host(plans, gb300):
    still = sensitivity(plans["decode"], gb300, method="sol")
    still = still.assign(low_ms=still["base_ms"], high_ms=still["base_ms"], swing_ms=0.0)
    assert bars(tornado(still)) == []


def test_refusals(table):
    with pytest.raises(aisim.SchemaError, match="no column swing_ms"):
        tornado(table.drop(columns="swing_ms"))
    with pytest.raises(aisim.InvalidInputError, match="no rows"):
        tornado(pd.DataFrame(columns=list(COLUMNS)))
    with pytest.raises(aisim.InvalidInputError, match="not int"):
        tornado(3)
