"""A batch under each schedule of its drafts, side by side: steps, output, bursts, and the gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.compiled import listed
from aisim_v41.hardware import Hardware
from aisim_v41.plan.ledger_text import changed_lines
from aisim_v41.plan.plan import Plan
from aisim_v41.reports.columns import columns
from aisim_v41.speculation.acceptance import Acceptance
from aisim_v41.speculation.outcomes import PROFILE_TOKENS, Outcome, Speculation
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

SCHEDULES = ("off", "fixed", "by-batch", "confident", "profiled", "cap-accept")
"""Names of schedules; ``fixed`` is one row for each number of drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationReport:
    """Outcomes of one batch.

    Args:
        plan: what decodes.
        hardware: on what.
        method: that priced the steps.
        acceptance: of each entry of the plan's requests.
        plain: decode without a drafter, which gains are over.
        outcomes: one a schedule, in the order asked for.
        refused: schedules that the engine refuses, and why.
        warnings: what engines would refuse, where the policy's ``engine_rules`` are "warned".
    """

    plan: Plan
    hardware: Hardware
    method: str
    acceptance: tuple[Acceptance, ...]
    plain: Outcome
    outcomes: tuple[Outcome, ...]
    refused: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    def gain(self, outcome: Outcome) -> float:
        """Output rate over that of plain decode."""
        return outcome.tokens_per_s / self.plain.tokens_per_s

    @property
    def best(self) -> Outcome:
        """The outcome with the highest output rate, the first of equals."""
        return max(self.outcomes, key=lambda outcome: outcome.tokens_per_s)

    def to_frame(self) -> pd.DataFrame:
        """One row a schedule."""
        import pandas as pd

        return pd.DataFrame([self._row(outcome) for outcome in self.outcomes])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.plan.model.name,
            "gpu": self.hardware.name,
            "gpus": self.plan.parallel.gpus,
            "policy": self.plan.policy.name,
            "draft_tokens": self.plan.policy.draft_tokens,
            "method": self.method,
            "requests": [
                {
                    "prefix_tokens": request.prefix_tokens,
                    "count": request.count,
                    "acceptance": list(acceptance.by_position),
                    "accept_length": acceptance.expected_emitted(),
                }
                for request, acceptance in zip(self.plan.requests, self.acceptance, strict=True)
            ],
            "schedules": [
                {**self._row(o), "drafts": list(o.drafts), "bursts": list(o.bursts.distribution)}
                for o in self.outcomes
            ],
            "best": self.best.schedule,
            "refused": dict(self.refused),
            "warnings": list(self.warnings),
        }

    def text(self) -> str:
        """A table that fits a terminal."""
        head = ["schedule", "drafts", "rows", "step ms", "steps/s", "tokens/step", "tokens/s",
                "gain", "ms/token", "waits"]  # fmt: skip
        body = [
            [
                row["schedule"], _range(outcome.drafts), str(row["rows"]), f"{row['step_ms']:.3f}",
                f"{row['steps_per_s']:.1f}", f"{row['tokens_per_step']:.2f}",
                f"{row['tokens_per_s']:.1f}", f"{row['gain']:.3f}",
                f"{row['mean_interval_ms']:.3f}", f"{row['waiting_share']:.2f}",
            ]
            for outcome in self.outcomes
            for row in [self._row(outcome)]
        ]  # fmt: skip
        best = self.best
        shares = "  ".join(
            f"{size}: {share:.2f}" for size, share in enumerate(best.bursts.distribution, 1)
        )
        return "\n".join(
            [
                *_question(self),
                "",
                *columns(head, body, 1),
                "",
                f"highest output rate: {best.schedule}; tokens that a request gets at once, by "
                "share of its steps",
                f"  {shares}",
                "waits: share of tokens that come a step after the one before; others come with it",
                *(f"{name} is not among them: {reason}" for name, reason in self.refused),
                *(f"warning: {line}" for line in self.warnings),
            ]
        )

    def _row(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "schedule": outcome.schedule,
            "drafts_mean": sum(outcome.drafts) / outcome.requests,
            "rows": outcome.rows,
            "step_ms": outcome.step_s / MILLISECOND,
            "steps_per_s": outcome.steps_per_s,
            "tokens_per_step": outcome.emitted,
            "tokens_per_s": outcome.tokens_per_s,
            "tokens_per_s_request": outcome.tokens_per_s / outcome.requests,
            "gain": self.gain(outcome),
            "mean_interval_ms": outcome.mean_interval_s / MILLISECOND,
            "waiting_share": outcome.bursts.waiting_share,
            "largest_burst": outcome.bursts.largest,
        }


def speculate(
    plan: Plan,
    hardware: Hardware,
    acceptance: Acceptance | Sequence[Acceptance],
    method: str = "auto",
    *,
    schedules: Sequence[str] | None = None,
    profile_tokens: int = PROFILE_TOKENS,
) -> SpeculationReport:
    """What a batch emits under each schedule, and what it gains over plain decode.

    Args:
        plan: requests that decode; ``draft_tokens`` of its policy are drafted.
        hardware: the GPU and its links.
        acceptance: of all requests, or of each entry of the plan's.
        method: as for `aisim_v41.estimate`.
        schedules: some of `SCHEDULES`; see `aisim_v41.speculation.outcomes`. By default all that
            the engine does not refuse.
        profile_tokens: context that ``profiled`` takes all requests to have [tokens].

    Raises:
        InvalidInputError: an unknown schedule, or as for `Speculation`.
        UnsupportedPlanError: the engine refuses a schedule that was asked for, or as for
            `Speculation`.
        OutOfRangeError: as for `Speculation`.

    Example:
        >>> import aisim_v41 as aisim
        >>> plan = aisim.Plan(
        ...     aisim.load_model("deepseek-v4.1-flash"),
        ...     [aisim.Request(new_tokens=1, prefix_tokens=8192, kind="decode", count=8)],
        ...     parallel=aisim.Parallel(tp=4), policy=aisim.policy("sglang"),
        ... )
        >>> report = speculate(plan, aisim.load_hardware("gb300"), Acceptance.constant(0.8, 5))
        >>> report.gain(report.best) > 1.5
        True
    """
    asked = SCHEDULES if schedules is None else listed("schedules", schedules, "names")
    unknown = [name for name in asked if name not in SCHEDULES]
    if unknown or not asked:
        raise InvalidInputError(
            f"schedules = {list(asked)!r:.120}: must be some of {', '.join(SCHEDULES)}"
        )
    priced = Speculation(plan, hardware, acceptance, method)
    plain = priced.off
    outcomes: list[Outcome] = []
    refused: list[tuple[str, str]] = []
    for name in asked:
        try:
            outcomes += _outcomes(priced, name, profile_tokens)
        except UnsupportedPlanError as error:
            if schedules is not None or name in ("off", "fixed"):
                raise
            refused.append((name, str(error)))
    return SpeculationReport(
        plan=plan, hardware=hardware, method=priced.uniform.method,
        acceptance=priced.of_entries, plain=plain, outcomes=tuple(outcomes),
        refused=tuple(refused), warnings=priced.warnings,
    )  # fmt: skip


def _outcomes(priced: Speculation, name: str, profile_tokens: int) -> tuple[Outcome, ...]:
    match name:
        case "off":
            return (priced.off,)
        case "fixed":
            return priced.every_fixed
        case "by-batch":
            return (priced.by_batch,)
        case "confident":
            return (priced.confident,)
        case "profiled":
            return (priced.profiled(profile_tokens),)
        case _:
            return (priced.cap_accept,)


@dataclass(frozen=True, slots=True)
class BatchSchedules:
    """Reports of one kind of request at several batch sizes: a schedule by batch."""

    reports: tuple[SpeculationReport, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row a batch and schedule."""
        import pandas as pd

        frames = [
            report.to_frame().assign(requests=report.plain.requests) for report in self.reports
        ]
        return pd.concat(frames, ignore_index=True)

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data for JSON."""
        return [report.to_dict() for report in self.reports]

    def text(self) -> str:
        """A line a batch: plain decode, the best fixed number of drafts, and a number for each."""
        head = ["requests", "plain ms", "plain tok/s", "best fixed", "step ms", "tok/s", "gain",
                "confident", "tok/s", "gain"]  # fmt: skip
        body = []
        for report in self.reports:
            fixed, each = _named(report, "by-batch"), _named(report, "confident")
            assert fixed is not None
            chosen = ["-"] * 3 if each is None else [
                _range(each.drafts), f"{each.tokens_per_s:.1f}", f"{report.gain(each):.3f}",
            ]  # fmt: skip
            body.append(
                [
                    str(report.plain.requests), f"{report.plain.step_s / MILLISECOND:.3f}",
                    f"{report.plain.tokens_per_s:.1f}", _range(fixed.drafts),
                    f"{fixed.step_s / MILLISECOND:.3f}", f"{fixed.tokens_per_s:.1f}",
                    f"{report.gain(fixed):.3f}", *chosen,
                ]
            )  # fmt: skip
        warned = dict.fromkeys(line for report in self.reports for line in report.warnings)
        return "\n".join(
            [
                *_question(self.reports[0]),
                "",
                *columns(head, body, 0),
                *(f"warning: {line}" for line in warned),
            ]
        )


def speculate_by_batch(
    plan: Plan,
    hardware: Hardware,
    acceptance: Acceptance,
    batches: Sequence[int],
    method: str = "auto",
) -> BatchSchedules:
    """`speculate` for batches of one kind of request: which number of drafts pays at which load.

    Args:
        plan: one entry of requests; its count does not matter.
        hardware, acceptance, method: as for `speculate`.
        batches: requests of each batch.

    Raises:
        InvalidInputError: several entries, or no batch.
        OutOfRangeError, UnsupportedPlanError: as for `speculate`.
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"plan = {plan!r:.120}: must be a Plan")
    sizes = listed("batches", batches, "numbers of requests")
    if len(plan.requests) != 1 or not sizes:
        raise InvalidInputError(
            f"{len(plan.requests)} entries of requests and {len(sizes)} batches: give one kind "
            "of request, and at least one batch"
        )
    (one,) = plan.requests
    reports = []
    for count in sizes:
        alike = replace(one, count=count, packed=b"")
        batch = replace(plan, requests=(alike,))
        reports.append(_of_batch(batch, hardware, acceptance, method))
    return BatchSchedules(tuple(reports))


def _of_batch(
    plan: Plan, hardware: Hardware, acceptance: Acceptance, method: str
) -> SpeculationReport:
    """The schedules that a table of batches shows."""
    whole = speculate(plan, hardware, acceptance, method)
    shown = tuple(o for o in whole.outcomes if o.schedule in ("off", "by-batch", "confident"))
    return replace(whole, outcomes=shown)


def _named(report: SpeculationReport, name: str) -> Outcome | None:
    return next((outcome for outcome in report.outcomes if outcome.schedule == name), None)


def _range(drafts: Sequence[int]) -> str:
    low, high = min(drafts), max(drafts)
    return str(low) if low == high else f"{low}-{high}, mean {sum(drafts) / len(drafts):.2f}"


def _question(report: SpeculationReport) -> list[str]:
    plan = report.plan
    bound = "at least" if report.method == "sol" else "likely"
    drafted = plan.policy.draft_tokens
    return [
        f"DSpark of {plan.model.name} on {plan.parallel.gpus} x {report.hardware.name}, policy "
        f"{plan.policy.name}, {drafted} drafts; {bound}",
        *changed_lines(plan.policy),
        *(
            f"  {request.count} x context {request.prefix_tokens:,}, accepts "
            f"{' '.join(f'{value:.2f}' for value in known.by_position)}: "
            f"{known.expected_emitted():.2f} tokens a step of all drafts"
            for request, known in zip(plan.requests, report.acceptance, strict=True)
        ),
    ]
