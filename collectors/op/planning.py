"""Making a plan: which cases, in which order, what they cost and are worth."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.case import Case
from collectors.errors import InputError
from collectors.op.costs import CPU_PEAKS, START_S, cost_of
from collectors.op.grid import SCALES, Workload, points_of
from collectors.op.kinds.experts import LOADS
from collectors.op.kinds.registry import KINDS
from collectors.op.peaks import Peaks, known_gpus, peaks_of
from collectors.op.shapes import LAYOUTS, Line, lines_of, read_config
from collectors.op.value import Wanted, level_value, read_coverage, weights_of
from collectors.plan_file import PlanFile, PlannedCase
from collectors.timing.record import TimingOptions

MOST_MEMORY_SHARE = 0.9
"""Of a GPU's memory that a case may need."""
SMALL = {"hidden_size": 128, "head_dim": 512, "q_lora_rank": 64, "o_lora_rank": 32,
         "num_attention_heads": 4, "o_groups": 2, "moe_intermediate_size": 64,
         "n_routed_experts": 8, "num_experts_per_tok": 2, "vocab_size": 256}  # fmt: skip
"""Sizes of a plan for a CPU: every operator, each as small as it may be."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--config", type=Path, help="config.json (the published one)")
    parser.add_argument("--gpu", default="gb300", help="in hardware/, or cpu (gb300)")
    parser.add_argument("--engine", choices=tuple(LAYOUTS), default="sglang", help="(sglang)")
    parser.add_argument("--tp", type=int, default=4, help="tensor-parallel GPUs (4)")
    parser.add_argument("--ep", type=int, default=1, help="ranks that experts spread over (1)")
    parser.add_argument("--max-batch", type=int, default=512, help="rows of a decode step (512)")
    parser.add_argument("--chunk", type=int, default=8192, help="rows of a prefill step (8192)")
    parser.add_argument("--context", type=int, default=131_072, help="positions (131072)")
    parser.add_argument("--load", action="append", choices=LOADS, help="of experts (uniform)")
    parser.add_argument("--scale", choices=SCALES, default="default", help="(default)")
    parser.add_argument("--coverage", type=Path, help="fill what this report misses")
    parser.add_argument("--minutes", type=float, default=0.0, help="leave out what does not fit")
    parser.add_argument("--only", action="append", default=[], help="part of a case's text")


def make_plan(arguments: argparse.Namespace) -> PlanFile:
    """A plan as the shell's arguments say.

    Raises:
        InputError: an argument, the config or the report is not what it must be.
    """
    workload = Workload(arguments.max_batch, arguments.chunk, arguments.context, arguments.scale)
    config = read_config(arguments.config)
    if workload.scale == "small":
        config = {**config, **SMALL}
    peaks = _peaks(arguments.gpu)
    tp = 2 if workload.scale == "small" else arguments.tp
    lines = lines_of(config, engine=arguments.engine, tp=tp, ep=arguments.ep,
                     loads=tuple(arguments.load or ("uniform",)))  # fmt: skip
    if arguments.gpu == "cpu":
        lines = [_on_cpu(line) for line in lines]
    skipped: list[dict[str, str]] = []
    wanted: list[Wanted] = []
    if arguments.coverage is not None:
        wanted, skipped = read_coverage(arguments.coverage)
    header = {
        "model": arguments.config.name if arguments.config else "deepseek-v4.1-flash",
        "gpu": arguments.gpu,
        "engine": arguments.engine,
        "tp": tp,
        "ep": arguments.ep,
        "max_batch": workload.max_batch,
        "chunk": workload.chunk,
        "context": workload.context,
        "scale": workload.scale,
        "coverage": arguments.coverage.name if arguments.coverage else "",
    }
    cases = _planned(lines, workload, peaks, wanted, skipped)
    if arguments.only:
        cases = [one for one in cases if any(part in one.case.text for part in arguments.only)]
    if not cases:
        why = skipped[0]["reason"] if skipped else "nothing matches --only, or nothing is missed"
        raise InputError(f"no case is left ({why})")
    return PlanFile(header, _fitting(cases, arguments.minutes, skipped), skipped)


def _planned(
    lines: Sequence[Line],
    workload: Workload,
    peaks: Peaks,
    wanted: Sequence[Wanted],
    skipped: list[dict[str, str]],
) -> list[PlannedCase]:
    """Cases of all lines in the order of their levels, the best worth a minute first in each."""
    steps = (min(32, workload.max_batch), workload.chunk)
    weights = weights_of(lines, peaks, steps)
    if wanted:
        lines, weights = _missed(lines, wanted, workload)
    found: list[tuple[int, float, str, PlannedCase]] = []
    for line in lines:
        kind = KINDS[line.base.operator]
        extra = _asked(line, wanted)
        points = [(p.level, kind.complete(line.base.having(**p.sizes)))
                  for p in points_of(line, workload)]  # fmt: skip
        there = {case.text for _, case in points}
        points += [(0, case) for case in extra if case.text not in there]
        of_level: dict[int, int] = defaultdict(int)
        for level, _ in points:
            of_level[level] += 1
        group: dict[int, list[PlannedCase]] = defaultdict(list)
        for place, (level, case) in enumerate(points):
            cost = cost_of(case, kind, peaks, TimingOptions(), first=place == 0)
            if cost.memory_bytes > MOST_MEMORY_SHARE * peaks.memory_bytes:
                skipped.append({"case": case.text, "reason": "needs "
                                f"{cost.memory_bytes / 1e9:.0f} GB of memory"})  # fmt: skip
                continue
            group[level].append(PlannedCase(
                case=case, minutes=cost.seconds / 60, memory_bytes=cost.memory_bytes,
                value=level_value(weights[line.name], level, of_level[level]),
                sol_us=cost.sol_s * 1e6, line=line.name,
            ))  # fmt: skip
        for level, cases in group.items():
            worth = sum(c.value for c in cases) / sum(c.minutes for c in cases)
            found += [(level, -worth, line.name, case) for case in cases]
    found.sort(key=lambda entry: entry[:3])
    unique: dict[str, PlannedCase] = {}
    for *_, case in found:
        unique.setdefault(case.case.text, case)
    return list(unique.values())


def _missed(
    lines: Sequence[Line], wanted: Sequence[Wanted], workload: Workload
) -> tuple[list[Line], dict[str, float]]:
    """Lines that a report misses, with their share of its uncertainty."""
    total = sum(one.weight for one in wanted) or 1.0
    known: dict[str, Line] = {_fixed(KINDS[line.base.operator].complete(_any_place(line)), line):
                              line for line in lines}  # fmt: skip
    chosen: dict[str, Line] = {}
    weights: dict[str, float] = defaultdict(float)
    for one in wanted:
        line = next((line for text, line in known.items() if text == _fixed(one.case, line)), None)
        line = line or _line_of(one.case)
        chosen[line.name] = line
        weights[line.name] += one.weight / total
    return list(chosen.values()), dict(weights)


AXES = ("rows", "keys_per_row", "positions_per_row", "message_bytes")


def _line_of(case: Case) -> Line:
    """A line for a case that the model's own lines do not have."""
    axes = tuple(axis for axis in AXES if axis in case.sizes)
    rest = {name: value for name, value in case.sizes.items() if name not in axes}
    return Line(Case(case.operator, rest, case.options), axes, 1.0)


def _any_place(line: Line) -> Case:
    return line.base.having(**dict.fromkeys(line.axes, 128))


def _fixed(case: Case, line: Line) -> str:
    """A case without the sizes that vary along a line."""
    rest = {name: value for name, value in case.sizes.items() if name not in line.axes}
    return Case(case.operator, rest, case.options).text


def _asked(line: Line, wanted: Sequence[Wanted]) -> list[Case]:
    if not wanted:
        return []
    own = _fixed(KINDS[line.base.operator].complete(_any_place(line)), line)
    return [one.case for one in wanted if _fixed(one.case, line) == own]


def _on_cpu(line: Line) -> Line:
    """The same with the collectives that a CPU has."""
    if line.base.options.get("library") == "nccl":
        return Line(line.base.having(library="gloo"), line.axes, line.calls, line.prefill)
    if line.base.operator == "engram_lookup":
        return Line(line.base.having(table_rows=4096), line.axes, line.calls, line.prefill)
    return line


def _fitting(
    cases: Sequence[PlannedCase], minutes: float, skipped: list[dict[str, str]]
) -> list[PlannedCase]:
    if minutes <= 0:
        return list(cases)
    kept, used = [], 2 * START_S["cuda"] / 60
    for case in cases:
        if used + case.minutes > minutes:
            skipped.append({"case": case.case.text, "reason": "beyond the minutes given"})
            continue
        used += case.minutes
        kept.append(case)
    if not kept:
        raise InputError(f"--minutes {minutes:g}: not one case fits")
    return kept


def _peaks(gpu: str) -> Peaks:
    if gpu == "cpu":
        return CPU_PEAKS
    found = peaks_of(gpu)
    if found is None:
        raise InputError(f"--gpu {gpu!r:.40}: one of cpu, {', '.join(known_gpus())}")
    return found


def summary(plan: PlanFile) -> dict[str, Any]:
    """A plan in numbers."""
    by_operator: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for one in plan.cases:
        entry = by_operator[one.case.operator]
        entry["cases"] += 1
        entry["minutes"] += one.minutes
        entry["value"] += one.value
        entry["memory_gb"] = max(entry["memory_gb"], one.memory_bytes / 1e9)
    return {
        **plan.header,
        "cases": len(plan.cases),
        "minutes": sum(one.minutes for one in plan.cases) + start_minutes(plan),
        "memory_gb": max(one.memory_bytes for one in plan.cases) / 1e9,
        "value": sum(one.value for one in plan.cases),
        "skipped": len(plan.skipped),
        "operators": {name: dict(entry) for name, entry in by_operator.items()},
        "value_after_minutes": {str(m): value_after(plan, m) for m in (10, 60, 480)},
    }


def start_minutes(plan: PlanFile) -> float:
    """Minutes until the processes are up: one group for each number of ranks."""
    ranks = {one.case.sizes.get("ranks", 1) for one in plan.cases} | {1}
    return len(ranks) * START_S[_on(plan)] / 60


def value_after(plan: PlanFile, minutes: float) -> float:
    """Share of the uncertainty that is gone after so many minutes."""
    used, value = start_minutes(plan), 0.0
    for one in plan.cases:
        used += one.minutes
        if used > minutes:
            break
        value += one.value
    return value


def text(plan: PlanFile) -> str:
    """A plan as a table."""
    found = summary(plan)
    lines = [f"{'operator':22}{'cases':>7}{'minutes':>9}{'memory GB':>11}{'value':>8}"]
    operators: Mapping[str, Mapping[str, float]] = found["operators"]
    for name, entry in sorted(operators.items(), key=lambda item: -item[1]["value"]):
        lines.append(
            f"{name:22}{entry['cases']:7.0f}{entry['minutes']:9.1f}{entry['memory_gb']:11.2f}"
            f"{entry['value']:8.1%}"
        )
    lines.append(
        f"{'all':22}{found['cases']:7}{found['minutes']:9.1f}{found['memory_gb']:11.2f}"
        f"{found['value']:8.1%}"
    )
    after = ", ".join(
        f"{minutes} min {value:.0%}" for minutes, value in found["value_after_minutes"].items()
        if float(minutes) < found["minutes"]
    )  # fmt: skip
    if after:
        lines.append(f"uncertainty removed after: {after}")
    if plan.skipped:
        reasons: dict[str, int] = defaultdict(int)
        for one in plan.skipped:
            reasons[one["reason"]] += 1
        for reason, number in sorted(reasons.items(), key=lambda item: -item[1])[:8]:
            lines.append(f"left out: {number} ({reason})")
    return "\n".join(lines)


def _on(plan: PlanFile) -> str:
    return "cpu" if plan.header.get("gpu") == "cpu" else "cuda"
