"""Transfers beside layers: what of them a forward still waits for.

A link moves one layer's state after another. Loading, a layer starts when its own is there;
sending, a layer's state leaves when it was computed. Exact for one link and one chain of layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aisim_v41.estimators.breakdown import seconds_of
from aisim_v41.estimators.result import Estimate

LayerTimes = tuple[tuple[int, float], ...]
"""Layers in the order in which they run, each with its time [s]. -1 and numbers behind the last
layer are the ends of the model."""


def layer_times(estimate: Estimate) -> LayerTimes:
    """Time of every layer of a step; they add up to its time.

    What runs beside the chain of layers, and what an eager host takes, is spread over the layers in
    proportion.
    """
    found: list[tuple[int, float]] = []
    for forward in estimate.breakdown.forwards:
        known: dict[int, float] = {}
        layers: dict[int, float] = {}
        backbone = forward.compiled.backbone
        for step in (*backbone.chain, *backbone.draft):
            key = id(step.node)
            if key not in known:
                known[key] = seconds_of(forward, step.node)
            layers[step.layer] = layers.get(step.layer, 0.0) + known[key]
        chain = sum(layers.values())
        slower = forward.total_s / chain if chain else 0.0
        once = [(layer, seconds * slower) for layer, seconds in sorted(layers.items())]
        found += once * forward.times
    return tuple(found)


def end_behind_loads(
    layers: LayerTimes, loads: Mapping[int, float], *, bytes_per_s: float, start_s: float = 0.0
) -> float:
    """When layers end that wait for their state [s].

    Args:
        layers: what runs.
        loads: bytes that each layer waits for, moved in the order of layers [B].
        bytes_per_s, start_s: of the link.
    """
    there: dict[int, float] = {}
    arrived = start_s if any(loads.values()) else 0.0
    for layer in sorted(loads):
        arrived += loads[layer] / bytes_per_s
        there[layer] = arrived
    clock = 0.0
    for layer, seconds in layers:
        clock = max(clock, there.get(layer, 0.0)) + seconds
    return clock


def slowest_rate(
    layers: LayerTimes, loads: Mapping[int, float], *, deadline_s: float, start_s: float = 0.0
) -> float | None:
    """Rate from which layers that wait for their state end in time [B/s]; None: at no rate.

    The inverse of `end_behind_loads`: what is moved up to a layer must be there early enough for
    it and all later ones.

    Args:
        layers: what runs.
        loads: bytes that each layer waits for [B].
        deadline_s: when the last layer must have ended [s].
        start_s: of the link [s].
    """
    left = sum(seconds for _, seconds in layers)
    if left > deadline_s:
        return None
    slowest = 0.0
    reached: set[int] = set()
    until = {layer: sum(loads[other] for other in loads if other <= layer) for layer in loads}
    begins = start_s if any(loads.values()) else 0.0
    for layer, seconds in layers:
        if layer in loads and layer not in reached:
            reached.add(layer)
            moved = until[layer]
            spare = deadline_s - left - begins
            if spare < 0 or (spare == 0 and moved):
                return None
            slowest = max(slowest, moved / spare if moved else 0.0)
        left -= seconds
    return slowest


def end_of_sends(
    ready: Iterable[tuple[float, float]], *, bytes_per_s: float, start_s: float = 0.0
) -> float:
    """When everything has been sent [s].

    Args:
        ready: when it is there to be sent, and how much [s, B].
        bytes_per_s, start_s: of the link; it is set up once.
    """
    clock = 0.0
    begun = False
    for when, amount in sorted(ready):
        if not amount:
            continue
        clock = max(clock, when) + amount / bytes_per_s
        if not begun:
            clock, begun = clock + start_s, True
    return clock
