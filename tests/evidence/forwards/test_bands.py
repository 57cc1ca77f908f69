import numpy as np
import pytest

from aisim_v41.evidence.forwards.bands import calibrate, normal_width


def test_many_groups_show_their_own_quantile():
    scores = np.abs(np.random.default_rng(1).standard_t(3, 4000))
    band = calibrate(scores, np.arange(4000))
    assert band.width == pytest.approx(np.quantile(scores, 0.9), rel=0.02)
    assert band.held == pytest.approx(0.9, abs=0.005)


def test_few_groups_are_drawn_to_the_normal():
    band = calibrate(np.full(40, 2.5), np.repeat([0, 1], 20))
    assert band.width == pytest.approx((2 * 2.5 + 4 * normal_width(0.9)) / 6)
    assert (band.groups, band.held) == (2, 0.0)


def test_few_groups_that_agree_narrow_nothing():
    assert calibrate(np.full(40, 0.1), np.repeat([0, 1], 20)).width == normal_width(0.9)
    twelve = calibrate(np.full(48, 0.1), np.repeat(np.arange(12), 4))
    assert twelve.width == pytest.approx((12 * 0.1 + 4 * normal_width(0.9)) / 16)


def test_every_group_counts_alike():
    """A run of a thousand quiet rows does not speak for nine others."""
    scores = np.concatenate([np.full(1000, 0.1), np.full(9, 2.0)])
    group = np.concatenate([np.zeros(1000), np.arange(1, 10)]).astype(int)
    assert calibrate(scores, group).width > calibrate(scores, np.arange(1009)).width


def test_a_band_has_an_end():
    assert calibrate(np.full(50, 99.0), np.arange(50)).width == 4.0


def test_what_is_short_of_the_level_is_counted_in_groups():
    """Of 19 groups of ten equal rows, the 18th says what 90 % of a twentieth one need."""
    scores = np.repeat(np.linspace(0.1, 1.9, 19), 10)
    band = calibrate(scores, np.repeat(np.arange(19), 10))
    assert band.width == pytest.approx((19 * 1.8 + 4 * normal_width(0.9)) / 23)


@pytest.mark.parametrize(("level", "width"), [(0.5, 0.6745), (0.9, 1.6449), (0.95, 1.96)])
def test_widths_of_the_normal(level: float, width: float):
    assert normal_width(level) == pytest.approx(width, abs=1e-4)
