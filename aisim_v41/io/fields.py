"""Values out of parsed documents, by name and of one type; what is wrong says the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from aisim_v41.errors import InvalidInputError, SchemaError
from aisim_v41.plan.request import MAX_TOKENS

_SHOWN = 60


def whole(row: Mapping[str, Any], name: str, *, least: int = 0, default: int | None = None) -> int:
    """A whole number from ``least`` up; ``default`` where the field is absent or null.

    Raises:
        SchemaError: absent without a default, or not such a number.
    """
    value = row.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or not least <= value <= MAX_TOKENS:
        raise SchemaError(
            f"{name} = {_shown(value)}: must be a whole number from {least} to {MAX_TOKENS}"
        )
    return value


def number(row: Mapping[str, Any], name: str, *, default: float | None = None) -> float:
    """A finite number; ``default`` where the field is absent or null.

    Raises:
        SchemaError: absent without a default, or not a number.
    """
    value = row.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SchemaError(f"{name} = {_shown(value)}: must be a number")
    return float(value)


def text(row: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    """Text; ``default`` where the field is absent or null.

    Raises:
        SchemaError: absent without a default, or not text.
    """
    value = row.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise SchemaError(f"{name} = {_shown(value)}: must be text")
    return value


def mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping; an empty one where the field is absent or null.

    Raises:
        SchemaError: something else.
    """
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SchemaError(f"{name} = {_shown(value)}: must be a mapping")
    return value


def entries(row: Mapping[str, Any], name: str) -> list[Any]:
    """A list; an empty one where the field is absent or null.

    Raises:
        SchemaError: something else.
    """
    value = row.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise SchemaError(f"{name} = {_shown(value)}: must be a list")
    return value


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse an argument that is none of the words.

    Raises:
        InvalidInputError: names the argument and the words.
    """
    if value not in choices:
        raise InvalidInputError(f"{name} = {value!r:.60}: must be one of {', '.join(choices)}")


def require_flag(name: str, value: object, *, unknown: bool = False) -> None:
    """Refuse an argument that is neither True nor False: a text such as "no" would be true.

    Args:
        name: Of the argument.
        value: It.
        unknown: None is a value too.

    Raises:
        InvalidInputError: names the argument.
    """
    if not (isinstance(value, bool) or (unknown and value is None)):
        known = "True, False or None" if unknown else "True or False"
        raise InvalidInputError(f"{name} = {value!r:.60}: must be {known}")


def require_path(name: str, value: object) -> None:
    """Refuse an argument that is neither None nor a path.

    Raises:
        InvalidInputError: names the argument.
    """
    if value is not None and not isinstance(value, (str, PathLike)):
        raise InvalidInputError(f"{name} = {value!r:.60}: must be the path of a file")


def require_size(name: str, value: object) -> None:
    """Refuse an argument that is neither None nor a whole number of at least 1.

    Raises:
        InvalidInputError: names the argument.
    """
    if value is not None and (type(value) is not int or not 1 <= value <= MAX_TOKENS):
        raise InvalidInputError(
            f"{name} = {value!r:.60}: must be a whole number from 1 to {MAX_TOKENS}"
        )


def _shown(value: object) -> str:
    return "absent" if value is None else f"{value!r:.{_SHOWN}}"
