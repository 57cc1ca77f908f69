"""What changes the graph of a step: models, GPUs, mappings, policies and methods of a space.

Each section takes one setting, a list of them, or a mapping whose fields take several values. What
cannot be built (a mapping that no preset allows, a field that does not exist there) stays among
the combinations with its reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Final

from aisim_v41.errors import AisimError, InvalidInputError, nearest
from aisim_v41.estimators.entry import ESTIMATORS
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.description import Model
from aisim_v41.model.earlier import EarlierModel
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.policy import policy as preset
from aisim_v41.sweeps.axes import values_of

Values = dict[str, Any]
TIMES: Final = "times"
"""``{times: [...]}``: factors on what the hardware file says."""
_HARDWARE: Final = tuple(
    f.name for f in fields(Hardware) if f.name not in ("name", "architecture", "figures")
)
_PARALLEL: Final = tuple(f.name for f in fields(Parallel))
_POLICY: Final = tuple(
    f.name for f in (*fields(RuntimePolicy), *fields(ShardingRules))
    if f.name not in ("name", "revision", "sharding")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that a step is compiled for; arguments as of `aisim_v41.compile`."""

    model: Model
    hardware: Hardware
    parallel: Parallel
    policy: RuntimePolicy
    method: str


@dataclass(frozen=True, slots=True)
class Combination:
    """One setting of a sweep.

    Attributes:
        values: its columns, by name.
        setting: what they resolve to, or why they cannot.
    """

    values: Values
    setting: Setting | str


def combinations(given: Mapping[str, Any]) -> tuple[Combination, ...]:
    """Every combination of the structural sections of a space; the last section turns fastest.

    Raises:
        InvalidInputError: a section of the wrong form, or a field that does not exist.
        MissingProfileError, SchemaError: a model, GPU or preset that does not exist.
    """
    chosen = [
        _models(given.get("model", "deepseek-v4.1-flash")),
        _hardware(given["hardware"]),
        _parallel(given.get("parallel", {})),
        _policies(given.get("policy", "paper")),
        [{"method": _method(one)} for one in values_of("method", given.get("method", "auto"))],
    ]
    found = [_resolved([*one]) for one in product(*chosen)]
    named = tuple(dict.fromkeys(name for one in found for name in one.values))
    return tuple(_completed(one, named) for one in found)


# --- sections -------------------------------------------------------------------------------------


def _models(given: Any) -> list[dict[str, Any]]:
    return [
        {
            "model": one
            if isinstance(one, (Model, EarlierModel))
            else load_model(_name("model", one))
        }
        for one in values_of("model", given)
    ]


def _hardware(given: Any) -> list[dict[str, Any]]:
    found = []
    for alternative in _alternatives(given):
        if not isinstance(alternative, Mapping):
            found.append({"hardware": _gpu(alternative), "changes": {}})
            continue
        if "name" not in alternative:
            raise InvalidInputError("hardware: give the name of a GPU, such as name: gb300")
        _known("hardware", alternative, ("name", *_HARDWARE))
        rest = {name: one for name, one in alternative.items() if name != "name"}
        axes = {name: _changes(name, one) for name, one in rest.items()}
        for name in values_of("hardware.name", alternative["name"]):
            found += [{"hardware": _gpu(name), "changes": one} for one in _product(axes)]
    return found


def _changes(name: str, given: Any) -> tuple[Any, ...]:
    """Values of a hardware field, or factors on it as ("times", factor)."""
    if isinstance(given, Mapping) and TIMES in given:
        if set(given) != {TIMES}:
            raise InvalidInputError(f"hardware.{name}: 'times' stands alone")
        factors = values_of(f"hardware.{name}.{TIMES}", given[TIMES])
        for factor in factors:
            if isinstance(factor, bool) or not isinstance(factor, (int, float)) or factor <= 0:
                raise InvalidInputError(f"hardware.{name}.{TIMES} = {factor!r}: must be above 0")
        return tuple((TIMES, factor) for factor in factors)
    if name == "peak_flop_per_s":
        raise InvalidInputError("hardware.peak_flop_per_s: takes factors, {times: [1, 1.5]}")
    return values_of(f"hardware.{name}", given)


def _parallel(given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for alternative in _alternatives(given):
        if isinstance(alternative, Parallel):
            found.append({"parallel": alternative.named()})
            continue
        if not isinstance(alternative, Mapping):
            raise InvalidInputError(
                f"parallel = {alternative!r:.80}: must be a mapping such as {{tp: [4, 8]}}"
            )
        _known("parallel", alternative, _PARALLEL)
        axes = {name: values_of(f"parallel.{name}", one) for name, one in alternative.items()}
        found += [{"parallel": one} for one in _product(axes)]
    return found


def _policies(given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for alternative in _alternatives(given):
        if isinstance(alternative, RuntimePolicy):
            found.append({"policy": alternative, "fields": alternative.changed_fields()})
        elif isinstance(alternative, Mapping):
            _known("policy", alternative, ("name", "base", *_POLICY))
            named = {"name": "paper"} | dict(alternative)
            axes = {name: values_of(f"policy.{name}", one) for name, one in named.items()}
            for name in axes["name"]:
                preset(name)
            for one in _product(axes):
                changed = {name: _tuple(value) for name, value in one.items() if name != "name"}
                found.append({"policy": one["name"], "fields": changed})
        else:
            preset(alternative)
            found.append({"policy": alternative, "fields": {}})
    return found


def _method(given: Any) -> str:
    if given not in ("auto", *ESTIMATORS):
        raise InvalidInputError(f"method = {given!r}; {nearest(str(given), ('auto', *ESTIMATORS))}")
    return "op" if given == "auto" else str(given)


# --- what they resolve to -------------------------------------------------------------------------


def _resolved(parts: list[dict[str, Any]]) -> Combination:
    one = {name: value for part in parts for name, value in part.items()}
    model: Model = one["model"]
    hardware: Hardware = one["hardware"]
    policy = one["policy"]
    values: Values = {
        "model": model.name,
        "hardware": hardware.name,
        "method": one["method"],
        "policy": policy.name if isinstance(policy, RuntimePolicy) else policy,
    }
    values |= dict.fromkeys(_PARALLEL, 1) | one["parallel"]
    values |= {_column(name, change): _shown(hardware, name, change)
               for name, change in one["changes"].items()}  # fmt: skip
    values |= one["fields"]
    try:
        parallel = Parallel(**one["parallel"])
        values["gpus"] = parallel.gpus
        chosen = policy if isinstance(policy, RuntimePolicy) else preset(policy, **one["fields"])
        changed = _changed(hardware, one["changes"])
        setting = Setting(model, changed, parallel, chosen, one["method"])
        return Combination(values, setting)
    except AisimError as error:
        return Combination(values, str(error))


def _completed(combination: Combination, names: tuple[str, ...]) -> Combination:
    """The combination with columns that only others change: the preset's and the file's values."""
    setting = combination.setting
    if isinstance(setting, str):
        return combination
    values = dict(combination.values)
    for name in names:
        if name in values:
            continue
        if name == f"peak_flop_per_s_{TIMES}":
            values[name] = 1
        for part in (setting.policy, setting.policy.sharding, setting.hardware):
            if hasattr(part, name):
                values[name] = getattr(part, name)
                break
    return Combination(values, setting)


def _changed(hardware: Hardware, changes: Mapping[str, Any]) -> Hardware:
    found: dict[str, Any] = {}
    for name, change in changes.items():
        if not (isinstance(change, tuple) and change[0] == TIMES):
            found[name] = change
        elif name == "peak_flop_per_s":
            found[name] = {one: rate * change[1] for one, rate in hardware.peak_flop_per_s.items()}
        else:
            found[name] = _shown(hardware, name, change)
    return replace(hardware, **found) if found else hardware


def _column(name: str, change: Any) -> str:
    factor = isinstance(change, tuple) and name == "peak_flop_per_s"
    return f"{name}_{TIMES}" if factor else name


def _shown(hardware: Hardware, name: str, change: Any) -> Any:
    """The value of a changed field; for peaks, of which there are several, the factor."""
    if not (isinstance(change, tuple) and change[0] == TIMES):
        return change
    if name == "peak_flop_per_s":
        return change[1]
    value = getattr(hardware, name)
    if value is None or isinstance(value, bool):
        raise InvalidInputError(f"hardware.{name} of {hardware.name} is {value}: has no multiple")
    return round(value * change[1]) if isinstance(value, int) else value * change[1]


# --- forms ----------------------------------------------------------------------------------------


def _alternatives(given: Any) -> list[Any]:
    """One setting or a list of them, as a list."""
    if not isinstance(given, (list, tuple)):
        return [given]
    if not given:
        raise InvalidInputError("an empty list of settings; give at least one")
    return list(given)


def _product(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _known(section: str, given: Mapping[Any, Any], names: tuple[str, ...]) -> None:
    for name in given:
        if name not in names:
            raise InvalidInputError(f"{section}.{name} is no field; {nearest(str(name), names)}")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _gpu(given: Any) -> Hardware:
    return given if isinstance(given, Hardware) else load_hardware(_name("hardware", given))


def _name(section: str, given: Any) -> str:
    if not isinstance(given, (str, os.PathLike)):
        raise InvalidInputError(f"{section} = {given!r:.80}: must be a name or a path")
    return os.fspath(given)
