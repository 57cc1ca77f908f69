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
from aisim_v41.estimators.messages import seconds_by_level
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import MUST_CROSS_HBM, Columns, Task
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
    for arithmetic, work in task.flops.items():
        peak, used = hardware.peak(arithmetic)
        _add(scalar if used is Arithmetic.FP32 else tensor, work, 1 / peak)
    all_bytes: dict[Column, Number] = {}
    must: dict[Column, Number] = {}
    for kind, amount in task.traffic.items():
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
    return Price(
        seconds={**units, **sent, Resource.HBM: all_bytes},
        certain={**units, **surely_sent, Resource.HBM: must},
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


def _add(total: dict[Column, Number], amount: Columns, factor: float) -> None:
    for column, value in amount.items():
        total[column] = total.get(column, 0) + value * factor
