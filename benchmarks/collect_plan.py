"""Planned minutes of a collection against those of a run: ``python -m benchmarks.collect_plan``.

Runs every kind of case at its smallest on this CPU, and prints how long making the plan of the
default workload takes, and what the small plan was expected to take and took.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from collectors.op import planning
from collectors.op.run import RunOptions, run
from collectors.timing.record import TimingOptions


def planned(*given: str):
    parser = argparse.ArgumentParser()
    planning.add_arguments(parser)
    return planning.make_plan(parser.parse_args(given))


def main() -> int:
    began = time.perf_counter()
    default = planned("--gpu", "gb300")
    made_s = time.perf_counter() - began
    print(f"plan of the default workload: {len(default.cases)} cases in {made_s:.2f} s")
    small = planned("--gpu", "cpu", "--scale", "small")
    options = RunOptions(device="cpu", timing=TimingOptions(execution="eager"))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = run(small, Path(folder) / "results.jsonl", options)
        took_s = time.perf_counter() - began
    expected_s = 60 * planning.summary(small)["minutes"]
    ok = done.counts["ok"]
    print(f"small plan on a CPU: {ok} of {done.total} cases timed, expected {expected_s:.1f} s, "
          f"took {took_s:.1f} s ({took_s / expected_s:.2f} times)")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
