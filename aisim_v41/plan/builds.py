"""Builds of engines: dated inventories of the kernels that they run, read from data.

An engine's speed changes with its kernels, not with a factor: which operators are one kernel, in
which order of rows, on which streams, with how many query heads, and which small kernels stand
beside the operators of the graph. A build says so for one engine at one date
(``profiles/deepseek-v4.1-flash/builds.yaml``); what it costs is priced elsewhere. Meaning of every
part: docs/builds.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from aisim_v41.errors import (
    InvalidInputError,
    MissingProfileError,
    SchemaError,
    UnsupportedPlanError,
    nearest,
)
from aisim_v41.plan.operators import OPERATORS
from aisim_v41.reading import read_mapping
from aisim_v41.resources import find

BUILD_FILE = "deepseek-v4.1-flash/builds"
UNNAMED = "any"
"""Value of the policy field ``build`` that names none."""
ATTENTION = ("", "padded", "native")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Kernels of one kind of step.

    Attributes:
        rows: largest number of rows of a step that runs them [rows]; None: any.
        ranks: tensor-parallel ranks for which they exist; empty: any.
        kernels: (name, operators) of every kernel that does the work of several operators; each
            other operator is a kernel of its own.
        attention: law of the decode attention kernel: "padded" or "native" heads, or "" where the
            engine's general law holds.
        head_multiple: local query heads are padded to a multiple of this in that kernel.
        beside: operators that run on side streams.
        more: kernels beyond the operators of the graph: (operator that they serve, how many).
        verify: the same, of steps that verify drafts alone.
        converted: tensors that leave their kernel in the precision of the next product.
        laws: (law, the one that prices this build's kernel instead).
    """

    rows: int | None
    ranks: tuple[int, ...]
    kernels: tuple[tuple[str, frozenset[str]], ...]
    attention: str
    head_multiple: int
    beside: frozenset[str]
    more: tuple[tuple[str, int], ...]
    converted: frozenset[str]
    laws: tuple[tuple[str, str], ...] = ()
    verify: tuple[tuple[str, int], ...] = ()

    def running(self, *, drafts: bool) -> Inventory:
        """The kernels of steps that verify drafts, or of those that do not."""
        return replace(self, more=(*self.more, *self.verify)) if drafts and self.verify else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One engine at one date on some architectures.

    Attributes:
        name: as in ``policy("sglang", build=name)``.
        engine: preset whose engine it is.
        date: of the code [yyyy-mm-dd].
        revision: pull requests or commit that it ends with.
        architectures: of the GPUs that it holds for.
        sources: where the inventory was read.
        note: what is derived rather than published.
        decode: inventories of steps without a prefill, fewest rows first; the last takes any.
        prefill: inventory of steps with one.
    """

    name: str
    engine: str
    date: str
    revision: str
    architectures: tuple[str, ...]
    sources: tuple[str, ...]
    note: str
    decode: tuple[Inventory, ...]
    prefill: Inventory

    def of_ranks(self, ranks: int) -> tuple[Inventory, ...]:
        """Decode inventories that exist for a mapping, fewest rows first."""
        return tuple(i for i in self.decode if not i.ranks or ranks in i.ranks)


@lru_cache(maxsize=8)
def _read(path: Path) -> Mapping[str, Build]:
    raw = read_mapping(path)
    where = path.name
    named = {name: _operators(value, f"{where}: kernels.{name}")
             for name, value in _mapping(raw, "kernels", where).items()}  # fmt: skip
    streams = {name: _operators(value, f"{where}: streams.{name}")
               for name, value in _mapping(raw, "streams", where).items()}  # fmt: skip
    clash = sorted(set(named) & OPERATORS)
    if clash:
        raise SchemaError(f"{where}: kernels.{clash[0]}: an operator has that name; choose another")
    builds: dict[str, Build] = {}
    for name, entry in _mapping(raw, "builds", where).items():
        builds[name] = _build(name, entry, named, streams, f"{where}: builds.{name}")
    return builds


def _build(
    name: str,
    entry: Any,
    named: Mapping[str, frozenset[str]],
    streams: Mapping[str, frozenset[str]],
    where: str,
) -> Build:
    keys = {"engine", "date", "revision", "architectures", "sources", "decode", "prefill"}
    _exactly(entry, keys, {"note"}, where)
    try:
        date = datetime.date.fromisoformat(entry["date"]).isoformat()
    except (TypeError, ValueError):
        raise SchemaError(f"{where}: date = {entry['date']!r}: must be yyyy-mm-dd") from None
    if not isinstance(entry["decode"], list) or not entry["decode"]:
        raise SchemaError(f"{where}: decode must be a list of inventories")
    decode = tuple(
        _inventory(one, named, streams, f"{where}: decode[{place}]")
        for place, one in enumerate(entry["decode"])
    )
    limits = [one.rows for one in decode]
    ends = [limit for limit in limits if limit is not None]
    if limits[-1] is not None or None in limits[:-1] or ends != sorted(ends) or decode[-1].ranks:
        raise SchemaError(
            f"{where}: decode: inventories must have rising rows, and the last must be for any "
            "rows and ranks"
        )
    return Build(
        name=name,
        engine=_text(entry["engine"], f"{where}: engine"),
        date=date,
        revision=_text(entry["revision"], f"{where}: revision"),
        architectures=_texts(entry["architectures"], f"{where}: architectures"),
        sources=_texts(entry["sources"], f"{where}: sources"),
        note=str(entry.get("note", "")),
        decode=decode,
        prefill=_inventory(entry["prefill"], named, streams, f"{where}: prefill"),
    )


def _inventory(
    entry: Any,
    named: Mapping[str, frozenset[str]],
    streams: Mapping[str, frozenset[str]],
    where: str,
) -> Inventory:
    optional = {
        "rows", "ranks", "attention", "heads", "beside", "more", "verify", "converted", "laws",
    }  # fmt: skip
    _exactly(entry, {"kernels"}, optional, where)
    kernels = _known(entry["kernels"], named, f"{where}: kernels")
    seen: set[str] = set()
    for name in kernels:
        twice = sorted(seen & named[name])
        if twice:
            raise SchemaError(f"{where}: operator {twice[0]} is in two kernels, {name} the second")
        seen |= named[name]
    beside = _known(entry.get("beside", []), streams, f"{where}: beside")
    attention = entry.get("attention", "")
    if attention not in ATTENTION:
        raise SchemaError(f"{where}: attention = {attention!r}: must be one of {ATTENTION}")
    laws = entry.get("laws", {})
    if not isinstance(laws, dict) or not all(isinstance(v, str) for v in laws.values()):
        raise SchemaError(f"{where}: laws must map laws to the laws that price this build instead")
    return Inventory(
        rows=None if entry.get("rows") is None else _count(entry["rows"], f"{where}: rows"),
        ranks=_counts(entry.get("ranks", []), f"{where}: ranks"),
        kernels=tuple((name, named[name]) for name in kernels),
        attention=attention,
        head_multiple=_count(entry.get("heads", 1), f"{where}: heads"),
        beside=frozenset[str]().union(*(streams[name] for name in beside)),
        more=_small(entry, "more", where),
        verify=_small(entry, "verify", where),
        converted=frozenset(_texts(entry.get("converted", []), f"{where}: converted")),
        laws=tuple((_text(law, f"{where}: laws"), other) for law, other in laws.items()),
    )


def _small(entry: Mapping[str, Any], key: str, where: str) -> tuple[tuple[str, int], ...]:
    """Small kernels by the operator that they serve."""
    found = entry.get(key, {})
    if not isinstance(found, dict):
        raise SchemaError(f"{where}: {key} must map operators to numbers of kernels")
    _known(list(found), dict.fromkeys(OPERATORS, frozenset[str]()), f"{where}: {key}")
    return tuple((name, _count(n, f"{where}: {key}.{name}")) for name, n in found.items())


def builds() -> Mapping[str, Build]:
    """Every known build by name, in the order of the file."""
    return _read(find("profiles", BUILD_FILE, ".yaml"))


def build(name: str) -> Build:
    """A build by name.

    Raises:
        MissingProfileError: there is no such build.
    """
    known = builds()
    if name not in known:
        raise MissingProfileError(f"no build named {name!r}; {nearest(name, known)}")
    return known[name]


def builds_for(engine: str, architecture: str) -> tuple[Build, ...]:
    """Builds of an engine on an architecture, oldest first."""
    found = (b for b in builds().values() if b.engine == engine)
    on_it = [b for b in found if architecture in b.architectures]
    return tuple(sorted(on_it, key=lambda b: b.date))  # builds of one day stay in order


def check_build(name: str, engine: str, architecture: str | None = None) -> None:
    """Refuse a build of another engine, or of other GPUs.

    Args:
        name: of the build; "any" is never refused.
        engine: preset that asks for it.
        architecture: of the GPU, if it is known.

    Raises:
        InvalidInputError: there is no such build.
        UnsupportedPlanError: it is another engine's, or does not run on that architecture.
    """
    if name == UNNAMED:
        return
    try:
        known = build(name)
    except MissingProfileError as error:
        raise InvalidInputError(f"policy field build = {name!r}: {error}") from None
    if known.engine != engine:
        own = [b.name for b in builds().values() if b.engine == engine]
        raise UnsupportedPlanError(
            f"build {name!r} is one of {known.engine}, the policy is {engine}'s; "
            + (f"its builds: {', '.join(own)}" if own else f"no build of {engine} is known")
        )
    if architecture is not None and architecture not in known.architectures:
        there = [b.name for b in builds_for(engine, architecture)]
        raise UnsupportedPlanError(
            f"build {name!r} runs on {', '.join(known.architectures)}, the GPU is {architecture}; "
            + (f"builds for it: {', '.join(there)}" if there else "leave build out there")
        )


# --- the file's values ----------------------------------------------------------------------------


def _exactly(entry: Any, needed: set[str], optional: set[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise SchemaError(f"{where}: must be a mapping, not {type(entry).__name__}")
    missing, unknown = sorted(needed - set(entry)), sorted(set(entry) - needed - optional)
    if missing:
        raise SchemaError(f"{where}: {missing[0]} is missing")
    if unknown:
        raise SchemaError(f"{where}: unknown key {unknown[0]!r}; "
                          f"{nearest(unknown[0], needed | optional)}")  # fmt: skip


def _mapping(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if not isinstance(value, dict):
        raise SchemaError(f"{where}: {key} must be a mapping")
    return value


def _operators(value: Any, where: str) -> frozenset[str]:
    """Names of elementary operators, separated by spaces."""
    names = _text(value, where).split()
    for name in names:
        if name not in OPERATORS:
            raise SchemaError(f"{where}: no operator {name!r}; {nearest(name, OPERATORS)}")
    return frozenset(names)


def _known(value: Any, names: Mapping[str, frozenset[str]], where: str) -> tuple[str, ...]:
    for name in (found := _texts(value, where)):
        if name not in names:
            raise SchemaError(f"{where}: no entry {name!r}; {nearest(name, names)}")
    return found


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SchemaError(f"{where}: must be a list")
    return tuple(_text(one, where) for one in value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SchemaError(f"{where} = {value!r}: must be text")
    return value


def _count(value: Any, where: str) -> int:
    if type(value) is not int or value < 1:
        raise SchemaError(f"{where} = {value!r}: must be a whole number from 1")
    return value


def _counts(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise SchemaError(f"{where}: must be a list")
    return tuple(_count(one, where) for one in value)


__all__ = ["UNNAMED", "Build", "Inventory", "build", "builds", "builds_for", "check_build"]
