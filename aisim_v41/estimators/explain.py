"""An estimate as text: the number, its bounds, and where the time goes."""

from __future__ import annotations

from collections import defaultdict

from aisim_v41.estimators.resources import Resource
from aisim_v41.estimators.result import Estimate
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.units import GB, MILLISECOND, TFLOP_PER_S

SHOWN_OPERATORS = 12
NOT_EVERYWHERE = (Resource.NETWORK, Resource.HOST_LINK, Resource.DISK)
"""Resources that are shown where a step uses them."""


def explain(estimate: Estimate) -> str:
    """One screen of text."""
    plan, bounds = estimate.plan, estimate.bounds
    low, high = estimate.band_ms
    answer = f"{estimate.latency_ms:.3f} ms"
    measured = f"{answer} ({low:.3f} to {high:.3f})"
    headline = f"at least {answer}" if estimate.method == "sol" else measured
    lines = [
        f"{plan.model.name} on {plan.parallel.gpus} x {estimate.hardware.name}, "
        f"policy {plan.policy.name} ({plan.policy.revision})",
        *changed_lines(plan.policy),
        *(f"  {request!r}" for request in plan.requests),
        "",
        headline,
        *([] if estimate.rank is None else [f"the step waits for rank {estimate.rank}"]),
        *(
            f"  {name:<15}{seconds / MILLISECOND:9.3f} ms  {meaning}"
            for name, seconds, meaning in (
                ("resource bound", bounds.resource_s, "whatever is cached, routed or overlapped"),
                ("graph bound", bounds.graph_s, "rooflines along the dependency graph"),
                ("launch bound", bounds.launch_s, "with the launch floor of the execution mode"),
            )
        ),
        "",
        *_parts(estimate),
        *_evidence(estimate),
        "busy: "
        + ", ".join(
            f"{name} {share:.0%}"
            for name, share in estimate.utilisation.items()
            if share or name not in NOT_EVERYWHERE
        ),
        *_rows_from_elsewhere(estimate),
        "",
        f"{'operator':<22}{'calls':>6}{'ms':>9}{'TFLOP':>9}{'GB':>9}  bound",
    ]
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    bound: dict[str, str] = {}
    for row in sorted(estimate.rows, key=lambda row: -row.seconds):
        total = totals[row.operator]
        total[0] += row.calls
        total[1] += row.seconds
        total[2] += row.flop
        total[3] += sum(row.bytes_by_kind.values()) + row.message_bytes
        bound.setdefault(row.operator, row.bound)
    ranked = sorted(totals.items(), key=lambda item: -item[1][1])
    lines += [
        f"{name:<22}{calls:>6.0f}{seconds / MILLISECOND:>9.3f}{flop / TFLOP_PER_S:>9.3f}"
        f"{moved / GB:>9.3f}  {bound[name]}"
        for name, (calls, seconds, flop, moved) in ranked[:SHOWN_OPERATORS]
    ]
    if len(ranked) > SHOWN_OPERATORS:
        rest = sum(total[1] for _, total in ranked[SHOWN_OPERATORS:])
        lines.append(
            f"{f'{len(ranked) - SHOWN_OPERATORS} more':<22}{'':>6}{rest / MILLISECOND:>9.3f}"
        )
    lines += [f"note: {warning}" for warning in estimate.warnings]
    return "\n".join(lines)


def _parts(estimate: Estimate) -> list[str]:
    """How the time divides between the model and its drafter; nothing where there is none."""
    parts = {name: seconds / MILLISECOND for name, seconds in estimate.parts.items()}
    if len(parts) == 1:
        return []
    return [", then ".join(f"{name} {milliseconds:.3f} ms" for name, milliseconds in parts.items())]


def _rows_from_elsewhere(estimate: Estimate) -> list[str]:
    """What moving Engram rows takes, whether or not layers hide it; nothing where none move."""
    moved = [
        f"{name} {estimate.resource_s[name] / MILLISECOND:.3f} ms at peak"
        for name in (Resource.HOST_LINK, Resource.DISK)
        if estimate.resource_s[name]
    ]
    if not moved:
        return []
    policy = estimate.plan.policy
    return [
        f"Engram rows ({policy.engram_residency}, prefetch {policy.engram_prefetch}): "
        + ", ".join(moved)
    ]


def _evidence(estimate: Estimate) -> list[str]:
    if estimate.method == "sol":
        return []
    shares = sorted(estimate.source_share.items(), key=lambda item: -item[1])
    lines = ["time rests on: " + ", ".join(f"{name} {share:.0%}" for name, share in shares)]
    if estimate.host_s:
        decides = "decides" if "host" in estimate.source_share else "is hidden"
        lines.append(
            f"host path of the eager parts: {estimate.host_s / MILLISECOND:.3f} ms, {decides} "
            f"(kernels alone {estimate.kernels_s / MILLISECOND:.3f} ms)"
        )
    return lines
