"""The same rows predicted in other ways: from their neighbours, and by the laws of a sibling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.evidence.calibration import CalibrationFile
from aisim_v41.evidence.features import HyperPart
from aisim_v41.evidence.fit.jobs import Fitted
from aisim_v41.evidence.interpolate import (
    MeasuredGrid,
    collective_grid,
    experts_grid,
    hyper_grid,
    product_grid,
)
from aisim_v41.evidence.laws import LawKind, law_seconds
from aisim_v41.evidence.robust import Errors, errors
from aisim_v41.hardware import Hardware

INTERPOLATED = "interpolated, left out"
_DTYPE = {"bf16": "bf16", "fp8": "fp8_block128"}
_PARTS: Mapping[str, HyperPart] = {"pre": "pre", "post": "post", "fused": "fused"}
_SPLITS = ((1, 4), (2, 2), (4, 1), (1, 1), (2, 1), (1, 2))


def with_neighbours(hardware: Hardware, law: Fitted) -> Fitted:
    """The law with errors of interpolation, each row left out, where its rows form a grid."""
    predicted, measured = [], []
    for grid in _grids(hardware, law):
        guess = grid.left_out()
        known = np.isfinite(guess) & np.isfinite(grid.measured_s)
        predicted.append(guess[known])
        measured.append(grid.measured_s[known])
    if not predicted:
        return law
    found = errors(np.concatenate(predicted), np.concatenate(measured))
    return replace(law, extra={**law.extra, INTERPOLATED: found})


def _grids(hardware: Hardware, law: Fitted) -> Iterator[MeasuredGrid]:
    name, _, ranks = law.key.partition("@")
    first, _, second = name.replace("_older", "").partition(".")
    try:
        if law.kind is LawKind.PRODUCT and second.split("_")[0] in _DTYPE and law.engine != "any":
            yield product_grid(hardware, law.engine, _DTYPE[second.split("_")[0]], law)
        elif law.kind is LawKind.COLLECTIVE:
            yield collective_grid(hardware, first, second, int(ranks), law)
        elif law.kind is LawKind.HYPER and second in _PARTS:
            yield hyper_grid(hardware, law.engine, _PARTS[second], law)
    except (MissingProfileError, InvalidInputError):  # several kernels, which must not be mixed
        return
    if law.key == "experts.mxfp4" and "uneven" in law.parameters:
        for tensor, expert in _SPLITS:
            try:
                yield experts_grid(hardware, law.engine, "mxfp4_mxfp8", tensor, expert, law)
            except (MissingProfileError, InvalidInputError):
                continue


def with_sibling(law: Fitted, sibling: str, file: CalibrationFile) -> Fitted:
    """The law with the errors that a sibling's parameters make on this GPU's rows."""
    other = file.engines.get(law.engine, {}).get(law.key)
    if other is None or law.samples is None:
        return law
    predicted = law_seconds(law.kind, law.samples.features, other.parameters)
    found: Mapping[str, Errors] = {f"laws of {sibling}": errors(predicted, law.samples.seconds)}
    return replace(law, extra={**law.extra, **found})
