"""What a measured forward was a forward of: everything that must match before two may be compared.

An identity has two halves. Its *execution* is what a plan determines: config, GPU, mapping, and
each policy field that changes what runs, as its value and not as the name of a preset. Its *build*
is what only the person who measured can say: checkpoint, engine, image, topology, timer and further
settings. It partitions measurements and is never a coordinate: two that differ in anything never
mix (docs/forwards.md, "Identity").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from aisim_v41.canonical import canonical_json
from aisim_v41.errors import InvalidInputError, SchemaError, UnsupportedPlanError, nearest
from aisim_v41.forwards.execution import Scalar, execution_of
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.builds import UNNAMED
from aisim_v41.plan.policy import RuntimePolicy

TIMERS: Final = ("gpu_events", "sync_wall", "scheduler_wall", "http", "other")
"""Between which two moments a time was taken.

``gpu_events``: events of the GPU around the forward; ``sync_wall``: host clock around preparation,
forward and sampling, the GPU synchronised at both ends; ``scheduler_wall``: host clock of one
scheduler iteration, output handling and the wait for it included; ``http``: a client, transport
included; ``other``: say it in a setting.
"""
MODALITIES: Final = ("text", "image")
KEY_LENGTH: Final = 16
MAX_TEXT: Final = 512
"""Longest text of a field [characters]."""
MAX_SETTINGS: Final = 256

_POLICY_FIELDS: Final = frozenset(field.name for field in fields(RuntimePolicy))
_SETTING = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


class Difference(NamedTuple):
    """A field in which two identities differ; ``None`` where one of them does not have it."""

    field: str
    ours: Scalar | None
    theirs: Scalar | None


@dataclass(frozen=True, kw_only=True)
class Build:
    """What only the person who measured can say.

    Args:
        checkpoint: Repository and revision of the weights.
        engine: Serving engine, such as "sglang" or "vllm".
        engine_build: Its version, commit, or that it is not known.
        image: Digest of the container image; "none" without one.
        topology: GPUs and how they are joined, such as "one node, 4 x GB300".
        modality: "text" or "image".
        timer: One of `TIMERS`.
        settings: Further settings of the engine that may change a time, by name.

    Raises:
        InvalidInputError: names the field, its value, and what would be right.
    """

    checkpoint: str
    engine: str
    engine_build: str
    image: str
    topology: str
    modality: str
    timer: str
    settings: Mapping[str, Scalar]

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "settings":
                _require_text(f"Build.{field.name}", getattr(self, field.name))
        for name, known in (("modality", MODALITIES), ("timer", TIMERS)):
            if getattr(self, name) not in known:
                raise InvalidInputError(
                    f"Build.{name} = {getattr(self, name)!r:.80}: must be one of {', '.join(known)}"
                )
        if not isinstance(self.settings, Mapping) or len(self.settings) > MAX_SETTINGS:
            raise InvalidInputError(
                f"Build.settings = {self.settings!r:.80}: must map at most {MAX_SETTINGS} names to "
                "text, numbers, True or False"
            )
        object.__setattr__(self, "settings", _frozen("Build.settings", self.settings))

    def __reduce__(self) -> tuple[Any, ...]:
        return _build_from, (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which `Identity.from_dict` makes it again."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "settings": dict(self.settings)}


@dataclass(frozen=True, eq=False)
class Identity:
    """A build and an execution; equal where their canonical texts are.

    Args:
        build: What the person who measured says.
        execution: What the plan determines, as `execution_of` gives it.

    Raises:
        InvalidInputError: a field of ``execution`` is not plain, or is also a setting.
    """

    build: Build
    execution: Mapping[str, Scalar]

    def __post_init__(self) -> None:
        if not isinstance(self.build, Build):
            raise InvalidInputError(f"Identity.build = {self.build!r:.80}: must be a Build")
        if not isinstance(self.execution, Mapping):
            raise InvalidInputError(
                f"Identity.execution = {self.execution!r:.80}: must map names to values"
            )
        execution = _frozen("Identity.execution", self.execution)
        twice = sorted(set(execution) & set(self.build.settings))
        if twice:
            raise InvalidInputError(
                f"Build.settings.{twice[0]}: the execution has a field of that name; leave it out"
            )
        object.__setattr__(self, "execution", execution)

    @classmethod
    def of(
        cls,
        model: Model,
        hardware: Hardware,
        parallel: Parallel,
        policy: RuntimePolicy,
        build: Build,
    ) -> Identity:
        """The identity of what a plan would run in a build.

        Raises:
            InvalidInputError: the model was not read from a config.
        """
        return cls(build, execution_of(model, hardware, parallel, policy))

    @classmethod
    def from_dict(cls, content: object) -> Identity:
        """The identity that `to_dict` wrote.

        Raises:
            SchemaError: a field is missing, not known, or cannot be.
        """
        try:
            entry = _exactly(content, {"build", "execution"}, "identity")
            return cls(_build_from(entry["build"]), entry["execution"])
        except InvalidInputError as error:
            raise SchemaError(f"identity: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain data in the order of the fields."""
        return {"build": self.build.to_dict(), "execution": dict(self.execution)}

    def canonical(self) -> str:
        """One JSON text: keys sorted, numbers spelled one way."""
        return canonical_json(self.to_dict(), where="identity")

    @cached_property
    def sha256(self) -> str:
        """Digest of the canonical text."""
        return sha256(self.canonical().encode("ascii")).hexdigest()

    @property
    def key(self) -> str:
        """Beginning of the digest, by which an identity is named."""
        return self.sha256[:KEY_LENGTH]

    def slug(self) -> str:
        """Name of a folder: what a reader looks for first, and the key."""
        run = self.execution
        mapping = "-".join(
            f"{name}{run[name]}"
            for name in ("tp", "ep", "dp", "cp", "pp")
            if name == "tp" or run.get(name, 1) != 1
        ) if "tp" in run else "any"  # fmt: skip
        replay = "replay_on" if run.get("decoder_replay") else "replay_off"
        modes = [
            "eager" if run.get(f"{part}_execution") == "eager" else "graph"
            for part in ("prefill", "decode")
        ]
        execution = "_".join(dict.fromkeys(modes))
        engine = re.sub(r"[^a-z0-9.]+", "_", self.build.engine.lower()).strip("_.")[:32] or "engine"
        return "-".join((engine, mapping, replay, execution, self.build.timer, self.key))

    @property
    def policy_settings(self) -> dict[str, Any]:
        """Settings of the build that name policy fields: fields that change no step by themselves,
        but that whoever measured stated."""
        return {name: v for name, v in self.build.settings.items() if name in _POLICY_FIELDS}

    def differences(self, other: Identity) -> tuple[Difference, ...]:
        """Fields in which ``other`` differs, those of the execution first."""
        ours, theirs = self._flat(), other._flat()
        return tuple(
            Difference(name, ours.get(name), theirs.get(name))
            for name in dict.fromkeys((*ours, *theirs))
            if name not in ours or name not in theirs or not _same(ours[name], theirs[name])
        )

    def text(self) -> str:
        """Every field on a line."""
        rows = {name: _shown(value) for name, value in self._flat().items()}
        width = max(map(len, rows))
        return "\n".join(
            [f"{self.slug()}", *(f"  {name:<{width}}  {value}" for name, value in rows.items())]
        )

    def diff_text(self, other: Identity) -> str:
        """The differing fields on a line each, ours before theirs; empty where there are none."""
        return differences_text(self.differences(other))

    def require_same(self, other: Identity) -> None:
        """Refuse another identity.

        Raises:
            UnsupportedPlanError: names every differing field and both values.
        """
        found = self.differences(other)
        if found:
            raise UnsupportedPlanError(
                f"measurements of {self.key} and {other.key} are of different identities and never "
                f"mix; they differ in\n{differences_text(found)}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __reduce__(self) -> tuple[Any, ...]:
        return Identity.from_dict, (self.to_dict(),)

    def _flat(self) -> dict[str, Scalar]:
        build = {
            field.name: getattr(self.build, field.name)
            for field in fields(self.build)
            if field.name != "settings"
        }
        settings = {f"settings.{name}": value for name, value in self.build.settings.items()}
        return {**self.execution, **build, **settings}


def differing_from_plan(
    identity: Identity,
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
) -> tuple[Difference, ...]:
    """Fields in which a plan (ours) differs from what was measured (theirs).

    A policy that names no build asks for none: its ``build`` agrees with any.
    """
    asked = execution_of(model, hardware, parallel, policy)
    said = identity.policy_settings
    asked |= {name: getattr(policy, name) for name in said}
    measured = {**identity.execution, **said}
    if asked["build"] == UNNAMED:
        asked.pop("build")
        measured.pop("build", None)
    alone = replace(identity.build, settings={})
    return Identity(alone, asked).differences(Identity(alone, measured))


def differences_text(differences: tuple[Difference, ...]) -> str:
    """One line a field: name, ours, theirs."""
    width = max((len(name) for name, _, _ in differences), default=0)
    return "\n".join(
        f"  {name:<{width}}  {_shown(ours)} | {_shown(theirs)}"
        for name, ours, theirs in differences
    )


def _build_from(content: object) -> Build:
    return Build(**_exactly(content, {field.name for field in fields(Build)}, "build"))


def _exactly(content: object, names: set[str], where: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise InvalidInputError(f"{where} must be a mapping, found {type(content).__name__}")
    for name in sorted(names - set(content)):
        raise InvalidInputError(f"{where}: {name} is missing")
    for name in content:
        if name not in names:
            raise InvalidInputError(f"{where}: no field {name!r:.80}; {nearest(str(name), names)}")
    return dict(content)


def _frozen(where: str, values: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """A read-only copy in the order of the names, every value plain."""
    for name, value in values.items():
        if not isinstance(name, str) or not _SETTING.fullmatch(name):
            raise InvalidInputError(
                f"{where}: name {name!r:.80} must be lower-case letters, digits and _ . -"
            )
        if isinstance(value, str):
            _require_text(f"{where}.{name}", value)
        elif not isinstance(value, (bool, int, float)):
            raise InvalidInputError(
                f"{where}.{name} = {value!r:.80}: must be text, a number, True or False"
            )
    plain = {name: values[name] for name in sorted(values)}
    try:
        canonical_json(plain, where=where)
    except SchemaError as error:
        raise InvalidInputError(str(error)) from None
    return MappingProxyType(plain)


def _require_text(where: str, value: object) -> None:
    good = isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()
    if not good or value != str(value).strip():
        raise InvalidInputError(
            f"{where} = {value!r:.80}: must be one line of text of 1 to {MAX_TEXT} characters "
            "without spaces around it"
        )


def _same(one: Scalar, other: Scalar) -> bool:
    """Equal as the canonical text has them: 1 is 1.0 and is not True."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _shown(value: Scalar | None) -> str:
    return "-" if value is None else str(value)
