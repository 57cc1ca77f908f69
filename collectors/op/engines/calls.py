"""Kernels of engines, found when they are asked for.

An adapter imports nothing before that. What is not here, or has another signature than it was
written for, is `UnavailableError` with what was expected; and every answer is checked against the
plain reference before it is timed, so that a wrong guess shows as ``invalid`` and never as a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Any

from collectors.errors import UnavailableError


def engine_call(module: str, name: str, parameters: Sequence[str] = ()) -> Callable[..., Any]:
    """A function of an engine's package.

    Args:
        module: that has it, such as ``flashinfer.norm``.
        name: of the function, with dots where it lies deeper.
        parameters: names that it must take, where it tells.

    Raises:
        UnavailableError: no such package or function, or it takes others.
    """
    try:
        found: Any = import_module(module)
    except Exception as error:  # packages of kernels fail in many ways without their GPU
        raise UnavailableError(f"{module} cannot be imported ({type(error).__name__})") from None
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UnavailableError(f"{module} has no {name}")
    try:
        taken = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return found
    free = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
    lost = [one for one in parameters if one not in taken]
    if lost and not free:
        raise UnavailableError(f"{module}.{name} takes {', '.join(taken)}; expected {lost[0]}")
    return found


def version_of(*packages: str) -> str:
    """Version of the first package that is installed."""
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"
