"""A pydantic error as one sentence in the user's terms: field, value, what would be right."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

_MOST_PROBLEMS = 5
_LONGEST_VALUE = 60
_UNION_MEMBERS = frozenset({"int", "float", "str", "list", "grouped", "latent", "compressed"})


def describe(error: ValidationError, *, owner: str) -> str:
    """The first few problems of a file.

    Args:
        error: What pydantic found.
        owner: What the file should be, for example ``a DeepSeek-V4.1 config``.
    """
    problems = error.errors(include_url=False, include_context=False)
    lines = [_describe_one(dict(problem), owner) for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"and {len(problems) - _MOST_PROBLEMS} more")
    return "; ".join(lines)


def _describe_one(problem: dict[str, Any], owner: str) -> str:
    field = _path(problem["loc"])
    if problem["type"] == "missing":
        return f"{field} is missing; {owner} has it"
    value = repr(problem["input"])
    if len(value) > _LONGEST_VALUE:
        value = f"{value[:_LONGEST_VALUE]}..."
    should = str(problem["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    if problem["type"] == "extra_forbidden":
        return f"{field} = {value} is not a key that is known here"
    if problem["type"] == "literal_error":
        return f"{field} = {value} is not modelled; it must be {should}"
    if problem["type"] == "none_required":
        return f"{field} = {value} is not modelled; it must be null"
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
