"""Points to seconds: the one place where a sweep asks the estimators.

Points are evaluated in blocks of one combination whose borders depend on numbers alone, with one
BLAS thread: a point has the same time to the last bit whoever evaluates it, and beside whom.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import AisimError, InvalidInputError
from aisim_v41.estimators.compiled import CompiledStep
from aisim_v41.estimators.entry import compile
from aisim_v41.memory.demand import demand
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.request import Request
from aisim_v41.resources import SEARCH_PATH_VARIABLE
from aisim_v41.sweeps.grid import Column, Grid
from aisim_v41.sweeps.settings import Combination, Setting
from aisim_v41.sweeps.space import Group, Space
from aisim_v41.units import GIB, MILLISECOND

BLOCK_POINTS: Final = 1 << 13
"""Points of one combination that are evaluated together."""
Status = Literal["ok", "refused", "does_not_fit"]
STATUSES: Final[tuple[Status, ...]] = ("ok", "refused", "does_not_fit")
OK, REFUSED, DOES_NOT_FIT = range(3)


@dataclass(slots=True, eq=False)
class Answers:
    """What became of the points of a block that conditions left in it.

    Attributes:
        columns: of the requests, the constant ones left out.
        point: number of each point [points].
        latency_ms: nan where there is none [points].
        status: index into `STATUSES` [points].
        reason: why a point is not ok; None where it is [points].
        short_bytes: by how much memory falls short [points]; nan where there is no step, None
            where it was not asked for.
    """

    columns: dict[str, Column]
    point: npt.NDArray[np.int64]
    latency_ms: npt.NDArray[np.float64]
    status: npt.NDArray[np.int8]
    reason: list[str | None]
    short_bytes: npt.NDArray[np.float64] | None = None


def evaluate(space: Space, combination: Combination, grid: Grid, first: int, last: int,
             offset: int) -> Answers:  # fmt: skip
    """Answers of the numeric points ``first`` to ``last - 1`` of a combination.

    Args:
        space: what the points belong to.
        combination: their settings.
        grid: the space's, or a cut of it that holds these points.
        first, last: inside one block.
        offset: number in the space of the combination's first point.
    """
    columns = grid.columns(first, last)
    kept = space.kept(combination, columns, last - first)
    if not kept.all():
        columns = {name: values[kept] for name, values in columns.items()}
    number = np.flatnonzero(kept) + (offset + first)
    found = Answers(
        columns=columns,
        point=number.astype(np.int64),
        latency_ms=np.full(len(number), np.nan),
        status=np.full(len(number), OK, np.int8),
        reason=[None] * len(number),
    )
    if space.memory:
        found.short_bytes = np.full(len(number), np.nan)
    if not len(number):
        return found
    try:
        step = compiled(combination)
    except AisimError as error:
        return _all_refused(found, str(error))
    if len(space.groups) == 1:
        _sweep(found, step, space.groups[0])
    else:
        _one_by_one(found, step, space.groups, np.arange(len(number)))
    if space.memory:
        _hold_against_memory(found, step, space.groups)
    return found


def compiled(combination: Combination) -> CompiledStep:
    """The step function of a combination.

    Raises:
        AisimError: why there is none.
    """
    if isinstance(combination.setting, str):
        raise InvalidInputError(combination.setting)
    return _compiled(combination.setting, os.environ.get(SEARCH_PATH_VARIABLE))


@lru_cache(maxsize=16)
def _compiled(one: Setting, _roots: str | None) -> CompiledStep:
    return compile(
        one.model, one.hardware, parallel=one.parallel, policy=one.policy, method=one.method
    )


def requests_of(
    groups: tuple[Group, ...], columns: Mapping[str, Column], place: int
) -> list[Request]:
    """The requests of one point.

    Raises:
        InvalidInputError: values that no request can have.
    """
    return [
        Request(
            **group.constants,
            **{field: _python(columns[name][place]) for name, field in group.fields.items()},
        )
        for group in groups
    ]


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _all_refused(found: Answers, reason: str) -> Answers:
    found.status[:] = REFUSED
    found.reason = [reason] * len(found.point)
    return found


def _sweep(found: Answers, step: CompiledStep, group: Group) -> None:
    """Times of points whose steps are of one kind of request, all at once."""
    places = np.arange(len(found.point))
    try:
        found.latency_ms[:] = _swept(step, group, found.columns, places)
        return
    except AisimError:
        good = [place for place in places.tolist() if _is_one(found, step, group, place)]
    if not good:
        return
    try:
        found.latency_ms[good] = _swept(step, group, found.columns, np.array(good))
    except AisimError:  # of a method that refuses steps when it prices them
        _one_by_one(found, step, (group,), np.array(good))


def _swept(step: CompiledStep, group: Group, columns: Mapping[str, Column],
           places: npt.NDArray[np.int64]) -> Any:  # fmt: skip
    import pandas as pd

    taken = {field: columns[name][places] for name, field in group.fields.items()}
    frame = pd.DataFrame(taken, index=np.arange(len(places)))
    for field, value in group.constants.items():
        frame[field] = value
    with one_thread():
        return step.sweep(frame)["latency_ms"].to_numpy()


def _is_one(found: Answers, step: CompiledStep, group: Group, place: int) -> bool:
    """Whether a point can be run; if not, its reason is kept."""
    try:
        requests = requests_of((group,), found.columns, place)
        Plan(step.model, requests, parallel=step.parallel, policy=step.policy)
    except AisimError as error:
        found.status[place], found.reason[place] = REFUSED, str(error)
        return False
    return True


def _one_by_one(found: Answers, step: CompiledStep, groups: tuple[Group, ...],
                places: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Times of points whose steps are mixed."""
    with one_thread():
        for place in places.tolist():
            try:
                seconds = step(requests_of(groups, found.columns, place))
            except AisimError as error:
                found.status[place], found.reason[place] = REFUSED, str(error)
            else:
                found.latency_ms[place] = seconds / MILLISECOND


def _hold_against_memory(found: Answers, step: CompiledStep, groups: tuple[Group, ...]) -> None:
    short = np.full(len(found.point), np.nan)
    for place in np.flatnonzero(found.status == OK).tolist():
        requests = requests_of(groups, found.columns, place)
        plan = Plan(step.model, requests, parallel=step.parallel, policy=step.policy)
        needed = demand(plan, step.hardware)
        short[place] = needed.short_bytes
        if not needed.fits:
            found.status[place] = DOES_NOT_FIT
            found.reason[place] = (
                f"{needed.short_bytes / GIB:.1f} GiB short: KV of these requests needs "
                f"{needed.kv_bytes / GIB:.1f} GiB, {needed.kv_available_bytes / GIB:.1f} are left"
            )
    found.short_bytes = short


# --- one BLAS thread ------------------------------------------------------------------------------

_lock = Lock()
_inside = 0
_limit: Any = None


@lru_cache(maxsize=1)
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS with one thread as long as anyone is inside: how many there are changes last bits."""
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = _libraries().limit(limits=1, user_api="blas")
            _limit.__enter__()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.__exit__(None, None, None)
