"""How many calls an engine's eager operators are for the host: an inventory of a build, as data.

Counts are a property of the engine (``profiles/defaults/host_calls.yaml``), what a call costs one
of the host platform (`aisim_v41.evidence.calibration.Launch`). docs/op.md, "Execution modes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from aisim_v41 import resources
from aisim_v41.errors import SchemaError, nearest
from aisim_v41.evidence.calibration import Launch
from aisim_v41.evidence.calibration_file import check_schema, mapping, number, only, texts
from aisim_v41.model.layers import LayerKind
from aisim_v41.plan.operators import OPERATORS
from aisim_v41.reading import read_mapping

Mode = Literal["decode", "prefill"]
"""Steps of decode and verify rows alone, and steps with a prefill: engines run other code."""

MODES: Final[tuple[Mode, ...]] = ("decode", "prefill")
FILE: Final = "defaults/host_calls"
OTHER_ENGINE_ERROR: Final = 0.10
"""Added to the error where one engine's counts stand for another's. vLLM's eager forward on GB200
and SGLang's on GB300 differ by a tenth (140 to 152 ms, 153 to 168 ms)."""
_FIELDS = (
    "build", "date", "sources", "error_relative", "breaks", "piece", "forward", "other",
    "operators",
)  # fmt: skip


class Calls(NamedTuple):
    """What one execution of an operator is for the host.

    Attributes:
        python: calls inside the engine's own Python code, in units of 20 us of an x86 host.
        framework: calls straight into the framework's dispatcher.
        launches: further kernels inside those calls.
    """

    python: float
    framework: float
    launches: float

    def seconds(self, host: Launch) -> float:
        """Time on a host [s]."""
        return (
            self.python * host.python_call_s
            + self.framework * host.framework_call_s
            + self.launches * host.bare_launch_s
        )


ByKind = Mapping[str, Calls]
"""Calls by kind of layer; ``default`` for kinds that are not named."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostCalls:
    """The inventory of one engine's build.

    Attributes:
        engine, build, date: what it describes; ``build`` is a revision.
        operators: calls by elementary operator, mode and kind of layer.
        other: calls of an operator that is not named.
        forward: calls once a forward, whatever it holds: batch, metadata, sampling.
        breaks: operators that a breakable graph leaves out.
        piece: calls of the captured piece between two breaks.
        error_relative: 90 % error of a forward's host time by the counts alone, on hosts that did
            not enter.
        sources: where the counts are from.
    """

    engine: str
    build: str
    date: str
    operators: Mapping[str, Mapping[Mode, ByKind]]
    other: Calls
    forward: Mapping[Mode, Calls]
    breaks: frozenset[str]
    piece: Calls
    error_relative: float
    sources: tuple[str, ...]

    def calls(self, operator: str, mode: Mode, kind: str, ratio: int) -> Calls:
        """Calls of one execution of an operator in a layer.

        Args:
            operator: elementary name, such as ``q_down``.
            mode: of the step.
            kind: of the layer (`LayerKind`), or anything else outside the layers.
            ratio: compression ratio of the layer.
        """
        known = self.operators.get(operator)
        if known is None:
            return self.other
        by_kind = known[mode]
        for key in (f"{kind}_ratio{ratio}", kind):
            if key in by_kind:
                return by_kind[key]
        return by_kind["default"]


def load_host_calls(engine: str) -> tuple[HostCalls, float]:
    """The inventory that stands for an engine, and the relative error of its counts (90 %).

    Args:
        engine: ``sglang``; any other gets SGLang's counts and a wider error.

    Raises:
        SchemaError: the file is not of its form; names field, value and remedy.
        MissingProfileError: there is no such file.

    >>> calls, error = load_host_calls("sglang")
    >>> calls.calls("q_down", "decode", "reuse", 1)
    Calls(python=9.0, framework=0.0, launches=0.0)
    """
    path = resources.find("profiles", FILE, ".yaml")
    known = _read_once(path, path.stat().st_mtime_ns, path.stat().st_size)
    if engine in known:
        return known[engine], known[engine].error_relative
    stand_in = next(iter(known.values()))
    return stand_in, stand_in.error_relative + OTHER_ENGINE_ERROR


@lru_cache(maxsize=8)
def _read_once(path: Path, _modified_ns: int, _size: int) -> Mapping[str, HostCalls]:
    return read_host_calls(path)


def read_host_calls(path: Path) -> Mapping[str, HostCalls]:
    """Inventories of a file by engine, the first of which stands in for engines without one.

    Raises:
        SchemaError: the file is not of this form; names field, value and remedy.
        MissingProfileError: there is no such file.
    """
    raw = read_mapping(path)
    only(path, "", raw, ("schema", "engines"))
    check_schema(path, raw)
    engines = mapping(path, "engines", raw.get("engines"))
    if not engines:
        raise SchemaError(f"{path}: engines is empty; name at least one")
    return {name: _inventory(path, name, entry) for name, entry in engines.items()}


def _inventory(path: Path, engine: str, raw: Any) -> HostCalls:
    where = f"engines.{engine}"
    entry = mapping(path, where, raw)
    only(path, where, entry, _FIELDS)
    for name in _FIELDS:
        if name not in entry:
            raise SchemaError(f"{path}: {where}.{name} is missing")
    forward = mapping(path, f"{where}.forward", entry["forward"])
    only(path, f"{where}.forward", forward, MODES)
    operators = mapping(path, f"{where}.operators", entry["operators"])
    only(path, f"{where}.operators", operators, tuple(sorted(OPERATORS)))
    breaks = texts(path, f"{where}.breaks", entry["breaks"])
    for name in breaks:
        if name not in OPERATORS:
            raise SchemaError(
                f"{path}: {where}.breaks: no operator {name!r}; {nearest(name, OPERATORS)}"
            )
    return HostCalls(
        engine=engine,
        build=str(entry["build"]),
        date=str(entry["date"]),
        operators={
            name: _by_mode(path, f"{where}.operators.{name}", value)
            for name, value in operators.items()
        },
        other=_calls(path, f"{where}.other", entry["other"]),
        forward={
            mode: _calls(path, f"{where}.forward.{mode}", forward.get(mode)) for mode in MODES
        },
        breaks=frozenset(breaks),
        piece=_calls(path, f"{where}.piece", entry["piece"]),
        error_relative=number(path, f"{where}.error_relative", entry["error_relative"], 0.0, 1.0),
        sources=texts(path, f"{where}.sources", entry["sources"]),
    )


def _by_mode(path: Path, where: str, raw: Any) -> Mapping[Mode, ByKind]:
    if isinstance(raw, list):
        return {mode: {"default": _calls(path, where, raw)} for mode in MODES}
    modes = mapping(path, where, raw)
    only(path, where, modes, MODES)
    found: dict[Mode, ByKind] = {}
    for mode in MODES:
        kinds = mapping(path, f"{where}.{mode}", modes.get(mode))
        for kind in kinds:
            if kind != "default" and str(kind).partition("_ratio")[0] not in list(LayerKind):
                raise SchemaError(
                    f"{path}: {where}.{mode}: no kind of layer {kind!r}; "
                    f"{nearest(str(kind), ['default', *LayerKind])}"
                )
        if "default" not in kinds:
            raise SchemaError(f"{path}: {where}.{mode}.default is missing")
        found[mode] = {
            kind: _calls(path, f"{where}.{mode}.{kind}", value) for kind, value in kinds.items()
        }
    return found


def _calls(path: Path, where: str, raw: Any) -> Calls:
    numbers = raw if isinstance(raw, list) else []
    if len(numbers) != len(Calls._fields) or not all(
        isinstance(n, (int, float)) and not isinstance(n, bool) and 0 <= n < 1e6 for n in numbers
    ):
        raise SchemaError(
            f"{path}: {where} must be [python, framework, launches], three numbers from 0; "
            f"found {raw!r}"
        )
    return Calls(*(float(n) for n in numbers))
