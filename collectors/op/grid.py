"""Sizes along each axis, and the order in which they are measured.

The ends of a line come first, then the middle of the widest gap again and again, so that a run may
stop at any time and leave an even, coarser grid. Knees are always among the sizes: where a window,
a top-k, a candidate pool, a tile or a captured batch begins or ends, nothing in between tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from collectors.errors import InputError
from collectors.op.shapes import KEYS, MESSAGE, POSITIONS, ROWS, Line

WINDOW, SELECTED, POOL_BLOCK, POOL = 128, 512, 8, 16_384
KNEES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        ROWS: (1, 6, 16, 64, 128, 512, 1026),
        KEYS: (1, WINDOW, WINDOW + 1, SELECTED, WINDOW + SELECTED),
        POSITIONS: (SELECTED, 1026, POOL, POOL + POOL_BLOCK),
    }
)
"""Rows: one, a verify step, tiles, the largest captured batch, one past two tiles of a ratio-2
prefix. Keys: window, top-k and both. Positions: top-k, the shortest context in which a ratio-2
layer selects, and the candidate pool (model-facts §4.3)."""
LEAST_MESSAGE = 8192
MOST_MESSAGE = 1 << 28
_DECODE_ROWS = 512


@dataclass(frozen=True)
class Workload:
    """What will be served.

    Attributes:
        max_batch: rows of the largest decode step.
        chunk: rows of the largest prefill step.
        context: positions of the longest request.
        scale: ``default``: every power of two; ``overnight``: the middles too; ``small``: a few
            tiny sizes of everything, for a CPU.
    """

    max_batch: int = 512
    chunk: int = 8192
    context: int = 131_072
    scale: str = "default"

    def __post_init__(self) -> None:
        for name, most in (("max_batch", 1 << 16), ("chunk", 1 << 20), ("context", 1 << 24)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise InputError(f"{name} = {value!r:.40}: a whole number from 1 to {most}")
        if self.scale not in SCALES:
            raise InputError(f"scale {self.scale!r:.40}: one of {', '.join(SCALES)}")


SCALES = ("small", "default", "overnight")


@dataclass(frozen=True)
class Point:
    """A place of a grid.

    Attributes:
        sizes: by axis.
        level: 0 for ends, one more for each halving of the gaps.
    """

    sizes: Mapping[str, int]
    level: int


def points_of(line: Line, workload: Workload) -> list[Point]:
    """Places of a line's grid, coarse ones first."""
    if not line.axes:
        return [Point({}, 0)]
    axes = [_axis(axis, line, workload) for axis in line.axes]
    found = [
        Point(
            {axis: size for axis, (size, _) in zip(line.axes, place, strict=True)},
            max(level for _, level in place),
        )
        for place in product(*axes)
    ]
    kept = [point for point in found if _is_sensible(point.sizes, line, workload)]
    return sorted(kept, key=lambda point: (point.level, sorted(point.sizes.items())))


def levels(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Every size with its level: ends 0, then middles (by ratio) of what lies between.

    >>> levels([1, 2, 4, 8, 16])
    [(1, 0), (2, 2), (4, 1), (8, 2), (16, 0)]
    """
    ordered = sorted(set(sizes))
    level = {ordered[0]: 0, ordered[-1]: 0}
    gaps = [(0, len(ordered) - 1, 1)]
    while gaps:
        low, high, depth = gaps.pop(0)
        if high - low < 2:
            continue
        middle = math.sqrt(max(ordered[low], 1) * ordered[high])
        nearest = min(range(low + 1, high), key=lambda i: abs(math.log(ordered[i] / middle)))
        level[ordered[nearest]] = depth
        gaps += [(low, nearest, depth + 1), (nearest, high, depth + 1)]
    return [(size, level[size]) for size in ordered]


def _axis(axis: str, line: Line, workload: Workload) -> list[tuple[int, int]]:
    if workload.scale == "small":
        return levels(_SMALL[axis])
    if axis == ROWS:
        most = max(workload.max_batch, workload.chunk if line.prefill else 0)
        sizes = [*_powers(1, most, workload), most, workload.max_batch]
        if len(line.axes) > 1:
            sizes = [size for size in sizes if size in _COARSE or size in (most,
                     workload.max_batch)]  # fmt: skip
    elif axis == KEYS:
        sizes = [1, *_powers(8, WINDOW + SELECTED, workload), 384, WINDOW + SELECTED]
    elif axis == POSITIONS:
        sizes = [*_powers(64, workload.context, workload), workload.context]
    else:
        sizes = _powers(LEAST_MESSAGE, MOST_MESSAGE, workload)
    knees = KNEES.get(axis, ()) if len(line.axes) == 1 or axis != ROWS else ()
    return levels([*sizes, *(knee for knee in knees if min(sizes) <= knee <= max(sizes))])


_COARSE = (1, 8, 32, 128, 512, 2048, 8192, 16384)
_SMALL = {ROWS: (1, 3, 8), KEYS: (8, 130), POSITIONS: (16, 600), MESSAGE: (1024, 16384)}


def _powers(low: int, high: int, workload: Workload) -> list[int]:
    found = [1 << n for n in range(low.bit_length() - 1, high.bit_length())]
    if workload.scale == "overnight":
        found += [3 * size // 2 for size in found if size > 1]
    return [size for size in found if low <= size <= high]


def _is_sensible(sizes: Mapping[str, int], line: Line, workload: Workload) -> bool:
    """Whether a step can hold a place: long rows of a prefill see no more than their own prompt."""
    rows = sizes.get(ROWS, 1)
    positions = sizes.get(POSITIONS, 0)
    if line.base.options.get("form") == "candidates" and positions > POOL:
        return False
    if rows > _DECODE_ROWS and positions:
        return 2 * positions >= rows and rows * positions <= workload.chunk * workload.context
    return True
