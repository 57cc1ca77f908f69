"""A space: what is combined, in which order, and which points of it are left out.

Points are numbered once: combinations of settings (model, GPU, mapping, policy, method) outside,
requests inside, later axes turning faster. A number says everything about its point, so that parts
of a sweep can be made anywhere and in any order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aisim_v41.errors import InvalidInputError, nearest
from aisim_v41.plan.frames import FIELDS
from aisim_v41.plan.request import KIND_CODES, WINDOW_CODES
from aisim_v41.reading import read_mapping
from aisim_v41.sweeps.axes import values_of
from aisim_v41.sweeps.conditions import Condition
from aisim_v41.sweeps.grid import MAX_POINTS, Axis, Grid, read_table
from aisim_v41.sweeps.settings import Combination, combinations

MAX_COMBINATIONS = 1 << 17
RESULTS: Final = ("point", "status", "reason", "latency_ms", "tokens_per_s_per_gpu", "fits",
                  "short_bytes")  # fmt: skip
"""Columns that a sweep adds."""
_TEXTS = {"kind": KIND_CODES, "window": WINDOW_CODES}


class Sections(BaseModel):
    """The form of a space, as a file or a mapping has it.

    Attributes:
        hardware: GPUs, by name, path or `Hardware`; or ``{name: ..., field: values}``.
        requests: requests of a step: fields of `Request`, each with its values, and ``table``.
            Several, with a ``name`` each, make steps in which they run together.
        model: names, paths or models.
        parallel: ``{tp: [4, 8], ep: 1}``, or a list of such mappings.
        policy: presets, ``{name: ..., field: values}``, or a list of those.
        method: "sol", "op" or "fpm".
        where: conditions over columns; points that fail one are no rows.
        memory: also say of each point whether it fits beside the weights.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    hardware: Any
    requests: Any
    model: Any = "deepseek-v4.1-flash"
    parallel: Any = Field(default_factory=dict)
    policy: Any = "paper"
    method: Any = "auto"
    where: Any = ()
    memory: bool = Field(default=False, strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One request of every step.

    Attributes:
        name: prefix of its columns; empty where a step is of one kind of request.
        fields: fields that are axes, by name of their column.
        constants: fields with one value.
    """

    name: str
    fields: Mapping[str, str]
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """A space that was read.

    Attributes:
        combinations: settings, in order.
        grid: numeric points of each.
        groups: requests of a step.
        conditions: over columns of settings and requests.
        memory: whether each point is held against memory.
        settings: columns that say something of the settings, in order.
    """

    combinations: tuple[Combination, ...]
    grid: Grid
    groups: tuple[Group, ...]
    conditions: tuple[Condition, ...]
    memory: bool
    settings: tuple[str, ...]

    @property
    def points(self) -> int:
        """Points of the whole space, those that conditions leave out counted."""
        return len(self.combinations) * self.grid.points

    @property
    def constants(self) -> dict[str, Any]:
        """Columns of requests that have one value."""
        return {
            _column(group.name, name): value
            for group in self.groups
            for name, value in group.constants.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that conditions may name, in order."""
        requests = [*self.constants, *self.grid.names]
        order = [_column(group.name, name) for group in self.groups for name in FIELDS]
        return (*self.settings, *sorted(requests, key=order.index))

    def kept(self, combination: Combination, columns: Mapping[str, Any], points: int) -> Any:
        """Whether each of ``points`` fulfils the conditions: an array of truth values."""
        every = np.ones(points, bool)
        if not self.conditions:
            return every
        known = {name: combination.values.get(name) for name in self.settings}
        known |= self.constants
        known |= columns
        for condition in self.conditions:
            every &= np.asarray(condition(known), bool)
        return every

    def possible(self, combination: Combination) -> bool:
        """Whether conditions that name settings only let anything of a combination through."""
        known = {name: combination.values.get(name) for name in self.settings}
        known |= self.constants
        return all(
            bool(condition(known))
            for condition in self.conditions
            if not set(condition.columns) & set(self.grid.names)
        )


def read_space(given: Any) -> Space:
    """A space from a mapping, or from a YAML or JSON file.

    Raises:
        InvalidInputError: not the form of `Sections`; an unknown field, value or column.
        MissingProfileError, SchemaError: a file, model, GPU or preset that is not there, or is not
            what it must be.
    """
    if isinstance(given, Space):
        return given
    if isinstance(given, (str, os.PathLike)):
        given = read_mapping(Path(given))
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"space = {given!r:.80}: must be a mapping or a path, not {type(given).__name__}"
        )
    try:
        sections = Sections.model_validate(dict(given))
    except ValidationError as error:
        raise InvalidInputError(f"space: {_said(error)}") from None
    settings = combinations({name: getattr(sections, name) for name in Sections.model_fields})
    if len(settings) > MAX_COMBINATIONS:
        raise InvalidInputError(f"{len(settings)} combinations, at most {MAX_COMBINATIONS}")
    groups, grid = _requests(sections.requests)
    named = tuple(dict.fromkeys(name for one in settings for name in one.values))
    space = Space(settings, grid, groups, _conditions(sections.where), sections.memory, named)
    _check(space)
    return space


def _said(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{name!r} is no section; {nearest(name, Sections.model_fields)}"
    if first["type"] == "missing":
        return f"no section {name!r}"
    return f"{name}: {first['msg']}"


def _check(space: Space) -> None:
    """Refuse columns of one name, and conditions on columns that are not there.

    Raises:
        InvalidInputError: naming them.
    """
    columns = space.columns
    taken = [name for name in columns if name in RESULTS or columns.count(name) > 1]
    if taken:
        raise InvalidInputError(f"column {taken[0]!r} would occur twice; rename the request")
    for condition in space.conditions:
        for name in condition.columns:
            if name not in columns:
                raise InvalidInputError(
                    f"condition {condition.text!r:.200}: no column {name!r}; "
                    f"{nearest(name, columns)}"
                )
    if space.points > MAX_POINTS:
        raise InvalidInputError(f"{space.points} points; at most {MAX_POINTS}")


def _conditions(given: Any) -> tuple[Condition, ...]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)):
        raise InvalidInputError(f"where = {given!r:.80}: must be a condition or a list of them")
    return tuple(one if isinstance(one, Condition) else Condition(one) for one in texts)


# --- requests -------------------------------------------------------------------------------------


def _requests(given: Any) -> tuple[tuple[Group, ...], Grid]:
    several = isinstance(given, (list, tuple))
    members = list(given) if several else [given]
    if not members:
        raise InvalidInputError("requests: an empty list; give at least one request")
    groups: list[Group] = []
    axes: list[Axis] = []
    for place, member in enumerate(members):
        where = f"requests[{place}]" if several else "requests"
        if not hasattr(member, "items"):
            raise InvalidInputError(f"{where} = {member!r:.80}: must be a mapping of fields")
        if not isinstance(member, Mapping):  # a frame stands for a table
            member = {"table": member}
        name = member.get("name", "")
        if len(members) > 1 and not (isinstance(name, str) and name.isidentifier()):
            raise InvalidInputError(f"{where}: several requests need a name each, such as 'chunk'")
        group, own = _group(where, name if len(members) > 1 else "", member)
        groups.append(group)
        axes += own
    if len({group.name for group in groups}) < len(groups):
        raise InvalidInputError("requests: two of them have one name")
    return tuple(groups), Grid(tuple(axes))


def _group(where: str, name: str, member: Mapping[str, Any]) -> tuple[Group, list[Axis]]:
    constants: dict[str, Any] = {}
    fields: dict[str, str] = {}
    axes: list[Axis] = []
    for field, given in member.items():
        if field == "name":
            continue
        if field == "table":
            table = read_table(f"{where}.table", given)
            axes.append(Axis({_column(name, one): v for one, v in table.columns.items()}))
            fields |= {_column(name, one): one for one in table.columns}
            continue
        if field not in FIELDS:
            raise InvalidInputError(
                f"{where}.{field} is no field; {nearest(str(field), (*FIELDS, 'table', 'name'))}"
            )
        values = values_of(f"{where}.{field}", given)
        for value in values:
            _check_value(where, field, value)
        if len(values) == 1:
            constants[field] = values[0]
        else:
            fields[_column(name, field)] = field
            kind = object if isinstance(values[0], (str, bool)) else np.int64
            axes.append(Axis({_column(name, field): np.array(values, kind)}))
    both = set(constants) & set(fields.values())
    if both or len(set(fields.values())) < len(fields):
        raise InvalidInputError(f"{where}: a field stands in the table and beside it")
    if "new_tokens" not in {*constants, *fields.values()}:
        raise InvalidInputError(f"{where}: no new_tokens")
    return Group(name, fields, constants), axes


def _check_value(where: str, field: str, value: Any) -> None:
    if field in _TEXTS:
        if value not in _TEXTS[field]:
            raise InvalidInputError(
                f"{where}.{field} = {value!r}; {nearest(str(value), _TEXTS[field])}"
            )
    elif field == "prompt_logprobs":
        if type(value) is not bool:
            raise InvalidInputError(f"{where}.{field} = {value!r}: must be true or false")
    elif type(value) is not int or not 0 <= value < 1 << 53:
        raise InvalidInputError(f"{where}.{field} = {value!r}: must be a whole number")


def _column(group: str, field: str) -> str:
    return f"{group}_{field}" if group else field
