"""Arguments and printing of ``op plan|run|check|publish``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from collectors.op import planning
from collectors.op.check import Finding, checked
from collectors.op.publish import add_publish_arguments, publish
from collectors.op.results import OK, STATUSES
from collectors.op.run import SIGNAL_BASE, Progress, RunOptions, run
from collectors.plan_file import PlanFile
from collectors.timing.record import AUTO, BACKENDS, CACHE_STATES, EXECUTIONS, TimingOptions

RESULTS = "results.jsonl"
PLAN = "plan.json"


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    plan = verbs.add_parser("plan", help="list cases, minutes, memory and worth")
    planning.add_arguments(plan)
    plan.add_argument("--out", type=Path, default=Path(PLAN), help=f"plan file ({PLAN})")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.set_defaults(run=_plan)
    _add_run(verbs.add_parser("run", help="time the cases; goes on where it stopped"))
    check = verbs.add_parser("check", help="spread, bounds, duplicates, order, identity")
    check.add_argument("results", type=Path, nargs="+", help="files of results")
    check.add_argument("--plan", type=Path, help="says which cases are missing")
    check.add_argument("--json", action="store_true", help="print findings as JSON")
    check.set_defaults(run=_check)
    put = verbs.add_parser("publish", help="write a table that the library reads")
    add_publish_arguments(put)
    put.set_defaults(run=_publish)
    engines = verbs.add_parser("engines", help="kernels of engines that are here, and why not")
    engines.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(cuda)")
    engines.add_argument("--json", action="store_true")
    engines.set_defaults(run=_engines)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path, nargs="?", default=Path(PLAN), help=f"({PLAN})")
    parser.add_argument("--results", type=Path, default=Path(RESULTS), help=f"({RESULTS})")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(cuda)")
    parser.add_argument("--timer", choices=(AUTO, *BACKENDS), default=AUTO, help="(auto)")
    parser.add_argument("--execution", choices=EXECUTIONS, default="graph", help="(graph)")
    parser.add_argument("--warm", action="store_true", help="one set of inputs: another identity")
    parser.add_argument("--samples", type=int, default=30, help="timings a case (30)")
    parser.add_argument("--seconds", type=float, default=1.0, help="timing a case, at most (1)")
    parser.add_argument("--engine", default="", help="only kernels of this engine, or portable")
    parser.add_argument("--retry", default="", help=f"statuses to try again: {','.join(STATUSES)}")
    parser.add_argument("--only", action="append", default=[], help="part of a case's text")
    parser.add_argument("--limit-minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--timeout", type=float, default=0.0, help="seconds a case (by the plan)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=_run)


def _plan(arguments: argparse.Namespace) -> int:
    plan = planning.make_plan(arguments)
    plan.write(arguments.out)
    if arguments.json:
        print(json.dumps(planning.summary(plan), indent=1))
    else:
        print(planning.text(plan))
        print(f"written: {arguments.out}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    timing = TimingOptions(
        timer=arguments.timer,
        execution=arguments.execution if arguments.device == "cuda" else "eager",
        cache_state=CACHE_STATES[bool(arguments.warm)],
        samples=arguments.samples,
        seconds=arguments.seconds,
    )
    options = RunOptions(
        device=arguments.device,
        timing=timing,
        engine=arguments.engine,
        retry=tuple(filter(None, arguments.retry.split(","))),
        only=tuple(arguments.only),
        limit_minutes=arguments.limit_minutes,
        timeout_s=arguments.timeout,
    )
    plan = PlanFile.read(arguments.plan)
    progress = run(plan, arguments.results, options, _quiet if arguments.quiet else _told)
    if arguments.json:
        print(json.dumps(_summary(progress)))
    else:
        print(_said(progress, arguments.results))
    return SIGNAL_BASE + progress.stopped if progress.stopped else 0


def _check(arguments: argparse.Namespace) -> int:
    plan = PlanFile.read(arguments.plan) if arguments.plan else None
    findings = checked(arguments.results, plan)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        _print_findings(findings)
    return int(any(finding.severity == "error" for finding in findings))


def _publish(arguments: argparse.Namespace) -> int:
    published = publish(arguments)
    if arguments.json:
        print(json.dumps(published))
    else:
        print(f"{published['rows']} rows in {published['table']}")
        for reason, number in published["left_out"].items():
            print(f"  left out: {number} ({reason})")
    return 0


def _engines(arguments: argparse.Namespace) -> int:
    from collectors.op.engines.found import availability

    found = availability(arguments.device)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for one in found:
            print(f"{one['operator']:18}{one['engine']:8}{one['kernel']:24}{one['status']}")
    return 0


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        print(f"{finding.severity:8}{finding.rule:14}{finding.where}: {finding.said}")
    errors = sum(finding.severity == "error" for finding in findings)
    print(f"{errors} errors, {len(findings) - errors} notes")


def _quiet(_: Progress) -> None:
    return None


def _told(progress: Progress) -> None:
    """One line a case: how far, how long still, what came out."""
    result = progress.last
    assert result is not None
    if result.timing is not None:
        said = f"{result.timing['median_us']:.2f} us"
    else:
        said = f"{result.status}: {result.error.splitlines()[0] if result.error else ''}"[:80]
    left = f"{progress.left_seconds / 60:.1f} min left"
    line = f"{progress.done}/{progress.total}  {left}  {result.asked}  {said}"
    print(line, file=sys.stderr, flush=True)


def _said(progress: Progress, results: Path) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in progress.counts.items() if n)
    lines = [f"{progress.done} of {progress.total} cases: {counts or 'none'}"]
    if progress.planned_seconds:
        lines.append(
            f"{progress.seconds / 60:.2f} minutes for what was planned as "
            f"{progress.planned_seconds / 60:.2f}"
        )
    if progress.stopped:
        lines.append("stopped; run again to go on")
    lines.append(f"results: {results}")
    return "\n".join(lines)


def _summary(progress: Progress) -> dict[str, Any]:
    return {
        "done": progress.done,
        "total": progress.total,
        "counts": progress.counts,
        "ok": progress.counts[OK],
        "minutes": progress.seconds / 60,
        "planned_minutes": progress.planned_seconds / 60,
        "stopped_by_signal": progress.stopped,
    }
