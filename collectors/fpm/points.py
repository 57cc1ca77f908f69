"""Forwards to measure: what is asked of the engine, how often, and in which order.

What the engine makes of it may differ (hits, chunks, a fuller batch): what was executed is recorded
and counts, and a point is only the name under which it was asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from collectors.errors import InputError
from collectors.op.grid import levels
from collectors.writing import reason, replace_file

FORMAT, VERSION = "aisim_v41 forwards plan", 1
PREFILL, DECODE = "prefill", "decode"
KINDS = (PREFILL, DECODE)
WINDOW, SELECTED, RATIO_2_KNEE, POOL = 128, 512, 1026, 16_384
HIT_TOKENS = 64
"""New tokens of a short turn behind a cached prefix."""
DECODE_STEPS = 24
"""Tokens that every stream of a decode point emits while all run."""
SECONDS_PER_TOKEN = {PREFILL: 1.2e-5, DECODE: 0.03}
"""Of a prefill's token, and of a decode's step: enough to say minutes beforehand."""
POINT_S = 0.2
MAX_FILE_BYTES = 1 << 26


@dataclass(frozen=True)
class Point:
    """A batch to ask for.

    Attributes:
        kind: ``prefill`` (one token is generated) or ``decode``.
        new_tokens: of each request of a prefill; 1 of a decode.
        prefix_tokens: of each request, sent before so that they are cached; of a decode the
            context at its first step.
        requests: in the batch.
    """

    kind: str
    new_tokens: int
    prefix_tokens: int
    requests: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"point: kind {self.kind!r:.40} must be one of {', '.join(KINDS)}")
        for name, least in (("new_tokens", 1), ("prefix_tokens", 0), ("requests", 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= 1 << 24:
                raise InputError(f"point: {name} = {value!r:.40}: a whole number from {least}")
        if self.kind == DECODE and self.prefix_tokens < 1:
            raise InputError("point: a decode has a context of 1 token or more")

    @property
    def name(self) -> str:
        """Short text: ``prefill 4x512@8192``."""
        return f"{self.kind} {self.requests}x{self.new_tokens}@{self.prefix_tokens}"

    @property
    def seconds(self) -> float:
        """Expected for one sample [s]."""
        tokens = self.requests * (self.new_tokens + self.prefix_tokens)
        steps = DECODE_STEPS * SECONDS_PER_TOKEN[DECODE] if self.kind == DECODE else 0.0
        return POINT_S + tokens * SECONDS_PER_TOKEN[PREFILL] + steps


@dataclass(frozen=True)
class ForwardsPlan:
    """Points in their order, and how often each is asked for.

    Attributes:
        points: coarse ones first.
        repeats: of every point in one process run; A B C, A B C, ...
        warm_ups: rounds before, which are not believed.
    """

    points: Sequence[Point]
    repeats: int = 5
    warm_ups: int = 1

    def __post_init__(self) -> None:
        if not self.points:
            raise InputError("a plan of forwards has at least one point")
        for name, least in (("repeats", 1), ("warm_ups", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= 1000:
                raise InputError(f"{name} = {value!r:.40}: a whole number from {least} to 1000")

    @property
    def minutes(self) -> float:
        """Expected for one process run."""
        rounds = self.repeats + self.warm_ups
        return rounds * sum(point.seconds for point in self.points) / 60

    @property
    def digest(self) -> str:
        """Of the points and repeats."""
        return sha256(json.dumps(self._plain(), sort_keys=True).encode()).hexdigest()

    def _plain(self) -> dict[str, Any]:
        return {"points": [asdict(point) for point in self.points], "repeats": self.repeats,
                "warm_ups": self.warm_ups}  # fmt: skip

    def write(self, path: Path) -> None:
        """Write the plan.

        Raises:
            WriteError: it cannot be written.
        """
        whole = {"format": FORMAT, "version": VERSION, "digest": self.digest, **self._plain()}
        replace_file(path, (json.dumps(whole, indent=1) + "\n").encode())

    @staticmethod
    def read(path: Path) -> ForwardsPlan:
        """Read a plan.

        Raises:
            InputError: no such file, or not one of these.
        """
        try:
            with path.open("rb") as stream:
                whole = json.loads(stream.read(MAX_FILE_BYTES))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason(error)})") from None
        except (ValueError, RecursionError) as bad:
            raise InputError(f"{path}: not a plan ({bad})") from None
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise InputError(f"{path}: not a plan of forwards: it must say {FORMAT!r}")
        entries = whole.get("points")
        if whole.get("version") != VERSION or not isinstance(entries, list):
            raise InputError(f"{path}: version {whole.get('version')!r:.40}, or no points")
        try:
            points = [Point(**entry) for entry in entries]
            plan = ForwardsPlan(points, whole.get("repeats", 5), whole.get("warm_ups", 1))
        except TypeError as bad:
            raise InputError(f"{path}: a point has other fields ({bad})") from None
        if whole.get("digest") != plan.digest:
            raise InputError(f"{path}: its digest is not that of its points; make the plan again")
        return plan


def points_of(
    *, chunk: int, max_batch: int, context: int, minutes: float = 0.0, repeats: int = 5
) -> list[Point]:
    """Prefills, hits and decodes of a workload with their knees, coarse ones first.

    Args:
        chunk: tokens of the largest forward.
        max_batch: requests of the largest decode step.
        context: positions of the longest request.
        minutes: of one process run; points that do not fit are left out. 0: no limit.
        repeats: of every point.

    Raises:
        InputError: a number that cannot be, or no point fits.
    """
    for name, value in (("chunk", chunk), ("max_batch", max_batch), ("context", context)):
        if type(value) is not int or not 1 <= value <= 1 << 22:
            raise InputError(f"{name} = {value!r:.40}: a whole number from 1")
    chunk = min(chunk, context)
    lengths = levels([*_doubling(16, chunk), *_within((WINDOW, SELECTED, RATIO_2_KNEE), chunk)])
    found = [(level, Point(PREFILL, size, 0, 1)) for size, level in lengths]
    if context > 1:
        for past, level in levels([*_doubling(1024, context - 1), *_within((POOL,), context - 1)]):
            for new in {min(HIT_TOKENS, chunk, context - past), min(chunk, context - past)}:
                found.append((level + 1, Point(PREFILL, new, past, 1)))
    batches = levels(_doubling(1, max_batch))
    depths = levels(_doubling(min(512, context), context))
    for batch, level in batches:
        for depth, deeper in depths:
            if batch * depth <= 4 * context or batch == 1:
                found.append((max(level, deeper), Point(DECODE, 1, depth, batch)))
    ordered = [point for _, point in sorted(found, key=lambda pair: (pair[0], pair[1].seconds))]
    unique = list(dict.fromkeys(ordered))
    if minutes <= 0:
        return unique
    kept, used = [], 0.0
    for point in unique:
        if used + (repeats + 1) * point.seconds / 60 <= minutes:
            used += (repeats + 1) * point.seconds / 60
            kept.append(point)
    if not kept:
        raise InputError(f"--minutes {minutes:g}: not one point fits")
    return kept


def _doubling(low: int, high: int) -> list[int]:
    low = min(low, high)
    steps = max(0, math.floor(math.log2(max(high, 1) / max(low, 1))))
    return sorted({max(low, 1) << step for step in range(steps + 1)} | {max(high, 1)})


def _within(knees: Sequence[int], most: int) -> list[int]:
    return [knee for knee in knees if knee <= most]
