"""Arguments and printing of ``fpm plan|run|check|publish``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from collectors.errors import InputError
from collectors.fpm.bench import DEFAULT
from collectors.fpm.check import ERROR, checked
from collectors.fpm.drive import Prompts
from collectors.fpm.engine import Engine
from collectors.fpm.events import Events
from collectors.fpm.points import ForwardsPlan, points_of
from collectors.fpm.publish import publish
from collectors.fpm.run import (
    BENCH,
    DRIVERS,
    EVENTS,
    HTTP,
    SIGNAL_BASE,
    Told,
    by_bench,
    by_events,
    by_http,
    run,
)
from collectors.writing import reason

PLAN, RESULTS = "forwards.json", "forwards.jsonl"


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    plan = verbs.add_parser("plan", help="list points, repeats and minutes")
    plan.add_argument("--chunk", type=int, default=8192, help="tokens of a forward (8192)")
    plan.add_argument("--max-batch", type=int, default=64, help="decoding requests (64)")
    plan.add_argument("--context", type=int, default=32_768, help="positions (32768)")
    plan.add_argument("--repeats", type=int, default=5, help="of every point (5)")
    plan.add_argument("--warm-ups", type=int, default=1, help="rounds that are not believed (1)")
    plan.add_argument("--minutes", type=float, default=0.0, help="leave out what does not fit")
    plan.add_argument("--out", type=Path, default=Path(PLAN), help=f"({PLAN})")
    plan.add_argument("--json", action="store_true")
    plan.set_defaults(run=_plan)
    go = verbs.add_parser("run", help="ask a live engine; goes on where it stopped")
    go.add_argument("plan", type=Path, nargs="?", default=Path(PLAN), help=f"({PLAN})")
    go.add_argument("--results", type=Path, default=Path(RESULTS), help=f"({RESULTS})")
    go.add_argument("--run-name", default="run-1", help="of this start of the engine (run-1)")
    go.add_argument("--driver", choices=DRIVERS, default=HTTP, help="(http)")
    go.add_argument("--url", default="http://127.0.0.1:30000", help="(http://127.0.0.1:30000)")
    go.add_argument("--text", type=Path, help="real text; prompts are cut from it")
    go.add_argument("--tokens", type=Path, help="or a JSON list of token ids")
    go.add_argument("--events", type=Path, help="file that a listener of FPM events writes")
    go.add_argument("--command", default=DEFAULT, help=f"of bench_one_batch ({DEFAULT})")
    go.add_argument("--timeout", type=float, default=120.0, help="seconds for an answer (120)")
    go.add_argument("--keep-cache", action="store_true", help="do not empty the cache at the start")
    go.add_argument("--quiet", action="store_true")
    go.add_argument("--json", action="store_true")
    go.set_defaults(run=_run)
    check = verbs.add_parser("check", help="spread, drift, warm-up, shapes, identity")
    check.add_argument("results", type=Path, nargs="+")
    check.add_argument("--json", action="store_true")
    check.set_defaults(run=_check)
    put = verbs.add_parser("publish", help="write a table that the library reads")
    put.add_argument("results", type=Path, nargs="+", help="one file a process run")
    put.add_argument("--to", type=Path, required=True, help="folder for profiles/<gpu>/fpm/")
    put.add_argument("--identity", type=Path, required=True, help="YAML: gpu, tp, checkpoint, ...")
    put.add_argument("--dry-run", action="store_true", help="check everything, write no table")
    put.add_argument("--json", action="store_true")
    put.set_defaults(run=_publish)


def _plan(arguments: argparse.Namespace) -> int:
    points = points_of(chunk=arguments.chunk, max_batch=arguments.max_batch,
                       context=arguments.context, minutes=arguments.minutes,
                       repeats=arguments.repeats)  # fmt: skip
    plan = ForwardsPlan(points, arguments.repeats, arguments.warm_ups)
    plan.write(arguments.out)
    kinds = {kind: sum(p.kind == kind for p in points) for kind in ("prefill", "decode")}
    said = {"points": len(points), **kinds, "repeats": plan.repeats,
            "minutes_a_run": round(plan.minutes, 1)}  # fmt: skip
    if arguments.json:
        print(json.dumps({**said, "names": [point.name for point in points]}))
    else:
        print("\n".join(f"{name:14}{value}" for name, value in said.items()))
        print(f"written: {arguments.out}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    plan = ForwardsPlan.read(arguments.plan)
    events = None
    if arguments.driver == BENCH:
        facts: dict = {"model": "as the command says", "version": arguments.command}
        ask = by_bench(arguments.command)
    else:
        engine = Engine(arguments.url, arguments.timeout)
        facts = engine.connect()
        prompts = Prompts(_tokens(arguments, engine))
        if not arguments.keep_cache:
            engine.forget()
        ask = by_http(engine, prompts, facts)
        if arguments.driver == EVENTS:
            if arguments.events is None:
                raise InputError("--driver events needs --events FILE, which a listener writes")
            events = Events(arguments.events)
            ask = by_events(engine, prompts, facts, events)
    try:
        told = run(plan, arguments.results, driver=arguments.driver, facts=facts, ask=ask,
                   run_name=arguments.run_name,
                   tell=_quiet if arguments.quiet else _told)  # fmt: skip
    finally:
        if events is not None:
            events.close()
    if arguments.json:
        print(json.dumps({"done": told.done, "total": told.total, "counts": dict(told.counts),
                          "stopped_by_signal": told.stopped}))  # fmt: skip
    else:
        counts = ", ".join(f"{number} {status}" for status, number in told.counts.items())
        print(f"{told.done} of {told.total} samples: {counts or 'none'}")
        print(f"results: {arguments.results}")
    return SIGNAL_BASE + told.stopped if told.stopped else 0


def _tokens(arguments: argparse.Namespace, engine: Engine) -> list[int]:
    path = arguments.tokens or arguments.text
    if path is None:
        raise InputError("--text FILE is missing: real text, of which prompts are cut")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = reason(error) if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"{path}: cannot be read ({said})") from None
    if arguments.tokens is None:
        return engine.tokens_of(text)
    try:
        tokens = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise InputError(f"{path}: not a JSON list of token ids ({bad})") from None
    if not isinstance(tokens, list) or not all(type(one) is int and one >= 0 for one in tokens):
        raise InputError(f"{path}: must be a JSON list of token ids")
    return tokens


def _check(arguments: argparse.Namespace) -> int:
    findings = checked(arguments.results)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.severity:7}{finding.rule:10}{finding.where}: {finding.said}")
        errors = sum(finding.severity == ERROR for finding in findings)
        print(f"{errors} errors, {len(findings) - errors} notes")
    return int(any(finding.severity == ERROR for finding in findings))


def _publish(arguments: argparse.Namespace) -> int:
    said = publish(arguments.results, arguments.to, arguments.identity, dry_run=arguments.dry_run)
    if arguments.json:
        print(json.dumps(said))
    else:
        print(f"{said['records']} records in {said['folder'] or 'no table (dry run)'}")
        print(f"identity: {said['slug']}; samples left out: {said['left_out']}")
    return 0


def _quiet(_: Told) -> None:
    return None


def _told(told: Told) -> None:
    print(f"{told.done}/{told.total}  {told.last}", file=sys.stderr, flush=True)
