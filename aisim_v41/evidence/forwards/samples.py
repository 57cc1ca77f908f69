"""Measured forwards as arrays: what was measured, what it was made of, and where it lies.

The rows of a fit. They come from a table and the ledger (`aisim_v41.estimators.fpm.samples`);
nothing here knows of requests, files or GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

AXES: Final = ("rows", "context", "sequences", "largest", "prefill")
"""Physical features of a step, each as log(1 + value): rows that enter the model, mean context
before them, sequences, and the square root of the largest request's rows x positions; and the share
of rows that belong to prefills, from 0 to 1."""
NO_ORDER: Final = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What steps are made of, by the estimator from operators.

    Attributes:
        names: of the device terms.
        families: how many of them, the first, are kernels as operators predict them; the others are
            resources of the ledger at peak, for what kernels do otherwise than predicted.
        host_s: what the host needs to issue each step [steps].
        prefills: 1 where the step runs as a prefill, else 0 [steps].
        device_s: seconds of the terms [steps, names].
    """

    names: tuple[str, ...]
    families: int
    host_s: Floats
    prefills: Floats
    device_s: Floats

    @property
    def predicted_s(self) -> Floats:
        """Kernels as operators predict them, never below their resources at peak [steps]."""
        found: Floats = self.device_s[:, : self.families].sum(axis=1)
        return found

    def at(self, rows: Places | npt.NDArray[np.bool_]) -> Terms:
        """A choice of steps."""
        return replace(
            self,
            host_s=self.host_s[rows],
            prefills=self.prefills[rows],
            device_s=self.device_s[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One row a measured forward.

    Attributes:
        terms: what each step is made of.
        features: [rows, axes], see `AXES`.
        seconds: measured [rows].
        site: number of the distinct step [rows]; equal steps share it.
        run: number of the process run [rows].
        order: place in the run, as a share of its length; `NO_ORDER` where it is not recorded.
        repeats: single measurements behind each row [rows].
        spread: standard deviation of the logarithm of those repeats; nan where unknown [rows].
    """

    terms: Terms
    features: Floats
    seconds: Floats
    site: Places
    run: Places
    order: Floats
    repeats: Floats
    spread: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def runs(self) -> int:
        """Process runs."""
        return len(np.unique(self.run))

    def at(self, rows: Places | npt.NDArray[np.bool_]) -> Samples:
        """A choice of rows; numbers of sites and runs stay."""
        return Samples(
            terms=self.terms.at(rows),
            features=self.features[rows],
            seconds=self.seconds[rows],
            site=self.site[rows],
            run=self.run[rows],
            order=self.order[rows],
            repeats=self.repeats[rows],
            spread=self.spread[rows],
        )


def numbered(values: Sequence[object]) -> Places:
    """Each value by the number of its first occurrence.

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    known: dict[object, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.intp)
