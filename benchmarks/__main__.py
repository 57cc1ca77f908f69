"""Measures what docs and README say about speed: ``python -m benchmarks``.

One process, one core (pinned where the system allows it; BLAS limited to one thread). Each figure
is the best of several rounds beside its target; imports and the shell are measured as processes.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import json  # noqa: E402
import random  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from dataclasses import asdict  # noqa: E402

from benchmarks.feature_speed import feature_figures  # noqa: E402
from benchmarks.figures import Figure, best  # noqa: E402
from benchmarks.fpm_speed import fpm_figures  # noqa: E402


def process_seconds(code: str, rounds: int = 7) -> float:
    """Median seconds that a fresh interpreter reports for a piece of code."""
    script = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    times = [
        float(
            subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout
        )
        for _ in range(rounds)
    ]
    return sorted(times)[rounds // 2]


_SETUP = """
import aisim_v41 as aisim
model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
policy = aisim.policy("sglang", decoder_replay=True)
aisim.compile
"""
_COLD = """
t = time.perf_counter()
aisim.compile(model, gpu, parallel=aisim.Parallel(tp=4), policy=policy, method="{method}")
"""
_SWEEP = """
import resource, sys
import numpy as np, pandas as pd
rows = int(sys.argv[1])
rng = np.random.default_rng(0)
frame = pd.DataFrame({
    "new_tokens": rng.integers(1, 9000, rows), "prefix_tokens": rng.integers(0, 100_000, rows),
    "count": rng.integers(1, 256, rows)})
step = aisim.compile(
    model, gpu, parallel=aisim.Parallel(tp=4), policy=policy, method=sys.argv[2])
step.sweep(frame.head(1000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
shortest = float("inf")
for _ in range(5):
    t = time.perf_counter()
    step.sweep(frame)
    shortest = min(shortest, time.perf_counter() - t)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(shortest, after / 1024, (after - before) / 1024)
"""


def sweep(rows: int, method: str) -> tuple[float, float, float]:
    """Seconds, peak MiB of the process, and MiB that the sweep added."""
    code = f"import time\n{_SETUP}{_SWEEP}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(rows), method], check=True, capture_output=True, text=True
    )
    seconds, peak, added = map(float, done.stdout.split())
    return seconds, peak, added


def mixed(number: int) -> list[object]:
    """A ragged step: prefill chunks and decodes in turn."""
    import aisim_v41 as aisim

    rng = random.Random(number)
    return [
        aisim.Request(new_tokens=rng.randint(1, 500), prefix_tokens=rng.randint(0, 50_000))
        if place % 2
        else aisim.Request(new_tokens=1, prefix_tokens=rng.randint(0, 50_000), kind="decode")
        for place in range(number)
    ]


def measure() -> list[Figure]:
    """Every figure."""
    import aisim_v41 as aisim

    model, gpu = aisim.load_model("deepseek-v4.1-flash"), aisim.load_hardware("gb300")
    policy = aisim.policy("sglang", decoder_replay=True)
    parallel = aisim.Parallel(tp=4)
    step, op = (
        aisim.compile(model, gpu, parallel=parallel, policy=policy, method=method)
        for method in ("sol", "op")
    )
    plan = aisim.Plan(model, mixed(8), parallel=aisim.Parallel(tp=4), policy=policy)
    figures = [
        Figure(
            "import aisim_v41, fresh process", process_seconds("import aisim_v41") * 1e3, 250, "ms"
        ),
    ]
    for method, label, target in (
        ("sol", "compile, cold", 20),
        ("op", "  the same from operators (OP), tables read", None),
    ):
        cold = process_seconds(_SETUP + _COLD.format(method=method))
        figures.append(Figure(label, cold * 1e3, target, "ms"))
    for number, target in ((1, None), (8, 50), (256, 150)):
        requests = mixed(number)
        seconds = best(lambda r=requests: step(r), calls=200)
        label = "request" if number == 1 else "requests, ragged and mixed"
        figures.append(Figure(f"step of {number} {label}", seconds * 1e6, target, "us"))
        from_operators = best(lambda r=requests: op(r), calls=100)
        figures.append(
            Figure("  the same from operators (OP)", from_operators * 1e6, 3e6 * seconds, "us")
        )
    figures.append(
        Figure(
            "estimate with breakdown",
            best(lambda: aisim.estimate(plan, gpu), calls=5) * 1e3,
            None,
            "ms",
        )
    )
    seconds, peak, added = sweep(1_000_000, "sol")
    from_operators, _, _ = sweep(200_000, "op")
    figures += [
        Figure("sweep of 1,000,000 steps", seconds, 1.5, "s"),
        Figure(
            "  the same from operators (OP), a million steps", from_operators * 5, 3 * seconds, "s"
        ),
        Figure("peak memory of that process", peak, 1024, "MiB"),
        Figure("memory that the sweep added", added, None, "MiB"),
    ]
    figures += feature_figures()
    figures += fpm_figures()
    shell = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'aisim_v41.cli.main', "
    shell += "'estimate', '--decode', '32x32768', '--json'], check=True, capture_output=True)"
    figures.append(Figure("one answer in the shell", process_seconds(shell, 5), None, "s"))
    return figures


def main() -> None:
    """Print the figures, or write them as JSON with --json."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    figures = measure()
    if "--json" in sys.argv:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        print("\n".join(str(figure) for figure in figures))


if __name__ == "__main__":
    main()
