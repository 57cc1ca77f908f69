"""``python -m aisim_v41.evidence.fit [--gpu NAME ...] [--out FOLDER]``: refit calibrations.

Writes ``<gpu>/op/calibration.yaml`` and ``<gpu>/op/calibration_residuals.csv`` for GPUs that have
tables. Without ``--out`` it writes beside the tables of the checkout; with it into a folder of the
user's, which ``AISIM_V41_PATH`` can then name (docs/calibration.md, "Refitting").
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aisim_v41.evidence.calibration import SIBLINGS
from aisim_v41.evidence.calibration_file import read_calibration
from aisim_v41.evidence.fit.compare import with_neighbours, with_sibling
from aisim_v41.evidence.fit.gpu import fit_gpu
from aisim_v41.evidence.fit.jobs import Fitted
from aisim_v41.evidence.fit.write import calibration_text, residuals_text
from aisim_v41.hardware import load_hardware
from aisim_v41.resources import data_root
from aisim_v41.tables.schema import GPUS

CALIBRATION = "calibration.yaml"
RESIDUALS = "calibration_residuals.csv"
TWINS = {"gb200": "b200", "gb300": "b300"}
"""V4.1's rows on GB200 come from a faulty node, on GB300 they end at 512 tokens."""


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(prog="python -m aisim_v41.evidence.fit")
    parser.add_argument("--gpu", action="append", metavar="NAME", help="default: all with tables")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="holds profiles/<gpu>/op")
    arguments = parser.parse_args()
    root = (arguments.out or data_root()) / "profiles"
    found: dict[str, list[Fitted]] = {}
    for gpu in arguments.gpu or GPUS:
        hardware = load_hardware(gpu)
        laws = fit_gpu(hardware, load_hardware(TWINS.get(gpu, gpu)))
        found[gpu] = [with_neighbours(hardware, law) for law in laws]
        write(root / gpu / "op" / CALIBRATION, calibration_text(hardware, laws))
        sys.stdout.write(f"{gpu}: {len(laws)} laws\n")
    for gpu, laws in found.items():
        for sibling in SIBLINGS[gpu]:
            file = root / sibling / "op" / CALIBRATION
            if file.is_file():
                laws = [with_sibling(law, sibling, read_calibration(file)) for law in laws]
        write(root / gpu / "op" / RESIDUALS, residuals_text(laws))


def write(path: Path, text: str) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
