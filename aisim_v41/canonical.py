"""One text for one content: JSON that does not depend on key order or on how numbers are spelled.

Digests of configs and identities are taken of it, so that a file and its reformatted copy are the
same thing.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from aisim_v41.reading import check_plain

EXACT = 1 << 53
"""Below it every whole number is a double of its own."""


def canonical_json(content: Any, *, where: str) -> str:
    """Plain data as JSON: keys sorted, no spaces, ASCII, whole numbers without a point.

    Args:
        content: dicts, lists and scalars.
        where: name for messages.

    Raises:
        SchemaError: something that is not plain data, or a number that is not finite.

    >>> canonical_json({"b": 1.0, "a": [True, 1e-06]}, where="here")
    '{"a":[true,1e-06],"b":1}'
    """
    check_plain(content, where=where)
    return json.dumps(_whole(content), sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_sha256(content: Any, *, where: str) -> str:
    """SHA-256 of `canonical_json`.

    Raises:
        SchemaError: as `canonical_json`.
    """
    return sha256(canonical_json(content, where=where).encode("ascii")).hexdigest()


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    return value
