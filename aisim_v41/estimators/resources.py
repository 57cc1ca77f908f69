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
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import MUST_CROSS_HBM, Collective, Columns, Task
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


RESOURCES: Final = tuple(Resource)


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds on each resource; ``certain`` counts only what no cache or fusion can avoid."""

    seconds: Mapping[Resource, Columns]
    certain: Mapping[Resource, Columns]


def link_bytes_factor(collective: Collective, group: int, *, in_network: bool) -> float:
    """Bytes [B] that one rank must send or receive for each byte of payload.

    All-reduce: every rank's partial sums leave it and the result comes back. Without reduction in
    the network each direction carries 2 (g - 1)/g of the payload (reduce-scatter, all-gather);
    with it, at least (g - 1)/g. All-gather: a rank receives what it does not hold, (g - 1)/g.
    What is left out: docs/assumptions.md, "Collectives".
    """
    share = (group - 1) / group
    return share * (2 if collective is Collective.ALL_REDUCE and not in_network else 1)


def link_bandwidth(hardware: Hardware, group: int) -> float:
    """Bandwidth [B/s] that joins ``group`` GPUs, one direction of one GPU.

    Raises:
        UnsupportedPlanError: the group is larger than a link domain, or the GPU has no link.
    """
    if hardware.link_domain_gpus == 1 or hardware.link_bytes_per_s is None:
        if hardware.nic_bytes_per_s is None:
            raise UnsupportedPlanError(
                f"tp = {group} on {hardware.name}: no link or network between GPUs is known; give "
                "links.scale_up_gb_per_s or links.nic_gb_per_s in the hardware file, or use tp=1"
            )
        return hardware.nic_bytes_per_s
    if group > hardware.link_domain_gpus:
        raise UnsupportedPlanError(
            f"tp = {group} on {hardware.name}: a link domain has {hardware.link_domain_gpus} GPUs; "
            f"use tp <= {hardware.link_domain_gpus}"
        )
    return hardware.link_bytes_per_s


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
    link: dict[Column, Number] = {}
    if task.collective is not None:
        factor = link_bytes_factor(
            task.collective, task.group, in_network=hardware.in_network_reduction
        )
        _add(link, task.payload, factor / link_bandwidth(hardware, task.group))
    work_and_link = {Resource.TENSOR: tensor, Resource.SCALAR: scalar, Resource.LINK: link}
    return Price(
        seconds=work_and_link | {Resource.HBM: all_bytes},
        certain=work_and_link | {Resource.HBM: must},
    )


def _add(total: dict[Column, Number], amount: Columns, factor: float) -> None:
    for column, value in amount.items():
        total[column] = total.get(column, 0) + value * factor
