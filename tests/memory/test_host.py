"""Tables outside the GPUs and what loading needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.memory.capacity import CapacityReport, capacity
from aisim_v41.memory.terms import Place, total
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import policy
from aisim_v41.units import GIB, MIB

TABLES = 202_758_032_400


def report(
    model: Model, hardware: Hardware, tp: int = 4, arguments: Any = None, **overrides: Any
) -> CapacityReport:
    chosen = policy("vllm", **overrides)
    return capacity(model, hardware, Parallel(tp=tp), chosen, **(arguments or {}))


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_shards_add_up_to_one_copy(model: Model, tp: int) -> None:
    host = report(model, load_hardware("b300"), tp, engram_residency="host_sharded").host
    assert TABLES <= host.bytes <= TABLES + tp * 2 * 264  # rows that do not divide are rounded up
    assert host.fits


def test_data_parallel_groups_keep_their_own(model: Model) -> None:
    chosen = policy("vllm", engram_residency="host_sharded")
    host = capacity(model, load_hardware("b300"), Parallel(tp=2, dp=4, ep=8), chosen).host
    assert host.bytes == pytest.approx(4 * TABLES, rel=1e-6)


def test_huge_pages_round_each_tensor_of_each_rank(model: Model) -> None:
    """Values of a quarter: 11,718.9 and 11,719.3 pages of 2 MiB; scales: 366.2 each."""
    host = report(
        model, load_hardware("b300"), engram_residency="host_sharded", engram_host_pages="huge"
    ).host
    assert host.bytes == 4 * (11_719 + 11_720 + 2 * 367) * (2 << 20)
    assert "whole pages of 2 MiB" in host.terms[0].formula


def test_a_shared_copy_per_host(model: Model) -> None:
    for hosts in (1, 2):
        arguments = {"hosts": hosts}
        found = report(
            model, load_hardware("b300"), 8, arguments, engram_residency="host_shared"
        ).host
        assert found.bytes == hosts * TABLES


def test_resident_or_on_disk_takes_no_host_memory(model: Model) -> None:
    for residency in ("hbm", "disk"):
        found = report(model, load_hardware("b300"), engram_residency=residency)
        assert found.host.bytes == 0
        assert sum(t.bytes for t in found.disk) == (TABLES if residency == "disk" else 0)


def test_pinned_tensors_rounded_to_powers_of_two(model: Model) -> None:
    """264 GiB pinned for 188.8 GiB of tables (P0717).

    8 ranks x 2 tables x (11.44 GiB of values -> 16 and 0.36 GiB of scales -> 0.5).
    """
    host = report(
        model, load_hardware("b300"), 8,
        engram_residency="host_sharded", engram_host_pages="power_of_two",
    ).host  # fmt: skip
    assert host.bytes == 264 * GIB


def test_a_small_node_kills_the_workers_while_loading(model: Model) -> None:
    """Deployment question 20: 4 x H20 (96 GB), 587 GiB of RAM, TP 4, tables on the host.

    The GPUs hold their 81 GiB. The host keeps 189 GiB of tables, or 264 as pinned memory is
    allocated; with the weights of every rank staged once that is all there is.
    """
    h20 = replace(load_hardware("h200"), hbm_bytes=int(95.5 * GIB), host_memory_bytes=None)
    unknown = report(model, h20, engram_residency="host_sharded").host
    assert (unknown.fits, unknown.loads) == (None, None)
    assert "not known" in unknown.verdict
    found = report(
        model, h20, arguments={"host_memory_bytes": 587 * GIB},
        engram_residency="host_sharded", engram_host_pages="power_of_two", wo_a="bf16",
        speculation="dspark",
    )  # fmt: skip
    assert found.weights_bytes < 0.9 * h20.hbm_bytes
    assert found.host.fits
    assert found.host.load_bytes > 587 * GIB
    assert found.host.loads is False
    assert "loading may be killed" in found.host.verdict
    # 143.2 GiB of shared memory a worker in the report of it
    assert found.host.load_bytes / 4 / GIB == pytest.approx(143.2, rel=0.04)


def test_tables_that_do_not_fit_the_host_fail_the_start(model: Model) -> None:
    arguments = {"host_memory_bytes": 150 * GIB}
    found = report(model, load_hardware("b300"), 8, arguments, engram_residency="host_sharded")
    assert not found.starts
    assert found.failing == "Engram tables in host memory"
    assert found.short_bytes == found.host.bytes - 150 * GIB


def test_unified_memory_is_one_budget(model: Model) -> None:
    gb10 = load_hardware("gb10")
    host = report(model, gb10, 8, engram_residency="host_sharded")
    here = report(model, gb10, 8, engram_residency="hbm")
    assert host.host.unified
    assert host.host.bytes == 0
    assert host.weights_bytes == here.weights_bytes
    assert "shared with the GPU" in host.host.verdict


# --- caches of hot rows --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("residency", "gpu_mib", "host_mib"),
    [("hbm", 0, 0), ("host_sharded", 512, 0), ("host_shared", 512, 0), ("disk", 0, 4 * 512)],
)
def test_a_cache_is_where_rows_come_next(
    model: Model, residency: str, gpu_mib: int, host_mib: int
) -> None:
    """Of host tables in GPU memory, of tables on disk in host memory, once a rank."""

    def places(size: int) -> tuple[int, int, int]:
        overrides = {"engram_residency": residency, "engram_cache_mib": size}
        found = report(model, load_hardware("b200"), **overrides)
        return total(found.budget.charged), found.host.bytes, found.kv_bytes

    (with_gpu, with_host, with_kv), (gpu, host, kv) = places(512), places(0)
    assert with_gpu - gpu == kv - with_kv == gpu_mib * MIB
    assert with_host - host == host_mib * MIB


def test_where_there_is_one_memory_every_cache_is_in_it(model: Model) -> None:
    spark = load_hardware("gb10")
    for residency in ("host_shared", "disk"):
        found = report(model, spark, engram_residency=residency, engram_cache_mib=64)
        (term,) = (term for term in found.terms if term.name == "cache of Engram rows")
        assert (term.bytes, term.place) == (64 * MIB, Place.GPU)
