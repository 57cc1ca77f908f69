"""Arguments of the wrong kind, refused in one way."""

from __future__ import annotations

from aisim_v41.errors import InvalidInputError


def require_kind(name: str, value: object, kind: type) -> None:
    """Refuse an argument that is not what its name says.

    Raises:
        InvalidInputError: with the argument, and the kind that it must be of.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} = {value!r:.120}: must be a {kind.__name__}")
