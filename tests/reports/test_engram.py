"""Residencies side by side, and the rows of a text, as people read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.engram import engram
from aisim_v41.reports.engram import compare_residencies, engram_text, table_memory
from aisim_v41.reports.engram_text import count_text
from aisim_v41.units import GIB

MODEL = aisim.load_model("deepseek-v4.1-flash")
TABLES = 202_758_032_400
WIDTH = 120


def plan(residency="hbm", tp=4):
    return aisim.Plan(
        MODEL,
        [aisim.Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=32)],
        parallel=aisim.Parallel(tp=tp),
        policy=aisim.policy("sglang", engram_residency=residency),
    )


def test_each_residency_is_the_plan_with_its_tables_there():
    gpu = replace(aisim.load_hardware("b200"), disk_bytes_per_s=6e9)
    compared = compare_residencies(plan(), gpu)
    frame = compared.to_frame()
    assert list(frame.residency) == ["hbm", "host_sharded", "host_shared", "disk"]
    for row, report in zip(frame.itertuples(), compared.reports, strict=True):
        alone = engram(plan(row.residency), gpu)
        assert row.step_ms == alone.step_s * 1e3
        assert report.modules == alone.modules
        assert row.moved_mb == pytest.approx((alone.link_bytes + alone.disk_bytes) / 1e6)


def test_memory_moves_from_gpus_to_hosts_to_disk():
    gpu = aisim.load_hardware("b200")
    memory = {name: table_memory(plan(name), gpu) for name in
              ("hbm", "host_sharded", "host_shared", "disk")}  # fmt: skip
    assert memory["hbm"].gpu_bytes / GIB == pytest.approx(2 * 23.604, abs=0.001)
    assert memory["hbm"].host_bytes == memory["hbm"].disk_bytes == 0
    assert TABLES <= memory["host_sharded"].host_bytes <= TABLES + 4 * 2 * 264
    assert memory["host_shared"].host_bytes == TABLES
    assert memory["disk"].disk_bytes == TABLES
    assert all(memory[name].gpu_bytes == 0 for name in memory if name != "hbm")


def test_one_memory_holds_host_tables_beside_the_weights():
    spark = aisim.load_hardware("gb10")
    assert table_memory(plan("host_shared", tp=1), spark).gpu_bytes == TABLES
    assert table_memory(plan("disk", tp=1), spark).gpu_bytes == 0


def test_a_shared_copy_trades_a_sum_for_bytes():
    frame = compare_residencies(plan(), aisim.load_hardware("b200")).to_frame()
    frame = frame.set_index("residency")
    assert len(frame) == 3
    assert frame.collective_ms["host_shared"] == 0 < frame.collective_ms["host_sharded"]
    assert frame.moved_mb["host_shared"] == pytest.approx(4 * frame.moved_mb["host_sharded"])


def test_unknown_residencies_are_refused():
    gpu = aisim.load_hardware("b200")
    with pytest.raises(InvalidInputError, match="host_shared"):
        compare_residencies(plan(), gpu, residencies=("ram",))
    with pytest.raises(InvalidInputError, match="must be some of"):
        compare_residencies(plan(), gpu, residencies=())
    with pytest.raises(UnsupportedPlanError, match=r"host\.disk_gb_per_s"):
        compare_residencies(plan(), gpu, residencies=("disk",))


def test_texts_fit_a_terminal_and_hold_the_numbers():
    gpu = aisim.load_hardware("gb300")
    compared = compare_residencies(plan(), gpu)
    text = compared.text()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "from the host 170 GB/s a GPU (host link, achieved)" in text
    for report in compared.reports:
        assert f"{report.residency} " in text
        assert f"{report.step_s * 1e3:.3f}" in text
    detail = engram_text(compared.reports[2])
    assert max(map(len, detail.splitlines())) <= WIDTH
    assert f"step {compared.reports[2].step_s * 1e3:.3f} ms" in detail
    assert "likely" in detail
    assert "at least" in engram_text(engram(plan(), gpu, "sol"))


def test_text_of_a_count():
    counted = count_text(
        MODEL, [[7] * 400, [8] * 100], chunk_tokens=50, cache_bytes=1000 * 264 + 263
    )
    assert counted.cache.capacity == 1000
    assert counted.rows.lookups == 500 * 48
    assert counted.to_dict()["cache"]["hits"] == counted.cache.hits > 0
    shown = counted.text()
    assert "24,000 rows looked up" in shown
    assert "upper limits" in shown
    assert "and 4 more" in shown
    assert f"has {counted.cache.hit_share:.3f} of what" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH
    classes = [item % 99_092 for item in range(MODEL.vocab)]
    mapped = count_text(MODEL, [[7]], chunk_tokens=1, classes=classes)
    assert mapped.cache is None
    assert "classes of the tokenizer" in mapped.text()
