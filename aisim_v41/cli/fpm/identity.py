"""What was measured, from options, an identity file and what the measurements say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisim_v41.cli.options import DEFAULT_MODEL, overrides, step_model
from aisim_v41.errors import InvalidInputError, SchemaError, nearest
from aisim_v41.forwards.execution import execution_of
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.hardware import load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.reading import read_mapping

PLAN_FIELDS = ("gpu", "tp", "engine", "decoder_replay")
"""What the plan half needs; no default may guess it."""
BUILD_FIELDS = ("checkpoint", "engine_build", "image", "topology", "timer")
"""What only the person who measured can say."""
RANKS = ("tp", "ep", "dp", "cp", "pp")
OPTIONAL_FIELDS = ("model", "modality", *RANKS[1:])
CHANGES, SETTINGS = "set", "settings"
"""Keys of an identity file that hold mappings: policy fields, and further engine settings."""
EAGER_SETTINGS = ("disable_cuda_graph", "enforce_eager")
"""Arguments of SGLang and vLLM that are true where every step is launched eagerly."""
DESCRIBED = ("checkpoint", "engine_build", "image", "topology")
"""Fields in words, which a person may put otherwise than a file does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, whole.

    Attributes:
        identity: both halves.
        model, policy: the plan half, as steps are checked against it.
    """

    identity: Identity
    model: Model
    policy: RuntimePolicy


def measured(
    given: Mapping[str, Any],
    changes: list[str] | None,
    settings: Mapping[str, Any],
    filed: Mapping[str, Any],
    hints: Mapping[str, Any],
) -> Measured:
    """The identity of measurements.

    Options win over the identity file, and both over what the measurements say; but a number or a
    choice that contradicts them is refused.

    Args:
        given: values of options by field; None where an option was not given.
        changes: FIELD=VALUE of the policy.
        settings: further engine settings.
        filed: content of an identity file, from `identity_file`.
        hints: what the measurements say: fields by name, further ones as ``settings.<name>``.

    Raises:
        InvalidInputError: names every field that is missing or contradicts the measurements.
    """
    said = dict(filed)
    changed = said.pop(CHANGES, {}) | overrides(changes)
    own = {name[len(SETTINGS) + 1 :]: v for name, v in hints.items() if name not in _FIELDS}
    further = own | said.pop(SETTINGS, {}) | settings
    said |= {name: value for name, value in given.items() if value is not None}
    told = {name: value for name, value in hints.items() if name in _FIELDS}
    for one in (said, told):
        if "decoder_replay" in one:
            one["decoder_replay"] = _replay(one)
    _refuse_contradictions(said, told)
    said = told | said
    missing = [name for name in (*PLAN_FIELDS, *BUILD_FIELDS) if name not in said]
    if missing:
        raise InvalidInputError(
            f"what was measured is not said whole; missing: {', '.join(map(option, missing))}. "
            "Measurements of two identities never mix, so nothing is guessed; --identity FILE may "
            "hold them"
        )
    model, hardware = step_model(said.get("model", DEFAULT_MODEL)), load_hardware(said["gpu"])
    parallel = Parallel(**{name: said.get(name, 1) for name in RANKS})
    runtime = policy(said["engine"], **changed).with_overrides(
        decoder_replay=said["decoder_replay"]
    )
    _refuse_other_launches(runtime, further)
    execution = execution_of(model, hardware, parallel, runtime)
    planned = {name: execution[name] for name in set(own) & set(execution)}
    _refuse_contradictions(planned, {name: own[name] for name in planned}, "--set {}".format)
    further = {name: value for name, value in further.items() if name not in planned}
    build = Build(
        engine=said["engine"],
        modality=said.get("modality", "text"),
        settings=further,
        **{name: said[name] for name in BUILD_FIELDS},
    )
    return Measured(
        identity=Identity.of(model, hardware, parallel, runtime, build),
        model=model,
        policy=runtime,
    )


_FIELDS = frozenset({*PLAN_FIELDS, *BUILD_FIELDS, *OPTIONAL_FIELDS})


def option(field: str) -> str:
    """The option that gives a field.

    >>> option("engine_build")
    '--engine-build'
    """
    return f"--{field.replace('_', '-')}"


def _refuse_contradictions(
    said: Mapping[str, Any], told: Mapping[str, Any], named: Callable[[str], str] = option
) -> None:
    against = [
        f"{named(name)} {said[name]} against {value}"
        for name, value in told.items()
        if name not in DESCRIBED and name in said and said[name] != value
    ]
    if against:
        raise InvalidInputError(f"the measurements say otherwise: {', '.join(against)}")


def _refuse_other_launches(runtime: RuntimePolicy, settings: Mapping[str, Any]) -> None:
    """Refuse a policy with graphs for an engine that was told to launch eagerly, and the reverse.

    The setting alone would not keep the two apart: a plan is matched by its policy.
    """
    for name in EAGER_SETTINGS:
        value = settings.get(name)
        eager = runtime.decode_execution == "eager"
        if isinstance(value, bool) and value != eager:
            wanted = "eager" if value else "full_graph"
            raise InvalidInputError(
                f"the measurements say otherwise: setting {name} = {str(value).lower()}, but "
                f"decode_execution is {runtime.decode_execution}; --set decode_execution={wanted}"
            )


def identity_file(path: Path) -> dict[str, Any]:
    """What a YAML or JSON file says: fields by name, and mappings "set" and "settings".

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: it has another field, or one of another form.
    """
    said = read_mapping(path)
    known = {*_FIELDS, CHANGES, SETTINGS}
    for name, value in said.items():
        if name not in known:
            raise SchemaError(f"{path}: no field {name!r:.60}; {nearest(name[:60], known)}")
        if (name in (CHANGES, SETTINGS)) != isinstance(value, dict) or isinstance(value, list):
            form = "a mapping" if name in (CHANGES, SETTINGS) else "a single value"
            raise SchemaError(f"{path}: {name} = {value!r:.80}: must be {form}")
    if "decoder_replay" in said.get(CHANGES, {}):
        raise SchemaError(f"{path}: {CHANGES}.decoder_replay: the file has a field of that name")
    return said


def _replay(said: Mapping[str, Any]) -> bool:
    value = said["decoder_replay"]
    # YAML reads a bare on and off as true and false.
    if value in ("on", "off") or isinstance(value, bool):
        return value in ("on", True)
    raise InvalidInputError(f"--decoder-replay {value!r}: must be on or off")
