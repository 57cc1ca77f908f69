"""The error table of OP: who is in it, and that its medians are what they say."""

from __future__ import annotations

from statistics import median

import pytest

from aisim_v41.estimators.entry import estimate
from aisim_v41.hardware import load_hardware
from aisim_v41.model.load import load_model
from aisim_v41.plan.plan import Plan
from aisim_v41.units import MILLISECOND
from aisim_v41.validation.cases import Case
from aisim_v41.validation.conversion import Conversion
from aisim_v41.validation.convert import convert
from aisim_v41.validation.errors import CaseError, ErrorReport, run_error_table


@pytest.fixture(scope="module")
def table() -> ErrorReport:
    return run_error_table()


def test_every_zero_shot_case_that_is_a_plan_is_in_it(table: ErrorReport, cases: dict[str, Case]):
    expected = {
        case.name
        for case in cases.values()
        if case.usable == "zero_shot" and isinstance(convert(case), Conversion)
    }
    assert {error.case for error in table.errors} == expected
    assert len(expected) > 100


def test_nothing_is_hidden(table: ErrorReport):
    frame = table.to_frame()
    assert len(frame) == len(table.errors)
    assert (frame["predicted_ms"] > 0).all()
    assert frame["error"].tolist() == [e.predicted_ms / e.measured_ms - 1 for e in table.errors]
    text = table.to_text()
    for error in table.errors:
        assert f"{error.gpu}, {error.kind}" in text


def test_a_step_is_what_estimate_says(table: ErrorReport, cases: dict[str, Case]):
    """A whole step of the table, asked again through the front door."""
    model = load_model("deepseek-v4.1-flash")
    checked = 0
    for error in table.errors:
        conversion = convert(cases[error.case])
        assert isinstance(conversion, Conversion)
        if conversion.group is not None:
            continue
        way = next(way for way in conversion.claims[0].ways if way.name == error.reads)
        machine = conversion.machine
        seconds = sum(
            part.times
            * estimate(
                Plan(model, list(part.requests), machine.parallel, way.preset),
                load_hardware(error.gpu),
                method="op",
            ).latency_s
            for part in way.parts
        )
        assert error.predicted_ms == pytest.approx(seconds / MILLISECOND, rel=1e-9), error.case
        checked += 1
    assert checked > 20


def test_medians_go_per_source_first():
    def error(source: str, relative: float) -> CaseError:
        return CaseError(
            case=source, source=source, kind="step", gpu="gb300", quantity="step_ms",
            measured_ms=1.0, predicted_ms=1.0 + relative, reads="as stated",
        )  # fmt: skip

    report = ErrorReport((*[error("many", 0.1)] * 9, error("one", -0.5), error("two", 0.3)))
    assert report.median_absolute() == pytest.approx(median([0.1, 0.5, 0.3]))
    assert report.errors[9].relative == pytest.approx(-0.5)
