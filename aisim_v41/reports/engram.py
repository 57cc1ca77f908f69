"""Engram tables in each place they can lie, side by side: memory, transfer, and what a step waits.

One row a residency, from the same plan with nothing else changed (docs/updates.md, "Engram").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import InvalidInputError
from aisim_v41.estimators.engram import EngramReport, ModuleTransfer, engram
from aisim_v41.hardware import Hardware
from aisim_v41.memory.host import disk_terms, host_memory, table_parts
from aisim_v41.memory.row_cache import cache_on_gpu
from aisim_v41.memory.terms import total
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.plan.plan import Plan
from aisim_v41.reports.columns import columns
from aisim_v41.units import GIB, KB, MB, MICROSECOND, MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

RESIDENCIES = ("hbm", "host_sharded", "host_shared", "disk")


@dataclass(frozen=True, slots=True)
class TableMemory:
    """Where the bytes of the tables are.

    Args:
        gpu_bytes: in the memory of one GPU, caches of rows included [B].
        host_bytes: on all hosts of the replica together [B].
        disk_bytes: on disk [B].
    """

    gpu_bytes: int
    host_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class EngramComparison:
    """A report a residency, and the memory that goes with it."""

    reports: tuple[EngramReport, ...]
    memory: tuple[TableMemory, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row a residency; memory in GiB, times in ms."""
        import pandas as pd

        return pd.DataFrame([*map(_row, self.reports, self.memory)])

    def to_dict(self) -> list[dict[str, Any]]:
        """Every report with its memory, as plain data for JSON."""
        return [
            {
                **report.to_dict(),
                "gpu_bytes": memory.gpu_bytes,
                "host_bytes": memory.host_bytes,
                "table_disk_bytes": memory.disk_bytes,
            }
            for report, memory in zip(self.reports, self.memory, strict=True)
        ]

    def text(self) -> str:
        """A table that fits a terminal."""
        rows = [_row(*pair) for pair in zip(self.reports, self.memory, strict=True)]
        head = ["tables", "GiB a GPU", "GiB on hosts", "MB moved", "transfer ms", "sum ms",
                "waits ms", "step ms"]  # fmt: skip
        body = [
            [
                row["residency"],
                f"{row['gpu_gib']:.2f}",
                f"{row['host_gib']:.2f}",
                f"{row['moved_mb']:.3f}",
                *(
                    f"{row[name]:.3f}"
                    for name in ("transfer_ms", "collective_ms", "exposed_ms", "step_ms")
                ),
            ]
            for row in rows
        ]
        first = self.reports[0]
        return "\n".join([*_question(first), "", *columns(head, body, 1), "", *_how(self.reports)])


def compare_residencies(
    plan: Plan,
    hardware: Hardware,
    method: str = "auto",
    *,
    residencies: tuple[str, ...] | None = None,
) -> EngramComparison:
    """The same plan with its tables in each place.

    Args:
        plan: what is run; its own residency does not matter.
        hardware, method: as for `aisim_v41.estimators.engram.engram`.
        residencies: which ones, in order; by default all, the disk only where the hardware has one.

    Raises:
        InvalidInputError: an unknown residency.
        UnsupportedPlanError: as for `engram`.
    """
    if residencies is None:
        residencies = RESIDENCIES if hardware.disk_bytes_per_s is not None else RESIDENCIES[:-1]
    unknown = [name for name in residencies if name not in RESIDENCIES]
    if unknown or not residencies:
        raise InvalidInputError(
            f"residencies = {residencies!r}: must be some of {', '.join(RESIDENCIES)}"
        )
    reports, memory = [], []
    for name in residencies:
        policy = plan.policy.with_overrides(engram_residency=name)
        placed = replace(plan, policy=policy)
        reports.append(engram(placed, hardware, method))
        memory.append(table_memory(placed, hardware))
    return EngramComparison(tuple(reports), tuple(memory))


def table_memory(plan: Plan, hardware: Hardware) -> TableMemory:
    """Memory of the tables where the plan's policy puts them.

    Where CPU and GPU share one memory, tables on the host are in that of the GPU.
    """
    model, parallel, policy = plan.model, plan.parallel, plan.policy
    host = host_memory(model, hardware, parallel, policy, loaded_bytes=0)
    on_gpu = policy.engram_residency == "hbm" or (
        host.unified and policy.engram_residency != "disk"
    )
    mapping = Parallel() if policy.engram_residency == "host_shared" else parallel
    cache = total(cache_on_gpu(model, policy, unified=host.unified))
    return TableMemory(
        gpu_bytes=cache + (sum(table_parts(model, mapping, policy)) if on_gpu else 0),
        host_bytes=host.bytes,
        disk_bytes=total(disk_terms(model, policy)),
    )


def engram_text(report: EngramReport) -> str:
    """One report as text."""
    head = ["layer", "rows", "look-ups", "one rank's", "fetched", "KB moved", "transfer us",
            "layers before us", "waits us"]  # fmt: skip
    body = [
        [
            f"{module.layer}" + (f" x {module.times}" if module.times > 1 else ""),
            *(f"{value:,.0f}" for value in _rows(module)),
            f"{(module.link_bytes + module.disk_bytes) / KB:,.1f}",
            *(
                f"{seconds / MICROSECOND:,.1f}"
                for seconds in (module.transfer_s, module.window_s, module.exposed_s)
            ),
        ]
        for module in report.modules
    ]
    return "\n".join(
        [
            *_question(report),
            f"tables: {report.residency}",
            "",
            *columns(head, body, 1),
            "",
            f"step {report.step_s / MILLISECOND:.3f} ms: {report.without_s / MILLISECOND:.3f} "
            f"without the transfer, {report.exposed_s / MILLISECOND:.3f} of "
            f"{report.transfer_s / MILLISECOND:.3f} waited for; the ranks' sum "
            f"({report.collective_s / MILLISECOND:.3f}) is part of the first",
            *_how((report,)),
        ]
    )


def _rows(module: ModuleTransfer) -> tuple[float, ...]:
    return module.tokens, module.lookups, module.own, module.fetched


def _row(report: EngramReport, memory: TableMemory) -> dict[str, Any]:
    return {
        "residency": report.residency,
        "gpu_gib": memory.gpu_bytes / GIB,
        "host_gib": memory.host_bytes / GIB,
        "moved_mb": (report.link_bytes + report.disk_bytes) / MB,
        "transfer_ms": report.transfer_s / MILLISECOND,
        "collective_ms": report.collective_s / MILLISECOND,
        "exposed_ms": report.exposed_s / MILLISECOND,
        "step_ms": report.step_s / MILLISECOND,
    }


def _question(report: EngramReport) -> list[str]:
    plan, answer = report.plan, report.estimate
    bound = "at least" if answer.method == "sol" else "likely"
    changed = [line for line in changed_lines(plan.policy) if "engram_residency" not in line]
    return [
        f"Engram rows of {plan.model.name} on {plan.parallel.gpus} x {answer.hardware.name}, "
        f"policy {plan.policy.name}; {bound}",
        *changed,
        *(f"  {request!r}" for request in plan.requests),
    ]


def _how(reports: tuple[EngramReport, ...]) -> list[str]:
    first = reports[0]
    said = {
        "previous": "fetched during the step before",
        "step": "fetched from the start of the step, beside the layers before",
        "none": "fetched before the layers, with nothing beside",
    }
    lines = [
        f"distinct share {first.plan.policy.engram_distinct_share:g}, in a cache "
        f"{first.hit_share:g}; {said[first.prefetch]}"
    ]
    rate = next((r.rate for r in reports if r.rate is not None), None)
    if rate is not None:
        lines.append(f"from the host {rate.gb_per_s:.0f} GB/s a GPU ({rate.limit})")
    return lines
