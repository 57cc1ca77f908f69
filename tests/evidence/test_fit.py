"""The fit: finds what it was made from, gives the same twice, and is what is packaged."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from aisim_v41 import load_hardware
from aisim_v41.evidence.calibration import SIBLING_PENALTY
from aisim_v41.evidence.calibration_file import read_calibration
from aisim_v41.evidence.fit import gpu as jobs
from aisim_v41.evidence.fit import regimes, samples
from aisim_v41.evidence.fit.jobs import assessed
from aisim_v41.evidence.fit.write import RESIDUAL_COLUMNS, calibration_text, number, residuals_text
from aisim_v41.evidence.laws import LawKind, law_seconds
from aisim_v41.evidence.robust import Free, errors, fit
from aisim_v41.tables.schema import GPUS

ROOT = Path(__file__).resolve().parents[2]


def packaged(gpu: str):
    return read_calibration(ROOT / "profiles" / gpu / "op" / "calibration.yaml")


def residuals(gpu: str) -> list[dict[str, str]]:
    path = ROOT / "profiles" / gpu / "op" / "calibration_residuals.csv"
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


# --- the solver ----------------------------------------------------------------------------------


def test_known_parameters_are_found_among_wild_rows():
    rows = np.logspace(0, 4, 60)
    wild = np.where(np.arange(60) % 12 == 5, 3.0, 1.0)
    true = {"start": 4e-6, "each": 3e-8, "bend": 2.5}

    def predict(p):
        return (p["start"] ** p["bend"] + (p["each"] * rows) ** p["bend"]) ** (1 / p["bend"])

    free = {
        "start": Free(start=1e-6, low=0, high=1e-4),
        "each": Free(start=1e-7, low=0, high=1e-6),
        "bend": Free(start=(1.5, 6.0), low=1, high=10),
    }
    found = fit(predict, predict(true) * wild, free)
    for name, value in true.items():
        assert found[name] == pytest.approx(value, rel=0.03)
    assert found == fit(predict, predict(true) * wild, free)


def test_bounds_hold():
    rows = np.array([1.0, 2.0, 4.0])
    free = {"each": Free(start=1, low=0.5, high=2)}
    assert fit(lambda p: p["each"] * rows, 9 * rows, free)["each"] == pytest.approx(2, rel=1e-3)


def test_errors_are_relative_to_what_was_measured():
    off = errors(np.array([1.1, 0.9, 1.0, 2.0]), np.ones(4))
    assert (off.rows, off.median, off.bias) == (4, pytest.approx(0.1), pytest.approx(0.05))


def test_regimes_are_found():
    size = 2.0 ** np.arange(8, 31)
    parts = [(4e-6, 2e11, 2.0**20), (1e-5, 4.5e11, 2.0**24), (4e-5, 4.2e11, np.inf)]
    seconds = np.empty_like(size)
    low = 0.0
    for alpha, rate, limit in parts:
        inside = (size > low) & (size <= limit)
        seconds[inside] = alpha + size[inside] / rate
        low = limit
    from aisim_v41.evidence.features import message_features

    rows = samples.Samples(
        features=message_features(size, np.full_like(size, 4.0)), seconds=seconds,
        group=np.arange(len(size)), scale=size, hull={}, sources=(),
    )  # fmt: skip
    assert regimes.search(rows, 3) == (2.0**20, 2.0**24)
    found = regimes.solve(rows, (2.0**20, 2.0**24))
    for number_, (alpha, rate, _) in enumerate(parts, start=1):
        assert found[f"alpha_{number_}_s"] == pytest.approx(alpha, rel=1e-6)
        assert found[f"rate_{number_}_bytes_per_s"] == pytest.approx(rate, rel=1e-6)
    np.testing.assert_allclose(
        law_seconds(LawKind.COLLECTIVE, rows.features, found), seconds, rtol=1e-9
    )


def test_groups_are_left_out_whole():
    rows = samples.Samples(
        features={}, seconds=np.array([1.0, 1.0, 8.0, 8.0]), group=np.array([0, 0, 1, 1]),
        scale=np.array([1.0, 1.0, 9.0, 9.0]), hull={}, sources=(),
    )  # fmt: skip
    law = assessed(
        "any", "mean", LawKind.GATHER, rows,
        lambda some: {"mean": float(some.seconds.mean())},
        lambda some, p: np.full(len(some), p["mean"]),
        bands=(5.0,), penalty=0.0, note="",
    )  # fmt: skip
    assert law.parameters == {"mean": 4.5}
    assert law.bands["<= 5"].median == pytest.approx(7.0)  # 8 for 1
    assert law.bands["> 5"].median == pytest.approx(1 - 1 / 8)  # 1 for 8


def test_numbers_are_read_back_as_numbers():
    import yaml

    for value in (4e-6, 1e-10, 16777216.0, 0.0, 1.0, 9e11, 1.23456789e-7, 12, 0.1):
        text = number(value)
        found = yaml.safe_load(text)
        assert isinstance(found, (int, float)), text
        assert found == pytest.approx(value, rel=1e-4)
    assert yaml.safe_load(number(np.float64(16777216.0))) == 16777216


# --- what is packaged -----------------------------------------------------------------------------


def same(found, kept) -> None:
    assert found.key == kept.key
    assert found.kind == kept.kind
    for name, value in found.parameters.items():
        assert kept.parameters[name] == pytest.approx(value, rel=1e-3, abs=1e-13), name
    assert kept.error_median == pytest.approx(found.left_out.median, abs=2e-4)
    assert kept.rows_fitted == found.left_out.rows


@pytest.mark.parametrize("gpu", ["gb300", pytest.param("h100", marks=pytest.mark.long)])
def test_refitting_gives_what_is_packaged(gpu: str):
    """Families that fit in seconds; the command does all."""
    hardware = load_hardware(gpu)
    engines = packaged(gpu).engines
    found = [
        *jobs._elementwise(hardware),
        *jobs._hyper(hardware),
        *(law for law in jobs._collectives(hardware) if law.key.endswith("@4")),
    ]
    for law in found:
        same(law, engines[law.engine][law.key])
    again = list(jobs._elementwise(hardware))
    assert calibration_text(hardware, again) == calibration_text(hardware, found[: len(again)])
    assert residuals_text(again) == residuals_text(found[: len(again)])


@pytest.mark.long
@pytest.mark.parametrize("gpu", GPUS)
def test_refitting_everything_gives_what_is_packaged(gpu: str):
    from aisim_v41.evidence.fit.__main__ import TWINS

    hardware = load_hardware(gpu)
    found = jobs.fit_gpu(hardware, load_hardware(TWINS.get(gpu, gpu)))
    engines = packaged(gpu).engines
    assert {(law.engine, law.key) for law in found} == {
        (engine, key) for engine, laws in engines.items() for key in laws
    }
    for law in found:
        same(law, engines[law.engine][law.key])


@pytest.mark.parametrize("gpu", GPUS)
def test_residuals_belong_to_the_laws_beside_them(gpu: str):
    rows = residuals(gpu)
    assert tuple(rows[0]) == RESIDUAL_COLUMNS
    engines = packaged(gpu).engines
    laws = {(engine, key): law for engine, found in engines.items() for key, law in found.items()}
    seen = set()
    for row in rows:
        law = laws[row["engine"], row["law"]]
        seen.add((row["engine"], row["law"]))
        if row["part"] == "left out":
            assert float(row["median_error"]) == pytest.approx(law.error_median, abs=1e-4)
            assert float(row["p90_error"]) + law.penalty == pytest.approx(law.error_p90, abs=1e-4)
    assert seen == set(laws)


LAW_TARGET = {
    "all_reduce.sglang@4": 0.025, "all_reduce.vllm@4": 0.025, "hyper.pre": 0.04, "hyper.post": 0.05,
    "experts.mxfp4": 0.045,
}  # fmt: skip


@pytest.mark.parametrize("gpu", ["gb200", "gb300", "b300"])
def test_laws_alone_left_out(gpu: str):
    """Median error of rows left out; 8-bit products by SGLang as well."""
    engines = packaged(gpu).engines
    for key, most in (LAW_TARGET | {"product.fp8": 0.04}).items():
        law = (engines["any"] if "@" in key else engines["sglang"])[key]
        assert law.error_median <= most, key


def test_the_sibling_penalty_covers_what_siblings_miss_by():
    """GB200's laws on B200's rows and GB300's on B300's: median error beyond their own."""
    more = []
    for gpu, sibling in (("b200", "gb200"), ("b300", "gb300")):
        rows = {(r["engine"], r["law"], r["part"]): r for r in residuals(gpu)}
        for (engine, law, part), row in rows.items():
            if part == f"laws of {sibling}":
                own = rows[engine, law, "left out"]
                more.append(float(row["p90_error"]) - float(own["p90_error"]))
    assert len(more) > 30
    assert np.median(more) < SIBLING_PENALTY / 2
    assert np.quantile(more, 0.8) < SIBLING_PENALTY
