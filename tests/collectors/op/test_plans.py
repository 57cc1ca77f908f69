"""Plans: knees, order, worth, memory, minutes; reports of coverage; files that are none."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41 import resources
from collectors.case import Case
from collectors.errors import InputError
from collectors.op import planning
from collectors.op.grid import KNEES, Workload, levels, points_of
from collectors.op.kinds.registry import KINDS
from collectors.op.planning import make_plan, start_minutes, summary, text, value_after
from collectors.op.shapes import CONFIG, lines_of, read_config
from collectors.op.value import read_coverage
from collectors.plan_file import PlanFile


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    planning.add_arguments(parser)
    return parser.parse_args(given)


@pytest.fixture(scope="module")
def plan() -> PlanFile:
    return make_plan(arguments("--gpu", "gb300", "--tp", "4"))


def test_the_config_is_the_librarys():
    published = resources.find("profiles", "deepseek-v4.1-flash/config", ".json")
    assert CONFIG.read_bytes() == published.read_bytes()


def test_shapes_by_hand():
    """TP4: 64 heads of 512 are 8,192 columns a GPU, wo_a has two groups, a slice is 576."""
    lines = {line.base.text for line in lines_of(read_config(), engine="sglang", tp=4)}
    ready = "gemm dtype=fp8_block32 operand=quantised"
    for text_of in (
        f"{ready} inputs=1280 outputs=8192", f"{ready} inputs=5120 outputs=1152",
        f"{ready} inputs=576 outputs=5120",
        "gemm dtype=bf16 operand=bf16 groups=2 inputs=4096 outputs=2048",
        "gemm dtype=bf16 operand=bf16 inputs=5120 outputs=32320",
        "sparse_attention layout=bytes288 heads=16", "all_reduce library=nccl ranks=4",
        "mhc_fused hidden=5120", "engram_gate hidden=5120",
    ):  # fmt: skip
        assert text_of in lines


def test_knees_are_measured(plan: PlanFile):
    cases = [planned.case for planned in plan.cases]
    rows = {case.sizes["rows"] for case in cases if case.operator == "site_norm"}
    assert set(KNEES["rows"]) <= rows
    assert {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 8192} <= rows
    keys = {c.sizes["keys_per_row"] for c in cases if c.operator == "sparse_attention"}
    assert set(KNEES["keys_per_row"]) <= keys
    scored = {c.sizes["positions_per_row"] for c in cases if c.operator == "index_score"}
    assert set(KNEES["positions_per_row"]) <= scored
    pools = {c.sizes["positions_per_row"] for c in cases if c.options.get("form") == "candidates"}
    assert max(pools) == 16_384


def test_any_beginning_is_a_coarser_grid(plan: PlanFile):
    """Once a line of one axis has begun its second level, both of its ends are there."""
    lines: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    for planned in plan.cases:
        whole.setdefault(planned.line, []).append(float(planned.case.sizes.get("rows", 0)))
    for planned in plan.cases:
        seen = lines.setdefault(planned.line, [])
        seen.append(float(planned.case.sizes.get("rows", 0)))
        if len(seen) > 2 and "rows" in planned.case.sizes and len(set(whole[planned.line])) > 2:
            ends = {min(whole[planned.line]), max(whole[planned.line])}
            if len(set(whole[planned.line])) == len(whole[planned.line]):
                assert ends <= set(seen)


@given(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=40))
def test_levels_begin_with_the_ends_and_halve(sizes: list[int]):
    found = dict(levels(sizes))
    ordered = sorted(set(sizes))
    assert set(found) == set(ordered)
    assert found[ordered[0]] == found[ordered[-1]] == 0
    assert sum(level == 0 for level in found.values()) <= 2
    for level in range(1, max(found.values()) + 1):
        assert sum(one == level for one in found.values()) <= 1 << (level - 1)


def test_worth_and_minutes_add_up(plan: PlanFile):
    told = summary(plan)
    worth = [value_after(plan, minutes) for minutes in (0.5, 1, 3, 10, 1e9)]
    assert worth == sorted(worth)
    assert worth[-1] == pytest.approx(told["value"])
    assert 0.9 < told["value"] <= 1.0
    cases = sum(planned.minutes for planned in plan.cases)
    assert told["minutes"] == pytest.approx(cases + start_minutes(plan))
    assert sum(int(entry["cases"]) for entry in told["operators"].values()) == len(plan.cases)
    assert "uncertainty removed after" in text(plan)


def test_bounds_are_those_of_the_gpu(plan: PlanFile):
    norm = next(p for p in plan.cases if p.case.operator == "site_norm"
                and p.case.sizes["rows"] == 8192)  # fmt: skip
    gpu = aisim.load_hardware("gb300")
    moved = 8192 * 5120 * 2 * 2 + 5120 * 2
    assert norm.sol_us == pytest.approx(moved / gpu.hbm_bandwidth_bytes_per_s * 1e6)


def test_minutes_are_kept():
    short = make_plan(arguments("--gpu", "gb300", "--minutes", "3"))
    assert summary(short)["minutes"] <= 3.0
    assert len(short.skipped) > 100
    with pytest.raises(InputError, match="not one case fits"):
        make_plan(arguments("--minutes", "0.0001"))


def test_memory_that_a_gpu_has_not_is_left_out():
    whole = make_plan(arguments("--gpu", "rtx_4090", "--tp", "1"))
    assert all(one.memory_bytes < 24e9 for one in whole.cases)
    assert any("GB of memory" in one["reason"] for one in whole.skipped)
    with pytest.raises(InputError, match="GB of memory"):
        make_plan(arguments("--gpu", "rtx_4090", "--tp", "1", "--only", "routed_experts"))


def test_what_is_missing_is_filled(tmp_path: Path):
    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
    step = [aisim.Request(new_tokens=1, prefix_tokens=5000, kind="decode", count=24)]
    frame = aisim.coverage(
        aisim.Plan(model, step, parallel=aisim.Parallel(tp=4), policy=aisim.policy("sglang")), gpu
    )
    frame.to_csv(tmp_path / "c.csv", index=False)
    found = make_plan(arguments("--gpu", "gb300", "--coverage", str(tmp_path / "c.csv")))
    texts = {planned.case.text for planned in found.cases}
    wanted, skipped = read_coverage(tmp_path / "c.csv")
    assert not skipped
    assert {one.case.text for one in wanted} <= texts
    assert any(case.case.sizes.get("rows") == 24 for case in found.cases)
    assert summary(found)["value"] <= 1.0 + 1e-9
    by_operator = summary(found)["operators"]
    assert max(by_operator, key=lambda name: by_operator[name]["value"]) == "routed_experts"


@pytest.mark.parametrize(
    "text_of",
    ["", "{", "[1]", '{"kernels": [{"collector_case": "gemm rows=1"}]}', "a,b\n1,2\n",
     '{"kernels": [{"collector_case": "embedding rows=1", "share": -1, "error_p90": 1}]}'],
)  # fmt: skip
def test_other_reports_are_refused_or_skipped(tmp_path: Path, text_of: str):
    (tmp_path / "c.json").write_text(text_of)
    try:
        wanted, skipped = read_coverage(tmp_path / "c.json")
    except InputError:
        return
    assert not wanted
    assert skipped


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"n_routed_experts": 0}, "n_routed_experts"),
        ({"kv_source_layer_ids": 3}, "kv_source_layer_ids"),
        ({"vocab_size": True}, "vocab_size"),
    ],
)
def test_configs_are_checked(tmp_path: Path, changed: dict[str, Any], said: str):
    whole = json.loads(CONFIG.read_text())
    whole["text_config"].update(changed)
    (tmp_path / "config.json").write_text(json.dumps(whole))
    with pytest.raises(InputError, match=said):
        make_plan(arguments("--config", str(tmp_path / "config.json")))


@given(st.integers(1, 4096), st.integers(1, 20_000), st.integers(1, 300_000))
def test_any_workload_makes_sensible_points(batch: int, chunk: int, context: int):
    workload = Workload(batch, chunk, context)
    for line in lines_of(read_config(), tp=4)[:16]:
        for point in points_of(line, workload):
            case = line.base.having(**point.sizes)
            assert KINDS[line.base.operator].complete(case)
            assert point.sizes.get("rows", 1) <= max(batch, chunk, 1026)


def test_plan_files_come_back_and_others_are_refused(tmp_path: Path, plan: PlanFile):
    plan.write(tmp_path / "p.json")
    again = PlanFile.read(tmp_path / "p.json")
    assert again.digest == plan.digest
    assert [one.case for one in again.cases] == [one.case for one in plan.cases]
    whole = json.loads((tmp_path / "p.json").read_text())
    broken: list[Any] = [
        [], {**whole, "format": "x"}, {**whole, "version": 2}, {**whole, "cases": 3},
        {**whole, "header": {"gpu": "other"}}, {**whole, "cases": [*whole["cases"], 3]},
        {**whole, "cases": [*whole["cases"], whole["cases"][0]]},
        {**whole, "cases": [{**whole["cases"][0], "minutes": -1}]},
    ]  # fmt: skip
    for one in broken:
        (tmp_path / "q.json").write_text(json.dumps(one))
        with pytest.raises(InputError):
            PlanFile.read(tmp_path / "q.json")


def test_order_does_not_change_a_plans_digest(plan: PlanFile):
    reversed_ = PlanFile(plan.header, list(plan.cases)[::-1], plan.skipped)
    assert reversed_.digest == plan.digest
    fewer = PlanFile(plan.header, list(plan.cases)[1:], plan.skipped)
    assert fewer.digest != plan.digest
    assert Case.from_text(plan.cases[0].case.text) == plan.cases[0].case
