"""Every error that the library raises on purpose.

A message says what was asked (with values and units), what exists, and what to do.
`except AisimError` catches them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class AisimError(Exception):
    """Root of all errors raised by aisim_v41."""


class InvalidInputError(AisimError, ValueError):
    """An argument has a type or value that cannot describe anything real."""


class SchemaError(AisimError, ValueError):
    """A file (config, hardware, profile) does not have the form it must have."""


class UnsupportedPlanError(AisimError):
    """Two choices exclude each other, or an engine refuses the combination."""


class MissingProfileError(AisimError, LookupError):
    """A named model, GPU, policy or table does not exist where it was looked for."""


class OutOfRangeError(AisimError, ValueError):
    """A value is well formed but outside the range for which an answer exists."""


class CapacityError(AisimError):
    """Something does not fit into the memory that it was given."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Three known names close to ``name``, or all of them, as a phrase for a message."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"nearest: {', '.join(close)}"
    return f"known: {', '.join(names)}"
