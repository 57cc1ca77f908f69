"""Reading other people's files as data, never as code: bounded size, bounded nesting, no tags.

JSON and YAML both come back as plain dicts, lists, strings, numbers, booleans and None, with
every number finite and every mapping key a string that occurs once.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Never

from aisim_v41.errors import MissingProfileError, SchemaError

MAX_FILE_BYTES = 4 << 20
MAX_DEPTH = 24
MAX_INTEGER = 1 << 62


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON or YAML file (by its suffix) whose top level is a mapping.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: too large, not UTF-8, not JSON/YAML, nested too deeply, a duplicate key, a
            number that is not finite, or a top level that is not a mapping.
    """
    text = _read_text(path)
    try:
        raw = _parse_json(text) if path.suffix == ".json" else _parse_yaml(text)
    except RecursionError:
        raise SchemaError(f"{path}: nested too deeply; at most {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise SchemaError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise SchemaError(f"{path}: the top level must be a mapping, found {type(raw).__name__}")
    check_plain(raw, where=str(path))
    return raw


def check_plain(value: Any, *, where: str, depth: int = 0) -> None:
    """Refuse what no configuration means: deep nesting, NaN, infinity, huge integers, odd keys."""
    if depth > MAX_DEPTH:
        raise SchemaError(f"{where}: nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SchemaError(f"{where}: key {key!r} must be a string")
            check_plain(
                item, where=f"{where}: {key}" if depth == 0 else f"{where}.{key}", depth=depth + 1
            )
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_plain(item, where=f"{where}[{index}]", depth=depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise SchemaError(f"{where}: {value} is not a finite number")
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise SchemaError(f"{where}: integer beyond 2**62")
    elif not isinstance(value, (str, int, float, bool, type(None))):
        raise SchemaError(f"{where}: {type(value).__name__} is not plain data")


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingProfileError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        raise SchemaError(f"{path}: cannot be read ({error})") from None
    if len(raw) > MAX_FILE_BYTES:
        raise SchemaError(f"{path}: larger than {MAX_FILE_BYTES} bytes, not a configuration")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start})"
        ) from None


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            repeated = sorted({key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1})
            raise ValueError(f"key {repeated[0]!r} occurs twice")
        return mapping

    def refuse(constant: str) -> Never:
        raise ValueError(f"{constant} is not a finite number")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def _parse_yaml(text: str) -> Any:
    import yaml

    class UniqueKeys(yaml.SafeLoader):
        """Safe loader that refuses duplicate keys, anchors and aliases."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("YAML aliases are not accepted")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"key {key!r} occurs twice")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader=UniqueKeys)  # noqa: S506 - a SafeLoader subclass
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None
