"""Cases by name, and one run of the check for all tests of the folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import aisim_v41 as aisim
from aisim_v41.validation.cases import Case, load_cases
from aisim_v41.validation.conversion import Conversion
from aisim_v41.validation.convert import convert
from aisim_v41.validation.floor import FloorReport, run_floor_check


@pytest.fixture(scope="session")
def model() -> aisim.Model:
    return aisim.load_model("deepseek-v4.1-flash")


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    return {case.name: case for case in load_cases()}


@pytest.fixture(scope="session")
def report(cases: dict[str, Case]) -> FloorReport:
    return run_floor_check(cases.values())


@pytest.fixture(scope="session")
def converted(cases: dict[str, Case]) -> Callable[[str], Conversion]:
    def one(name: str) -> Conversion:
        answer = convert(cases[name])
        assert isinstance(answer, Conversion), answer
        return answer

    return one
