"""Kernels that someone timed on their own GPU: the grid of an operator at its fixed sizes.

A collected table (family ``v41_kernels``, docs/collectors.md) holds V4.1's kernels at V4.1's
shapes. What a plan asks for is a line or a plane through it: the options and the fixed sizes are
given, rows vary, and of attention and the indexer what a row sees. Between measured points time
follows straight lines in logarithms; more work is never faster, whatever the noise of two points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError, MissingProfileError
from aisim_v41.evidence.laws import FloatArray
from aisim_v41.resources import kept_for_roots
from aisim_v41.tables.load import load_table
from aisim_v41.tables.table import Partition
from aisim_v41.units import MICROSECOND

FAMILY = "v41_kernels"
Whose = Literal["engine", "portable"]
Corner = tuple[FloatArray, tuple[npt.NDArray[np.intp], ...]]
"""Weight and place of a node, for each point."""
SHARED = {
    "cublas": "engines multiply in BF16 through the same library",
    "torch_distributed": "engines send through the same library",
}
"""Kernels of the collectors that engines call themselves, with the reason: they count for all."""
LEAST_ERROR = 0.03
"""90 % error of a measured point at least: two runs of one kernel, clock and temperature."""
PORTABLE_ERROR = 0.5
"""90 % error of another implementation of the same work: an engine's own may take half of it."""
VARYING = ("rows", "keys_per_row", "positions_per_row", "message_bytes")
LOADS = ("uniform", "power_law_1.01", "power_law_1.2", "histogram", "balanced")
"""Loads of experts, the likeliest first."""
PREFERRED: Mapping[str, tuple[str, ...]] = {
    "expert_load": LOADS,
    "row_locality": ("scattered", "cold", "text", "hot", "contiguous"),
    "score_pattern": ("random", "ordered", "not_stated"),
    "timer": ("cupti", "graph", "events", "cpu"),
}
"""Of options that a plan does not decide, which to take where a table has several."""
ANY_SIZE = ("touched", "table_rows", "width_multiple", "rows_per_request", "entries", "keys",
            "top_k", "candidate_blocks", "vocabulary")  # fmt: skip
"""Sizes that a plan does not fix: a grid takes the rows that share the commonest."""
_MOST_AXES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a plan asks of a table.

    Attributes:
        operator: of the table.
        options: that must be so.
        sizes: fixed ones.
        axes: names of those that vary, one or two.
    """

    operator: str
    options: Mapping[str, str]
    sizes: Mapping[str, float]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectedGrid:
    """Times of one kernel along one or two sizes.

    Attributes:
        axes: names of the sizes.
        nodes: measured sizes along each, rising.
        log_seconds: [nodes ...] logarithm of the time; never falling along an axis. Places that
            were not measured hold what their neighbours below took.
        known: [nodes ...] whether the place was measured.
        exact: [nodes ...] whether what was measured there is the time, and not that of less work.
        touched: experts visited at each node of rows; empty for other operators.
        whose: the plan's own engine, or the collectors' own kernels.
        error_median, error_p90: of points left out and predicted from their neighbours.
        source: whose kernel, and how it was timed.
    """

    axes: tuple[str, ...]
    nodes: tuple[FloatArray, ...]
    log_seconds: FloatArray
    known: npt.NDArray[np.bool_]
    exact: npt.NDArray[np.bool_]
    touched: FloatArray
    whose: Whose
    error_median: float
    error_p90: float
    source: str

    def seconds(self, *at: FloatArray) -> FloatArray:
        """Time at points [s]; sizes beyond the grid count as its ends."""
        total: FloatArray = np.zeros(np.broadcast(*at).shape)
        for weight, index in self._corners(*at):
            total = total + weight * self.log_seconds[index]
        return np.exp(total)

    def inside(self, *at: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether a point lies between measured ones."""
        within = np.ones(np.broadcast(*at).shape, dtype=bool)
        for size, nodes in zip(at, self.nodes, strict=True):
            within &= (size >= nodes[0]) & (size <= nodes[-1])
        for weight, index in self._corners(*at):
            within &= (weight == 0) | self.known[index]
        return within

    def measured(self, *at: float) -> bool:
        """Whether a point is a measured one whose time is that of a step."""
        place = []
        for size, nodes in zip(at, self.nodes, strict=True):
            found = np.flatnonzero(np.isclose(nodes, size, rtol=_SAME, atol=0.0))
            if not len(found):
                return False
            place.append(int(found[0]))
        return bool(self.exact[tuple(place)])

    def touched_at(self, rows: FloatArray) -> FloatArray:
        """Experts that were visited where so many rows were timed."""
        low, high = self.nodes[0][0], self.nodes[0][-1]
        return np.interp(np.log(np.clip(rows, low, high)), np.log(self.nodes[0]), self.touched)

    def _corners(self, *at: FloatArray) -> list[Corner]:
        """Weights and places of the nodes around points."""
        found: list[Corner] = [(np.ones(()), ())]
        for size, nodes in zip(at, self.nodes, strict=True):
            clipped = np.clip(np.asarray(size, np.float64), nodes[0], nodes[-1])
            last = max(len(nodes) - 2, 0)
            low = np.clip(np.searchsorted(nodes, clipped, side="right") - 1, 0, last)
            high = np.minimum(low + 1, len(nodes) - 1)
            width = np.where(high > low, np.log(nodes[high] / nodes[low]), 1.0)
            share = np.log(clipped / nodes[low]) / width
            found = [
                (weight * part, (*index, place))
                for weight, index in found
                for part, place in ((1.0 - share, low), (share, high))
            ]
        return found


_SAME = 2e-3
"""Sizes are one if they differ by no more: cases print a digit behind the point."""


class AskedKey(NamedTuple):
    """What is asked, as something that can be looked up."""

    operator: str
    options: tuple[tuple[str, str], ...]
    sizes: tuple[tuple[str, float], ...]
    axes: tuple[str, ...]


def key_of(asked: Asked) -> AskedKey:
    """What is asked, as something that can be looked up."""
    return AskedKey(
        asked.operator,
        tuple(sorted(asked.options.items())),
        tuple(sorted(asked.sizes.items())),
        asked.axes,
    )


@kept_for_roots(maxsize=1024)
def collected_grid(
    gpu: str, engine: str, execution: str, asked_key: AskedKey
) -> CollectedGrid | None:
    """The grid of what a plan asks for; None where the GPU has no table, or no two points of it.

    Args:
        gpu: as in ``hardware/``.
        engine: of the plan; its own kernels come first.
        execution: ``graph`` or ``eager``.
        asked_key: from `key_of`.
    """
    asked = Asked(
        operator=asked_key.operator,
        options=dict(asked_key.options),
        sizes=dict(asked_key.sizes),
        axes=asked_key.axes,
    )
    parts = _partitions(gpu, execution).get(asked.operator, ())
    order: tuple[Whose, ...] = ("engine", "portable")
    for whose in order:
        fitting = [part for part in parts if _whose(part, engine) == whose and _fits(part, asked)]
        for part in sorted(fitting, key=_rank):
            grid = _grid(part, asked, whose)
            if grid is not None:
                return grid
    return None


@kept_for_roots(maxsize=32)
def _partitions(gpu: str, execution: str) -> Mapping[str, tuple[Partition, ...]]:
    """Partitions of a GPU's table by operator; empty where there is no table.

    Rows that were issued call by call on a CPU stand for both executions: it has no graphs.
    """
    try:
        table = load_table(gpu, FAMILY)
    except (MissingProfileError, InvalidInputError):  # or a name that no table can have
        return {}
    found: dict[str, list[Partition]] = {}
    for identity in table.identities:
        named: dict[str, Any] = dict(identity)
        part = table.select(**named)
        wanted = part.identity["execution"] == execution or part.identity["timer"] == "cpu"
        if wanted and len(part) and part.identity["cache_state"] == "cold":
            found.setdefault(str(part.identity["operator"]), []).append(part)
    return {operator: tuple(parts) for operator, parts in found.items()}


def _whose(part: Partition, engine: str) -> Whose | None:
    if part.identity["engine"] == engine or part.identity["kernel_source"] in SHARED:
        return "engine"
    return "portable" if part.identity["engine"] in ("portable", "gloo") else None


def _fits(part: Partition, asked: Asked) -> bool:
    return all(part.identity.get(name) == word for name, word in asked.options.items())


def _rank(part: Partition) -> tuple[object, ...]:
    """The likeliest options first, then the newest version, then the most rows."""
    preferred = [
        words.index(str(part.identity[name])) if part.identity[name] in words else len(words)
        for name, words in PREFERRED.items()
    ]
    said = str(part.identity["engine_version"]).replace("+", ".").split(".")
    version = [-int(word) if word.isdigit() else 0 for word in said]
    return (preferred, version, -len(part), str(sorted(part.identity.items())))


def _grid(part: Partition, asked: Asked, whose: Whose) -> CollectedGrid | None:
    """The line or plane of a partition; None without two points on it."""
    keep = np.ones(len(part), dtype=bool)
    for name, size in asked.sizes.items():
        if name in part.sizes:
            keep &= np.isclose(part.sizes[name], size, rtol=_SAME, atol=0.0)
    for name in ANY_SIZE:
        if name in part.sizes and name not in asked.axes and name != "touched" and keep.any():
            values, counts = np.unique(part.sizes[name][keep], return_counts=True)
            keep &= part.sizes[name] == values[np.argmax(counts)]
    places = np.flatnonzero(keep)
    if len(places) < _MOST_AXES or not set(asked.axes) <= set(part.sizes):
        return None
    points = [np.asarray(part.sizes[axis][places], np.float64) for axis in asked.axes]
    nodes = tuple(np.unique(values) for values in points)
    if any(node[0] <= 0 for node in nodes):
        return None
    index = tuple(np.searchsorted(node, values) for node, values in zip(nodes, points, strict=True))
    seconds = np.full([len(node) for node in nodes], np.nan)
    seconds[index] = part.latency_us[places] * MICROSECOND
    touched = np.zeros(0)
    if "touched" in part.sizes:
        touched = np.zeros(len(nodes[0]))
        touched[index[0]] = part.sizes["touched"][places]
    known = np.isfinite(seconds)
    filled = _rising(np.where(known, seconds, 0.0))
    median, p90 = _left_out(np.log(filled), known, nodes)
    return CollectedGrid(
        axes=asked.axes, nodes=nodes, log_seconds=np.log(filled), known=known,
        exact=known & (np.where(known, seconds, 0.0) >= (1.0 - LEAST_ERROR) * filled),
        touched=touched, whose=whose, error_median=median,
        error_p90=max(LEAST_ERROR, p90) if whose == "engine" else PORTABLE_ERROR,
        source=f"{part.identity['engine']} {part.identity['kernel_source']} "
        f"{part.identity['engine_version']}, {part.identity['execution']}, campaign "
        f"{part.identity['campaign']}",
    )  # fmt: skip


def _rising(seconds: FloatArray) -> FloatArray:
    """Times that never fall along an axis; places without one take that of less work."""
    for axis in range(seconds.ndim):
        seconds = np.maximum.accumulate(seconds, axis=axis)
    least = seconds[seconds > 0].min()
    return np.asarray(np.maximum(seconds, least))


def _left_out(
    logs: FloatArray, known: npt.NDArray[np.bool_], nodes: tuple[FloatArray, ...]
) -> tuple[float, float]:
    """Median and 90th percentile of the error of inner points, each from its two neighbours."""
    missed = []
    for axis, node in enumerate(nodes):
        if len(node) < _MOST_AXES + 1:
            continue
        values, there = np.moveaxis(logs, axis, 0), np.moveaxis(known, axis, 0)
        place = np.log(node)
        share = (place[1:-1] - place[:-2]) / (place[2:] - place[:-2])
        share = share.reshape(-1, *[1] * (values.ndim - 1))
        guess = values[:-2] * (1 - share) + values[2:] * share
        whole = there[:-2] & there[1:-1] & there[2:]
        missed.append(np.abs(np.exp(guess - values[1:-1]) - 1)[whole])
    errors = np.concatenate(missed) if missed else np.zeros(0)
    if not len(errors):
        return LEAST_ERROR, LEAST_ERROR
    return float(np.median(errors)), float(np.quantile(errors, 0.9))
