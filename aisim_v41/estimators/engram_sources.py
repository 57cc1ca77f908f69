"""How fast Engram rows reach a GPU when the tables are not in its memory.

A ceiling is what the hardware file gives: the slowest of the GPU's link to its host, its share of
the host's memory, and, where both are one memory, that. A likely rate takes what the file quotes as
achieved on the link. Disks serve whole pages (docs/updates.md, "Engram").
"""

from __future__ import annotations

from dataclasses import dataclass

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import PAGE_BYTES
from aisim_v41.units import GB_PER_S

_ACHIEVED = "links.host_link_achieved_gb_per_s"
_HOST_RATE = "host.memory_bandwidth_gb_per_s"
_SHARED_BY = "host.memory_shared_by_gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast rows reach one GPU.

    Attributes:
        bytes_per_s: the slowest part of the way [B/s].
        limit: that part, and where its figure is from.
    """

    bytes_per_s: float
    limit: str

    @property
    def gb_per_s(self) -> float:
        """The same [GB/s]."""
        return self.bytes_per_s / GB_PER_S


def host_rate(hardware: Hardware, *, likely: bool) -> Rate:
    """How fast host memory reaches one GPU when all GPUs of the host read at once.

    Args:
        hardware: from `load_hardware`.
        likely: take the achieved rate of the link, where the file quotes one, not its peak.

    Raises:
        UnsupportedPlanError: the file has no link to the host.

    >>> from aisim_v41.hardware import load_hardware
    >>> host_rate(load_hardware("gb300"), likely=True).bytes_per_s
    170000000000.0
    """
    if hardware.host_link_bytes_per_s is None:
        raise UnsupportedPlanError(
            f"{hardware.name} has no figure for the link to its host: give "
            "links.host_link_gb_per_s in the hardware file, or keep the tables in GPU memory "
            "(engram_residency='hbm')"
        )
    printed = {figure.path: figure.value for figure in hardware.figures}
    ways = [Rate(bytes_per_s=hardware.host_link_bytes_per_s, limit="host link, peak")]
    achieved = printed.get(_ACHIEVED)
    if likely and isinstance(achieved, (int, float)):
        ways.append(Rate(bytes_per_s=achieved * GB_PER_S, limit="host link, achieved"))
    memory, gpus = printed.get(_HOST_RATE), printed.get(_SHARED_BY)
    if isinstance(memory, (int, float)) and isinstance(gpus, (int, float)):
        ways.append(Rate(bytes_per_s=memory * GB_PER_S / gpus, limit="share of host memory"))
    ways.append(Rate(bytes_per_s=hardware.hbm_bandwidth_bytes_per_s, limit="GPU memory"))
    return min(ways, key=lambda way: way.bytes_per_s)


def disk_page_seconds(hardware: Hardware) -> float:
    """Time of one page from a GPU's share of the disks [s]: by their rate, and by the random reads
    that they serve where the file says.

    Raises:
        UnsupportedPlanError: the file has no disk.
    """
    if hardware.disk_bytes_per_s is None:
        raise UnsupportedPlanError(
            f"{hardware.name} has no figure for the disks of its host: give host.disk_gb_per_s "
            "(and host.disk_reads_per_s) in the hardware file, or put the tables elsewhere "
            "(engram_residency)"
        )
    by_rate = PAGE_BYTES / hardware.disk_bytes_per_s
    reads = hardware.disk_reads_per_s
    return by_rate if reads is None else max(by_rate, 1 / reads)
