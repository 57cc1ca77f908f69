"""Collected tables: lines and planes by hand, whose rows count, and what OP makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.evidence.collected import (
    LEAST_ERROR,
    PORTABLE_ERROR,
    Asked,
    CollectedGrid,
    collected_grid,
    key_of,
)
from aisim_v41.tables import FAMILIES, write_table
from aisim_v41.units import MICROSECOND

FAMILY = FAMILIES["v41_kernels"]
NONE = {column.name: "none" for column in FAMILY.columns if column.kind == "text"}
NORM = Asked(operator="site_norm", options={}, sizes={"inputs": 5120}, axes=("rows",))
ATTENTION = Asked(
    operator="sparse_attention", options={"layout": "bytes288"}, sizes={"heads": 16},
    axes=("rows", "keys_per_row"),
)  # fmt: skip


def row(operator: str, us: float, **given: Any) -> dict[str, Any]:
    identity = {"operator": operator, "engine": "sglang", "engine_version": "0.6.0",
                "kernel_source": "own", "execution": "graph", "cache_state": "cold",
                "campaign": "c", "model_shapes": "v4.1_exact", "timer": "graph"}  # fmt: skip
    return {**NONE, **identity, "latency_us": us, "samples": 30, "flag": "", "caveat": "",
            "source": "s", **given}  # fmt: skip


def norm(us: float, rows: int, **given: Any) -> dict[str, Any]:
    return row("site_norm", us, **{"rows": rows, "inputs": 5120, **given})


def attention(us: float, rows: int, keys: float, **given: Any) -> dict[str, Any]:
    return row("sparse_attention", us, rows=rows, keys_per_row=keys, heads=16, layout="bytes288",
               rows_per_request=0, entries=0, **given)  # fmt: skip


Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Writes a table into a folder of its own, which is searched from then on."""
    numbers = count()

    def write(rows: list[dict[str, Any]], gpu: str = "gb300") -> None:
        root = tmp_path / str(next(numbers))
        write_table(
            pd.DataFrame(rows), gpu=gpu, family="v41_kernels", folder=root / "profiles",
            licence="MIT", notice="test",
            sources=[{"id": "s", "package": "p", "version": "1", "path": "x", "date": "d",
                      "note": "n"}],
            timing={"method": "m", "statistic": "s", "environment": "e"},
        )  # fmt: skip
        monkeypatch.setenv("AISIM_V41_PATH", str(root))

    return write


def grid(asked: Asked, engine: str = "sglang", gpu: str = "gb300") -> CollectedGrid | None:
    return collected_grid(gpu, engine, "graph", key_of(asked))


def test_a_line_by_hand(put: Put):
    put([norm(2.0, 1), norm(2.0, 4), norm(8.0, 16)])
    found = grid(NORM)
    assert found is not None
    at = np.array([1.0, 4.0, 8.0, 16.0, 999.0, 0.5])
    # between 4 and 16 rows time doubles with each doubling: 4 us at 8
    assert found.seconds(at) / MICROSECOND == pytest.approx([2, 2, 4, 8, 8, 2])
    assert found.inside(at).tolist() == [True, True, True, True, False, False]
    assert [found.measured(x) for x in (1.0, 4.0, 8.0)] == [True, True, False]
    assert found.whose == "engine"


def test_a_plane_by_hand(put: Put):
    put([attention(us, rows, keys) for us, rows, keys in
                 ((1, 1, 128), (2, 1, 512), (4, 16, 128), (8, 16, 512))])  # fmt: skip
    found = grid(ATTENTION)
    assert found is not None
    # halfway in both logarithms: the root of 1 x 2 x 4 x 8, to the fourth
    middle = float(found.seconds(np.asarray(4.0), np.asarray(256.0)))
    assert middle / MICROSECOND == pytest.approx((1 * 2 * 4 * 8) ** 0.25)
    assert found.measured(16.0, 512.0)
    assert not found.measured(16.0, 256.0)


def test_a_corner_that_is_missing_is_outside(put: Put):
    put([attention(us, rows, keys) for us, rows, keys in
                 ((1, 1, 128), (2, 1, 512), (4, 16, 128))])  # fmt: skip
    found = grid(ATTENTION)
    assert found is not None
    inside = found.inside(np.array([4.0, 1.0, 4.0]), np.array([256.0, 256.0, 128.0]))
    assert inside.tolist() == [False, True, True]


def test_less_work_is_never_slower_whatever_was_measured(put: Put):
    put([norm(5.0, 1), norm(3.0, 2), norm(6.0, 4), norm(5.9, 8)])
    found = grid(NORM)
    assert found is not None
    times = found.seconds(np.arange(1.0, 9.0)) / MICROSECOND
    assert (np.diff(times) >= 0).all()
    assert not found.measured(2.0)  # 3 us, where one row took 5
    assert found.measured(8.0)  # 5.9 for 6: noise
    assert times[-1] == pytest.approx(6.0)


def test_leaving_points_out(put: Put):
    put([norm(1.0, 1), norm(2.2, 2), norm(4.0, 4)])
    found = grid(NORM)
    assert found is not None
    assert found.error_median == pytest.approx(1 - 2.0 / 2.2)
    put([norm(1.0, 1), norm(2.0, 2), norm(4.0, 4)])
    again = grid(NORM, engine="sglang")
    assert again is not None
    assert again.error_p90 == LEAST_ERROR


def test_whose_kernel_counts(put: Put):
    own = [norm(2.0, n) for n in (1, 8)]
    portable = [norm(5.0, n, engine="portable", kernel_source="triton") for n in (1, 8)]
    put([*own, *portable])
    assert grid(NORM).whose == "engine"  # type: ignore[union-attr]
    other = grid(NORM, engine="vllm")
    assert other is not None
    assert (other.whose, other.error_p90) == ("portable", PORTABLE_ERROR)
    put(own)
    assert grid(NORM, engine="trtllm") is None


def test_kernels_that_every_engine_calls_count_for_all(put: Put):
    gemm = Asked(operator="gemm", options={"dtype": "bf16"},
                 sizes={"outputs": 384, "inputs": 5120, "groups": 1}, axes=("rows",))  # fmt: skip
    put([row("gemm", us, rows=rows, outputs=384, inputs=5120, groups=1, dtype="bf16",
                     engine="portable", kernel_source="cublas", operand="bf16")
                 for us, rows in ((3, 1), (4, 64))])  # fmt: skip
    assert grid(gemm, engine="vllm").whose == "engine"  # type: ignore[union-attr]


def test_the_newest_version_and_never_a_mix(put: Put):
    put([norm(9.0, 1), norm(9.0, 8), norm(2.0, 1, engine_version="0.10.0"),
                 norm(2.0, 8, engine_version="0.10.0"), norm(1.0, 4, cache_state="warm"),
                 norm(1.0, 4, execution="eager", timer="events")])  # fmt: skip
    found = grid(NORM)
    assert found is not None
    assert found.nodes[0].tolist() == [1, 8]
    assert found.seconds(np.asarray(8.0)) / MICROSECOND == pytest.approx(2.0)
    assert "0.10.0" in found.source


@pytest.mark.parametrize(
    "rows",
    [[norm(2.0, 8)], [norm(2.0, 1, inputs=64), norm(2.0, 8, inputs=64)],
     [norm(2.0, n, flag="noisy") for n in (1, 8)]],
)  # fmt: skip
def test_without_two_sound_points_there_is_nothing(put: Put, rows: list[dict[str, Any]]):
    put(rows)
    assert grid(NORM) is None


@pytest.mark.parametrize("gpu", ["b200 in pairs", "No-Table", "../gb300", "", "gb200"])
def test_a_gpu_whose_name_no_table_has(put: Put, gpu: str):
    put([norm(2.0, 1), norm(2.0, 8)])
    assert grid(NORM, gpu=gpu) is None


@given(
    st.lists(st.tuples(st.integers(1, 4096), st.floats(0.5, 1e4)), min_size=2, max_size=12,
             unique_by=lambda point: point[0]),
    st.lists(st.floats(0.1, 1e5), min_size=2, max_size=20),
)  # fmt: skip
def test_lines_never_fall(points: list[tuple[int, float]], at: list[float]):
    points = sorted(points)
    nodes = np.array([float(rows) for rows, _ in points])
    rising = np.maximum.accumulate([us for _, us in points])
    line = CollectedGrid(
        axes=("rows",), nodes=(nodes,), log_seconds=np.log(rising), known=np.ones(len(nodes), bool),
        exact=np.ones(len(nodes), bool), touched=np.zeros(0), whose="engine", error_median=0.0,
        error_p90=0.0, source="",
    )  # fmt: skip
    times = line.seconds(np.sort(np.array(at)))
    assert (np.diff(times) >= -1e-9 * times[1:]).all()
    assert line.seconds(nodes) == pytest.approx(rising)


# --- what OP makes of it -------------------------------------------------------------------------

MODEL = aisim.load_model("deepseek-v4.1-flash")
DECODE = [aisim.Request(new_tokens=1, prefix_tokens=32768, kind="decode", count=32)]


def plan(requests: list[aisim.Request] = DECODE, engine: str = "sglang") -> aisim.Plan:
    return aisim.Plan(MODEL, requests, parallel=aisim.Parallel(tp=4), policy=aisim.policy(engine))


def row_of(frame: pd.DataFrame, operator: str) -> pd.Series:
    return frame[frame["operator"] == operator].iloc[0]


def test_a_measured_row_is_the_time_and_coverage_says_so(put: Put):
    gb300 = aisim.load_hardware("gb300")
    before = aisim.coverage(plan(), gb300)
    put([norm(7.0, 1), norm(7.5, 32), norm(9.0, 512)])
    after = aisim.coverage(plan(), gb300)
    mine, theirs = row_of(after, "site_norm"), row_of(before, "site_norm")
    assert (mine["evidence"], theirs["evidence"]) == ("measured", "calibrated")
    assert mine["time_ms"] / mine["calls"] * 1000 == pytest.approx(7.5, rel=1e-9)
    assert mine["collector_case"] == ""
    assert "campaign c" in mine["sources"]
    rest = after[after["operator"] != "site_norm"].set_index(["operator", "law", "evidence"])
    old = before[before["operator"] != "site_norm"].set_index(["operator", "law", "evidence"])
    assert rest["time_ms"].sum() == pytest.approx(old["time_ms"].sum(), rel=1e-9)


def test_between_rows_it_is_interpolated_and_beyond_the_law_joins(put: Put):
    gb300 = aisim.load_hardware("gb300")
    put([norm(7.0, 1), norm(9.0, 64)])
    found = row_of(aisim.coverage(plan(), gb300), "site_norm")
    assert found["evidence"] == "interpolated"
    put([norm(0.2, 1), norm(0.2, 8)])
    beyond = row_of(aisim.coverage(plan(), gb300), "site_norm")
    assert beyond["evidence"] == "calibrated"
    assert beyond["time_ms"] / beyond["calls"] * 1000 > 1.0


def test_a_plane_is_read_at_what_rows_see(put: Put):
    gb300 = aisim.load_hardware("gb300")
    put([attention(us, rows, keys) for us, rows, keys in
                 ((30, 1, 128), (40, 1, 640), (31, 32, 128), (44, 32, 640))])  # fmt: skip
    frame = aisim.coverage(plan(), gb300)
    both = frame[frame["operator"] == "sparse_attention"]
    assert set(both["evidence"]) == {"measured"}
    # 38 layers see 640 rows and two see 128
    assert both["time_ms"].sum() * 1000 == pytest.approx(38 * 44 + 2 * 31, rel=1e-9)


def test_another_implementation_never_replaces_a_law_of_this_gpu(put: Put):
    own = {"engine": "portable", "kernel_source": "triton"}
    rows = [norm(70.0, 1, **own), norm(70.0, 64, **own)]
    put(rows)
    known = row_of(aisim.coverage(plan(), aisim.load_hardware("gb300")), "site_norm")
    assert known["evidence"] == "calibrated"
    put(rows, gpu="gb10")
    unfused = aisim.policy("sglang", fusion="elementary")
    gb10 = aisim.Plan(MODEL, DECODE, parallel=aisim.Parallel(tp=4), policy=unfused)
    unknown = row_of(aisim.coverage(gb10, aisim.load_hardware("gb10")), "site_norm")
    assert unknown["evidence"] == "portable"
    assert unknown["error_p90"] == PORTABLE_ERROR
    assert "collectors' own kernel" in unknown["note"]


def test_experts_that_were_not_visited_alike(put: Put):
    gb300 = aisim.load_hardware("gb300")

    def experts(us: float, rows: int, touched: float) -> dict[str, Any]:
        return row("routed_experts", us, rows=rows, hidden=5120, expert_width=2304,
                   tensor_parallel=4, experts_routed=384, experts_per_token=6, width_multiple=32,
                   touched=touched, dtype="mxfp4", expert_load="uniform")  # fmt: skip

    law = row_of(aisim.coverage(plan(), gb300), "routed_experts")
    put([experts(60, 1, 6), experts(100, 32, 152.6), experts(300, 512, 384)])
    found = row_of(aisim.coverage(plan(), gb300), "routed_experts")
    # 129 experts are expected of 32 rows of serving traffic, 153 were visited: less than 100 us
    assert 80 < found["time_ms"] / found["calls"] * 1000 < 100
    assert found["time_ms"] < law["time_ms"]


@pytest.mark.parametrize("requests", [DECODE, [aisim.Request(new_tokens=700, prefix_tokens=900)]])
def test_steps_sweeps_and_estimates_agree_and_respect_the_bound(put: Put, requests):
    put([norm(0.11, 1), norm(0.12, 4096), attention(0.2, 1, 1), attention(0.2, 1, 640),
                 attention(0.3, 8192, 1), attention(0.3, 8192, 640)])  # fmt: skip
    gb300 = aisim.load_hardware("gb300")
    answer = aisim.estimate(plan(requests), gb300, method="op")
    step = aisim.compile(MODEL, gb300, parallel=aisim.Parallel(tp=4), policy=aisim.policy("sglang"),
                         method="op")  # fmt: skip
    assert step(requests) * 1000 == pytest.approx(answer.latency_ms, rel=1e-9)
    one = requests[0]
    frame = pd.DataFrame({"new_tokens": [one.new_tokens], "prefix_tokens": [one.prefix_tokens],
                          "kind": [one.kind], "count": [one.count]})  # fmt: skip
    swept = step.sweep(frame)["latency_ms"].iloc[0]
    assert swept == pytest.approx(answer.latency_ms, rel=1e-9)
    assert answer.latency_ms >= answer.sol_ms
    for kernel in aisim.coverage(plan(requests), gb300).itertuples():
        assert math.isfinite(kernel.time_ms)
