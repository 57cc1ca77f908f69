"""One move of a slider of notebooks 4 and 5: ``python -m benchmarks.slider_speed``.

Curves priced anew and drawn, every setting compiled before; the median of all moves.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from dataclasses import asdict  # noqa: E402
from itertools import product  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any  # noqa: E402

from benchmarks.figures import Figure  # noqa: E402

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = ("04-prefill-what-if", "05-decode-and-dspark")
TARGET_MS = 50.0


def sliders_of(name: str) -> Any:
    """The sliders of a notebook, made by its own cells."""
    import matplotlib as mpl
    import nbformat

    mpl.use("agg")
    names: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and "sliders" not in names:
            source = cell.source.replace("%matplotlib inline", "")
            exec(compile(source, name, "exec"), names)
    return names["sliders"]


def measure() -> list[Figure]:
    """Median and slowest move of each notebook."""
    found = []
    for name in NAMES:
        sliders = sliders_of(name)
        for values in product(*sliders.controls.values()):
            sliders.set(**dict(zip(sliders.controls, values, strict=True)))
        sliders.png()
        moves = []
        for control, values in sliders.controls.items():
            for value in (*values, values[0]):
                start = time.perf_counter()
                sliders.set(**{control: value})
                sliders.png()
                moves.append(1e3 * (time.perf_counter() - start))
        found.append(Figure(f"one move in {name}", median(moves), TARGET_MS, "ms"))
        found.append(Figure("  the slowest, axes drawn anew", max(moves), None, "ms"))
    return found


def main() -> None:
    """Print the figures, or write them as JSON with --json."""
    figures = measure()
    if "--json" in sys.argv:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        print("\n".join(str(figure) for figure in figures))


if __name__ == "__main__":
    main()
