"""Tasks whose time depends on one number of rows, tabulated once when a plan is compiled.

Dense products, norms, residual streams and messages are most of a step's kernels, and each is a
function of the rows that it works on. `RowCurves` evaluates their evidence at *knots* and
interpolates linearly between them: at every whole number to 256, then sixteen to an octave, at
measured rows, and at both sides of a step in a collective's curve. So one lookup prices them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aisim_v41.estimators.op.evidence import KernelEvidence
from aisim_v41.evidence.laws import REGIMES, LawKind

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
EVERY_ROW = 256
"""Up to this every number of rows is a knot [rows]."""
KNOTS_AN_OCTAVE = 16
LAST_KNOT = 2.0**24
"""Beyond it every law is a straight line, which the last two knots continue [rows]."""


@dataclass(frozen=True, slots=True, eq=False)
class RowCurves:
    """Seconds of many tasks as functions of their rows.

    Attributes:
        knots: [knots] rows, rising from 0.
        table: [tasks, knots] seconds.
        used: distinct columns of rows, places in the ledger.
        which: [tasks] which of them a task's rows are.
    """

    knots: Floats
    table: Floats
    used: Places
    which: Places

    def seconds(self, counts: Floats) -> Floats:
        """Seconds of one call of every task: [tasks], or [tasks, steps] of columns of steps."""
        rows = counts[self.used]
        low = np.searchsorted(self.knots, rows, side="right") - 1
        np.minimum(low, len(self.knots) - 2, out=low)
        left = self.knots[low]
        share = (rows - left) / (self.knots[low + 1] - left)
        if counts.ndim == 1:
            low, share = low[self.which], share[self.which]
            tasks = np.arange(len(low))
            first: Floats = self.table[tasks, low]
            return first + share * (self.table[tasks, low + 1] - first)
        seconds = np.empty((len(self.which), counts.shape[1]))
        first = np.empty(counts.shape[1])
        for task, column in enumerate(self.which.tolist()):
            values, at, out = self.table[task], low[column], seconds[task]
            np.take(values, at, out=first, mode="clip")
            np.take(values[1:], at, out=out, mode="clip")
            out -= first
            out *= share[column]
            out += first
        return seconds


def row_curves(
    tasks: Sequence[Sequence[KernelEvidence]],
    floors: Sequence[tuple[Floats, Floats]],
    columns: Sequence[int],
) -> RowCurves:
    """Tabulate tasks.

    Args:
        tasks: kernels of each task.
        floors: for each task, seconds on every resource of one row, and of a call whatever its
            rows, both [resources].
        columns: place of each task's rows in the ledger.
    """
    knots = _knots([kernel for kernels in tasks for kernel in kernels])
    active = (knots > 0).astype(np.float64)
    table = np.empty((len(tasks), len(knots)))
    for place, (kernels, (a_row, a_call)) in enumerate(zip(tasks, floors, strict=True)):
        total = np.zeros(len(knots))
        for kernel in kernels:
            # More rows are never faster, whatever the noise of two measured rows.
            total += np.maximum.accumulate(kernel.seconds_of_rows(knots))
        floor = np.outer(a_row, knots) + np.outer(a_call, active)
        np.maximum(total, floor.max(axis=0), out=table[place])
    used, which = np.unique(np.array(columns, np.intp), return_inverse=True)
    return RowCurves(knots, table, used, which.astype(np.intp))


def _knots(kernels: Sequence[KernelEvidence]) -> Floats:
    """Rows at which times are tabulated."""
    octaves = np.arange(np.log2(EVERY_ROW), np.log2(LAST_KNOT), 1 / KNOTS_AN_OCTAVE)
    found = {0.0, LAST_KNOT, *np.arange(1.0, EVERY_ROW + 1), *np.floor(2.0**octaves)}
    for kernel in kernels:
        edges: list[float] = []
        if kernel.collected is not None:
            edges += [float(node) / kernel.per_row for node in kernel.collected.nodes[0]]
        if kernel.curve is not None:
            edges += [float(node) / kernel.per_row for node in kernel.curve.nodes]
        if kernel.law.kind is LawKind.COLLECTIVE:
            limits = (kernel.law.parameters[f"limit_{regime}_bytes"] for regime in REGIMES[:-1])
            edges += [limit / kernel.per_row for limit in limits]
        for edge in edges:
            if 1 <= edge < LAST_KNOT:
                found |= {float(np.floor(edge)), float(np.floor(edge)) + 1.0}
    return np.array(sorted(found))
