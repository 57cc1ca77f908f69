"""Rows of a ragged sweep, made once."""

from __future__ import annotations

import pandas as pd
import pytest

import aisim_v41 as aisim
from tests.sweeps.cases import RAGGED


@pytest.fixture(scope="package")
def ragged() -> pd.DataFrame:
    return aisim.sweep(RAGGED).frame()
