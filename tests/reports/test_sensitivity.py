"""One change at a time: each row against the estimate that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.reports.sensitivity import COLUMNS, sensitivity

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")
DECODE = aisim.Request(new_tokens=1, prefix_tokens=32768, kind="decode", count=32)
PLAN = aisim.Plan(
    MODEL,
    [aisim.Request(new_tokens=2048), DECODE],
    parallel=aisim.Parallel(tp=4),
    policy=aisim.policy("sglang", decoder_replay=True),
)


def ms(plan: aisim.Plan, hardware=GB300) -> float:
    return aisim.estimate(plan, hardware, "sol").latency_ms


@pytest.fixture(scope="module")
def table():
    return sensitivity(PLAN, GB300, method="sol", change=0.25)


def test_rows_are_estimates_of_the_changed_step(table):
    rows = table.set_index("change")
    assert (table["base_ms"] == ms(PLAN)).all()
    faster = replace(GB300, hbm_bandwidth_bytes_per_s=1.25 * GB300.hbm_bandwidth_bytes_per_s)
    slower = replace(GB300, hbm_bandwidth_bytes_per_s=0.75 * GB300.hbm_bandwidth_bytes_per_s)
    assert rows.loc["memory bandwidth", ["low_ms", "high_ms"]].tolist() == [
        ms(PLAN, slower), ms(PLAN, faster),
    ]  # fmt: skip
    assert rows.loc["memory bandwidth", ["low", "high"]].tolist() == ["-25%", "+25%"]
    wide = replace(PLAN, parallel=aisim.Parallel(tp=8))
    assert rows.loc["tensor-parallel ranks", "high_ms"] == ms(wide)
    plain = replace(PLAN, policy=aisim.policy("sglang", decoder_replay=False))
    assert rows.loc["decoder replay", "low_ms"] == ms(plain)
    assert np.isnan(rows.loc["decoder replay", "high_ms"])
    doubled = replace(DECODE, prefix_tokens=65536, packed=b"")
    longer = replace(PLAN, requests=[PLAN.requests[0], doubled])
    assert rows.loc["context", "high_ms"] == ms(longer)
    shorter = replace(PLAN, requests=[aisim.Request(new_tokens=1024), DECODE])
    assert rows.loc["prompt rows", "low_ms"] == ms(shorter)


def test_the_largest_swing_is_first(table):
    assert list(table.columns) == list(COLUMNS)
    swings = table["swing_ms"].tolist()
    assert swings == sorted(swings, reverse=True)
    ends = table[["low_ms", "base_ms", "high_ms"]]
    assert np.allclose(table["swing_ms"], ends.max(axis=1) - ends.min(axis=1))


def test_better_hardware_is_never_slower(table):
    own = table[table["kind"] == "hardware"].set_index("change")
    rates = own.drop(index=["eager launch", "gap between graph nodes"])
    assert (rates["low_ms"] >= rates["base_ms"]).all()
    assert (rates["high_ms"] <= rates["base_ms"]).all()


def test_what_cannot_be_says_why():
    pair = sensitivity(replace(PLAN, parallel=aisim.Parallel(tp=8)), GB300, method="sol")
    row = pair.set_index("change").loc["tensor-parallel ranks"]
    assert np.isnan(row["high_ms"])
    assert row["note"].startswith("16: ")


def test_it_says_what_it_is_of(table):
    assert "4 × gb300" in table.attrs["about"]
    assert table.attrs["method"] == "sol"
    assert table.attrs["fixed"] == 0.0


def test_measured_rows_do_not_move_and_are_told(monkeypatch):
    monkeypatch.setattr(
        "aisim_v41.reports.sensitivity.CEILINGS", {"memory bandwidth": "hbm_bandwidth_bytes_per_s"}
    )
    table = sensitivity(replace(PLAN, requests=[DECODE]), GB300)
    shares = aisim.estimate(replace(PLAN, requests=[DECODE]), GB300).source_share
    told = sum(shares.get(kind, 0.0) for kind in ("measured", "interpolated"))
    assert table.attrs["fixed"] == pytest.approx(told)
    rows = table.set_index("change")
    assert rows.loc["memory bandwidth", "low_ms"] > rows.loc["memory bandwidth", "base_ms"]
    assert rows.loc["launches of decodes", "low_ms"] > rows.loc["launches of decodes", "base_ms"]


@pytest.mark.parametrize("change", [0, 1, -0.1, True, "0.2", None, float("nan")])
def test_no_share(change):
    with pytest.raises(aisim.InvalidInputError, match="share above 0 and below 1"):
        sensitivity(PLAN, GB300, method="sol", change=change)


SIZES = {"new_tokens": st.integers(100, 3000), "count": st.integers(0, 3)}
REQUESTS = st.one_of(
    st.builds(aisim.Request, prefix_tokens=st.integers(0, 5000), **SIZES),
    st.builds(aisim.Request, image_tokens=st.integers(0, 100), **SIZES),
)


@settings(max_examples=8)
@given(st.lists(REQUESTS, min_size=1, max_size=3))
def test_any_step_has_a_table(requests):
    plan = aisim.Plan(MODEL, requests, parallel=aisim.Parallel(tp=2))
    table = sensitivity(plan, GB300, method="sol")
    assert (table["base_ms"] == ms(plan)).all()
    assert table["swing_ms"].notna().all()
