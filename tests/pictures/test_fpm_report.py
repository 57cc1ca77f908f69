"""The figure, by the data that it draws."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from reports import example

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.pictures.fpm_report import COLOURS, figure, write_figure
from aisim_v41.pictures.palette import NEUTRAL
from aisim_v41.reports.fpm.report import AXES, coverage_of


@pytest.fixture(scope="module")
def drawn():
    return figure(example.report())


def named(drawn, across: str):
    (ax,) = (ax for ax in drawn.get_axes() if ax.get_xlabel().startswith(across))
    return ax


def marks(ax) -> list[tuple[float, float, str]]:
    """Place and colour of every scattered mark."""
    found = []
    for one in ax.collections:
        if not isinstance(one, PathCollection):
            continue
        colours = one.get_edgecolors() if len(one.get_edgecolors()) else one.get_facecolors()
        shown = to_hex(colours[0]).upper()
        found += [(float(x), float(y), shown) for x, y in one.get_offsets()]
    return found


def test_there_are_six_panels_with_units(drawn):
    labels = [(ax.get_xlabel(), ax.get_ylabel()) for ax in drawn.get_axes()]
    assert len(labels) == 2 + len(AXES)
    assert labels[0] == ("measured [ms]", "predicted [ms]")
    assert labels[1] == ("new tokens of the step [tokens]", "prefix tokens a request [tokens]")
    assert [across for across, _ in labels[2:]] == list(AXES.values())
    assert labels[2][1] == "predicted / measured - 1 [%]"


def test_predictions_with_their_bands(drawn):
    ax = named(drawn, "measured")
    phases = {container.get_label(): container for container in ax.containers}
    assert set(phases) == {"prefill", "decode", "mixed"}
    line, _, (bars,) = phases["prefill"].lines
    assert list(line.get_xdata()) == [100.0, 110.0, 102.0, 120.0]
    assert list(line.get_ydata()) == [101.0, 108.0, 99.0, 117.0]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[97.0, 106.0], [104.0, 113.0], [95.0, 104.0], [113.0, 122.0]]
    # Sound times and bands reach from 77 ms to 136 ms; 400 ms are beyond.
    assert marks(ax) == [(136.0, 82.0, NEUTRAL)]
    (equal,) = (one for one in ax.get_lines() if one.get_label() == "equal")
    assert list(equal.get_xdata()) == list(equal.get_ydata()) == [77.0, 136.0]


def test_coverage_has_every_point(drawn):
    ax = named(drawn, "new tokens of the step [")
    wanted = [(p.new_tokens, p.prefix_tokens, COLOURS[p.phase]) for p in example.POINTS]
    assert sorted(marks(ax)) == sorted(wanted)
    sizes = {one.get_label(): one.get_sizes()[0] for one in ax.collections}
    assert sizes["prefill, 1 request"] < sizes["prefill, 2 requests"]


def test_there_are_no_parts_of_a_request():
    points = [example.point("decode", 1, 1, 512 * n, 80.0 + n, order=7) for n in range(1, 4)]
    drawn = figure(example.report(points=tuple(points), left_out=example.site_left_out()[:3]))
    for axis in ("requests", "order"):
        (ax,) = (ax for ax in drawn.get_axes() if ax.get_xlabel() == AXES[axis])
        shown = [tick for tick in ax.get_xticks() if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
        assert shown
        assert all(tick == int(tick) for tick in shown)


def test_the_legend_of_very_many_sizes_has_room():
    points = [example.point("decode", n, n, 1024, 80.0 + n) for n in range(1, 65)]
    points += [example.point("prefill", 7, 700, 0, 99.0)]
    report = example.report(points=tuple(points), coverage=coverage_of(tuple(points)), left_out=())
    ax = named(figure(report), "new tokens of the step [")
    assert len(marks(ax)) == 65
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "prefill, 7 requests", "decode, 64 requests", "decode, 1 request",
    ]  # fmt: skip


@pytest.mark.parametrize("axis", AXES)
def test_residuals_along_an_axis(drawn, axis: str):
    (ax,) = (ax for ax in drawn.get_axes() if ax.get_xlabel() == AXES[axis])
    found = marks(ax)
    for point, predicted in zip(example.POINTS, example.PREDICTED, strict=True):
        if point.axis(axis) is None or point.flag:
            continue
        residual = 100 * (predicted / point.measured_ms - 1)
        near = [y for x, y, colour in found
                if x == point.axis(axis) and colour == COLOURS[point.phase]]  # fmt: skip
        assert np.isclose(near, residual).any()
    low, high = ax.get_ylim()
    assert all(low < y < high for _, y, _ in found)
    crossed = [y for _, y, colour in found if colour == NEUTRAL]
    # The largest sound residual is that of run two, 99 for 102 ms: the flagged one stands there.
    assert crossed == pytest.approx([100 * (99 / 102 - 1)])
    assert len(found) == sum(p.axis(axis) is not None for p in example.POINTS)


def test_the_face_says_whose_data_it_is(drawn):
    assert "Copyright somebody (Apache-2.0); steps.csv" in drawn.get_supxlabel()
    assert drawn.get_suptitle().startswith("gb300, sglang-tp4")
    assert "9 measured steps of 2 process runs, 1 flagged" in drawn.get_suptitle()
    assert to_hex(drawn.get_facecolor()) == "#ffffff"


def test_narrow_times_have_a_plain_scale():
    believed = tuple(replace(p, flag="") for p in example.POINTS)
    assert figure(example.report(points=believed)).get_axes()[0].get_xscale() == "log"
    assert figure(example.report()).get_axes()[0].get_xscale() == "linear"


def test_an_axis_without_places_says_so():
    unordered = tuple(replace(p, order=None) for p in example.POINTS)
    ax = figure(example.report(points=unordered)).get_axes()[-1]
    assert ax.get_xlabel() == "position in its run"
    assert marks(ax) == []
    assert [text.get_text() for text in ax.texts] == ["not recorded"]


def test_a_report_of_nothing_is_drawn():
    empty = figure(example.report(points=(), left_out=(), coverage=()))
    assert len(empty.get_axes()) == 6
    assert marks(empty.get_axes()[0]) == []


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files(tmp_path, kind: str):
    path = tmp_path / f"report.{kind}"
    write_figure(example.report(), path)
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert path.read_bytes().startswith(start)


def test_names_that_cannot_be(tmp_path):
    with pytest.raises(InvalidInputError, match=r"report\.bmp.*\.png, \.svg, \.pdf"):
        write_figure(example.report(), tmp_path / "report.bmp")
    with pytest.raises(InvalidInputError, match="there is no folder"):
        write_figure(example.report(), tmp_path / "nowhere" / "report.png")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingProfileError, match=r"aisim-v41\[plots\]"):
        write_figure(example.report(), tmp_path / "report.png")
