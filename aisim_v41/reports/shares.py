"""Time of steps, shared out: by family of operators along the critical path, or by evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.estimators.result import Estimate
from aisim_v41.plan.words import phase
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    import pandas as pd

By = Literal["family", "source"]
Estimates = Estimate | Sequence[Estimate] | Mapping[str, Estimate]
WAITING = "waiting"
"""Time in which no operator decides: the host, or a resource that parallel operators share."""
COLUMNS = ("step", "part", "name", "ms")


def named(estimates: Estimates) -> dict[str, Estimate]:
    """Estimates by name: the given one, or what the step does and, where that repeats, its place.

    Raises:
        InvalidInputError: none at all, or something else.
    """
    if isinstance(estimates, Mapping):
        found = {str(name): one for name, one in estimates.items()}
    else:
        several = [estimates] if not isinstance(estimates, Iterable) else list(estimates)
        names = [_name(one) for one in several]
        found = {
            name if names.count(name) == 1 else f"{name} {place + 1}": one
            for place, (name, one) in enumerate(zip(names, several, strict=True))
        }
    for name, one in found.items():
        if not isinstance(one, Estimate):
            raise InvalidInputError(
                f"estimates: {name} is {one!r}: must be an Estimate, not {type(one).__name__}"
            )
    if not found:
        raise InvalidInputError("estimates: none; give one or several of `aisim_v41.estimate`")
    return found


def _name(estimate: object) -> str:
    return phase(estimate.plan.requests) if isinstance(estimate, Estimate) else "step"


def families_of(estimate: Estimate) -> dict[str, str]:
    """Family of each operator of a step."""
    return {row.operator: row.family for row in estimate.rows}


def shares(estimates: Estimates, *, by: By = "family") -> pd.DataFrame:
    """What the time of each step is made of.

    By "family" of operators, for the model's forward and the draft pass apart, along the critical
    path; by "source", the kind of evidence. The rows of a step add up to its time.

    Args:
        estimates: one, several, or several by name.
        by: "family" or "source".

    Returns:
        Columns step, part ("target" or "draft"; "whole" by source), name, ms; the longest first.

    Raises:
        InvalidInputError: no estimate, or another ``by``.
    """
    import pandas as pd

    if by not in ("family", "source"):
        raise InvalidInputError(f"by = {by!r}; {nearest(str(by), ('family', 'source'))}")
    rows = []
    for step, estimate in named(estimates).items():
        for part, seconds in _parts(estimate, by).items():
            ranked = sorted(seconds.items(), key=lambda item: -item[1])
            rows += [
                {"step": step, "part": part, "name": name, "ms": length / MILLISECOND}
                for name, length in ranked
                if length > 0
            ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _parts(estimate: Estimate, by: By) -> dict[str, dict[str, float]]:
    """Seconds by name, of each part of a step."""
    if by == "source":
        whole = estimate.latency_s
        return {"whole": {name: share * whole for name, share in estimate.source_share.items()}}
    families = families_of(estimate)
    found: dict[str, dict[str, float]] = {}
    for part, path in estimate.breakdown.paths().items():
        seconds: dict[str, float] = defaultdict(float)
        for operator, length in path.items():
            seconds[families.get(operator, WAITING)] += length
        found[part] = dict(seconds)
    return found
