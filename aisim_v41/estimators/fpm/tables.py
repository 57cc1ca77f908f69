"""Which table of measured forwards answers a plan: the one of its identity, or none."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aisim_v41.errors import InvalidInputError, MissingProfileError, UnsupportedPlanError
from aisim_v41.estimators.result import Estimate
from aisim_v41.forwards.identity import differences_text, differing_from_plan
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import require_step_model
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy

if TYPE_CHECKING:
    from aisim_v41.estimators.fpm.estimator import Fpm
    from aisim_v41.forwards.table import StepTable

DEFAULT_MODEL = "deepseek-v4.1-flash"


class MeasuredForwards:
    """The estimator from whole forwards: finds the table of a plan's identity and asks it."""

    method = "fpm"

    def estimate(
        self, plan: Plan, hardware: Hardware, *, extrapolate: bool | None = None
    ) -> Estimate:
        """Time of a plan, from measured forwards of exactly its identity.

        Raises:
            MissingProfileError: no forward of this GPU was measured.
            UnsupportedPlanError: none of this identity, or several; names the differing fields.
            OutOfRangeError: the plan lies beyond what was measured.
        """
        fpm = fpm_of(plan.model, hardware, plan.parallel, plan.policy)
        return fpm.estimate(plan, hardware, extrapolate=extrapolate)


def load_fpm(
    hardware: Hardware | str,
    *,
    identity: str | Path | None = None,
    regime: str | None = None,
    model: Model | None = None,
    parallel: Parallel | None = None,
    policy: RuntimePolicy | None = None,
    extrapolate: bool = False,
) -> Fpm:
    """Measured whole forwards of one identity, fitted.

    Args:
        hardware: GPU, or its packaged name.
        identity: beginning of an identity's key or folder name, or a path to a table's folder.
            Without it, the one that fits ``parallel`` and ``policy``, or the only one there is.
        regime: which of several regimes; needed only where a table holds several.
        model: by default DeepSeek-V4.1-Flash as packaged.
        parallel, policy: of the plans to predict, where they shall choose the table.
        extrapolate: whether steps outside what was measured are answered by default.

    Raises:
        MissingProfileError: no such table.
        UnsupportedPlanError: several fit, or one holds several regimes; says how to choose.
        OutOfRangeError: no record of the table says a step and its time.

    Example:
        >>> from aisim_v41 import Request, policy
        >>> eager = policy("sglang", decode_execution="eager")
        >>> measured = load_fpm("gb300", policy=eager)
        >>> measured.predict([Request(new_tokens=1, prefix_tokens=700, kind="decode")]).source
        'interpolated'
    """
    from aisim_v41.estimators.fpm.estimator import Fpm

    gpu = load_hardware(hardware) if isinstance(hardware, str) else hardware
    if not isinstance(gpu, Hardware):
        raise InvalidInputError(f"hardware = {hardware!r:.80}: must be a Hardware or a name")
    known = require_step_model(load_model(DEFAULT_MODEL) if model is None else model)
    table = _table(gpu, identity, known, parallel, policy)
    return Fpm(table, known, gpu, regime=regime, extrapolate=extrapolate)


def fpm_of(
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
    extrapolate: bool = False,
) -> Fpm:
    """The fitted table of an identity, kept until its file changes.

    Raises:
        MissingProfileError, UnsupportedPlanError, OutOfRangeError: as for `load_fpm`.
    """
    table = _table(hardware, None, model, parallel, policy)
    return _fitted(_Itself(table), model, hardware, extrapolate)


class _Itself:
    """A table as a key: equal to itself alone, without comparing its rows."""

    def __init__(self, table: StepTable) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.table is other.table


@lru_cache(maxsize=16)
def _fitted(itself: _Itself, model: Model, hardware: Hardware, extrapolate: bool) -> Fpm:
    from aisim_v41.estimators.fpm.estimator import Fpm

    return Fpm(itself.table, model, hardware, extrapolate=extrapolate)


def _table(
    hardware: Hardware,
    identity: str | Path | None,
    model: Model,
    parallel: Parallel | None,
    policy: RuntimePolicy | None,
) -> StepTable:
    from aisim_v41.forwards.store import find_tables, read_table

    if isinstance(identity, Path) or (identity is not None and Path(identity).is_dir()):
        return read_table(Path(identity))
    tables = find_tables(hardware.name)
    if not tables:
        raise MissingProfileError(
            f"no whole forward of {hardware.name} was measured; import some: aisim-v41 fpm import"
        )
    found = [
        table
        for table in tables
        if identity is None
        or identity in (table.identity.slug(), table.identity.sha256)
        or table.identity.key.startswith(identity)
        or table.identity.slug().startswith(identity)
    ]
    if not found:
        raise MissingProfileError(
            f"no table {identity!r} of {hardware.name}; known:\n{_listed(tables)}"
        )
    if parallel is not None or policy is not None:
        found = _fitting(found, hardware, model, parallel, policy)
    if len(found) > 1:
        first, *others = (table.identity for table in found)
        apart = "\n".join(first.diff_text(other) for other in others)
        raise UnsupportedPlanError(
            f"{len(found)} tables of {hardware.name} fit:\n{_listed(found)}\nthey differ in\n"
            f"{apart}\nname one: identity=... (in the shell --identity)"
        )
    return found[0]


def _fitting(
    tables: list[StepTable],
    hardware: Hardware,
    model: Model,
    parallel: Parallel | None,
    policy: RuntimePolicy | None,
) -> list[StepTable]:
    """Tables of exactly this identity."""
    differences = []
    for table in tables:
        own_parallel, own_policy = table.plan_setting()
        differences.append(
            differing_from_plan(
                table.identity, model, hardware, parallel or own_parallel, policy or own_policy
            )
        )
    found = [table for table, apart in zip(tables, differences, strict=True) if not apart]
    if not found:
        nearest = min(range(len(tables)), key=lambda place: len(differences[place]))
        raise UnsupportedPlanError(
            f"no measured forward of {hardware.name} is of this identity; asked | nearest measured "
            f"({tables[nearest].identity.slug()}):\n{differences_text(differences[nearest])}"
        )
    return found


def _listed(tables: list[StepTable] | tuple[StepTable, ...]) -> str:
    return "\n".join(f"  {table.identity.slug()}" for table in tables)
