"""Breakdowns and timelines, by the lengths that they draw."""

from __future__ import annotations

from collections import defaultdict

import pytest
from matplotlib import pyplot

import aisim_v41 as aisim
from aisim_v41.pictures import breakdown, timeline
from aisim_v41.pictures.canvas import caption_of
from aisim_v41.pictures.palette import EVIDENCE, FAMILIES
from aisim_v41.reports.shares import shares
from tests.pictures.reading import bars, colour, key, spans


@pytest.mark.parametrize("by", ["family", "source"])
def test_bars_add_up_to_the_step(estimates, by: str):
    ax = breakdown(estimates, by=by)
    lengths: dict[float, float] = defaultdict(float)
    for _, start, length, place, _ in bars(ax):
        assert start == pytest.approx(lengths[round(place)], abs=1e-9)
        lengths[round(place)] += length
    drawn = [t.get_text() for t in ax.get_yticklabels()]
    for name, estimate in estimates.items():
        own = sum(
            lengths[place]
            for place, text in enumerate(drawn)
            if text == name or text.startswith(f"{name}:")
        )
        assert own == pytest.approx(estimate.latency_ms)


def test_the_draft_has_a_bar_of_its_own(estimates):
    ax = breakdown(estimates["verify"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["verify: target", "verify: draft"]
    draft = sum(length for _, _, length, place, _ in bars(ax) if round(place) == 1)
    assert draft == pytest.approx(1e3 * estimates["verify"].parts["draft"])


def test_colours_say_family_and_source(estimates):
    for by, colours in (("family", FAMILIES), ("source", EVIDENCE)):
        found = bars(breakdown(estimates, by=by))
        assert found
        assert all(shade == colours[name].upper() for name, _, _, _, shade in found)


def test_families_are_those_of_the_critical_path(estimates):
    estimate = estimates["decode"]
    families = {row.operator: row.family for row in estimate.rows}
    experts = sum(ms for name, ms in estimate.path.items() if families.get(name) == "experts")
    (drawn,) = (length for name, _, length, _, _ in bars(breakdown(estimate)) if name == "experts")
    assert drawn == pytest.approx(1e3 * experts)


def test_an_estimate_draws_itself(estimates):
    own, other = estimates["decode"].plot(), breakdown(estimates["decode"])
    assert bars(own) == bars(other)


def test_percent_fills_every_bar(estimates):
    ax = breakdown(estimates, unit="percent")
    lengths: dict[float, float] = defaultdict(float)
    for _, _, length, place, _ in bars(ax):
        lengths[round(place)] += length
    assert list(lengths.values()) == pytest.approx([100.0] * 4)
    assert ax.get_xlabel() == "share of the time [%]"


def test_shares_of_a_bound(plans, gb300):
    bound = aisim.estimate(plans["decode"], gb300, "sol")
    table = shares(bound)
    assert table["ms"].sum() == pytest.approx(bound.latency_ms)
    assert set(shares(bound, by="source")["name"]) == {"theoretical"}


def test_steps_of_one_kind_are_numbered(estimates):
    table = shares([estimates["decode"], estimates["decode"]])
    assert list(dict.fromkeys(table["step"])) == ["decode 1", "decode 2"]


def test_every_task_is_in_the_timeline(estimates):
    table = estimates["decode"].timeline()
    ax = timeline(estimates["decode"])
    drawn = sorted(
        (start, length, int(one.get_gid().split()[-1]))
        for one in ax.collections
        for start, length in spans(one)
    )
    wanted = sorted(zip(table["start_ms"], table["end_ms"] - table["start_ms"], table["lane"],
                        strict=True))  # fmt: skip
    assert len(drawn) == len(wanted)
    for one, other in zip(drawn, wanted, strict=True):
        assert one == pytest.approx(other, abs=1e-9)
    for one in ax.collections:
        assert colour(one) == FAMILIES[one.get_gid().split()[0]]


def test_a_timeline_of_some_layers(estimates):
    ax = timeline(estimates["decode"], layers=(20, 21))
    table = estimates["decode"].timeline()
    own = table[table["layer"].between(20, 21)]
    assert sum(len(spans(one)) for one in ax.collections) == len(own)
    assert ax.get_xlim() == (own["start_ms"].min(), own["end_ms"].max())
    assert "routed_experts" in [t.get_text() for t in ax.texts]


def test_faces(estimates):
    ax = breakdown(estimates["decode"])
    said = caption_of(ax)
    for words in ("4 × gb300", "tp 4", "policy sglang", "32 decodes after 32,768 tokens",
                  "90 % band", "op: measured and calibrated kernels"):  # fmt: skip
        assert words in said.replace("\n", " ")
    assert ax.get_xlabel().endswith("[ms]")
    assert timeline(estimates["decode"]).get_xlabel().endswith("[ms]")
    assert set(key(ax)) <= set(FAMILIES)


def test_given_axes_are_used_and_returned(estimates):
    drawn, both = pyplot.subplots(2)
    assert breakdown(estimates["decode"], both[0]) is both[0]
    assert timeline(estimates["decode"], ax=both[1]) is both[1]
    assert len(drawn.get_axes()) == 2
    assert len(pyplot.get_fignums()) == 1


def test_refusals(estimates):
    with pytest.raises(aisim.InvalidInputError, match="none"):
        breakdown([])
    with pytest.raises(aisim.InvalidInputError, match="must be an Estimate"):
        breakdown({"one": 3})
    with pytest.raises(aisim.InvalidInputError, match="by = 'colour'"):
        breakdown(estimates, by="colour")
    with pytest.raises(aisim.InvalidInputError, match="unit = 's'"):
        breakdown(estimates, unit="s")
    with pytest.raises(aisim.InvalidInputError, match="no task of layers"):
        timeline(estimates["decode"], layers=(90, 91))
    with pytest.raises(aisim.InvalidInputError, match="must be an Estimate"):
        timeline(None)
    with pytest.raises(aisim.InvalidInputError, match="must be axes"):
        breakdown(estimates, ax=3)
