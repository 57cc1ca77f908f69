"""``python -m aisim_v41.evidence.fit [--gpu NAME ...] [--out FOLDER]``: refit calibrations.

Writes ``<gpu>/op/calibration.yaml`` and ``<gpu>/op/calibration_residuals.csv`` for GPUs that have
tables. Without ``--out`` it writes beside the tables of the checkout; with it into a folder of the
user's, which ``AISIM_V41_PATH`` can then name (docs/calibration.md, "Refitting").
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aisim_v41.evidence.fit.gpu import fit_gpu
from aisim_v41.evidence.fit.write import calibration_text, residuals_text
from aisim_v41.hardware import load_hardware
from aisim_v41.resources import data_root
from aisim_v41.tables.schema import GPUS

TWINS = {"gb200": "b200", "gb300": "b300"}
"""V4.1's rows on GB200 come from a faulty node, on GB300 they end at 512 tokens."""


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(prog="python -m aisim_v41.evidence.fit")
    parser.add_argument("--gpu", action="append", metavar="NAME", help="default: all with tables")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="holds profiles/<gpu>/op")
    arguments = parser.parse_args()
    root = (arguments.out or data_root()) / "profiles"
    for gpu in arguments.gpu or GPUS:
        hardware = load_hardware(gpu)
        laws = fit_gpu(hardware, load_hardware(TWINS.get(gpu, gpu)))
        folder = root / gpu / "op"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "calibration.yaml").write_text(calibration_text(hardware, laws), encoding="utf-8")
        (folder / "calibration_residuals.csv").write_text(residuals_text(laws), encoding="utf-8")
        sys.stdout.write(f"{gpu}: {len(laws)} laws\n")


if __name__ == "__main__":
    main()
