"""A ledger as text that a person can check by hand."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from aisim_v41.plan import draft, spans
from aisim_v41.plan.columns import LayerClass
from aisim_v41.plan.counting import StepCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy, preset_names
from aisim_v41.plan.spans import Region

if TYPE_CHECKING:
    from aisim_v41.plan.ledger import Ledger


def describe(ledger: Ledger) -> str:
    """Rows, window floors, reads and writes of every request, by runs of like layers."""
    lines = [
        f"{ledger.plan.model.name}, policy {ledger.plan.policy.name} "
        f"({ledger.plan.policy.revision}): {ledger.token_layers:,} token-layers",
        *changed_lines(ledger.plan.policy),
    ]
    for number, (forward, counts) in enumerate(ledger.passes):
        repeated = f" x {forward.times}" if forward.times > 1 else ""
        if forward.rank is not None:
            lines.append(f"rank {forward.rank}")
        elif len(ledger.passes) > 1:
            lines.append(f"forward {number}{repeated}")
        for place, request in enumerate(forward.requests):
            many = request.count > 1
            each = f"; below, each of the {request.count:,}" if many else ""
            lines.append(f"  request {place}: {request!r}{each}")
            described = _describe_request(ledger, counts, place, "each " if many else "")
            lines += [f"    {line}" for line in described]
    return "\n".join(lines)


def changed_lines(chosen: RuntimePolicy) -> list[str]:
    """One line of the fields in which a policy differs from its preset; none where it does not."""
    if chosen.name not in preset_names():
        return [f"changed: {chosen.name!r} is no preset to compare with"]
    changed = chosen.changed_fields()
    shown = ", ".join(f"{name}={_setting(value)}" for name, value in changed.items())
    return [f"changed: {shown}"] if shown else []


def _setting(value: object) -> str:
    """As ``--set`` takes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _describe_request(ledger: Ledger, counts: StepCounts, place: int, each: str) -> list[str]:
    position = [int(value) for value in counts.positions[:, place]]
    program = ledger.program
    lines = []
    for cls, run in groupby(enumerate(program.classes), key=lambda item: item[1]):
        layers = [index for index, _ in run]
        lines.append(f"{_name(layers, cls):<34} {each}{_rows(cls, position)}")
        lines.append(f"{'':<34} {each}reads {_reads(ledger, counts, place, cls)}")
    return [*lines, *_draft_lines(ledger, counts, place, each)]


def _draft_lines(ledger: Ledger, counts: StepCounts, place: int, each: str) -> list[str]:
    """What the draft pass does for one request; nothing without speculation."""
    drafter, program = ledger.plan.model.draft, ledger.program
    if program.draft is None or drafter is None:
        return []

    def value(count: Count, where: LayerClass) -> int:
        return int(counts.per_request[program.position(count, where), place])

    first = draft.block_layer(ledger.plan.model, 0)
    name = f"layers {first}-{first + drafter.blocks - 1} (draft)"
    rows, context = (value(Count.QUERY_ROWS, w) for w in (draft.BLOCK, draft.CONTEXT))
    pairs, ring = (value(count, draft.BLOCK) for count in (Count.WINDOW_PAIRS, Count.WINDOW_ROWS))
    return [
        f"{name:<34} {each}drafts {rows} rows, fills {context} rows of the rings",
        f"{'':<34} {each}reads {pairs:,} pairs, {ring} rows of the rings",
    ]


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
