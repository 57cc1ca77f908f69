"""A ledger as text that a person can check by hand."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from aisim_v41.plan import spans
from aisim_v41.plan.columns import LayerClass
from aisim_v41.plan.counting import StepCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.spans import Region

if TYPE_CHECKING:
    from aisim_v41.plan.ledger import Ledger


def describe(ledger: Ledger) -> str:
    """Rows, window floors, reads and writes of every request, by runs of like layers."""
    lines = [
        f"{ledger.plan.model.name}, policy {ledger.plan.policy.name} "
        f"({ledger.plan.policy.revision}): {ledger.token_layers:,} token-layers"
    ]
    for number, (forward, counts) in enumerate(ledger.passes):
        repeated = f" x {forward.times}" if forward.times > 1 else ""
        if len(ledger.passes) > 1:
            lines.append(f"forward {number}{repeated}")
        for place, request in enumerate(forward.requests):
            lines.append(f"  request {place}: {request!r}")
            lines += [f"    {line}" for line in _describe_request(ledger, counts, place)]
    return "\n".join(lines)


def _describe_request(ledger: Ledger, counts: StepCounts, place: int) -> list[str]:
    position = [int(value) for value in counts.positions[:, place]]
    program = ledger.program
    lines = []
    for cls, run in groupby(enumerate(program.classes), key=lambda item: item[1]):
        layers = [index for index, _ in run]
        lines.append(f"{_name(layers, cls):<34} {_rows(cls, position)}")
        lines.append(f"{'':<34} reads {_reads(ledger, counts, place, cls)}")
    return lines


def _name(layers: list[int], cls: LayerClass) -> str:
    span = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]}-{layers[-1]}"
    ratio = f", ratio {cls.ratio}" if cls.ratio else ""
    return f"{span} ({cls.kind}{ratio})"


def _rows(cls: LayerClass, position: list[int]) -> str:
    end = position[spans.END]
    full = f"[{position[spans.START]:,}, {end:,})"
    late = f"[{position[spans.HEAD_START]:,}, {end:,})"
    if cls.region is Region.FULL:
        return f"rows {full}, window from {position[spans.FLOOR]:,}"
    if cls.region is Region.BOUNDARY:
        return f"writes KV of {full}, queries {late}, window from {position[spans.FLOOR]:,}"
    return f"rows {late}, window from {position[spans.LATE_FLOOR]:,}"


def _reads(ledger: Ledger, counts: StepCounts, place: int, cls: LayerClass) -> str:
    def value(count: Count) -> int:
        return int(counts.per_request[ledger.program.position(count, cls), place])

    parts = [f"{value(Count.WINDOW_PAIRS):,} window pairs"]
    if cls.ratio:
        parts.append(f"{value(Count.SELECTED_ENTRIES):,} selected")
    if cls.scores:
        parts.append(f"scores {value(Count.SCORED_POSITIONS):,}")
    if cls.owns:
        parts.append(f"writes {value(Count.ENTRIES_WRITTEN):,} entries")
    return ", ".join(parts)
