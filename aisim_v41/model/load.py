"""Loading a model: by packaged name, from a config file, or from a changed config in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisim_v41 import resources
from aisim_v41.canonical import canonical_sha256
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError, nearest
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import EarlierModel
from aisim_v41.reading import parse_mapping, read_bytes, read_mapping

CONFIG_FILE = "config.json"
PROFILE_FILE = "profile.yaml"
GENERATION_FILE = "generation.yaml"
_FOLDER = "profiles"


def load_model(name_or_path: str | Path) -> Model | EarlierModel:
    """A model by packaged name or from a file.

    Args:
        name_or_path: A packaged name such as ``"deepseek-v4.1-flash"``, or the path of a
            ``config.json`` in Hugging Face form.

    Returns:
        The model; an `EarlierModel` (figures for comparison only) for earlier generations.

    Raises:
        MissingProfileError: there is no such name or file.
        SchemaError: the file is not a config that the library understands, or a packaged file
            is not the one that its profile names.

    Example:
        >>> load_model("deepseek-v4.1-flash").revision
        'fb2764a5cf321eaa5070ca8f9e892818f477c16d'
    """
    if not isinstance(name_or_path, (str, Path)):
        raise InvalidInputError(
            f"load_model({name_or_path!r}): give a packaged name or a path. For a config in "
            f"memory use model_from_config"
        )
    if isinstance(name_or_path, str) and name_or_path in model_names():
        return _packaged(name_or_path)
    if not _looks_like_path(name_or_path):
        raise MissingProfileError(
            f"no model named {str(name_or_path)!r}; {nearest(str(name_or_path), model_names())}. "
            f"A config file is given by its path, for example './{CONFIG_FILE}'"
        )
    path = _config_path(Path(name_or_path))
    raw = read_bytes(path)
    return _from_bytes(raw, path, name=_name_of(path), revision=f"sha256:{_digest(raw)}")


def model_names() -> list[str]:
    """Names that `load_model` accepts, sorted."""
    return sorted(
        {
            *resources.names(_FOLDER, f"/{CONFIG_FILE}"),
            *resources.names(_FOLDER, f"/{GENERATION_FILE}"),
        }
    )


def model_from_config(
    config: Mapping[str, Any], *, name: str, revision: str = "changed in Python"
) -> Model:
    """A model from the content of a config, for example one with other layer counts.

    Args:
        config: Content in the form of ``config.json``; plain dicts, lists and scalars.
        name: Name in reports and messages.
        revision: What the result is said to be a model of.

    Raises:
        SchemaError: names the field, its value, and what would be right.
    """
    if not isinstance(config, Mapping):
        raise SchemaError(f"{name}: a config must be a mapping, found {type(config).__name__}")
    return _build(dict(config), name=name, revision=revision, where=name)


def _build(content: dict[str, Any], *, name: str, revision: str, where: str) -> Model:
    from aisim_v41.model.build import build_model
    from aisim_v41.model.config import parse_config
    from aisim_v41.model.config_agreement import check_agreement

    config, unknown = parse_config(content, where=where)
    check_agreement(config, where=where)
    model = build_model(config, name=name, revision=revision, unknown_keys=unknown)
    object.__setattr__(model, "config_sha256", canonical_sha256(content, where=where))
    return model


def _packaged(name: str) -> Model | EarlierModel:
    if name in resources.names(_FOLDER, f"/{CONFIG_FILE}"):
        path = resources.find(_FOLDER, name, f"/{CONFIG_FILE}")
        raw = read_bytes(path)
        return _from_bytes(raw, path, name=name, revision=_verified_revision(path, raw))
    from aisim_v41.model.earlier_file import read_generation

    return read_generation(resources.find(_FOLDER, name, f"/{GENERATION_FILE}"))


def _from_bytes(raw: bytes, path: Path, *, name: str, revision: str) -> Model:
    where = str(path)
    return _build(parse_mapping(raw, where=where), name=name, revision=revision, where=where)


def _verified_revision(config: Path, raw: bytes) -> str:
    """Revision of a packaged config, after its bytes were checked against the profile."""
    path = config.with_name(PROFILE_FILE)
    profile = read_mapping(path)
    expected, revision = profile.get("sha256"), profile.get("revision")
    if not isinstance(expected, str) or not isinstance(revision, str):
        raise SchemaError(
            f"{path}: sha256 and revision must be strings that identify {config.name}"
        )
    found = _digest(raw)
    if found != expected:
        raise SchemaError(
            f"{config}: sha256 is {found}, but {path.name} names {expected}; the packaged config "
            f"was changed. Restore it, or load your own copy by its path"
        )
    return revision


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _name_of(path: Path) -> str:
    """A readable name for a user's file: the folder's for ``config.json``, else the file's."""
    return path.absolute().parent.name if path.name == CONFIG_FILE else path.stem


def _looks_like_path(text: str | Path) -> bool:
    return isinstance(text, Path) or "/" in text or "\\" in text or text.endswith(".json")


def _config_path(given: Path) -> Path:
    """The file itself, or the config inside a checkpoint folder."""
    try:
        path = given.expanduser()
        return path / CONFIG_FILE if path.is_dir() else path
    except (OSError, RuntimeError, ValueError) as error:
        raise MissingProfileError(f"no such file: {given} ({error})") from None
