"""Values of one field of a space: a value, a list, a range or a range on a log scale.

>>> values_of("new_tokens", {"log": [1, 1000], "points": 4})
(1, 10, 100, 1000)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aisim_v41.errors import InvalidInputError

Value = bool | int | float | str | None
MAX_VALUES = 1 << 20
"""Most values of one field; more come as a table."""
_FORMS = (
    "a value, a list, {range: [first, last], step: s}, {range: [first, last], points: n} or "
    "{log: [first, last], points: n}"
)


class _Form(BaseModel):
    """What ranges share: whole ends make whole values.

    Attributes:
        as_: "whole" or "real" values; by default whole where both ends are.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    as_: Literal["whole", "real"] | None = Field(default=None, alias="as")

    def kept(
        self, values: np.ndarray[Any, Any], given: tuple[int | float | None, ...]
    ) -> tuple[Value, ...]:
        """The values as Python numbers, each once; whole where all that was given is."""
        whole = float not in map(type, given) if self.as_ is None else self.as_ == "whole"
        found = np.rint(values).astype(np.int64) if whole else values
        return tuple(dict.fromkeys(found.tolist()))


class Range(_Form):
    """Evenly spaced values.

    Attributes:
        range: first and last value; both are there where the step meets the last.
        step: between two values.
        points: how many values, instead of a step.
    """

    range: tuple[int | float, int | float] = Field(strict=False)
    step: int | float | None = Field(default=None, gt=0)
    points: int | None = Field(default=None, ge=2, le=MAX_VALUES)

    @model_validator(mode="after")
    def _check(self) -> Range:
        first, last = self.range
        if not (math.isfinite(first) and math.isfinite(last) and first <= last):
            raise ValueError(f"range {first}..{last}: the first value must not be above the last")
        if (self.step is None) == (self.points is None):
            raise ValueError("give step or points, one of them")
        if self.step is not None and (last - first) / self.step >= MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values; take a larger step")
        return self

    def values(self) -> tuple[Value, ...]:
        """All of them, rising."""
        first, last = self.range
        if self.points is not None:
            return self.kept(np.linspace(first, last, self.points), self.range)
        assert self.step is not None
        steps = math.floor((last - first) / self.step * (1 + 1e-12))
        return self.kept(first + self.step * np.arange(steps + 1), (*self.range, self.step))


class Log(_Form):
    """Values at equal ratios; whole ones are rounded, and each occurs once.

    Attributes:
        log: first and last value, above 0.
        points: how many values, before rounding.
    """

    log: tuple[int | float, int | float] = Field(strict=False)
    points: int = Field(ge=2, le=MAX_VALUES)

    @model_validator(mode="after")
    def _check(self) -> Log:
        first, last = self.log
        if not (0 < first <= last and math.isfinite(last)):
            raise ValueError(f"log {first}..{last}: needs 0 < first <= last")
        return self

    def values(self) -> tuple[Value, ...]:
        """All of them, rising."""
        first, last = self.log
        found = np.geomspace(first, last, self.points)
        found[0], found[-1] = first, last
        return self.kept(found, self.log)


def values_of(name: str, given: Any) -> tuple[Any, ...]:
    """The values that one field takes.

    Args:
        name: of the field, for messages.
        given: a value, a list of values, or a mapping as of `Range` or `Log`.

    Raises:
        InvalidInputError: no such form, an empty list, or a value twice.
    """
    if isinstance(given, Mapping):
        return _of_mapping(name, given)
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        return (given,)
    if not given:
        raise InvalidInputError(f"{name}: an empty list; give at least one value")
    if len(given) > MAX_VALUES:
        raise InvalidInputError(f"{name}: {len(given)} values, at most {MAX_VALUES}; use a table")
    seen: set[Any] = set()
    for value in given:
        key = repr(value) if isinstance(value, (list, dict)) else value
        if key in seen:
            raise InvalidInputError(f"{name}: {value!r} occurs twice")
        seen.add(key)
    return tuple(given)


def _of_mapping(name: str, given: Mapping[str, Any]) -> tuple[Value, ...]:
    form = Log if "log" in given else Range if "range" in given else None
    if form is None:
        raise InvalidInputError(f"{name} = {dict(given)!r:.120}: must be {_FORMS}")
    try:
        return form.model_validate(dict(given)).values()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(
            f"{name}{'.' + place if place else ''}: {first['msg']}; a field takes {_FORMS}"
        ) from None
