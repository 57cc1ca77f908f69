"""Where state is kept and what moving it takes, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from aisim_v41.caching.restore import RestoreReport
from aisim_v41.caching.state import Domain, state_bytes
from aisim_v41.caching.tiers import Kept, row_of
from aisim_v41.caching.transfer import ImageTransfer, TransferReport
from aisim_v41.caching.ways import described
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.reports.columns import columns
from aisim_v41.units import MB, MILLISECOND


def restore_text(reports: Sequence[RestoreReport]) -> str:
    """Choices of one or several prefixes, one line each, the fastest marked."""
    first = reports[0]
    head = ["prefix", "how", "rows", "MB a rank", "transfer ms", "compute ms", "waits ms", "ms", ""]
    body = [
        [
            f"{report.prefix_tokens:,}",
            choice.how,
            f"{choice.adoption.rows:,}",
            f"{choice.moved_bytes / MB:,.1f}",
            *(
                f"{seconds / MILLISECOND:,.3f}"
                for seconds in (
                    choice.transfer_s, choice.compute_s, choice.exposed_s, choice.total_s,
                )
            ),
            "<" if choice is report.best else "",
        ]
        for report in reports
        for choice in report.choices
    ]  # fmt: skip
    left_out = dict.fromkeys(line for report in reports for line in report.left_out)
    return "\n".join(
        [
            f"{first.new_tokens:,} new tokens behind a stored prefix: {first.model} on "
            f"{first.hardware}, tp {first.parallel.tp}, {first.policy.name} "
            f"({first.policy.revision}), {first.method}",
            *changed_lines(first.policy),
            described(first.way),
            "",
            *columns(head, body, 2),
            *(["", *left_out] if left_out else []),
            *dict.fromkeys(f"warning: {line}" for report in reports for line in report.warnings),
        ]
    )


def transfer_text(report: TransferReport) -> str:
    """A hand-over from prefill to decode."""
    head = ["", "rows", "payload MB", "MB moved"]
    body = [
        [
            str(domain),
            f"{sum(p.rows for p in report.parts if p.domain is domain):,}",
            f"{sum(p.payload_bytes for p in report.parts if p.domain is domain) / MB:,.3f}",
            f"{state_bytes(report.parts, domain) / MB:,.3f}",
        ]
        for domain in Domain
    ]
    policy = report.sender.policy
    return "\n".join(
        [
            f"{report.adoption.lookup.prompt_tokens:,} tokens from prefill to decode: "
            f"{report.hardware}, {policy.name} ({policy.revision}), {report.method}",
            *changed_lines(policy),
            described(report.way),
            "",
            *columns(head, body, 1),
            "",
            f"{report.copies} copies of {report.copy_bytes / MB:,.3f} MB, one a decode rank; "
            f"{report.copies_a_link} over each prefill rank's link",
            f"forwards {report.compute_s / MILLISECOND:,.3f} ms; the transfer takes "
            f"{report.transfer_s / MILLISECOND:,.3f} ms behind them, "
            f"{report.exposed_s / MILLISECOND:,.3f} ms layer by layer",
            *(f"warning: {line}" for line in report.warnings),
        ]
    )


def images_text(found: ImageTransfer) -> str:
    """A hand-over from encoder to prefill."""
    return (
        f"images: {found.cells:,} rows, {found.copies} copies of {found.copy_bytes / MB:,.3f} MB, "
        f"{found.seconds / MILLISECOND:,.3f} ms"
    )


def tiers_text(found: Sequence[Kept]) -> str:
    """What each tier holds, and for how long."""
    head = [
        "tier",
        "keeps",
        "GiB",
        "B a token",
        "B a tail",
        "tokens",
        "tails",
        "lasts s",
        "read ms",
    ]
    rows = [row_of(one) for one in found]
    body = [
        [
            row["tier"],
            row["keeps"],
            _number(row["size_gib"], 1),
            _number(row["bytes_per_token"], 1),
            _number(row["bytes_per_tail"], 0),
            _number(row["tokens"], 0),
            _number(row["tails"], 0),
            _number(row["lasts_s"], 1),
            _number(row["read_ms"], 3),
        ]
        for row in rows
    ]
    return "\n".join(columns(head, body, 2))


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
