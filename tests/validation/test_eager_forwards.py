"""The given eager forwards of GB300 on four ranks: both campaigns, as docs/op.md quotes them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import aisim_v41 as aisim
from aisim_v41.estimators.op.eager_modules import eager_modules
from aisim_v41.forwards.store import find_tables
from aisim_v41.validation.errors import Standing, run_error_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = " ".join((ROOT / "docs/op.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def errors(model: aisim.Model) -> tuple[list[float], list[float]]:
    """Relative errors by counted calls, and by sums of measured modules."""
    first = run_error_table(model, source="gb300-eager")
    counted = [e.relative for e in first.of(Standing.HOST)]
    summed = [e.relative for e in first.of(Standing.MODULES)]
    gpu = aisim.load_hardware("gb300")
    for table in find_tables("gb300"):
        parallel, eager = table.plan_setting()
        for record in table.measured:
            if record.run == "study38_run2":
                plan = aisim.Plan(model, record.requests, parallel, eager)
                counted.append(aisim.estimate(plan, gpu).latency_ms / record.latency_ms - 1)
                summed.append(eager_modules(plan, gpu).total_s * 1e3 / record.latency_ms - 1)
    return counted, summed


def test_figures_of_counted_calls(errors: tuple[list[float], list[float]]):
    found = re.search(
        r"\((\d+): two campaigns.*?\) come out within ([\d.]+) % in the median and ([\d.]+) %", PAGE
    )
    assert found is not None
    size = np.abs(errors[0])
    assert int(found[1]) == len(size)
    assert float(found[2]) == round(100 * float(np.median(size)), 1)
    assert float(found[3]) == round(100 * float(np.percentile(size, 90)), 1)


def test_the_target_of_eager_forwards(errors: tuple[list[float], list[float]]):
    assert np.median(np.abs(errors[0])) <= 0.06


def test_figures_of_summed_modules(errors: tuple[list[float], list[float]]):
    found = re.search(r"these sums are off by ([\d.]+) % in the median", PAGE)
    assert found is not None
    assert float(found[1]) == round(100 * float(np.median(np.abs(errors[1]))), 1)
