"""Ways that state travels, and how fast: to a GPU from its host, a disk, or another machine.

Rates come from the hardware file or are given; no file has a disk. What a small message takes to
begin (``start_s``) is in no file either and 0 unless given (docs/assumptions.md, "Moving state").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from aisim_v41.caching.kinds import require_kind
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.engram_sources import host_rate
from aisim_v41.hardware import Hardware
from aisim_v41.units import GB_PER_S

HOST, DISK, NETWORK, PEER = "host", "disk", "network", "peer"
WAYS = (HOST, DISK, NETWORK, PEER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How fast one GPU gets its copy while every other rank gets its own.

    Args:
        name: such as "host".
        bytes_per_s: of one copy [B/s].
        start_s: before the first byte of a transfer [s].
        limit: what the rate is that of, in words.

    Raises:
        InvalidInputError: a figure that no link has.
    """

    name: str
    bytes_per_s: float
    start_s: float = 0.0
    limit: str = "given"

    def __post_init__(self) -> None:
        for name, low in (("bytes_per_s", "above 0"), ("start_s", "0 or more")):
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, (int, float))
            if wrong or not math.isfinite(value) or value < 0 or (value == 0 and "above" in low):
                raise InvalidInputError(f"Way.{name} = {value!r}: must be finite and {low}")

    def seconds(self, moved: float) -> float:
        """Time of one transfer [s]; nothing takes none."""
        return self.start_s + moved / self.bytes_per_s if moved else 0.0

    def shared_by(self, copies: int) -> Way:
        """The same way when one sender's link carries so many copies, one after another."""
        return self if copies <= 1 else replace(self, bytes_per_s=self.bytes_per_s / copies)


def way_to(
    hardware: Hardware,
    name: str,
    *,
    bytes_per_s: float | None = None,
    start_s: float = 0.0,
    likely: bool = True,
) -> Way:
    """A way by name.

    Args:
        hardware: from `load_hardware`.
        name: "host" (CPU memory over C2C or PCIe), "disk" (of the host, read once for all ranks,
            then over the host link), "network" (a GPU's share of the scale-out network) or "peer"
            (GPUs of the same link domain).
        bytes_per_s: instead of the file's figure [B/s]; of a disk that of all its host's GPUs.
        start_s: see `Way`.
        likely: what the file quotes as achieved on the host link, not its peak.

    Raises:
        InvalidInputError: no `Hardware`, no such way, or a figure that no link has.
        UnsupportedPlanError: the file has no figure and none was given.

    Example:
        >>> from aisim_v41.hardware import load_hardware
        >>> way_to(load_hardware("gb300"), "host").bytes_per_s
        170000000000.0
    """
    require_kind("hardware", hardware, Hardware)
    if not isinstance(name, str) or name not in WAYS:
        raise InvalidInputError(f"way {name!r}: must be one of {', '.join(WAYS)}")
    given = (
        None if bytes_per_s is None else Way(name=name, bytes_per_s=bytes_per_s, start_s=start_s)
    )
    if name == DISK:
        if given is None:
            raise UnsupportedPlanError(
                f"way 'disk': {hardware.name} has no figure for a disk; give its rate "
                "(bytes_per_s, in the shell --gb-per-s)"
            )
        link = host_rate(hardware, likely=likely)
        if link.bytes_per_s < given.bytes_per_s:
            return replace(given, bytes_per_s=link.bytes_per_s, limit=link.limit)
        return replace(given, limit="disk")
    if given is not None:
        return given
    if name == HOST:
        link = host_rate(hardware, likely=likely)
        return Way(name=name, bytes_per_s=link.bytes_per_s, start_s=start_s, limit=link.limit)
    rate, key = (
        (hardware.nic_bytes_per_s, "links.nic_gb_per_s")
        if name == NETWORK
        else (hardware.link_bytes_per_s, "links.scale_up_gb_per_s")
    )
    if rate is None:
        raise UnsupportedPlanError(
            f"way {name!r}: {hardware.name} has no {key}; add it to the file or give a rate "
            "(bytes_per_s, in the shell --gb-per-s)"
        )
    limit = "share of the network" if name == NETWORK else "scale-up link"
    return Way(name=name, bytes_per_s=rate, start_s=start_s, limit=limit)


def described(way: Way) -> str:
    """The way in words."""
    start = f" after {way.start_s:g} s" if way.start_s else ""
    return f"{way.name}: {way.bytes_per_s / GB_PER_S:g} GB/s a copy{start} ({way.limit})"
