"""A pydantic error as one sentence in the user's terms: field, value, what would be right."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

_MOST_PROBLEMS = 5
_LONGEST_VALUE = 60
_MUST_BE = "Input should be "
_UNION_MEMBERS = frozenset({"int", "float", "str", "list", "grouped", "latent", "compressed"})


def describe(error: ValidationError) -> str:
    """The first few problems of a file, in one line."""
    problems = error.errors(include_url=False, include_context=False)
    lines = [_describe_one(dict(problem)) for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"and {len(problems) - _MOST_PROBLEMS} more")
    return "; ".join(lines)


def _describe_one(problem: dict[str, Any]) -> str:
    field, kind, message = _path(problem["loc"]), problem["type"], str(problem["msg"])
    if kind == "missing":
        return f"{field} is missing; it must be given"
    value = repr(problem["input"])
    if len(value) > _LONGEST_VALUE:
        value = f"{value[:_LONGEST_VALUE]}..."
    if kind == "extra_forbidden":
        return f"{field} = {value} is not a key that is known here"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{field} = {value}: must be a mapping"
    if kind == "none_required":
        return f"{field} = {value} is not modelled; it must be null"
    if not message.startswith(_MUST_BE):
        return f"{field} = {value}: {message[0].lower()}{message[1:]}"
    should = message.removeprefix(_MUST_BE).replace("a valid integer", "a whole number", 1)
    if kind == "literal_error":
        return f"{field} = {value} is not modelled; it must be {should}"
    return f"{field} = {value}: must be {should}"


def _path(location: tuple[int | str, ...]) -> str:
    """Dotted field, without the names that pydantic adds for the members of a union."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier() and part not in _UNION_MEMBERS:
            text += f".{part}" if text else part
    return text
