from dataclasses import replace

import numpy as np
import pytest

from aisim_v41.evidence.forwards.samples import NO_ORDER
from aisim_v41.evidence.forwards.thin import merged
from tests.evidence.forwards.rows import drawn_terms, samples

SECONDS = np.array([1.0, 1.1, 0.9, 5.0, 2.0, 2.2, 7.0])
SITE = np.array([0, 0, 0, 0, 1, 1, 2])


def rows():
    """Four, two and one measurements of three steps, each the median of ten."""
    made = samples(drawn_terms(7, seed=1), SECONDS, site=SITE, order=np.linspace(0.0, 0.6, 7))
    return replace(made, repeats=np.full(7, 10.0), spread=np.full(7, 0.01))


def test_rows_of_a_step_become_their_median():
    found = merged(rows())
    assert np.exp(np.log(found.samples.seconds)) == pytest.approx(
        [np.sqrt(1.0 * 1.1), np.sqrt(2.0 * 2.2), 7.0]
    )
    assert [members.tolist() for members in found.members] == [[0, 1, 2, 3], [4, 5], [6]]
    assert found.samples.order == pytest.approx([0.15, 0.45, 0.6])


def test_rows_that_say_how_wide_they_are_count_as_the_repeats():
    """Medians of ten that scatter by 10 % are no better known for the thirty times behind them."""
    found = merged(rows()).samples
    logs = np.log(SECONDS[:4])
    wide = 1.4826 * np.median(np.abs(logs - np.median(logs)))
    assert found.spread == pytest.approx([wide, 0.01, 0.01])
    assert found.repeats.tolist() == [4.0, 20.0, 10.0]


def test_a_row_far_from_the_others_of_its_step_is_wild():
    found = merged(rows())
    assert list(found.wild) == [3]
    assert found.wild[3] == pytest.approx(np.log(5.0 / np.sqrt(1.1)))


def test_an_order_that_is_not_recorded_stays_so():
    unordered = replace(rows(), order=np.full(7, NO_ORDER))
    assert merged(unordered).samples.order.tolist() == [NO_ORDER] * 3
