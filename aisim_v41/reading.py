"""Reading other people's files as data, never as code: bounded size, bounded nesting, no tags.

JSON and YAML both come back as plain dicts, lists, strings, numbers, booleans and None, with
every number finite and every mapping key a string that occurs once.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISREG
from typing import Any, Never

from aisim_v41.errors import MissingProfileError, SchemaError

MAX_FILE_BYTES = 4 << 20
MAX_YAML_BYTES = 1 << 18
"""Less than for JSON: a YAML parser needs about a second for 50 kB."""

MAX_DEPTH = 24
MAX_INTEGER = 1 << 62
MAX_NUMBER_CHARACTERS = 300
_MOST_KEY_CHARACTERS_SHOWN = 80
_YAML_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON or YAML file whose top level is a mapping.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: not a regular file, or not what `parse_mapping` accepts.
    """
    return parse_mapping(read_bytes(path), where=str(path))


def read_bytes(path: Path, *, most: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file, which a pipe or a device is not: those may never end.

    Args:
        path: of the file.
        most: largest size that is read [bytes].

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: not a regular file, unreadable, or too large.
    """
    try:
        if not S_ISREG(path.stat().st_mode):
            raise SchemaError(f"{path}: cannot be read: not a regular file")
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingProfileError(f"no such file: {path}") from None
    except SchemaError:
        raise
    except (OSError, ValueError) as error:
        raise SchemaError(f"{path}: cannot be read ({error})") from None
    if len(raw) > most:
        raise SchemaError(f"{path}: larger than {most} bytes")
    return raw


def parse_mapping(raw: bytes, *, where: str) -> dict[str, Any]:
    """The content of a file whose top level is a mapping.

    Args:
        raw: The bytes of the file.
        where: Name of the file for messages.

    Raises:
        SchemaError: not what `parse_document` accepts, or a top level that is not a mapping.
    """
    content = parse_document(raw, where=where)
    if not isinstance(content, dict):
        found = type(content).__name__
        raise SchemaError(f"{where}: the top level must be a mapping, found {found}")
    return content


def parse_document(raw: bytes, *, where: str) -> Any:
    """The content of a file: JSON if it starts with a brace or bracket, whatever its name, else
    YAML.

    Args:
        raw: The bytes of the file.
        where: Name of the file for messages.

    Raises:
        SchemaError: too large, not UTF-8, not JSON/YAML, nested too deeply, a duplicate key, or a
            number that is not finite.
    """
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{where}: not UTF-8 text ({error.reason} at byte {error.start})"
        ) from None
    is_json = text.lstrip().startswith(("{", "["))
    if not is_json and len(raw) > MAX_YAML_BYTES:
        raise SchemaError(f"{where}: larger than {MAX_YAML_BYTES} bytes, not a YAML configuration")
    try:
        content = _parse_json(text) if is_json else _parse_yaml(text)
    except RecursionError:
        raise SchemaError(f"{where}: nested too deeply; at most {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise SchemaError(f"{where}: {' '.join(str(error).split())}") from None
    except (AttributeError, IndexError, KeyError, TypeError):
        # PyYAML's own constructors fail so on a tag that does not fit, such as !!bool 7.
        raise SchemaError(
            f"{where}: a YAML tag does not fit its value; write plain values without tags"
        ) from None
    check_plain(content, where=where)
    return content


def check_plain(value: Any, *, where: str, depth: int = 0) -> None:
    """Refuse what no configuration means: deep nesting, NaN, infinity, huge integers, odd keys."""
    if depth > MAX_DEPTH:
        raise SchemaError(f"{where}: nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SchemaError(f"{where}: key {key!r} must be a string")
            name = _shortened(key)
            check_plain(
                item, where=f"{where}: {name}" if depth == 0 else f"{where}.{name}", depth=depth + 1
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


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _refuse_repeated(key for key, _ in pairs)
        return dict(pairs)

    def refuse(constant: str) -> Never:
        raise ValueError(f"{constant} is not a finite number")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def _parse_yaml(text: str) -> Any:
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Safe loader that refuses duplicate keys, anchors, aliases and endless numbers."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("YAML aliases are not accepted")
            return super().compose_node(parent, index)

        def compose_scalar_node(self, anchor: Any) -> Any:
            # Numbers in base 60, which YAML 1.1 has, take time quadratic in their length.
            node = super().compose_scalar_node(anchor)
            if node.tag in _YAML_NUMBERS and len(node.value) > MAX_NUMBER_CHARACTERS:
                raise ValueError(f"a number longer than {MAX_NUMBER_CHARACTERS} characters")
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            if isinstance(node, yaml.MappingNode):
                _refuse_repeated(k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader=PlainLoader)  # noqa: S506 - a SafeLoader subclass
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None


def _refuse_repeated(keys: Iterable[str]) -> None:
    for key, times in Counter(keys).items():
        if times > 1:
            raise ValueError(f"key {_shortened(key)!r} occurs twice")


def _shortened(key: str) -> str:
    most = _MOST_KEY_CHARACTERS_SHOWN
    return key if len(key) <= most else f"{key[:most]}..."
