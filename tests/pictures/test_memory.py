"""Bars of memory, by their lengths."""

from __future__ import annotations

from collections import defaultdict

import pytest

import aisim_v41 as aisim
from aisim_v41.memory.terms import Place
from aisim_v41.pictures import capacity_bars, capacity_terms
from aisim_v41.pictures.canvas import caption_of
from aisim_v41.pictures.palette import MEMORY
from aisim_v41.units import GIB
from tests.pictures.reading import bars


def report(model, gpu: str, **fields):
    return aisim.capacity(
        model,
        aisim.load_hardware(gpu),
        parallel=aisim.Parallel(tp=4),
        policy=aisim.policy("sglang", **fields),
    )


@pytest.fixture(scope="module")
def fits(model):
    return report(model, "gb300")


@pytest.fixture(scope="module")
def fails(model):
    return report(model, "h100")


def test_terms_fill_the_gpu_one_after_the_other(fits):
    ax = capacity_terms(fits)
    found = bars(ax)
    end = 0.0
    for row, (_, start, length, place, _) in enumerate(found):
        assert (round(place), start) == (row, pytest.approx(end))
        end = start + length
    assert end == pytest.approx(fits.setting.hardware.hbm_bytes / GIB)
    (line,) = (line for line in ax.get_lines() if line.get_gid() == "gpu")
    assert line.get_xdata()[0] == fits.setting.hardware.hbm_bytes / GIB


def test_small_terms_stand_together_and_nothing_is_lost(fits):
    found = bars(capacity_terms(fits))
    kinds: dict[str, float] = defaultdict(float)
    for term in fits.terms:
        if term.place is Place.GPU:
            kinds[MEMORY[term.kind].upper()] += term.bytes / GIB
    drawn: dict[str, float] = defaultdict(float)
    for _, _, length, _, shade in found:
        drawn[shade] += length
    assert drawn == pytest.approx(kinds)
    assert len(found) < sum(term.place is Place.GPU for term in fits.terms)


def test_allowances_are_hatched(fits):
    guessed = {term.name for term in fits.terms if term.estimate}
    for bar in capacity_terms(fits).patches:
        if bar.get_gid() in guessed:
            assert bar.get_hatch()
        elif bar.get_gid() in {term.name for term in fits.terms}:
            assert not bar.get_hatch()


def test_an_overdrawn_gpu_says_what_fails(fails):
    ax = capacity_terms(fails)
    assert not fails.starts
    assert f"does not start: {fails.failing}" in ax.get_title("left")
    assert ax.get_xlim()[0] < 0 or fails.kv_bytes >= 0


def test_deployments_side_by_side(fits, fails):
    ax = capacity_bars({"wide": fits, "narrow": fails})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["wide", "narrow"]
    lengths: dict[int, float] = defaultdict(float)
    for _, start, length, place, _ in bars(ax):
        assert start == pytest.approx(lengths[round(place)])
        lengths[round(place)] += length
    for place, one in enumerate((fits, fails)):
        taken = sum(t.bytes for t in one.terms if t.place is Place.GPU and t.bytes > 0)
        assert lengths[place] == pytest.approx(taken / GIB)
    said = [text.get_text() for text in ax.texts]
    assert any(f"{fits.tokens:,} tokens" in text for text in said)
    assert any(text.startswith("does not start") for text in said)


def test_host_memory_is_told(model):
    ax = capacity_bars(report(model, "h200", engram_residency="host_sharded"))
    assert "Beside the GPU: Engram tables (host)" in caption_of(ax)
    assert ax.get_xlabel() == "memory of one GPU [GiB]"


def test_lists_are_named_by_gpu(fits, fails):
    ax = capacity_bars([fits, fails, fits])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["gb300", "h100", "gb300 3"]


def test_refusals(fits):
    for wrong in ([], {}):
        with pytest.raises(aisim.InvalidInputError, match="none"):
            capacity_bars(wrong)
    with pytest.raises(aisim.InvalidInputError, match=r"reports\[0\].*not int"):
        capacity_bars([3])
    with pytest.raises(aisim.InvalidInputError, match="not NoneType"):
        capacity_terms(None)
