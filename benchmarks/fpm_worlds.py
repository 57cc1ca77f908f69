"""FPM on synthetic engines of known truth: ``python -m benchmarks.fpm_worlds [--json]``.

Every world at 20, 60 and 150 measurements: error of FPM and of plainer predictors against the
truth, share of further measurements inside the 90 % band, and seconds of a fit. The same seeds give
the same table. ``--world NAME`` and ``--seeds N`` narrow or widen it.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
from collections.abc import Iterable, Iterator  # noqa: E402
from dataclasses import asdict  # noqa: E402

from benchmarks.worlds.evaluate import FPM, Score, evaluate  # noqa: E402
from benchmarks.worlds.world import WORLDS  # noqa: E402

SIZES = (20, 60, 150)
SEEDS = 2


def scores(names: Iterable[str], seeds: int) -> Iterator[list[Score]]:
    """Scores of each world and size, as they are found."""
    wanted = set(names)
    for world in WORLDS:
        if not wanted or world.name in wanted:
            for points in SIZES:
                yield evaluate(world, points, range(seeds))


HEAD = (
    f"{'world':<14}{'points':>6}{'FPM':>14}{'in band':>9}{'in domain':>10}{'flagged':>9}"
    f"{'fit s':>7}  |{'linear':>14}{'logarithms':>14}{'constant':>14}{'OP':>14}{'OP rescaled':>14}"
)


def line(found: list[Score]) -> str:
    """One world and size: median (90th percentile) of the error of every method."""
    own, *others = found
    assert own.method == FPM
    poisoned = f"{own.blamed:.0%}" if own.found is None else f"{own.found:.0%}/{own.blamed:.0%}"
    return (
        f"{own.world:<14}{own.points:>6}{_error(own)}{own.inside:>9.0%}{own.answered:>10.0%}"
        f"{poisoned:>9}{own.fit_s:>7.2f}  |" + "".join(_error(other) for other in others)
    )


def _error(score: Score) -> str:
    return f"{f'{score.median:.1%} ({score.p90:.0%})':>14}"


def main() -> None:
    """Print the table, or write it as JSON with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fpm_worlds", description=__doc__)
    parser.add_argument("--json", action="store_true", help="write JSON in place of the table")
    parser.add_argument("--world", action="append", default=[], help="only this world")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="engines drawn of each world")
    asked = parser.parse_args()
    if asked.json:
        every = [asdict(score) for found in scores(asked.world, asked.seeds) for score in found]
        print(json.dumps(every, indent=2))
        return
    print("relative error against the truth: median (90th percentile)\n")
    print(HEAD)
    for found in scores(asked.world, asked.seeds):
        print(line(found), flush=True)


if __name__ == "__main__":
    main()
