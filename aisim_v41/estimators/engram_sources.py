"""Where Engram rows come from when the tables are not in GPU memory, and how fast.

A ceiling is what the hardware file gives: the slowest of the GPU's link to its host, its share of
the host's memory, and, where both are one memory, that. A likely rate takes what the file quotes as
achieved on the link. No file has a disk, so its figures are given (docs/updates.md, "Engram").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.hardware import Hardware
from aisim_v41.units import GB_PER_S, KIB

_ACHIEVED = "links.host_link_achieved_gb_per_s"
_HOST_RATE = "host.memory_bandwidth_gb_per_s"
_SHARED_BY = "host.memory_shared_by_gpus"
PAGE_BYTES = 4 * KIB
"""What a file system reads at least."""
PAGES_PER_ROW = 2
"""Values and scales of a row lie apart in the checkpoint (model-facts §2)."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A GPU's share of the disks that hold the tables.

    Args:
        bytes_per_s: sequential rate [B/s].
        reads_per_s: random reads of a page that it serves; None: as many as fit its rate.
        page_bytes: bytes that one read moves [B].
        pages_per_row: pages that one row touches; 1 where values and scales were packed together.

    Raises:
        InvalidInputError: a figure that no disk has.
    """

    bytes_per_s: float
    reads_per_s: float | None = None
    page_bytes: int = PAGE_BYTES
    pages_per_row: int = PAGES_PER_ROW

    def __post_init__(self) -> None:
        for name in ("bytes_per_s", "reads_per_s", "page_bytes", "pages_per_row"):
            value = getattr(self, name)
            if value is None and name == "reads_per_s":
                continue
            whole = name.startswith("page")
            if isinstance(value, bool) or not isinstance(value, (int,) if whole else (int, float)):
                raise InvalidInputError(
                    f"Disk.{name} = {value!r}: must be a {'whole ' if whole else ''}number"
                )
            if not (math.isfinite(value) and value > 0):
                raise InvalidInputError(f"Disk.{name} = {value!r}: must be finite and above 0")

    def bytes(self, rows: float) -> float:
        """What reading so many different rows moves [B]."""
        return rows * self.pages_per_row * self.page_bytes

    def seconds(self, rows: float) -> float:
        """How long that takes at least [s]."""
        by_rate = self.bytes(rows) / self.bytes_per_s
        if self.reads_per_s is None:
            return by_rate
        return max(by_rate, rows * self.pages_per_row / self.reads_per_s)


def host_rate(hardware: Hardware, *, likely: bool) -> Rate:
    """How fast host memory reaches one GPU when all GPUs of the host read at once.

    Args:
        hardware: from `load_hardware`.
        likely: take the achieved rate of the link, where the file quotes one, not its peak.

    Raises:
        MissingProfileError: the file has no link to the host.

    >>> from aisim_v41.hardware import load_hardware
    >>> host_rate(load_hardware("gb300"), likely=True).bytes_per_s
    170000000000.0
    """
    if hardware.host_link_bytes_per_s is None:
        raise MissingProfileError(
            f"{hardware.name} has no figure for the link to its host: add "
            "links.host_link_gb_per_s to its file, or keep the tables in GPU memory "
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
