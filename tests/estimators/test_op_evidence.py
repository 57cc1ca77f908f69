"""OP's evidence: measured rows before laws, tags, hulls, and what a collector would measure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError, OutOfRangeError
from aisim_v41.estimators.entry import estimate
from aisim_v41.estimators.op import compiled as op_compiled
from aisim_v41.estimators.op.compiled import CompiledOp, compiled_op
from aisim_v41.estimators.op.coverage import COLUMNS, coverage
from aisim_v41.estimators.op.curves import EVERY_ROW
from aisim_v41.estimators.op.evidence import EXTRAPOLATION_PENALTY, Kernel
from aisim_v41.evidence.measured import LEAST_ERROR
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.plan.request import Request
from aisim_v41.tables import load_table, write_table

from .cases import GPUS, POLICIES, gpu, model, policies, steps

ROOT = Path(__file__).resolve().parents[2]
SGLANG = policy("sglang")


def compiled(on: str = "gb300", runtime: RuntimePolicy = SGLANG) -> CompiledOp:
    return compiled_op(model(), gpu(on), Parallel(tp=4), runtime)


def plan_of(requests: list[Request], runtime: RuntimePolicy = SGLANG) -> Plan:
    return Plan(model(), requests, Parallel(tp=4), runtime)


def kernels_of(requests: list[Request], operator: str, on: str = "gb300") -> list[Kernel]:
    (_, counts), *_ = ledger(plan_of(requests)).passes
    found = compiled(on).kernels(counts.totals)
    return [kernel for kernel in found if operator in kernel.task.replaces]


@pytest.mark.parametrize("rows", [1, 4, 16, 64, 256, 1024, 8192])
def test_a_measured_row_of_the_models_own_matrix_comes_back_exactly(rows: int):
    """Layer 20's compressor, [5120 -> 512] in BF16, is a matrix of SGLang's table."""
    table = load_table("gb300", "gemm").select(engine="sglang", engine_version="0.5.20",
                                               dtype="bf16")  # fmt: skip
    row = table.exact(rows=rows, outputs=512, inputs=5120)
    assert row is not None
    found = [k for k in kernels_of([Request(new_tokens=rows)], "compress_project")
             if k.evidence.binding.features["outputs"] == 512]  # fmt: skip
    (kernel,) = found
    assert kernel.tag == "measured"
    assert kernel.seconds * 1e6 == pytest.approx(row.latency_us, rel=1e-9)


@pytest.mark.parametrize("on", ["gb300", "b200", "gb200"])
def test_what_is_tagged_measured_is_the_tables_time(on: str):
    """A row that fewer rows outlast takes their time, so it is no measured one."""
    one, seen = compiled(on), {"measured": 0, "interpolated": 0}
    for rows in (*range(1, 40), 64, 128, 256, 1024):
        for kernel in kernels_of([Request(new_tokens=rows)], "compress_project", on):
            curve = kernel.evidence.curve
            if curve is None or rows not in curve.nodes:
                continue
            seen[kernel.tag] += 1
            table_s = float(curve.seconds(np.array(float(rows))))
            own_s = kernel.seconds / one.calls[one.place_of(kernel.task)]
            if kernel.tag == "measured":
                assert own_s == pytest.approx(table_s, rel=1.1 * LEAST_ERROR)
            else:
                assert own_s > (1 + LEAST_ERROR) * table_s
    assert min(seen.values()) > 0


def test_a_users_table_alone_takes_the_place_of_the_packaged_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also after an estimate: the calibration is the same, the rows are not."""

    def microseconds() -> float:
        found = kernels_of([Request(new_tokens=64)], "compress_project")
        (kernel,) = [k for k in found if k.evidence.binding.features["outputs"] == 512]
        assert kernel.tag == "measured"
        return kernel.seconds * 1e6

    packaged = microseconds()
    rows = pd.DataFrame(
        {
            "operator": "gemm", "engine": "sglang", "engine_version": "9.9", "kernel_source": "k",
            "dtype": "bf16", "execution": "graph", "cache_state": "cold", "decoder_replay": "none",
            "campaign": "monday", "model_shapes": "v4.1_exact", "rows": [1, 64, 4096],
            "outputs": 512, "inputs": 5120, "latency_us": [50.0, 77.0, 99.0], "samples": 20,
            "source": "run 1",
        }
    )  # fmt: skip
    write_table(
        rows, gpu="gb300", family="gemm", folder=tmp_path / "profiles",
        licence="Apache-2.0", notice="Copyright (c) 2026 me",
        sources=[{"id": "run 1", "package": "none", "version": "1", "path": "run1.jsonl",
                  "date": "2026-11-30", "note": "clocks not fixed"}],
        timing={"method": "CUPTI", "statistic": "median", "environment": "driver 610"},
    )  # fmt: skip
    monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))
    assert microseconds() == pytest.approx(77.0)
    monkeypatch.delenv("AISIM_V41_PATH")
    assert microseconds() == packaged != pytest.approx(77.0)


def test_between_measured_rows_it_lies_between_and_says_so():
    times = [
        next(k for k in kernels_of([Request(new_tokens=n)], "compress_project")
             if k.evidence.binding.features["outputs"] == 512)
        for n in (1024, 1500, 2048)
    ]  # fmt: skip
    low, middle, high = times
    assert middle.tag == "interpolated"
    assert low.seconds < middle.seconds < high.seconds
    assert middle.error_p90 > low.error_p90


def test_a_product_in_groups_or_with_a_fused_partner_is_not_taken_for_a_table_row():
    for operator in ("o_down", "q_down", "router_gate"):
        for kernel in kernels_of([Request(new_tokens=64)], operator):
            assert kernel.evidence.curve is None
            assert kernel.tag not in ("measured", "interpolated")


def test_blocks_of_128_never_stand_in_for_the_models_32():
    for kernel in kernels_of([Request(new_tokens=4096)], "o_up"):
        assert kernel.evidence.binding.key == "product.fp8"
        assert kernel.evidence.curve is None
        assert kernel.law.penalty > 0


def test_beyond_the_hull_is_tagged_wider_and_refused_on_request():
    inside, outside = ([Request(new_tokens=n)] for n in (4096, 40_000))
    (kernel,) = {k.law.key: k for k in kernels_of(outside, "o_up")}.values()
    assert kernel.tag == "extrapolated"
    assert kernel.error_p90 == pytest.approx(kernel.law.error_p90 + EXTRAPOLATION_PENALTY)
    assert "rows = 40000 lies outside 1 to 16384" in kernel.reason
    assert "rows" not in " ".join(k.reason for k in kernels_of(inside, "o_up"))
    answer = estimate(plan_of(outside), gpu(), method="op")
    assert any("o_up" in text and "40000" in text for text in answer.beyond)
    with pytest.raises(OutOfRangeError, match="lies outside"):
        estimate(plan_of(outside), gpu(), method="op", extrapolate=False)
    assert estimate(plan_of(outside), gpu(), method="sol", extrapolate=False).beyond == ()
    with pytest.raises(InvalidInputError, match="extrapolate"):
        estimate(plan_of(outside), gpu(), method="op", extrapolate="no")  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(requests=steps, name=policies)
def test_kernels_add_up_to_their_tasks(requests: list[Request], name: str):
    for on in GPUS:
        one = compiled(on, POLICIES[name])
        for _, counts in ledger(plan_of(requests, POLICIES[name])).passes:
            spent = one.task_seconds(counts.totals) * one.calls
            by_task = dict.fromkeys(range(len(one.tasks)), 0.0)
            for kernel in one.kernels(counts.totals):
                by_task[one.place_of(kernel.task)] += kernel.seconds
            assert list(by_task.values()) == pytest.approx(spent.tolist(), rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(rows=st.integers(1, 3_000_000))
def test_tabulated_tasks_follow_their_evidence(rows: int):
    """At knots exactly; between them within a part in a hundred."""
    one = compiled()
    counts = np.zeros(len(one.program.columns))
    counts[one.prices.curves.used] = rows
    tabulated = one.prices.curves.seconds(counts)
    exact = rows <= EVERY_ROW
    for row, price in enumerate(one.prices.curved):
        place = one.prices.first[price]
        direct = sum(float(k.seconds_of_rows(np.asarray(float(rows)))) for k in one.evidence[place])
        floor, call = one.prices.floor_of_rows(place)
        direct = max(direct, float((floor * rows + call).max()))
        # Measured rows may fall with size; a table of more rows never does.
        assert tabulated[row] >= direct * (1 - (1e-9 if exact else 0.01))
        assert tabulated[row] <= direct * 1.35


def test_tables_of_rows_never_fall():
    for on in GPUS:
        assert (np.diff(compiled(on).prices.curves.table, axis=1) >= 0).all()
        assert (compiled(on).prices.curves.table[:, 0] == 0).all()


def test_without_any_law_kernels_run_at_their_peak_and_say_so(monkeypatch: pytest.MonkeyPatch):
    known = op_compiled.load_calibration(gpu(), "sglang")
    empty = replace(known, laws={}, _by_ranks={})
    monkeypatch.setattr(op_compiled, "load_calibration", lambda hardware, engine: empty)
    runtime = policy("sglang", decode_streams="single")
    one = CompiledOp(model(), gpu(), Parallel(tp=4), runtime)
    step = [Request(new_tokens=6, prefix_tokens=4096, kind="verify", count=4)]
    (_, counts), *_ = ledger(plan_of(step, runtime)).passes
    found = [k for k in one.kernels(counts.totals) if k.task.collective is None]
    assert {kernel.tag for kernel in found} == {"theoretical"}  # messages follow from the links
    local = np.array([task.collective is None for task in one.tasks])
    peak = (one.resource_forms @ counts.totals).max(axis=1)[local] @ one.calls[local]
    assert sum(kernel.seconds for kernel in found) == pytest.approx(peak, rel=1e-9)


def test_a_users_calibration_holds_from_the_moment_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plan = plan_of([Request(new_tokens=64)], policy("sglang", prefill_execution="full_graph"))
    before = estimate(plan, gpu()).latency_s
    folder = tmp_path / "profiles/gb300/op"
    folder.mkdir(parents=True)
    packaged = (ROOT / "profiles/gb300/op/calibration.yaml").read_text(encoding="utf-8")
    slower = re.sub(r"launch_s: [0-9.e-]+", "launch_s: 1.0e-03", packaged)
    (folder / "calibration.yaml").write_text(slower, encoding="utf-8")
    monkeypatch.setenv("AISIM_V41_PATH", str(tmp_path))
    assert estimate(plan, gpu()).latency_s > 10 * before
    monkeypatch.delenv("AISIM_V41_PATH")
    assert estimate(plan, gpu()).latency_s == before


def test_coverage_accounts_for_every_kernel():
    step = [Request(new_tokens=2048), Request(new_tokens=6, prefix_tokens=4096, kind="verify")]
    plan = plan_of(step, policy("sglang", prefill_execution="full_graph"))
    table = coverage(plan, gpu())
    assert tuple(table.columns) == COLUMNS
    assert table["share"].sum() == pytest.approx(1.0)
    answer = estimate(plan, gpu(), method="op")
    assert table["time_ms"].sum() == pytest.approx(answer.to_frame()["time_ms"].sum(), rel=1e-9)
    shares = table.groupby("evidence")["share"].sum().to_dict()
    assert shares == pytest.approx(dict(answer.source_share))
    assert set(table["operator"]) == {row.operator for row in answer.rows}
    assert (table["error_p90"] >= table["error_median"]).all()
    assert list(table["time_ms"]) == sorted(table["time_ms"], reverse=True)


def test_coverage_names_the_case_that_would_fill_a_gap():
    table = coverage(plan_of([Request(new_tokens=1024)]), gpu()).set_index("operator")
    assert table.loc["o_up", "collector_case"] == (
        "gemm dtype=fp8_block32 operand=bf16 outputs=5120 inputs=2048 groups=1 rows=1024 "
        "execution=graph"
    )
    experts = table.loc["routed_experts", "collector_case"]
    assert "hidden=5120 expert_width=2304 tensor_parallel=4" in experts
    messages = table.loc["all_reduce_attention", "collector_case"]
    assert "all_reduce library=sglang ranks=4 message_bytes=10485760" in messages
    measured = table[table["evidence"] == "measured"]
    assert len(measured) >= 1
    assert (measured["collector_case"] == "").all()
    assert (table[table["evidence"] != "measured"]["collector_case"] != "").all()


@pytest.mark.parametrize("on", ["gb300", "b200", "h200"])
def test_the_error_in_the_middle_is_below_that_of_nine_in_ten(on: str):
    step = [Request(new_tokens=1, prefix_tokens=4096, kind="decode")]
    table = coverage(plan_of(step), gpu(on))
    assert "measured" in set(table["evidence"])
    assert (table["error_median"] <= table["error_p90"]).all()


def test_a_builds_own_product_is_measured_in_the_models_type():
    hopper = policy("sglang", build="sglang-2026-09-22-hopper")
    table = coverage(plan_of([Request(new_tokens=64)], hopper), gpu("h200"))
    own = table[table["law"] == "product.fp8_block32_triton"]
    assert len(own) > 3
    assert own["collector_case"].str.startswith("gemm dtype=fp8_block32 ").all()


def test_a_gpu_without_tables_has_everything_to_measure():
    table = coverage(plan_of([Request(new_tokens=64)]), gpu("mi355x"))
    assert set(table["evidence"]) == {"default"}
    assert (table["collector_case"] != "").all()
    assert (table["rows_fitted"] == 0).all()
