"""Seconds of a message on the links of a GPU at peak: within a link domain, and over the network.

GPUs of one link domain (a node, or a rack of 72) reach each other over its links; others over the
network cards, one share a GPU. A group larger than a domain is whole domains, and its collectives
have two levels: inside every domain over the links, and between the GPUs of one place in each over
the network. What is taken as true: docs/assumptions.md, "Collectives".
"""

from __future__ import annotations

from typing import NamedTuple

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import Collective
from aisim_v41.plan.expert_groups import Scatter


class Levels(NamedTuple):
    """A value on each level of a group of GPUs."""

    link: float
    network: float


def domains_of(hardware: Hardware, group: int) -> tuple[int, int]:
    """GPUs of a group in one link domain, and domains that the group fills.

    Raises:
        UnsupportedPlanError: there is no link, no network between domains, or the last domain
            would not be full.

    >>> from aisim_v41 import load_hardware
    >>> domains_of(load_hardware("h200"), 32), domains_of(load_hardware("gb300"), 32)
    ((8, 4), (32, 1))
    """
    domain = hardware.link_domain_gpus
    if domain == 1 or group <= domain:
        link_bandwidth(hardware, group)
        return group, 1
    if hardware.nic_bytes_per_s is None:
        raise UnsupportedPlanError(
            f"{group} ranks on {hardware.name}: a link domain has {domain} GPUs, and no network "
            f"between domains is known; give links.nic_gb_per_s in the hardware file, or use at "
            f"most {domain} ranks"
        )
    if group % domain:
        raise UnsupportedPlanError(
            f"{group} ranks on {hardware.name}: link domains of {domain} GPUs would not all be "
            f"full; use at most {domain} ranks, or a multiple of {domain}"
        )
    return domain, group // domain


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


def link_bytes_factor(collective: Collective, group: int, *, in_network: bool) -> float:
    """Bytes [B] that one rank must send or receive for each byte of payload.

    All-reduce: every rank's partial sums leave it and the result comes back. Without reduction in
    the network each direction carries 2 (g - 1)/g of the payload (reduce-scatter, all-gather);
    with it, at least (g - 1)/g. All-gather: a rank receives what it does not hold, (g - 1)/g;
    reduce-scatter: it sends as much. What is left out: docs/assumptions.md, "Collectives".
    """
    share = (group - 1) / group
    return share * (2 if collective is Collective.ALL_REDUCE and not in_network else 1)


def bytes_by_level(
    collective: Collective, scatter: Scatter | None, inside: int, domains: int, *, in_network: bool
) -> Levels:
    """Bytes [B] of one rank and direction on each level, for each byte of payload.

    Between domains a rank handles 1/inside of the message: the part that it holds after the level
    inside. Of an all-to-all, a row goes over the network once to each other domain that needs it
    (and on from there over its links), and over the links to each other rank of its own domain.

    Args:
        collective: pattern.
        scatter: which ranks get a row of an all-to-all.
        inside: GPUs in one domain.
        domains: number of domains.
        in_network: the switches of a domain add.
    """
    if scatter is None:
        return Levels(
            link_bytes_factor(collective, inside, in_network=in_network),
            link_bytes_factor(collective, domains, in_network=False) / inside,
        )
    ranks = scatter.reached(inside * domains)
    if scatter.fewest:  # the rank itself and its domain are among those that it needs
        return Levels(min(ranks, inside) - 1, scatter.reached(domains) - 1)
    others = (inside - 1) / (inside * domains)
    return Levels(others * ranks, scatter.reached(domains) * (domains - 1) / domains)


def seconds_by_level(
    hardware: Hardware, collective: Collective, group: int, scatter: Scatter | None
) -> Levels:
    """Seconds [s] of a message on links and network at peak, for each byte of payload.

    Raises:
        UnsupportedPlanError: the GPUs of the group are not joined.
    """
    inside, domains = domains_of(hardware, group)
    sent = bytes_by_level(
        collective, scatter, inside, domains, in_network=hardware.in_network_reduction
    )
    network = 0.0
    if domains > 1:
        assert hardware.nic_bytes_per_s is not None
        network = sent.network / hardware.nic_bytes_per_s
    return Levels(sent.link / link_bandwidth(hardware, inside), network)
