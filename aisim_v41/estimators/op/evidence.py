"""What is known about one kernel of a step: measured rows where there are any, else a law.

In this order: a measured row; between measured rows of the same kernel; the law fitted on this GPU,
on a sibling, or stated for its family. `KernelEvidence` holds both for one kernel of one task and
says, for given counts, how long it takes, on what that rests and how far it may be off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.estimators.op.cases import PER_ROW, KernelCase
from aisim_v41.estimators.op.laws import Binding, Feature
from aisim_v41.evidence.calibration import CalibratedLaw, Calibration
from aisim_v41.evidence.collected import CollectedGrid, collected_grid, key_of
from aisim_v41.evidence.laws import FloatArray, LawKind
from aisim_v41.evidence.measured import (
    LEAST_ERROR,
    MeasuredCurve,
    collective_curve,
    product_curve,
)
from aisim_v41.hardware import Hardware
from aisim_v41.ops.operator import Task
from aisim_v41.plan.columns import ACTIVITY, Column

Tag = Literal[
    "measured",
    "interpolated",
    "calibrated",
    "portable",
    "sibling",
    "default",
    "extrapolated",
    "rescaled",
    "theoretical",
]
"""Kinds of evidence, best first. "portable" is the collectors' own kernel, timed on this GPU, in
the place of an engine's that no law of this GPU knows; "extrapolated" is a law beyond the sizes
that it was fitted to, "rescaled" one of another number format, "theoretical" the peak rates where
there is no law."""
PEAK_ERROR = 0.75
"""90 % error of a kernel without a law: it may take four times what the peak rates say."""
EXTRAPOLATION_PENALTY = 0.10
"""Added to the 90 % error of a law beyond its sizes. Laws of products fitted without the largest
four-fold of rows, or without the narrowest or widest matrices, miss those by up to .07 more."""
RESCALING_PENALTY = 0.25
"""Added to the 90 % error of a law of another number format (docs/assumptions.md, "Formats by
role")."""
SHAPE = ("outputs", "inputs")
"""Sizes of a kernel that do not vary from step to step."""


class Kernel(NamedTuple):
    """All calls of one kernel of a task in a forward, and what its time rests on.

    Attributes:
        task: the task.
        law: its law, also where measured rows say more.
        seconds: of all calls [s].
        tag: kind of evidence.
        error_p90: 90th percentile of its relative error.
        reason: why a law is beyond its sizes; empty otherwise.
        evidence: of which this is the answer.
    """

    task: Task
    law: CalibratedLaw
    seconds: float
    tag: Tag
    error_p90: float
    reason: str
    evidence: KernelEvidence


@dataclass(frozen=True, slots=True, eq=False)
class KernelEvidence:
    """Evidence for one kernel.

    Attributes:
        binding: the kernel: its task, and its features as forms of the ledger.
        law: what prices it where nothing is measured.
        curve: measured rows of the same kernel along its rows or its message; None without.
        per_row: size along the curve of one row.
        foreign: the format that is asked for, where its law is of another one.
        collected: rows of someone's own table for this kernel; they come before anything else, or,
            if they are of another implementation, in the place of a law of another GPU.
        seen: what a row sees, as a total, where the collected rows vary with that too.
        case: the kernel in the words of tables and collectors.
    """

    binding: Binding
    law: CalibratedLaw
    curve: MeasuredCurve | None = None
    per_row: float = 1.0
    foreign: str = ""
    collected: CollectedGrid | None = None
    seen: Feature | None = None
    case: KernelCase | None = None

    @property
    def rows_column(self) -> Column | None:
        """The one column of rows that decides its time; None where more columns do."""
        columns = {
            column
            for feature in self.binding.features.values()
            if isinstance(feature, Mapping)
            for column in feature
            if column.quantity not in ACTIVITY
        }
        return next(iter(columns)) if len(columns) == 1 else None

    def seconds_of_rows(self, rows: FloatArray) -> FloatArray:
        """Seconds of one call for rows of its one column; zero without rows."""
        if self.collected is not None:
            at = np.maximum(rows, 1.0) * self.per_row
            known = self.collected.seconds(at)
            beyond = np.where(at > self.collected.nodes[0][-1], self._of_law(rows), 0.0)
            return np.where(rows > 0, np.maximum(known, beyond), 0.0)
        return self._of_law(rows)

    def _of_law(self, rows: FloatArray) -> FloatArray:
        """Seconds by packaged rows of the kernel, or by its law."""
        if self.curve is not None:
            return np.where(rows > 0, self.curve.seconds(np.maximum(rows, 1) * self.per_row), 0.0)
        features = {
            name: _of_rows(feature, rows) for name, feature in self.binding.features.items()
        }
        return self.law.seconds(features)

    def tag(self, rows: float, seen: float = 0.0) -> tuple[Tag, float, str]:
        """Kind of evidence for a call of so many rows, its 90 % error, and what is exceeded.

        Args:
            rows: of the call.
            seen: what all of them see, where that decides the time too.
        """
        curve, grid = self.curve, self.collected
        if grid is not None:
            at = (rows * self.per_row, *([seen / rows] if self.seen is not None else []))
            inside = bool(grid.inside(*(np.asarray(size) for size in at)))
            if inside and grid.whose == "portable":
                return "portable", grid.error_p90, "the collectors' own kernel, not the engine's"
            if inside:
                exact = grid.measured(*at)
                error = LEAST_ERROR if exact else grid.error_p90
                return ("measured" if exact else "interpolated"), error, ""
        if self.foreign and self.law.origin != "theoretical":
            return "rescaled", self.law.error_p90 + RESCALING_PENALTY, self.foreign
        if curve is not None and curve.inside(rows * self.per_row):
            if curve.measured(rows * self.per_row):
                return "measured", LEAST_ERROR, ""
            return "interpolated", curve.error_p90, ""
        beyond = self._beyond(rows)
        if beyond:
            return "extrapolated", self.law.error_p90 + EXTRAPOLATION_PENALTY, beyond
        return self.law.origin, self.law.error_p90, ""

    def _beyond(self, rows: float) -> str:
        """The first size outside the law's hull; empty if none is."""
        features = self.binding.features
        own = rows * self.binding.task.row_share
        sizes = {"rows": own, "tokens": own, "message_bytes": rows * self.per_row}
        sizes |= {name: float(value) for name in SHAPE if (value := features.get(name))}  # type: ignore[arg-type]
        for name, (low, high) in self.law.hull.items():
            if name in sizes and not low <= sizes[name] <= high:
                return f"{name} = {sizes[name]:g} lies outside {low:g} to {high:g}"
        return ""


def _of_rows(feature: Feature, rows: FloatArray) -> FloatArray:
    """A feature for numbers of rows; whatever is active is so because there are rows."""
    if not isinstance(feature, Mapping):
        return np.asarray(feature, np.float64)
    total = np.zeros_like(rows, np.float64)
    for column, factor in feature.items():
        total = total + factor * ((rows > 0) if column.quantity in ACTIVITY else rows)
    return total


def with_collected(
    evidence: KernelEvidence, case: KernelCase, hardware: Hardware, engine: str, execution: str
) -> KernelEvidence:
    """Evidence with rows of someone's own table for the kernel, where there are any that count.

    Rows of the engine's own kernel always do; those of the collectors' kernels only where this GPU
    has no law of the engine's.
    """
    evidence = replace(evidence, case=case)
    asked = case.asked()
    message = case.axes.get("message_bytes")
    if message is not None and (not isinstance(message, Mapping) or len(message) != 1):
        return evidence
    grid = collected_grid(hardware.name, engine, execution, key_of(asked))
    if grid is None or (grid.whose == "portable" and evidence.law.origin == "calibrated"):
        return evidence
    per_row = evidence.binding.task.row_share
    if isinstance(message, Mapping):
        (per_row,) = (float(value) for value in message.values())
    seen = next((f for axis, f in case.axes.items() if axis in PER_ROW), None)
    return replace(evidence, collected=grid, per_row=per_row, seen=seen)


def evidence_of(
    binding: Binding, calibration: Calibration, hardware: Hardware
) -> Iterator[KernelEvidence]:
    """Evidence for a kernel, for those that do the same work where it has no law, or its peak."""
    if binding.law is not None:
        yield KernelEvidence(binding, binding.law)
        return
    for key in (binding.key, *FALLBACK_KEYS.get(binding.key, ())):
        try:
            law = calibration.law(key, binding.ranks)
        except MissingProfileError:
            continue
        yield _with_rows(binding, law, key, calibration.engine, hardware)
        return
    if not binding.instead:
        yield _at_peak(binding)
    for part in binding.instead:
        yield from evidence_of(part, calibration, hardware)


def _at_peak(binding: Binding) -> KernelEvidence:
    """A kernel at the peak rates."""
    law = CalibratedLaw(
        kind=LawKind.ELEMENTWISE, key=f"peak.{binding.key}",
        parameters={"launch_s": 0.0, "memory_share": 1.0},
        error_median=PEAK_ERROR, error_p90=PEAK_ERROR, penalty=0.0, bias=0.0, rows_fitted=0,
        hull={}, origin="theoretical", sources=("peak rates of the hardware file",),
        note="no law of this kernel is known",
    )  # fmt: skip
    needed = {name: binding.features[name] for name in ("compute_s", "memory_s", "rows")}
    return KernelEvidence(replace(binding, features=needed), law)


FALLBACK_KEYS: Mapping[str, tuple[str, ...]] = {
    "attention.padded": ("attention",),
    "attention.native": ("attention",),
    "elementwise.hyper": ("elementwise",),
    "product.fp8_block32_triton": ("product.fp8",),
    "hyper.swept_pre": ("hyper.pre",),
    "hyper.swept_post": ("hyper.post",),
    "scores.bf16": ("scores.fp8",),
    "experts.w4a16": ("experts.mxfp4",),
}
"""Laws that stand in where an engine or GPU has none of its own."""


def _with_rows(
    binding: Binding, law: CalibratedLaw, key: str, engine: str, hardware: Hardware
) -> KernelEvidence:
    """The law, with measured rows of the same kernel where there are any."""
    if law.kind is LawKind.COLLECTIVE:
        return _with_messages(binding, law, key, hardware)
    if key == "product.bf16" and law.origin == "calibrated" and binding.plain:
        outputs, inputs = (int(float(binding.features[name])) for name in SHAPE)  # type: ignore[arg-type]
        try:
            curve = product_curve(hardware, engine, "bf16", outputs, inputs, law)
        except MissingProfileError:
            return KernelEvidence(binding, law)
        return KernelEvidence(binding, law, curve, binding.task.row_share)
    return KernelEvidence(binding, law)


def _with_messages(
    binding: Binding, law: CalibratedLaw, key: str, hardware: Hardware
) -> KernelEvidence:
    """A collective of one message a row, with measured messages of its library."""
    message = binding.features["message_bytes"]
    if not isinstance(message, Mapping) or len(message) != 1 or binding.ranks is None:
        return KernelEvidence(binding, law)
    (per_row,) = message.values()
    operator, _, library = key.partition(".")
    curve = None
    if law.origin == "calibrated":
        try:
            curve = collective_curve(hardware, operator, library, binding.ranks, law)
        except (MissingProfileError, InvalidInputError):
            curve = None  # not measured, or several kernels were and which one runs is not known
    return KernelEvidence(binding, law, curve, float(per_row))
