"""A million plans over eight combinations: ``python -m benchmarks.sweep_speed``.

Two processes, BLAS of one thread each, the data set written to a temporary folder; workers are
started and laws are read inside the time.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figure

MIB = 1 << 20
TARGETS = {"sol": 15.0, "op": 40.0}


def space(method: str, rows: int) -> dict[str, Any]:
    """A million ragged prefills, over GPUs, mappings and replay."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    plans = pd.DataFrame(
        {
            "new_tokens": rng.integers(1, 9000, rows),
            "prefix_tokens": rng.integers(0, 100_000, rows),
            "count": rng.integers(1, 256, rows),
        }
    )
    return {
        "hardware": ["gb300", "b200"],
        "parallel": {"tp": [4, 8]},
        "policy": {"name": "sglang", "decoder_replay": [True, False]},
        "method": method,
        "requests": {"table": plans},
    }


def measure(rows: int = 1_000_000, jobs: int = 2) -> list[Figure]:
    """Seconds of both methods, and what the driver's memory grew to."""
    import aisim_v41 as aisim

    found = []
    for method, target in TARGETS.items():
        asked = space(method, rows)
        with TemporaryDirectory() as folder:
            start = time.perf_counter()
            data = aisim.sweep(asked, folder, jobs=jobs)
            seconds = time.perf_counter() - start
            size = sum(path.stat().st_size for path in data.files) / MIB
        name = f"sweep of {rows:,} plans x 8 combinations, {jobs} processes, {method}"
        found.append(Figure(name, seconds, target, "s"))
        found.append(Figure("  its Parquet files", size, None, "MiB"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found.append(Figure("  most memory of the process that asked", peak, None, "MiB"))
    return found


def main() -> None:
    """Print the figures, or write them as JSON with --json."""
    os.environ["OMP_NUM_THREADS"] = "1"
    figures = measure(*(int(one) for one in sys.argv[1:] if one.isdigit()))
    if "--json" in sys.argv:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        print("\n".join(str(figure) for figure in figures))


if __name__ == "__main__":
    main()
