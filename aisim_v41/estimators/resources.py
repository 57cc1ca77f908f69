"""What a task costs on a GPU: seconds on each resource, as linear forms of the ledger.

Only peaks enter: dense FLOP/s at the right precision, memory and link bandwidth. No efficiency
factor (docs/assumptions.md, "SOL").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.estimators.engram_sources import disk_page_seconds, host_rate
from aisim_v41.estimators.messages import seconds_by_level
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import (
    MUST_CROSS_HBM,
    NOT_FROM_HBM,
    PAGE_BYTES,
    Columns,
    Task,
    Traffic,
)
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Number


class Resource(StrEnum):
    """Parts of a GPU that work at the same time as each other."""

    TENSOR = "tensor"
    """Matrix units; every precision occupies the same ones."""
    SCALAR = "scalar"
    """FP32 pipelines outside the matrix units."""
    HBM = "hbm"
    LINK = "link"
    """Scale-up link, one direction."""
    NETWORK = "network"
    """A GPU's share of the scale-out network, one direction: between link domains."""
    HOST_LINK = "host_link"
    """Host memory to GPU: C2C or PCIe."""
    DISK = "disk"
    """A GPU's share of its host's disks."""


RESOURCES: Final = tuple(Resource)


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds on each resource; ``certain`` counts only what no cache or fusion can avoid."""

    seconds: Mapping[Resource, Columns]
    certain: Mapping[Resource, Columns]


def price(task: Task, hardware: Hardware) -> Price:
    """Seconds of a task on each resource at peak."""
    tensor: dict[Column, Number] = {}
    scalar: dict[Column, Number] = {}
    for arithmetic, flops in task.flops.items():
        peak, used = hardware.peak(arithmetic)
        _add(scalar if used is Arithmetic.FP32 else tensor, flops, 1 / peak)
    all_bytes: dict[Column, Number] = {}
    must: dict[Column, Number] = {}
    for kind, amount in task.traffic.items():
        if kind in NOT_FROM_HBM:
            continue
        _add(all_bytes, amount, 1 / hardware.hbm_bandwidth_bytes_per_s)
        if kind in MUST_CROSS_HBM:
            _add(must, amount, 1 / hardware.hbm_bandwidth_bytes_per_s)
    link, network = _message(task, hardware)
    units: dict[Resource, Columns] = {Resource.TENSOR: tensor, Resource.SCALAR: scalar}
    sent: dict[Resource, Columns] = {Resource.LINK: link, Resource.NETWORK: network}
    # Rows of an all-to-all may all find their experts where they are.
    surely_sent: dict[Resource, Columns] = (
        {Resource.LINK: {}, Resource.NETWORK: {}} if task.scatter else sent
    )
    fetched = _from_elsewhere(task, hardware)
    surely_fetched: dict[Resource, Columns] = {Resource.HOST_LINK: {}, Resource.DISK: {}}
    return Price(
        seconds={**units, **sent, **fetched, Resource.HBM: all_bytes},
        certain={**units, **surely_sent, **surely_fetched, Resource.HBM: must},
    )


def _message(task: Task, hardware: Hardware) -> tuple[Columns, Columns]:
    """Seconds of a task's message on links and network."""
    link: dict[Column, Number] = {}
    network: dict[Column, Number] = {}
    if task.collective is not None:
        by = seconds_by_level(hardware, task.collective, task.group, task.scatter)
        _add(link, task.payload, by.link)
        if by.network:
            _add(network, task.payload, by.network)
    return link, network


def _from_elsewhere(task: Task, hardware: Hardware) -> dict[Resource, Columns]:
    """Seconds of rows from the host's memory and disks; a cache may hold any of them.

    Raises:
        UnsupportedPlanError: the hardware file lacks the rate.
    """
    host: dict[Column, Number] = {}
    disk: dict[Column, Number] = {}
    if task.traffic[Traffic.HOST_READ]:
        rate = host_rate(hardware, likely=False).bytes_per_s
        _add(host, task.traffic[Traffic.HOST_READ], 1 / rate)
    if task.traffic[Traffic.DISK_READ]:
        seconds = disk_page_seconds(hardware)
        _add(disk, task.traffic[Traffic.DISK_READ], seconds / PAGE_BYTES)
    return {Resource.HOST_LINK: host, Resource.DISK: disk}


def _add(total: dict[Column, Number], amount: Columns, factor: float) -> None:
    for column, value in amount.items():
        total[column] = total.get(column, 0) + value * factor
