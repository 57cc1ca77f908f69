"""Capacity and step memory as frames, plain data and text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aisim_v41.memory.terms import Kind, Term, size
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.units import GIB

if TYPE_CHECKING:
    import pandas as pd

    from aisim_v41.memory.capacity import CapacityReport
    from aisim_v41.memory.demand import StepMemory

_BAR = 24
_SHOWN_TERMS = 18
_SHOWN_CHANGES = 6
_NAME = 38


def terms_frame(terms: Iterable[Term]) -> pd.DataFrame:
    """One row a term."""
    import pandas as pd

    columns = ["term", "kind", "place", "bytes", "gib", "estimate", "formula", "source"]
    return pd.DataFrame([[*_row(term).values()] for term in terms], columns=columns)


def capacity_dict(report: CapacityReport) -> dict[str, Any]:
    """A capacity report as plain data: numbers, text, lists."""
    setting, host = report.setting, report.host
    return {
        "model": setting.model.name,
        "gpu": setting.hardware.name,
        "parallel": {n: getattr(setting.parallel, n) for n in ("tp", "ep", "dp", "cp", "pp")},
        "policy": setting.policy.name,
        "policy_changes": {k: str(v) for k, v in setting.policy.changed_fields().items()},
        "max_length": setting.max_length,
        "requests": setting.requests,
        "starts": report.starts,
        "failing": report.failing,
        "short_bytes": report.short_bytes,
        "gpu_bytes": report.budget.gpu_bytes,
        "budget_bytes": report.budget_bytes,
        "weights_bytes": report.weights_bytes,
        "kv_bytes": report.kv_bytes,
        "tokens": report.tokens,
        "replica_tokens": report.replica_tokens,
        "sessions": report.sessions,
        "printed_tokens": report.printed_tokens,
        "bytes_per_token": float(report.bytes_per_token),
        "fixed_bytes_per_request": report.fixed_bytes_per_request,
        "terms": [_row(term) for term in report.terms],
        "host": {
            "bytes": host.bytes,
            "load_bytes": host.load_bytes,
            "available_bytes": host.available_bytes,
            "fits": host.fits,
            "loads": host.loads,
        },
        "frees_most": [
            {
                "change": relief.change,
                "fields": {name: str(value) for name, value in relief.fields},
                "freed_bytes": relief.freed_bytes,
                "kv_bytes": relief.kv_bytes,
                "tokens": relief.tokens,
            }
            for relief in report.frees_most
        ],
        "notes": list(report.notes),
    }


def explain_capacity(report: CapacityReport) -> str:
    """A capacity report as text for one screen."""
    setting, host = report.setting, report.host
    gpus = setting.parallel.gpus
    mapping = ", ".join(f"{n} {ranks}" for n, ranks in setting.parallel.named().items())
    lines = [
        f"{setting.model.name} on {gpus} x {setting.hardware.name} ({mapping}), policy "
        f"{setting.policy.name}",
        *changed_lines(setting.policy),
        f"contexts to {setting.max_length} tokens, {setting.requests} running requests, chunks of "
        f"{setting.policy.chunk_tokens}; Engram: {setting.policy.engram_residency}",
        "",
        _verdict(report),
        "",
        f"one GPU: {size(report.budget.gpu_bytes)}, the engine's budget "
        f"{size(report.budget_bytes)} ({setting.policy.memory_fraction:g}, "
        f"{setting.policy.fraction_covers}); ~ marks allowances and assumed shapes",
        *_term_lines(report),
        "",
        f"KV: {float(report.bytes_per_token):.1f} B a token ("
        f"{float(report.pool.payload_bytes_per_token):.1f} without page rounding, layout "
        f"{report.pool.layout}), {size(report.fixed_bytes_per_request)} a running request",
        f"host: {host.verdict}",
    ]
    if report.frees_most:
        lines += ["", "frees most (for KV, same tokens kept):"]
        lines += [
            f"  {size(r.freed_bytes):>11}  {r.change}" for r in report.frees_most[:_SHOWN_CHANGES]
        ]
    lines += [f"note: {note}" for note in report.notes if not note.startswith("host")]
    return "\n".join(lines)


def explain_step(memory: StepMemory) -> str:
    """The memory of one step as text."""
    verdict = (
        f"the step fits: {size(memory.kv_available_bytes - memory.kv_bytes)} of KV are left"
        if memory.fits
        else f"the step does not fit: {size(memory.short_bytes)} are missing"
    )
    lines = [verdict, *(_line(term, memory.gpu_bytes) for term in memory.terms if term.bytes)]
    return "\n".join(lines)


def _verdict(report: CapacityReport) -> str:
    if not report.starts:
        return (
            f"DOES NOT START: {report.failing}; {size(report.short_bytes)} missing "
            f"(KV would have {size(report.kv_bytes)})"
        )
    ranks = report.setting.parallel.dp
    replica = f" on each of {ranks} attention ranks" if ranks > 1 else ""
    return (
        f"starts: {size(report.kv_bytes)} of KV a GPU = {report.tokens} tokens{replica}, "
        f"{report.sessions} sessions of {report.setting.max_length}"
    )


def _term_lines(report: CapacityReport) -> list[str]:
    """Largest terms first, small ones as one line, KV last."""
    gpu = report.budget.gpu_bytes
    terms = [term for term in report.terms if term.place == "gpu" and term.bytes]
    kv = [term for term in terms if term.kind is Kind.KV]
    rest = sorted((t for t in terms if t.kind is not Kind.KV), key=lambda t: -t.bytes)
    shown, small = rest[:_SHOWN_TERMS], rest[_SHOWN_TERMS:]
    lines = [_line(term, gpu) for term in shown]
    if small:
        lines.append(
            f"  {f'{len(small)} smaller terms':<{_NAME}}{size(sum(t.bytes for t in small)):>11}"
        )
    return lines + [_line(term, gpu) for term in kv]


def _line(term: Term, whole: int) -> str:
    bar = "#" * max(0, min(_BAR, round(_BAR * term.bytes / whole))) if whole else ""
    mark = "~" if term.estimate else " "
    return f"{mark} {term.name:<{_NAME}}{size(term.bytes):>11}  {bar}".rstrip()


def _row(term: Term) -> dict[str, Any]:
    return {
        "term": term.name,
        "kind": term.kind.value,
        "place": term.place.value,
        "bytes": term.bytes,
        "gib": term.bytes / GIB,
        "estimate": term.estimate,
        "formula": term.formula,
        "source": term.source,
    }
