"""Between measured rows: the ratio of measured time to its law, linear in the logarithms of sizes.

A law follows size over many octaves and leaves a ratio near 1; that ratio changes slowly from row
to row, so it is what is interpolated. Rows come back exactly, nothing is said outside the grid, and
a cell of the grid with a missing corner counts as outside. The ratio to the law misses rows left
out by a fifth less than the ratio to the peak rates does (docs/calibration.md, "Interpolation").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.evidence import features as of
from aisim_v41.evidence.calibration import Calibration
from aisim_v41.evidence.laws import FloatArray
from aisim_v41.hardware import Hardware
from aisim_v41.resources import kept_for_roots
from aisim_v41.tables.load import load_table
from aisim_v41.tables.table import Identity, Partition
from aisim_v41.units import MICROSECOND

BoolArray = npt.NDArray[np.bool_]
Sizes = Mapping[str, FloatArray]
Predict = Callable[[Sizes], FloatArray]


class Law(Protocol):
    """Anything that gives seconds for features."""

    def seconds(self, features: Mapping[str, FloatArray]) -> FloatArray:
        """Seconds for the features of the law's kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpolated:
    """Answers for many points.

    Attributes:
        seconds: time; NaN outside [s].
        inside: whether every corner of the point's cell was measured.
        exact: whether the point itself was.
    """

    seconds: FloatArray
    inside: BoolArray
    exact: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredGrid:
    """Rows of one identity on the grid of their sizes.

    Attributes:
        axes: names of the sizes.
        nodes: values that occur along each, rising.
        measured_s: on the grid; NaN where there is no row [s].
        ratio: logarithm of measured over predicted, on the grid.
        predict: seconds of the law at given sizes.
        identity: of the rows.
    """

    axes: tuple[str, ...]
    nodes: tuple[FloatArray, ...]
    measured_s: FloatArray
    ratio: FloatArray
    predict: Predict
    identity: Identity

    def at(self, **sizes: FloatArray | float) -> Interpolated:
        """Times at points; sizes broadcast.

        Raises:
            InvalidInputError: a size is missing or not an axis.
        """
        if set(sizes) != set(self.axes):
            raise InvalidInputError(
                f"the grid has the axes {', '.join(self.axes)}; found {', '.join(sorted(sizes))}"
            )
        points = dict(
            zip(
                self.axes,
                np.broadcast_arrays(*(np.asarray(sizes[axis], np.float64) for axis in self.axes)),
                strict=True,
            )
        )
        shape = points[self.axes[0]].shape
        places, weights = [], []
        within = np.ones(shape, dtype=bool)
        for axis, nodes in zip(self.axes, self.nodes, strict=True):
            within &= (points[axis] >= nodes[0]) & (points[axis] <= nodes[-1])
            place, weight = _cell(nodes, points[axis])
            places.append(place)
            weights.append(weight)
        total, known = np.zeros(shape), within.copy()
        for corner in combinations((0, 1), repeat=len(self.axes)):
            weight = np.ones(shape)
            for side, part in zip(corner, weights, strict=True):
                weight = weight * (part if side else 1.0 - part)
            used = weight > 0
            index = tuple(
                np.minimum(place + side, len(nodes) - 1)
                for place, side, nodes in zip(places, corner, self.nodes, strict=True)
            )
            value = self.ratio[index]
            known &= ~used | np.isfinite(value)
            total = total + np.where(used & np.isfinite(value), weight * value, 0.0)
        exact = known.copy()
        for weight in weights:
            exact &= (weight == 0.0) | (weight == 1.0)
        nearest = tuple(
            np.minimum(place + (weight == 1.0), len(nodes) - 1)
            for place, weight, nodes in zip(places, weights, self.nodes, strict=True)
        )
        between = self.predict(points) * np.exp(total)
        seconds = np.where(exact, self.measured_s[nearest], np.where(known, between, np.nan))
        return Interpolated(seconds=seconds, inside=known, exact=exact)

    @property
    def left_out_errors(self) -> FloatArray:
        """Relative errors of `left_out`, of the rows that have neighbours [rows]."""
        errors = self.left_out() / self.measured_s - 1.0
        return np.asarray(errors[np.isfinite(errors)])

    def left_out(self) -> FloatArray:
        """Each row from its neighbours alone, on the grid: mean over the axes that have two [s].

        Rows at a corner of the grid, with no neighbour on either side along any axis, are NaN.
        """
        ways = []
        for place, nodes in enumerate(self.nodes):
            if len(nodes) < 3:
                continue
            values, logs = np.moveaxis(self.ratio, place, 0), np.log(nodes)
            guess = np.full_like(values, np.nan)
            weight = (logs[1:-1] - logs[:-2]) / (logs[2:] - logs[:-2])
            weight = weight.reshape(-1, *[1] * (values.ndim - 1))
            guess[1:-1] = values[:-2] * (1 - weight) + values[2:] * weight
            ways.append(np.moveaxis(guess, 0, place))
        stacked = np.stack(ways)
        count = np.isfinite(stacked).sum(axis=0)
        mean = np.where(count > 0, np.nansum(stacked, axis=0) / np.maximum(count, 1), np.nan)
        return np.asarray(self.measured_s * np.exp(mean - self.ratio))


def _cell(nodes: FloatArray, at: FloatArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Node below each point, and how far it is to the next, in logarithms."""
    if len(nodes) == 1:
        return np.zeros(at.shape, dtype=np.int64), np.zeros(at.shape)
    place = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, len(nodes) - 2)
    low, high = nodes[place], nodes[place + 1]
    inside = np.clip(at, low, high)
    weight = (np.log(inside) - np.log(low)) / (np.log(high) - np.log(low))
    return place, np.where(inside == high, 1.0, weight)


def measured_grid(partition: Partition, predict: Predict, sites: float = 1.0) -> MeasuredGrid:
    """Rows of a partition on their grid.

    Args:
        partition: of one identity, without suspect rows.
        predict: seconds of the law at given sizes.
        sites: times that one row holds the operator.
    """
    sizes = {axis: values.astype(np.float64) for axis, values in partition.sizes.items()}
    nodes = tuple(np.unique(sizes[axis]) for axis in partition.axes)
    index = tuple(
        np.searchsorted(one, sizes[axis]) for axis, one in zip(partition.axes, nodes, strict=True)
    )
    measured = np.full(tuple(len(one) for one in nodes), np.nan)
    measured[index] = partition.latency_us * MICROSECOND / sites
    ratio = np.full_like(measured, np.nan)
    ratio[index] = np.log(measured[index] / predict(sizes))
    return MeasuredGrid(
        axes=partition.axes,
        nodes=nodes,
        measured_s=measured,
        ratio=ratio,
        predict=predict,
        identity=partition.identity,
    )


def newest_rows(gpu: str, family: str, **identity: str | int) -> Partition:
    """Rows of the newest version that has these values.

    Raises:
        MissingProfileError: no such table, or no such rows in it.
        InvalidInputError: the values leave identities of one version that must not be mixed.
    """
    table = load_table(gpu, family)
    found = [one for one in table.matching(**identity) if len(table.select(flags=(), **one))]
    if not found:
        raise MissingProfileError(
            f"{gpu}, {family}: no sound rows with "
            f"{', '.join(f'{name}={value!r}' for name, value in identity.items())}"
        )
    version = max(version_of(one) for one in found)
    return table.select(
        flags=(),
        **identity | {"engine_version": next(str(one["engine_version"]) for one in found
                                             if version_of(one) == version)},
    )  # fmt: skip


def version_of(identity: Identity) -> tuple[int, ...]:
    """Numbers of a release, so that 0.25 is after 0.9; candidates come before their release."""
    text = str(identity["engine_version"]).replace("rc", ".-1.")
    return tuple(int(part) for part in text.split(".") if part.lstrip("-").isdigit())


@kept_for_roots(maxsize=64)
def product_grid(
    hardware: Hardware, engine: str, dtype: str, law: Law, version: str | None = None
) -> MeasuredGrid:
    """Products of an engine, of its newest version unless one is named: axes rows, outputs, inputs.

    Raises:
        MissingProfileError: no such rows.
    """
    named = {} if version is None else {"engine_version": version}
    return measured_grid(
        newest_rows(hardware.name, "gemm", engine=engine, dtype=dtype, **named),
        lambda sizes: law.seconds(of.product_features(hardware, dtype, **sizes)),
    )


def product_versions(gpu: str, engine: str, dtype: str) -> list[str]:
    """Versions of an engine with measured products of a type, newest first.

    Raises:
        MissingProfileError: the GPU has no table of products.
    """
    found = load_table(gpu, "gemm").matching(engine=engine, dtype=dtype)
    versions = {str(one["engine_version"]): version_of(one) for one in found}
    return sorted(versions, key=lambda version: versions[version], reverse=True)


@kept_for_roots(maxsize=64)
def collective_grid(
    hardware: Hardware, operator: str, engine: str, ranks: int, law: Law
) -> MeasuredGrid:
    """A collective on some number of GPUs in graph mode: axes message_bytes, ranks.

    Raises:
        MissingProfileError: no such rows.
    """
    rows = newest_rows(
        hardware.name, "collectives", operator=operator, engine=engine, execution="graph"
    ).where(ranks=ranks)
    if len(rows) == 0:
        raise MissingProfileError(f"{hardware.name}: no {operator} of {engine} on {ranks} GPUs")
    return measured_grid(
        rows,
        lambda sizes: law.seconds(of.message_features(sizes["message_bytes"], sizes["ranks"])),
    )


@kept_for_roots(maxsize=64)
def hyper_grid(hardware: Hardware, engine: str, part: of.HyperPart, law: Law) -> MeasuredGrid:
    """One site of the hyper-connections: axes tokens, hidden.

    Raises:
        MissingProfileError: no such rows.
    """
    operator = "fused_post_pre" if part == "fused" else part
    rows = newest_rows(hardware.name, "hyper_connections", operator=operator, engine=engine)
    return measured_grid(
        rows,
        lambda sizes: law.seconds(
            of.hyper_features(hardware, part, sizes["tokens"], sizes["hidden"])
        ),
        sites=float(rows.identity["sites_per_timing"]),
    )


@kept_for_roots(maxsize=64)
def experts_grid(
    hardware: Hardware,
    engine: str,
    dtype: str,
    tensor_parallel: int,
    expert_parallel: int,
    law: Law,
) -> MeasuredGrid:
    """Routed experts of a rank under balanced load: axes of the experts tables.

    The shapes in a table are few and far apart: between them nothing is measured.

    Raises:
        MissingProfileError: no such rows.
    """
    rows = newest_rows(
        hardware.name, "experts", operator="routed_experts", engine=engine, dtype=dtype,
        tensor_parallel=tensor_parallel, expert_parallel=expert_parallel,
        expert_load="balanced", model_shapes="v4_family",
    )  # fmt: skip
    return measured_grid(
        rows,
        lambda sizes: law.seconds(
            of.experts_features(
                hardware, dtype, "balanced", sizes, tensor_parallel, expert_parallel
            )
        ),
    )


def all_reduce_grid(calibration: Calibration, hardware: Hardware, ranks: int) -> MeasuredGrid:
    """The all-reduce of a calibration's engine on some number of GPUs.

    Raises:
        MissingProfileError: no such rows.
    """
    engine = calibration.engine
    law = calibration.law(f"all_reduce.{engine}", ranks)
    return collective_grid(hardware, "all_reduce", engine, ranks, law)
