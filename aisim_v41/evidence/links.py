"""Collectives of GPUs without a table: time from the links that join them and a library's steps.

A library sends a message by one of a few algorithms. Each is a number of steps, one after another,
and a number of bytes that must cross a rank's busiest link, so that with ``n`` ranks

    t = start + step·steps(n) + message·bytes(n)/(share·rate)

| algorithm | steps | bytes of an all-reduce, by a switch | between pairs (mesh) |
|---|---|---|---|
| one_shot | n − 1 flags | n − 1 | 1 |
| two_shot, ring | 2(n − 1) | 2(n − 1)/n | 2/n |
| tree | 2·⌈log2 n⌉ | 2(n − 1)/n | 2/n |

An all-gather, a reduce-scatter and an all-to-all take half the steps and bytes of a ring. In a mesh
without a switch a pair of GPUs has its own link, rate/(domain − 1); elsewhere all bytes of a GPU
share its one rate. No law is ever faster than the bytes over the whole link, since shares are at
most 1. Start, step and share of each kind of link, with their sources:
``profiles/defaults/links.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from aisim_v41.evidence.laws import REGIMES, LawKind
from aisim_v41.hardware import Hardware
from aisim_v41.units import GB_PER_S

if TYPE_CHECKING:
    from aisim_v41.evidence.calibration import CalibratedLaw


class LinkKind(StrEnum):
    """What joins the GPUs of a group."""

    NVLINK = "nvlink"
    """A switch: a GPU's whole rate reaches any peer."""
    MESH = "mesh"
    """One link from each GPU to each other: a pair has its share of the rate."""
    PCIE_PEER = "pcie_peer"
    """PCIe, GPUs read each other's memory."""
    PCIE_HOST = "pcie_host"
    """PCIe through host memory: every byte is written there and read again."""
    NETWORK = "network"
    """A card and a switch between boxes of one GPU."""


class Algorithm(StrEnum):
    """How a message is sent."""

    ONE_SHOT = "one_shot"
    TWO_SHOT = "two_shot"
    RING = "ring"
    TREE = "tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What a law needs to know of the links of one GPU.

    Attributes:
        kind: what they are.
        bytes_per_s: all links of a GPU together, one direction [B/s].
        gpus: GPUs that they reach, this one counted; for a network, any number.
    """

    kind: LinkKind
    bytes_per_s: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way of a library to send a message, up to a size.

    Attributes:
        algorithm: steps and bytes.
        start_s: fixed time of a call [s].
        step_s: one step [s].
        share: of the link's rate.
        until_bytes: largest message that it sends; infinite for the last [B].
    """

    algorithm: Algorithm
    start_s: float
    step_s: float
    share: float
    until_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDefaults:
    """What is known of one kind of link.

    Attributes:
        own: protocols of an engine's own kernels, from small messages to large; None where engines
            leave all messages to the vendor's library.
        library: protocols of NCCL or RCCL.
        error_median, error_p90: relative error to expect.
        sources: where the figures come from.
        note: what to know.
    """

    own: tuple[Protocol, ...] | None
    library: tuple[Protocol, ...]
    error_median: float
    error_p90: float
    sources: tuple[str, ...]
    note: str


SWITCHED_ABOVE = 100 * GB_PER_S
"""A link faster than this, of a GPU that does not say its kind, is taken as NVLink [B/s]."""
_VENDOR = frozenset({"nccl"})
_HALF = 0.5


def links_of(hardware: Hardware) -> Links | None:
    """The links that join GPUs of this kind; None if there are none.

    PCIe counts as going through the host unless the file says that GPUs reach each other.

    >>> from aisim_v41 import load_hardware
    >>> links_of(load_hardware("rtx_4090")).kind
    <LinkKind.PCIE_HOST: 'pcie_host'>
    """
    if hardware.link_bytes_per_s is None or hardware.link_domain_gpus == 1:
        return network_of(hardware)
    return Links(
        kind=_kind(hardware, hardware.link_bytes_per_s),
        bytes_per_s=hardware.link_bytes_per_s,
        gpus=hardware.link_domain_gpus,
    )


def network_of(hardware: Hardware) -> Links | None:
    """The network cards between link domains; None if there are none."""
    rate = hardware.nic_bytes_per_s
    return None if rate is None else Links(kind=LinkKind.NETWORK, bytes_per_s=rate, gpus=1)


def _kind(hardware: Hardware, rate: float) -> LinkKind:
    figures = {figure.path: figure.value for figure in hardware.figures}
    named = figures.get("links.scale_up_kind")
    if named == "infinity_fabric":
        return LinkKind.MESH
    if named == "pcie" or (named is None and rate < SWITCHED_ABOVE):
        return LinkKind.PCIE_PEER if figures.get("links.peer_to_peer") else LinkKind.PCIE_HOST
    return LinkKind.NVLINK


def collective_law(
    links: Links, defaults: LinkDefaults, name: str, library: str, ranks: int
) -> CalibratedLaw:
    """The law of a collective on so many GPUs, as a default.

    Args:
        links: of a GPU.
        defaults: of that kind of link.
        name: ``all_reduce``, or another; the message of others is the buffer of all ranks.
        library: an engine, or ``nccl`` for the vendor's library.
        ranks: GPUs, 2 or more.

    >>> from aisim_v41 import load_hardware
    >>> from aisim_v41.evidence.calibration import load_calibration
    >>> load_calibration(load_hardware("rtx_pro_6000")).law("all_reduce.sglang", 4).origin
    'default'
    """
    from aisim_v41.evidence.calibration import CalibratedLaw

    protocols = defaults.library
    if defaults.own is not None and library not in _VENDOR:
        protocols = defaults.own
    half = 1.0 if name == "all_reduce" else _HALF
    parameters: dict[str, float] = {}
    for place, regime in enumerate(REGIMES):
        protocol = protocols[min(place, len(protocols) - 1)]
        load = half * bytes_factor(protocol.algorithm, ranks, links)
        steps = half * step_count(protocol.algorithm, ranks)
        parameters[f"alpha_{regime}_s"] = protocol.start_s + protocol.step_s * steps
        rate = protocol.share * link_rate(links) / load
        parameters[f"rate_{regime}_bytes_per_s"] = rate
        if regime < REGIMES[-1]:
            parameters[f"limit_{regime}_bytes"] = min(protocol.until_bytes, _LARGEST)
    return CalibratedLaw(
        kind=LawKind.COLLECTIVE,
        key=f"{name}.{library}@{ranks}",
        parameters=parameters,
        error_median=defaults.error_median,
        error_p90=defaults.error_p90,
        penalty=0.0,
        bias=0.0,
        rows_fitted=0,
        hull={},
        origin="default",
        sources=defaults.sources,
        note=f"{links.kind}: {defaults.note}",
    )


_LARGEST = 1e15
"""No message is larger [B]."""


def step_count(algorithm: Algorithm, ranks: int) -> float:
    """Steps of an all-reduce, one after another [1]."""
    if algorithm is Algorithm.ONE_SHOT:
        return ranks - 1
    if algorithm is Algorithm.TREE:
        return 2 * math.ceil(math.log2(ranks))
    return 2 * (ranks - 1)


def bytes_factor(algorithm: Algorithm, ranks: int, links: Links) -> float:
    """Bytes of an all-reduce over the busiest link, for each byte of the message [1]."""
    whole = ranks - 1.0 if algorithm is Algorithm.ONE_SHOT else 2 * (ranks - 1) / ranks
    return whole / (ranks - 1) if links.kind is LinkKind.MESH else whole


def link_rate(links: Links) -> float:
    """Rate of the link that `bytes_factor` counts bytes for [B/s]."""
    return (
        links.bytes_per_s / (links.gpus - 1) if links.kind is LinkKind.MESH else links.bytes_per_s
    )


Defaults = Mapping[LinkKind, LinkDefaults]
