"""Sweeps cut and run another way: the same rows to the last bit."""

from __future__ import annotations

import joblib
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.sweeps import evaluate as evaluation
from aisim_v41.sweeps.parts import Cut
from aisim_v41.sweeps.space import read_space
from tests.sweeps.cases import RAGGED, same


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32, so that a small sweep has many."""
    for module in ("evaluate", "parts"):
        monkeypatch.setattr(f"aisim_v41.sweeps.{module}.BLOCK_POINTS", 32)


@pytest.mark.usefixtures("small_blocks")
def test_rows_do_not_depend_on_how_a_sweep_is_cut(ragged: pd.DataFrame):
    small = RAGGED | {"hardware": "gb300"}
    whole = aisim.sweep(small, part_points=10**6)
    assert whole.parts == 1
    blocks = 8 * -(-(whole.points // 8) // 32)
    for part_points, each in ((1, 1), (7, 1), (100, 4), (1000, 32)):
        data = aisim.sweep(small, part_points=part_points)
        assert len(data.files) == data.parts == -(-blocks // each)
        same(data.frame(), whole.frame())
    times = ragged[ragged.hardware == "gb300"]["latency_ms"].to_numpy()
    assert whole.frame()["latency_ms"].to_numpy() == pytest.approx(times, rel=1e-14)


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_rows_do_not_depend_on_the_back_end(ragged: pd.DataFrame, backend: str):
    same(aisim.sweep(RAGGED, jobs=2, backend=backend, part_points=1).frame(), ragged)


def test_joblib_configured_around_the_call(ragged: pd.DataFrame):
    with joblib.parallel_config("threading", n_jobs=3):
        same(aisim.sweep(RAGGED, part_points=1).frame(), ragged)


def test_a_back_end_that_has_results_only_in_the_end(
    ragged: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
):
    from joblib._parallel_backends import ThreadingBackend

    monkeypatch.setattr(ThreadingBackend, "supports_return_generator", False)
    same(aisim.sweep(RAGGED, jobs=2, backend="threading", part_points=1).frame(), ragged)


def test_rows_do_not_depend_on_a_cluster(ragged: pd.DataFrame):
    """Two workers of dask, which the test starts and stops."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        seen: set[str] = set()
        with joblib.parallel_config("dask"):
            data = aisim.sweep(RAGGED, part_points=1)
        for log in client.run(lambda dask_worker: dask_worker.state.executed_count).values():
            seen.add("worked" if log else "idle")
        assert seen == {"worked"}
    same(data.frame(), ragged)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_do_not_depend_on_threads_of_blas(threads: int):
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads, "blas"):
        found = aisim.sweep(RAGGED | {"hardware": "gb300", "method": "op"}).frame()
    expected = aisim.sweep(RAGGED | {"hardware": "gb300", "method": "op"}).frame()
    same(found, expected)
    assert evaluation._inside == 0


@given(st.integers(1, 9), st.integers(1, 400), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_parts_hold_every_point_once(settings_: int, part_points: int, lengths: list[int]):
    names = ["new_tokens", "prefix_tokens", "count", "image_tokens"]
    space = read_space({
        "hardware": "gb300",
        "parallel": [{"tp": n + 1} for n in range(settings_)],
        "requests": {"new_tokens": 1} | {
            name: list(range(length)) for name, length in zip(names, lengths, strict=False)
        },
    })  # fmt: skip
    cut = Cut(space, part_points)
    points = space.grid.points
    seen = [
        run.combination * points + place
        for part in range(cut.parts)
        for run in cut.runs(part)
        for place in range(run.first, run.last)
    ]
    assert seen == list(range(space.points))
    grid = space.grid
    columns = grid.columns(0, points)
    for first in range(0, points, 7):
        last = min(points, first + 5)
        for made in (grid.columns(first, last), grid.cut(first, last).columns(first, last)):
            assert set(made) == set(columns)
            for name, values in made.items():
                assert values.tolist() == columns[name][first:last].tolist()
